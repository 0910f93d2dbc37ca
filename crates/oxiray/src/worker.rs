//! The loop of a worker: take a call, run it, reply.
//!
//! - WORKER-1: before anything of the user's runs, the environment that the daemon assigned is in force.
//! - WORKER-2: every call that is taken is answered once, or its process dies.

use crate::error::{Error, Result, TaskError};
use crate::incoming::{Incoming, Outcome};
use crate::reference::{begin_borrowing, end_borrowing};
use crate::registry::{self, Entry, Kind, Method, State};
use crate::{context, objects, process};
use bytes::Bytes;
use oxiray_ids::{ActorId, ObjectId, TaskId};
use oxiray_runtime::{Duty, INLINE_BYTES, Identity, Runtime, Ticket};
use oxiray_wire::message::{ActorCreate, Assign, Call, Content, Value};
use oxiray_wire::{Connection, Message, Received};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags};
use std::any::Any;
use std::cell::RefCell;
use std::io::{self, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How long calls in other threads of an actor that ends have to finish; half of what the daemon leaves it.
const FINISHING_LIMIT: Duration = Duration::from_secs(5);
/// Threads that serve one actor at most; more concurrency than this queues.
const THREADS_MAX: u32 = 1000;

thread_local! {
    /// Where this thread panicked last.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What the threads of a worker share.
struct Worker {
    runtime: Runtime,
    actor: Option<(State, &'static [Method])>,
    /// Functions by their hash, and how often each has run here.
    functions: Mutex<FxHashMap<Bytes, (&'static Entry, u32)>>,
    label: Mutex<String>,
}

pub(crate) fn say(text: &str) {
    // Where nobody reads, nobody needs it.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

pub(crate) fn flush() {
    let _ = io::stdout().lock().flush();
    let _ = io::stderr().lock().flush();
}

/// Serves as the worker that the daemon wants at the other end of the stream; the process's status.
pub(crate) fn main(descriptor: i32) -> i32 {
    // SAFETY: the template passed this descriptor to this process alone, for this.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    match serve(socket) {
        Ok(()) => 0,
        Err(error) => {
            say(&format!("a worker ended: {error}\n"));
            1
        }
    }
}

/// The first message on a connection, and what came behind it; nothing where the daemon went away before it said any.
fn first_message(connection: &mut Connection) -> Option<(Received, Vec<Received>)> {
    let mut inbox = Vec::new();
    loop {
        let is_over = connection.receive(&mut inbox).is_err();
        if !inbox.is_empty() {
            return Some((inbox.remove(0), inbox));
        }
        if is_over {
            return None;
        }
        let _ = rustix::event::poll(&mut [PollFd::new(&*connection, PollFlags::IN)], None);
    }
}

fn serve(socket: OwnedFd) -> io::Result<()> {
    let mut connection = Connection::new(socket)?;
    let Some((first, early)) = first_message(&mut connection) else { return Ok(()) };
    let Message::Assign(assign) = first.message else { return Ok(()) };
    let identity = Identity::from_welcome(&assign.welcome.clone().unwrap_or_default())
        .ok_or_else(|| io::Error::other("the daemon assigned malformed ids"))?;
    become_assigned(&assign);
    note_panics();
    let runtime = Runtime::start(identity, connection, early, assign.actor.is_some(), None)?;
    process::set(Some(runtime.clone()));
    oxiray_runtime::begin_metrics(&runtime);
    let mut worker = Worker { runtime, actor: None, functions: Mutex::default(), label: Mutex::new(String::new()) };
    if let Some(create) = &assign.actor {
        worker.label(&create.class_name);
        match worker.construct(create) {
            Ok((state, methods)) => worker.actor = Some((state, methods)),
            Err(error) => {
                flush();
                worker.runtime.actor_failed(error.into_value());
                worker.runtime.tell_all();
                return Ok(());
            }
        }
    }
    let worker = Arc::new(worker);
    let beside = assign.actor.as_ref().map_or(0, |actor| actor.max_concurrency.min(THREADS_MAX).saturating_sub(1));
    for _ in 0..beside {
        let worker = Arc::clone(&worker);
        std::thread::Builder::new().name("oxiray-call".into()).spawn(move || worker.attend())?;
    }
    worker.attend();
    worker.runtime.tell_all();
    worker.runtime.stop_serving();
    if assign.actor.is_some() {
        worker.runtime.actor_leaving("it was asked to end".into(), false);
        worker.runtime.finish_calls(FINISHING_LIMIT);
    }
    Ok(())
}

/// WORKER-1.
fn become_assigned(assign: &Assign) {
    context::assign(assign);
    for variable in &assign.variables {
        let value = variable.value.as_deref().map(oxiray_processes::expanded);
        if std::env::var(&variable.name).ok() == value {
            continue;
        }
        // SAFETY: at a worker's start no other thread runs. When it is leased anew, the one other thread is the
        // runtime's, which reads no variables, and nothing of the user's is under way.
        unsafe {
            match value {
                Some(value) => std::env::set_var(&variable.name, value),
                None => std::env::remove_var(&variable.name),
            }
        }
    }
    let fields = assign.environment.as_ref().map_or("", |own| &own.fields);
    let fields: serde_json::Value = serde_json::from_str(fields).unwrap_or_default();
    if let Some(directory) = fields["directory"].as_str() {
        // The driver's directory may not be on this machine; relative paths are then the task's own problem.
        let _ = std::env::set_current_dir(directory);
    }
}

/// Remembers where a panic was, and says so as the program would.
fn note_panics() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANIC.set(info.location().map(|place| format!("at {place}")));
        say(info);
    }));
}

