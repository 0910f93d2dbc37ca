//! The loop of a worker: take a call, run it, reply.
//!
//! - WORKER-1: before anything of the user's runs, the environment that the daemon assigned is in force.
//! - WORKER-2: every call that is taken is answered once, or its process dies.

use crate::answer::Sink;
use crate::desk::Desk;
use crate::error::{Error, Result, TaskError};
use crate::incoming::{Incoming, Kept, Made, Outcome, Wanted};
use crate::reference::{begin_borrowing, end_borrowing};
use crate::registry::{self, Kind, Method, State};
use crate::{context, folder, objects, process, program};
use oxiray_ids::{ActorId, ObjectId, TaskId};
use oxiray_runtime::{Duty, INLINE_BYTES, Identity, Outcome as Reply, Runtime, Ticket};
use oxiray_values::{Common, Encoded};
use oxiray_wire::message::{ActorCreate, ArgumentReference, Assign, Call, Content, Environment, Value};
use oxiray_wire::{Connection, Message, Received};
use rustix::event::{PollFd, PollFlags};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io::{self, Write as _};
use std::iter::repeat_n;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long calls in other threads of an actor that ends have to finish; half of what the daemon leaves it.
const FINISHING_LIMIT: Duration = Duration::from_secs(5);
/// Threads that serve one actor at most; more concurrency than this queues.
const THREADS_MAX: usize = 1000;

