//! A worker of the program: what of it is Rust's.
//!
//! The loop of its threads, and how it begins and ends, are those of every language (`oxiray_client`), as are WORKER-1 to
//! WORKER-3.

use crate::answer::Sink;
use crate::error::{Error, Result, TaskError};
use crate::incoming::{Incoming, KeptResult, Made, Outcome, Wanted};
use crate::registry::{self, Kind, Method, State};
use crate::thread_context::ThreadContext;
use crate::{context, folder, objects, process, program, stacks};
use bytes::Bytes;
use oxiray_client::worker::{Newborn, device_errors};
use oxiray_client::{Attempt, Language, UnderWay, assigned, attend, borrowing};
use oxiray_ids::{ObjectId, TaskId};
use oxiray_runtime::{Duty, INLINE_BYTES, Outcome as Reply, Runtime, RuntimeError};
use oxiray_values::{Common, Encoded};
use oxiray_wire::message::{ActorCreate, ArgumentReference, Assign, Call, Content, Environment, Value};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io::{self, Write as _};
use std::iter::repeat_n;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

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
    /// Whether several of its calls may run at once.
    is_concurrent: bool,
}

pub(crate) fn say(text: &str) {
    // Where nobody reads, nobody needs it.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// What was printed is to be read before the answer is. What goes to `stderr` is never kept back.
pub(crate) fn flush() {
    let _ = io::stdout().lock().flush();
}

/// Serves as the worker that the daemon wants at the other end of the stream; the process's status.
pub(crate) fn main(stream: OwnedFd) -> i32 {
    match oxiray_runtime::begin_output().and_then(|()| serve(stream)) {
        Ok(()) => 0,
        Err(error) => {
            say(&format!("a worker ended: {error}\n"));
            1
        }
    }
}

fn serve(stream: OwnedFd) -> io::Result<()> {
    let Some(newborn) = Newborn::await_assignment(stream)? else { return Ok(()) };
    let unfit = become_assigned(&newborn.assign, Path::new(newborn.session())).err();
    note_panics();
    let (runtime, assign) = newborn.begin()?;
    runtime.end_waits_of(context::current_task);
    stacks::tell(&runtime);
    let mut worker = Worker { runtime, actor: None, class: String::new(), groups: Vec::new(), is_concurrent: false };
    let mut desk = ThreadContext::default();
    desk.unfit = unfit;
    if let Some(create) = &assign.actor {
        worker.groups = create.groups.iter().map(|group| group.name.clone()).collect();
        worker.is_concurrent = create.max_concurrency > 1 || !create.groups.is_empty();
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
    oxiray_client::worker::end(&worker.runtime, assign.actor.is_some());
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
            worker.attend(ThreadContext::default(), group.as_deref());
        })?;
    }
    Ok(())
}