/// What `run` comes to; a panic is an error like any other.
fn caught<R>(run: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into());
        let trace = PANIC.take().unwrap_or_default();
        Err(Error::Task(Box::new(TaskError { message, kind: "panic".into(), trace, ..TaskError::default() })))
    })
}

/// The error of a call as its caller is to see it: with where it came from.
fn located(error: Error, function: &str) -> Error {
    let own = |mut own: TaskError| {
        function.clone_into(&mut own.function);
        "rust".clone_into(&mut own.language);
        own.pid = std::process::id();
        Error::Task(Box::new(own))
    };
    match error {
        // One that came with an argument, or from a call that this one made, is told as it is.
        Error::Task(error) if error.language.is_empty() => own(*error),
        Error::Invalid(message) => own(TaskError { message, kind: "invalid call".into(), ..TaskError::default() }),
        Error::Value(error) => {
            own(TaskError { message: error.to_string(), kind: "value".into(), ..TaskError::default() })
        }
        Error::NotFound(message) => own(TaskError { message, kind: "not found".into(), ..TaskError::default() }),
        other => other,
    }
}

impl Worker {
    fn construct(&self, create: &ActorCreate) -> Result<(State, &'static [Method])> {
        let id = ActorId::from_slice(&create.actor).unwrap_or(ActorId::NIL);
        begin_borrowing();
        let made = context::within(id.creation_task(), || {
            caught(|| {
                let path = String::from_utf8_lossy(&create.class);
                let entry = registry::find(&path)?;
                let Kind::Class(construct, methods) = &entry.kind else {
                    return Err(Error::NotFound(format!("`{path}` is a function of the program and no actor")));
                };
                let incoming = Incoming::new(&self.runtime, &create.arguments, create.references.clone())?;
                Ok((construct(incoming)?, *methods))
            })
        });
        let borrowed = end_borrowing();
        let made = made.map_err(|error| located(error, &format!("{}::new", create.class_name)))?;
        self.runtime.actor_ready(&borrowed);
        Ok(made)
    }

    fn attend(&self) {
        loop {
            match process::patiently(|| self.runtime.next_duty(None)) {
                Ok(Duty::Become(assign)) => become_assigned(&assign),
                Ok(Duty::Run(ticket, call)) => {
                    if !self.run(ticket, *call) {
                        return;
                    }
                }
                // Nothing is cancelled in an event loop, since there is none, and there is no garbage.
                Ok(Duty::Cancel(_) | Duty::Collect) => {}
                Ok(Duty::Leave) | Err(_) => return,
            }
        }
    }