thread_local! {
    /// Where this thread panicked last.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What the threads of a worker share.
struct Worker {
    runtime: Runtime,
    actor: Option<(State, &'static [Method])>,
    /// The actor's class.
    class: String,
    /// The actor's concurrency groups.
    groups: Vec<String>,
}

pub(crate) fn say(text: &str) {
    // Where nobody reads, nobody needs it.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

fn nothing() -> Value {
    let encoded = Encoded::common(&Common::Null).expect("nothing can be written");
    Value { content: Some(Content::Inline(encoded.into_bytes())), contained: Vec::new() }
}

/// What was printed is to be read before the answer is. What goes to `stderr` is never kept back.
pub(crate) fn flush() {
    let _ = io::stdout().lock().flush();
}

/// Serves as the worker that the daemon wants at the other end of the stream; the process's status.
pub(crate) fn main(descriptor: i32) -> i32 {
    // SAFETY: the template passed this descriptor to this process alone, for this.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    match oxiray_runtime::begin_output().and_then(|()| serve(socket)) {
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
    let session = assign.welcome.as_ref().map_or("", |welcome| &welcome.session);
    let unfit = become_assigned(&assign, Path::new(session)).err();
    note_panics();
    let runtime = Runtime::start(identity, connection, early, Some(&assign), None)?;
    process::set(Some(runtime.clone()));
    runtime.end_waits_of(context::current_task);
    oxiray_runtime::begin_metrics(&runtime);
    let mut worker = Worker { runtime, actor: None, class: String::new(), groups: Vec::new() };
    let mut desk = Desk::default();
    desk.unfit = unfit;
    if let Some(create) = &assign.actor {
        worker.groups = create.groups.iter().map(|group| group.name.clone()).collect();
        worker.class.clone_from(&create.class_name);
        desk.label(&create.class_name);
        match worker.construct(&desk, create) {
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
    if let Some(create) = &assign.actor {
        serve_beside(&worker, create)?;
    }
    worker.attend(desk, None);
    worker.runtime.tell_all();
    worker.runtime.stop_serving();
    if assign.actor.is_some() {
        worker.runtime.actor_leaving("it was asked to end".into(), false);
        worker.runtime.finish_calls(FINISHING_LIMIT);
    }
    Ok(())
}

/// Starts the threads that run an actor's calls beside this one, which is the first for calls of no group.
fn serve_beside(worker: &Arc<Worker>, create: &ActorCreate) -> io::Result<()> {
    worker.runtime.divide_calls(worker.groups.clone());
    let rest = repeat_n(None, create.max_concurrency.saturating_sub(1) as usize);
    let own = create.groups.iter().flat_map(|group| repeat_n(Some(group.name.clone()), group.limit as usize));
    for group in rest.chain(own).take(THREADS_MAX) {
        let worker = Arc::clone(worker);
        oxiray_threads::spawn(oxiray_threads::CALL, move || {
            worker.attend(Desk::default(), group.as_deref());
        })?;
    }
    Ok(())
}

/// WORKER-1.
fn become_assigned(assign: &Assign, session: &Path) -> Result<()> {
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
    program::inherit(assign.environment.as_ref().unwrap_or(&Environment::default()));
    match (program::inherited_folder(), program::inherited_directory()) {
        (Some(folder), _) => folder::enter(session, &folder)?,
        // The driver's directory may not be on this machine; relative paths are then the task's own problem.
        (None, Some(directory)) => drop(std::env::set_current_dir(directory)),
        (None, None) => {}
    }
    Ok(())
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

/// Whether the call is run again in its place after an error that is retried: an actor's is, and a task's goes back to its
/// owner.
fn runs_again_here(call: &Call) -> bool {
    call.function.is_empty() && call.retries != 0 && !call.retry_exceptions.is_empty()
}

impl Worker {
    fn construct(&self, desk: &Desk, create: &ActorCreate) -> Result<(State, &'static [Method])> {
        let id = ActorId::from_slice(&create.actor).unwrap_or(ActorId::NIL);
        begin_borrowing();
        let made = context::within(id.creation_task(), || {
            caught(|| {
                desk.fit()?;
                let path = String::from_utf8_lossy(&create.class);
                let entry = registry::find(&path)?;
                let Kind::Class(construct, methods) = &entry.kind else {
                    return Err(Error::NotFound(format!("`{path}` is a function of the program and no actor")));
                };
                let (arguments, references) = (&create.arguments, create.references.clone());
                let incoming = Incoming::new(&self.runtime, arguments, references, Wanted::Results(1))?;
                Ok((construct(incoming)?, *methods))
            })
        });
        let borrowed = end_borrowing();
        let made = made.map_err(|error| located(error, &format!("{}::new", create.class_name)))?;
        self.runtime.actor_ready(&borrowed);
        Ok(made)
    }

    /// Runs what comes, and answers a call as the next duty is asked for.
    fn attend(&self, mut desk: Desk, group: Option<&str>) {
        let (mut done, mut outcome) = (None, Reply::default());
        loop {
            match process::patiently(|| self.runtime.reply_and_next(&mut done, &mut outcome, group)) {
                Ok(Duty::Become(assign)) => {
                    let session = &self.runtime.identity().session;
                    desk.unfit = become_assigned(&assign, Path::new(session)).err();
                }
                Ok(Duty::Run(ticket, mut call)) => {
                    self.run(&mut desk, &ticket, &mut call, &mut outcome);
                    if outcome.retiring {
                        return self.runtime.reply(ticket, outcome);
                    }
                    done = Some((ticket, call));
                }
                // Nothing is cancelled in an event loop, since there is none, and there is no garbage.
                Ok(Duty::Cancel(_) | Duty::Collect) => {}
                Ok(Duty::Leave) | Err(_) => return,
            }
        }
    }

    /// Runs a call, and once more for each error that is retried here; what came of it is the empty `reply` then.
    fn run(&self, desk: &mut Desk, ticket: &Ticket, call: &mut Call, reply: &mut Reply) {
        // An actor keeps its class's name.
        if self.actor.is_none() {
            desk.label(&call.name);
        }
        begin_borrowing();
        while let Err(error) = self.attempt(desk, ticket, call, reply) {
            reply.results.clear();
            // What was cancelled is wanted no more.
            let is_retried = !call.retry_exceptions.is_empty() && !matches!(error, Error::Cancelled(_));
            if !(is_retried && runs_again_here(call)) {
                reply.retry = is_retried;
                self.fail(error, call, reply);
                break;
            }
            // Items that have arrived are not sent again.
            if let Some(terms) = &mut call.stream {
                terms.arrived = terms.arrived.max(reply.items);
            }
            call.retries -= i32::from(call.retries > 0);
            self.runtime.call_is_retried(ticket);
        }
        reply.borrowed = end_borrowing();
        reply.retiring = call.max_calls > 0 && desk.calls(&call.function) >= call.max_calls;
        flush();
    }

    /// Runs a call once.
    fn attempt(&self, desk: &mut Desk, ticket: &Ticket, call: &mut Call, reply: &mut Reply) -> Result<()> {
        let task = ticket.task();
        let references =
            if runs_again_here(call) { call.references.clone() } else { std::mem::take(&mut call.references) };
        let sink = call.stream.as_ref().map(|terms| Sink { ticket, terms, yielded: Cell::new(0) });
        let wanted = sink.as_ref().map_or(Wanted::Results(call.results), Wanted::Items);
        let outcome = context::within(task, || caught(|| self.call(desk, ticket, call, references, wanted)));
        reply.items = sink.map_or(0, |sink| sink.yielded.get());
        if self.runtime.end_of_user_code(task) {
            if let Ok(made) = outcome {
                made.release(&self.runtime);
            }
            return Err(Error::Cancelled(
                "cancel() came while it ran, and what came of it after that was dropped".into(),
            ));
        }
        outcome.and_then(|made| self.keep_all(task, made, reply))
    }

    /// The error is what came of the call.
    fn fail(&self, error: Error, call: &Call, reply: &mut Reply) {
        let name = if call.label.is_empty() { self.qualified(&call.name) } else { call.label.clone() };
        let value = located(error, &name).into_value();
        if call.stream.is_some() {
            // The error is the last item, and that the call is over is its result all the same.
            reply.raised = Some(value);
            reply.results.push(nothing());
        } else {
            reply.results.resize(call.results as usize, value);
        }
    }

    fn call(
        &self,
        desk: &mut Desk,
        ticket: &Ticket,
        call: &Call,
        references: Vec<ArgumentReference>,
        wanted: Wanted<'_>,
    ) -> Outcome {
        desk.fit()?;
        if let Some((state, methods)) = &self.actor {
            if call.name == "__ray_ready__" {
                return Incoming::new(&self.runtime, &call.arguments, Vec::new(), wanted)?.taken()?.value(&true);
            }
            if !call.group.is_empty() && !self.groups.contains(&call.group) {
                let (group, groups) = (&call.group, self.groups.join(", "));
                return Err(Error::Invalid(format!("the actor has no concurrency group `{group}`; it has: {groups}")));
            }
            let method = methods.iter().find(|method| method.name == call.name).ok_or_else(|| {
                let names: Vec<&str> = methods.iter().map(|method| method.name).collect();
                Error::NotFound(format!("the actor has no method `{}`; it has: {}", call.name, names.join(", ")))
            })?;
            let incoming = Incoming::new(&self.runtime, &call.arguments, references, wanted)?;
            return (method.call)(&**state as &(dyn Any + Send + Sync), incoming);
        }
        let entry = desk.function(&call.function, || ticket.code())?;
        let Kind::Function(function) = entry.kind else {
            return Err(Error::NotFound(format!("`{}` is an actor of the program: make one of it", entry.path)));
        };
        function(Incoming::new(&self.runtime, &call.arguments, references, wanted)?)
    }

    /// The values of a call's results.
    fn keep_all(&self, task: TaskId, made: Made, reply: &mut Reply) -> Result<()> {
        let several = match made {
            Made::One(kept) => {
                let value = self.keep(task.object(1), kept, reply)?;
                reply.results.push(value);
                return Ok(());
            }
            Made::Several(several) => several,
        };
        let mut left = several.into_iter().zip(1..);
        while let Some((kept, index)) = left.next() {
            match self.keep(task.object(index), kept, reply) {
                Ok(value) => reply.results.push(value),
                Err(error) => {
                    // Those that were made before one failed are nobody's.
                    Made::Several(left.map(|(kept, _)| kept).collect()).release(&self.runtime);
                    self.runtime.discard(&std::mem::take(&mut reply.handed), &std::mem::take(&mut reply.stored));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// The value of a call's result, in the store where it is large.
    fn keep(&self, id: ObjectId, (encoded, contained): Kept, reply: &mut Reply) -> Result<Value> {
        let value = objects::keep(&self.runtime, id, encoded, &contained, INLINE_BYTES);
        if value.is_err() {
            self.runtime.release_all(&contained);
        } else {
            reply.handed.extend(contained);
        }
        if matches!(&value, Ok(Value { content: Some(Content::Stored(_)), .. })) {
            reply.stored.push(id);
        }
        value
    }

    fn qualified(&self, name: &str) -> String {
        if self.actor.is_none() { name.to_owned() } else { format!("{}::{name}", self.class) }
    }
}