/// WORKER-1.
fn become_assigned(assign: &Assign, session: &Path) -> Result<()> {
    assigned::assign(assign);
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

/// The error of a call as its caller is to see it: with where it came from, and what is known of it besides.
fn located(error: Error, function: &str, told: &[String]) -> Error {
    let own = |mut own: TaskError| {
        function.clone_into(&mut own.function);
        if !told.is_empty() {
            let end = if own.trace.is_empty() || own.trace.ends_with('\n') { "" } else { "\n" };
            own.trace = format!("{}{end}{}", own.trace, told.concat());
        }
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
    fn construct(&self, desk: &ThreadContext, create: &ActorCreate) -> Result<(State, &'static [Method])> {
        let id = create.actor;
        self.runtime.constructor_begins(create);
        borrowing::begin();
        oxiray_runtime::begin_prints(id.creation_task(), 0, false);
        let made = context::within(id.creation_task(), || {
            caught(|| {
                desk.fit()?;
                let path = String::from_utf8_lossy(&create.class);
                let entry = registry::find(&path)?;
                let Kind::Class(construct, methods) = &entry.kind else {
                    return Err(Error::NotFound(format!("`{path}` is a function of the program and no actor")));
                };
                let (arguments, references) = (&create.arguments, create.references.clone());
                let incoming =
                    Incoming::new(&self.runtime, arguments, references, Some(id.creation_task()), Wanted::Results(1))?;
                Ok((construct(incoming)?, *methods))
            })
        });
        let borrowed = borrowing::end();
        flush();
        oxiray_runtime::end_prints(id.creation_task(), 0, made.is_err());
        let told = |error| {
            let lines = device_errors(&self.runtime, id.creation_task());
            located(error, &format!("{}::new", create.class_name), &lines)
        };
        let made = made.map_err(told)?;
        self.runtime.actor_ready(&borrowed, String::new());
        Ok(made)
    }

    /// Runs what comes.
    fn attend(&self, desk: ThreadContext, group: Option<&str>) {
        // Where the runtime is over, so is the thread.
        drop(attend(&mut Thread { worker: self, desk }, group));
    }

    fn call_method(&self, call: &Call, references: Vec<ArgumentReference>, wanted: Wanted<'_>) -> Outcome {
        let (state, methods) = self.actor.as_ref().expect("who is asked for a method is an actor");
        if call.name == "__ray_ready__" {
            return Incoming::new(&self.runtime, &call.arguments, Vec::new(), None, wanted)?.taken()?.value(&true);
        }
        if let Some(flaw) = oxiray_client::worker::group_flaw(&call.group, &self.groups) {
            return Err(Error::Invalid(flaw));
        }
        let method = methods.iter().find(|method| method.name == call.name).ok_or_else(|| {
            let names: Vec<&str> = methods.iter().map(|method| method.name).collect();
            Error::NotFound(format!("the actor has no method `{}`; it has: {}", call.name, names.join(", ")))
        })?;
        let incoming = Incoming::new(&self.runtime, &call.arguments, references, None, wanted)?;
        (method.call)(&**state as &(dyn Any + Send + Sync), incoming)
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
                    // Those behind it are nobody's, and those before it are given up with the reply.
                    Made::Several(left.map(|(kept, _)| kept).collect()).release(&self.runtime);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// The value of a call's result, in the store where it is large.
    fn keep(&self, id: ObjectId, (encoded, contained): KeptResult, reply: &mut Reply) -> Result<Value> {
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

/// A thread that runs calls.
struct Thread<'worker> {
    worker: &'worker Worker,
    desk: ThreadContext,
}

impl Thread<'_> {
    fn call(&mut self, call: &UnderWay<()>, references: Vec<ArgumentReference>, wanted: Wanted<'_>) -> Outcome {
        self.desk.fit()?;
        let UnderWay { ticket, call, .. } = call;
        if self.worker.actor.is_some() {
            return self.worker.call_method(call, references, wanted);
        }
        let entry = self.desk.function(&call.function, || ticket.code())?;
        let Kind::Function(function) = entry.kind else {
            return Err(Error::NotFound(format!("`{}` is an actor of the program: make one of it", entry.path)));
        };
        function(Incoming::new(&self.worker.runtime, &call.arguments, references, Some(ticket.task()), wanted)?)
    }
}

impl Language for Thread<'_> {
    type Own = ();
    type Returned = Made;
    type Error = Error;
    type Stop = Error;

    fn runtime(&self) -> &Runtime {
        &self.worker.runtime
    }

    fn wait(&mut self, next: impl FnMut() -> std::result::Result<Duty, RuntimeError> + Send) -> Result<Duty> {
        process::patiently(next)
    }

    fn become_assigned(&mut self, assign: &Assign) -> Result<()> {
        self.desk.unfit = become_assigned(assign, Path::new(&self.worker.runtime.identity().session)).err();
        Ok(())
    }

    fn begin(&mut self, call: &Call) {
        // An actor keeps its class's name.
        if self.worker.actor.is_none() {
            self.desk.label(if call.label.is_empty() { &call.name } else { &call.label });
        }
    }

    fn shares_output(&self) -> bool {
        self.worker.is_concurrent
    }

    fn flush_output(&mut self) {
        flush();
    }

    fn attempt(&mut self, mut call: UnderWay<()>) -> Attempt<Self> {
        let references =
            if call.may_run_again() { call.call.references.clone() } else { std::mem::take(&mut call.call.references) };
        borrowing::begin();
        let sink = call.call.stream.as_ref().map(|terms| Sink { ticket: &call.ticket, terms, yielded: Cell::new(0) });
        let wanted = sink.as_ref().map_or(Wanted::Results(call.call.results), Wanted::Items);
        let returned = context::within(call.task(), || caught(|| self.call(&call, references, wanted)));
        call.yielded = sink.map_or(0, |sink| sink.yielded.get());
        Attempt::Over(call, returned)
    }

    fn end(&mut self, _retires: bool) {
        flush();
    }

    fn cancelled(&self, _call: &UnderWay<()>, returned: Outcome) -> Outcome {
        if let Ok(made) = returned {
            made.release(&self.worker.runtime);
        }
        Err(Error::Cancelled("cancel() came while it ran, and what came of it after that was dropped".into()))
    }

    fn keep(&self, call: &UnderWay<()>, made: Made, reply: &mut Reply) -> Result<()> {
        self.worker.keep_all(call.task(), made, reply)
    }

    fn asks_retry(&self, _wanted: &Bytes, error: &Error) -> bool {
        // What was cancelled is wanted no more.
        !matches!(error, Error::Cancelled(_))
    }

    fn raised(&self, under_way: &UnderWay<()>, error: Error) -> Value {
        let call = &under_way.call;
        let name = if call.label.is_empty() { self.worker.qualified(&call.name) } else { call.label.clone() };
        located(error, &name, &device_errors(&self.worker.runtime, under_way.task())).into_value()
    }

    fn nothing(&self) -> Value {
        let encoded = Encoded::common(&Common::Null).expect("nothing can be written");
        Value { content: Some(Content::Inline(encoded.into_bytes())), contained: Vec::new() }
    }

    fn calls(&self, function: &Bytes) -> u32 {
        self.desk.calls(function)
    }
}