    /// Runs a call and answers it; whether the worker goes on.
    fn run(&self, ticket: Ticket, call: Call) -> bool {
        let task = ticket.task();
        if self.actor.is_none() {
            self.label(&call.name);
        }
        begin_borrowing();
        let outcome = context::within(task, || caught(|| self.call(&ticket, &call)));
        let cancelled = self.runtime.end_of_user_code(task);
        let outcome = if cancelled {
            if let Ok((_, contained)) = outcome {
                self.runtime.release_all(&contained);
            }
            Err(Error::Cancelled("cancel() came while it ran, and what came of it after that was dropped".into()))
        } else {
            outcome
        };
        let mut reply = oxiray_runtime::Outcome::default();
        let kept = outcome.and_then(|made| self.keep(task, made, &mut reply));
        reply.results = match kept {
            Ok(value) => vec![value; call.results.min(1) as usize],
            Err(error) => {
                let name = if call.label.is_empty() { self.qualified(&call.name) } else { call.label.clone() };
                vec![located(error, &name).into_value(); call.results as usize]
            }
        };
        drop(call.references);
        reply.borrowed = end_borrowing();
        reply.retiring = call.max_calls > 0 && self.calls(&call.function) >= call.max_calls;
        let goes_on = !reply.retiring;
        flush();
        self.runtime.reply(ticket, reply);
        goes_on
    }

    fn call(&self, ticket: &Ticket, call: &Call) -> Outcome {
        if let Some((state, methods)) = &self.actor {
            if call.name == "__ray_ready__" {
                return Incoming::new(&self.runtime, &call.arguments, Vec::new())?.taken()?.value(&true);
            }
            let method = methods.iter().find(|method| method.name == call.name).ok_or_else(|| {
                let names: Vec<&str> = methods.iter().map(|method| method.name).collect();
                Error::NotFound(format!("the actor has no method `{}`; it has: {}", call.name, names.join(", ")))
            })?;
            let incoming = Incoming::new(&self.runtime, &call.arguments, call.references.clone())?;
            return (method.call)(&**state as &(dyn Any + Send + Sync), incoming);
        }
        let entry = self.function(call, ticket)?;
        let Kind::Function(function) = entry.kind else {
            return Err(Error::NotFound(format!("`{}` is an actor of the program: make one of it", entry.path)));
        };
        function(Incoming::new(&self.runtime, &call.arguments, call.references.clone())?)
    }

    fn function(&self, call: &Call, ticket: &Ticket) -> Result<&'static Entry> {
        let mut functions = self.functions.lock();
        if let Some((entry, calls)) = functions.get_mut(&call.function) {
            *calls += 1;
            return Ok(entry);
        }
        let code = ticket.code();
        let entry = registry::find(&String::from_utf8_lossy(&code))?;
        functions.insert(call.function.clone(), (entry, 1));
        Ok(entry)
    }

    fn calls(&self, hash: &Bytes) -> u32 {
        // A function that could not even be found has run as far as its limit is concerned.
        self.functions.lock().get(hash).map_or(u32::MAX, |(_, calls)| *calls)
    }

    /// The value of a call's result, in the store where it is large.
    fn keep(
        &self,
        task: TaskId,
        (encoded, contained): (oxiray_values::Encoded, Vec<ObjectId>),
        reply: &mut oxiray_runtime::Outcome,
    ) -> Result<Value> {
        let id = task.object(1);
        let value = objects::keep(&self.runtime, id, encoded, &contained, INLINE_BYTES);
        if value.is_err() {
            self.runtime.release_all(&contained);
        } else {
            reply.handed = contained;
        }
        if matches!(&value, Ok(Value { content: Some(Content::Stored(_)), .. })) {
            reply.stored.push(id);
        }
        value
    }

    fn qualified(&self, name: &str) -> String {
        if self.actor.is_none() { name.to_owned() } else { format!("{}::{name}", self.label.lock()) }
    }

    /// Labels the output that follows; an actor keeps its class's name.
    fn label(&self, name: &str) {
        let mut label = self.label.lock();
        if *label == name {
            return;
        }
        name.clone_into(&mut label);
        oxiray_runtime::label_output(&label);
    }
}
