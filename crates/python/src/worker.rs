//! The loop of a worker: take a call, run it, reply.
//!
//! - WORKER-1: before anything of the user's runs, the environment that the daemon assigned is in force.
//! - WORKER-2: every call that is taken is answered once, or its process dies.

use crate::completion::Completion;
use crate::context::{self, Assigned, Running};
use crate::reference::{begin_borrowing, end_borrowing};
use crate::{caller, cancel, connect, process, python};
use bytes::Bytes;
use oxiray_ids::{ActorId, ObjectId, PlacementGroupId, TaskId};
use oxiray_runtime::{Duty, INLINE_TOTAL_BYTES, Identity, Outcome, Runtime, Ticket};
use oxiray_wire::message::{ActorCreate, Assign, Call, Content, Failure, Value, Variable};
use oxiray_wire::{Connection, Message};
use pyo3::exceptions::{PySystemExit, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The most functions that a worker keeps; with one more, it begins anew, and counts their calls anew.
const FUNCTIONS_LIMIT: usize = 1_000;

/// Functions by content hash, and how often each has run here.
type Functions = HashMap<Bytes, (Py<PyAny>, u32)>;

/// What the loop of every thread of a worker shares.
pub(crate) struct Worker {
    pub(crate) runtime: Runtime,
    functions: Mutex<Functions>,
    actor: Mutex<Option<Py<PyAny>>>,
    /// What runs the calls of an actor with async methods.
    event_loop: Mutex<Option<Py<PyAny>>>,
    /// The name that the output is labelled with.
    label: Mutex<String>,
    /// What is wrong with the runtime environment.
    flaw: Mutex<Option<Value>>,
}

/// The worker that this process is, for its further threads.
pub(crate) static SERVING: OnceLock<Worker> = OnceLock::new();

/// What is called, with which arguments.
type Prepared<'py> = (Bound<'py, PyAny>, Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>);

/// A call that is not answered yet.
pub(crate) struct UnderWay {
    pub(crate) ticket: Ticket,
    pub(crate) call: Call,
    pub(crate) task: TaskId,
    name: String,
    /// Items that it yielded so far, where they go one by one.
    pub(crate) yielded: u32,
}

/// How a call ended, apart from its results.
pub(crate) enum Ended {
    Replied,
    /// The worker leaves: `sys.exit` in a task, the last of `max_calls`, `exit_actor`.
    Leave,
}

/// Serves as the worker that the daemon wants at the other end of `descriptor`, until there is nothing
/// more to do. `False` where the daemon went away before it wanted anything.
#[pyfunction]
fn serve(py: Python<'_>, descriptor: i32) -> PyResult<bool> {
    // SAFETY: the template passed this descriptor to this process alone, for this.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let mut connection = Connection::new(socket).map_err(std::io::Error::from)?;
    let Ok((first, early)) = py.detach(|| connect::first_message(&mut connection, None)) else { return Ok(false) };
    let Message::Assign(assign) = first.message else { return Ok(false) };
    let welcome = assign.welcome.clone().unwrap_or_default();
    let identity =
        Identity::from_welcome(&welcome).ok_or_else(|| PyValueError::new_err("the daemon assigned malformed ids"))?;
    let flaw = become_assigned(py, &assign)?;
    let runtime = Runtime::start(identity, connection, early, assign.actor.is_some())?;
    process::set(Some(runtime.clone()));
    cancel::make_interruptible(py, &runtime)?;
    py.import("oxiray._lineage")?.call_method0("configure")?;
    let worker = SERVING.get_or_init(|| Worker {
        runtime,
        functions: Mutex::new(Functions::new()),
        actor: Mutex::new(None),
        event_loop: Mutex::new(None),
        label: Mutex::new(String::new()),
        flaw: Mutex::new(None),
    });
    worker.note_flaw(flaw);
    if let Some(actor) = &assign.actor {
        if !worker.construct(py, actor) {
            return Ok(true);
        }
        let event_loop = python::serve_beside(py)?.call1((actor.max_concurrency,))?;
        if !event_loop.is_none() {
            *worker.event_loop.lock().unwrap_or_else(PoisonError::into_inner) = Some(event_loop.unbind());
            context::serve_with_event_loop();
            worker.runtime.serve_with_event_loop();
        }
    }
    worker.attend(py)?;
    worker.runtime.leave_task_log();
    worker.runtime.stop_serving();
    Ok(true)
}

/// Serves in one more thread of a worker that serves already.
#[pyfunction]
fn serve_too(py: Python<'_>) -> PyResult<()> {
    let Some(worker) = SERVING.get() else { return Ok(()) };
    worker.attend(py)?;
    worker.runtime.stop_serving();
    Ok(())
}

/// WORKER-1. What is wrong with the runtime environment, if anything, is what every call is answered with.
fn become_assigned(py: Python<'_>, assign: &Assign) -> PyResult<Option<String>> {
    context::assign(Assigned {
        devices: assign.devices.clone(),
        resources: assign.resources.clone(),
        actor: assign.actor.as_ref().and_then(|actor| ActorId::from_slice(&actor.actor)),
        actor_name: assign.actor.as_ref().map(|actor| actor.name.clone()).unwrap_or_default(),
        is_worker: true,
        group: PlacementGroupId::from_slice(&assign.group),
        captures: assign.captures,
    });
    let variables: Vec<(String, Option<String>)> =
        assign.variables.iter().map(|Variable { name, value }| (name.clone(), value.clone())).collect();
    let inherited: Vec<(String, Option<String>)> = assign
        .environment
        .iter()
        .flat_map(|own| &own.variables)
        .map(|one| (one.name.clone(), one.value.clone()))
        .collect();
    let fields = assign.environment.as_ref().map_or("", |own| &own.fields);
    let session = assign.welcome.as_ref().map_or("", |welcome| &welcome.session);
    let setup = PyBytes::new(py, &assign.setup);
    let home = (PyBytes::new(py, &assign.group), assign.captures);
    python::become_worker(py)?.call1((variables, setup, inherited, fields, session, home))?.extract()
}

impl Worker {
    fn attend(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let duty = process::patiently(py, || self.runtime.next_duty());
            match duty {
                Ok(Ok(Duty::Become(assign))) => self.note_flaw(become_assigned(py, &assign)?),
                Ok(Ok(Duty::Run(ticket, call))) => {
                    if matches!(self.run(py, ticket, *call), Ended::Leave) {
                        return Ok(());
                    }
                }
                Ok(Ok(Duty::Cancel(task))) => self.cancel_in_event_loop(py, task)?,
                Ok(Ok(Duty::Collect)) => drop(py.import("gc")?.call_method0("collect")?),
                Ok(Ok(Duty::Leave)) => return Ok(()),
                Ok(Err(error)) => return Err(process::error(py, &error)),
                // A KeyboardInterrupt that arrived between two calls is nobody's.
                Err(_) => {}
            }
        }
    }

    fn note_flaw(&self, text: Option<String>) {
        let failed = |text| Failure { code: "runtime_env".into(), text, cause: Bytes::new() };
        let value = |failure| Value { content: Some(Content::Failed(failure)), contained: Vec::new() };
        *self.flaw.lock().unwrap_or_else(PoisonError::into_inner) = text.map(failed).map(value);
    }

    fn flaw(&self) -> Option<Value> {
        self.flaw.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn run(&self, py: Python<'_>, ticket: Ticket, mut call: Call) -> Ended {
        if let Some(flaw) = self.flaw() {
            // Another worker may fare better: what was wrong may have been mended by then.
            let results = vec![flaw; call.results as usize];
            self.runtime.reply(ticket, Outcome { results, retiring: true, ..Outcome::default() });
            return Ended::Leave;
        }
        let task = TaskId::from_slice(&call.task).unwrap_or(TaskId::NIL);
        let name = self.qualified(&call.name);
        self.label(&call.name);
        context::enter(Running { task, name: name.clone(), function: call.name.clone() });
        begin_borrowing();
        let prepared = self.prepare(py, &mut call, &ticket.code());
        let mut under_way = UnderWay { ticket, call, task, name, yielded: 0 };
        let loop_ =
            self.event_loop.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|own| own.clone_ref(py));
        let ended = match (prepared, loop_) {
            (Ok(prepared), Some(event_loop)) => {
                let borrowed = end_borrowing();
                let identity = (task.hex(), under_way.name.clone(), under_way.call.name.clone());
                let completion = Completion::new(under_way, borrowed);
                let handed = event_loop
                    .bind(py)
                    .call_method1("submit", (prepared.0, prepared.1, prepared.2, completion, identity));
                // The loop takes everything until the process ends.
                debug_assert!(handed.is_ok(), "an actor's event loop outlives its calls");
                Ended::Replied
            }
            (prepared, _) => {
                let returned = prepared.and_then(|(target, args, kwargs)| match kwargs {
                    Some(kwargs) if !kwargs.is_empty() => target.call(args, Some(&kwargs)),
                    _ => target.call1(args),
                });
                let returned = match under_way.call.stream {
                    Some(_) => returned.and_then(|value| self.drain(py, &mut under_way, value)),
                    None => returned,
                };
                self.answer(py, under_way, returned, end_borrowing)
            }
        };
        context::leave();
        ended
    }

    fn cancel_in_event_loop(&self, py: Python<'_>, task: TaskId) -> PyResult<()> {
        let event_loop = self.event_loop.lock().unwrap_or_else(PoisonError::into_inner);
        let event_loop = event_loop.as_ref().map(|own| own.clone_ref(py));
        event_loop.map_or(Ok(()), |own| own.bind(py).call_method1("cancel", (task.hex(),)).map(drop))
    }

    /// Replies with what a call returned or raised. `borrowed` is asked once everything of the call is dropped.
    pub(crate) fn answer(
        &self,
        py: Python<'_>,
        under_way: UnderWay,
        returned: PyResult<Bound<'_, PyAny>>,
        borrowed: impl FnOnce() -> Vec<ObjectId>,
    ) -> Ended {
        let UnderWay { ticket, call, task, name, yielded } = under_way;
        let mut outcome = Outcome { items: yielded, ..Outcome::default() };
        let cancelled = self.runtime.end_of_user_code(task);
        let is_actor = context::assigned_to_actor();
        // A method that returns although it was cancelled has done what it could: its caller did not want the value.
        let returned = if cancelled && (is_actor || call.stream.is_some()) {
            returned.and_then(|_| Err(cancel::error(py, task)?))
        } else {
            returned
        };
        match returned.and_then(|value| self.results(py, task, call.results, &value, &mut outcome)) {
            Ok(results) => outcome.results = results,
            Err(error) if error.is_instance_of::<PySystemExit>(py) => {
                self.runtime.discard(&outcome.handed, &outcome.stored);
                let empty =
                    Outcome { items: yielded, results: vec![none(); call.results as usize], ..Outcome::default() };
                return self.leave_at_exit(py, ticket, empty, &error);
            }
            Err(error) => {
                // Results that were made before one failed are nobody's.
                self.runtime.discard(&std::mem::take(&mut outcome.handed), &std::mem::take(&mut outcome.stored));
                outcome.retry =
                    !cancelled && !call.retry_exceptions.is_empty() && asks_retry(py, &call.retry_exceptions, &error);
                let value = raised(py, &name, task, &error);
                if call.stream.is_some() {
                    outcome.results = vec![none()];
                    outcome.raised = Some(value);
                } else {
                    outcome.results = vec![value; call.results as usize];
                }
            }
        }
        drop(call.references);
        outcome.borrowed = borrowed();
        let mut ended = Ended::Replied;
        if call.max_calls > 0 && self.count(&call.function) >= call.max_calls {
            outcome.retiring = true;
            ended = Ended::Leave;
            flush_output(py);
        }
        self.runtime.reply(ticket, outcome);
        ended
    }

    /// `sys.exit` in a task ends its worker without an answer: the owner hears of the exit, and may retry.
    /// In an actor it ends the actor; a call that asked for that is answered with the `empty` outcome.
    fn leave_at_exit(&self, py: Python<'_>, ticket: Ticket, empty: Outcome, error: &PyErr) -> Ended {
        let is_actor = context::assigned().actor.is_some();
        if is_actor {
            self.runtime.begin_no_more();
            let intended = error.value(py).getattr("oxiray_exit_actor").is_ok();
            if intended {
                self.runtime.reply(ticket, empty);
            }
            let text = if intended { "it called exit_actor()" } else { "its code called sys.exit()" };
            self.runtime.actor_leaving(text.into());
        }
        flush_output(py);
        Ended::Leave
    }

    /// What is to be called, and with what.
    fn prepare<'py>(&self, py: Python<'py>, call: &mut Call, code: &Bytes) -> PyResult<Prepared<'py>> {
        let (args, kwargs) = self.arguments(py, &call.arguments, &call.references)?;
        let target = if call.function.is_empty() {
            let actor =
                self.actor.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|actor| actor.clone_ref(py));
            let actor =
                actor.ok_or_else(|| PyValueError::new_err("a method was called on a worker that is no actor"))?;
            python::method(py)?.call1((actor, &call.name))?
        } else {
            self.function(py, call, code)?
        };
        // Some code looks at reference counts: arguments belong to the call alone from here on.
        call.arguments.clear();
        Ok((target, args, kwargs))
    }

    fn function<'py>(&self, py: Python<'py>, call: &Call, code: &Bytes) -> PyResult<Bound<'py, PyAny>> {
        let hash = &call.function;
        if let Some((function, calls)) = self.functions.lock().unwrap_or_else(PoisonError::into_inner).get_mut(hash) {
            *calls += 1;
            return Ok(function.bind(py).clone());
        }
        let function = python::load_function(py)?.call1((PyBytes::new(py, code),))?;
        let known = (function.clone().unbind(), 1);
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        let forgotten = (functions.len() >= FUNCTIONS_LIMIT).then(|| std::mem::take(&mut *functions));
        functions.insert(hash.clone(), known);
        drop(functions);
        // Only now: what functions refer to may run the user's code when it goes.
        drop(forgotten);
        Ok(function)
    }

    fn count(&self, hash: &Bytes) -> u32 {
        // A function that could not even be loaded has run as far as its limit is concerned.
        self.functions.lock().unwrap_or_else(PoisonError::into_inner).get(hash).map_or(u32::MAX, |(_, calls)| *calls)
    }

    /// Makes the actor; `false` where its constructor failed, which the daemon was told.
    fn construct(&self, py: Python<'_>, create: &ActorCreate) -> bool {
        self.label(&create.class_name);
        let id = ActorId::from_slice(&create.actor).unwrap_or(ActorId::NIL);
        let name = format!("{}.__init__", create.class_name);
        let task = TaskId::new({
            let mut bytes = [0xff; 24];
            bytes[8..].copy_from_slice(id.as_bytes());
            bytes
        });
        context::enter(Running { task, name: name.clone(), function: "__init__".into() });
        begin_borrowing();
        if let Some(flaw) = self.flaw() {
            self.runtime.actor_failed(flaw);
            return false;
        }
        let failed = create
            .references
            .iter()
            .find_map(|reference| reference.value.clone().filter(|value| caller::is_error(value.content.as_ref())));
        let made = match failed {
            Some(value) => {
                self.runtime.actor_failed(value);
                return false;
            }
            None => self.arguments(py, &create.arguments, &create.references).and_then(|(args, kwargs)| {
                let kwargs = kwargs.unwrap_or_else(|| PyDict::new(py));
                python::construct(py)?.call1((PyBytes::new(py, &create.class), args, kwargs))
            }),
        };
        context::leave();
        let borrowed = end_borrowing();
        match made {
            Ok(actor) => {
                *self.actor.lock().unwrap_or_else(PoisonError::into_inner) = Some(actor.unbind());
                self.runtime.actor_ready(&borrowed);
                true
            }
            Err(error) if error.is_instance_of::<PySystemExit>(py) => {
                self.runtime.actor_leaving("its constructor called sys.exit()".into());
                false
            }
            Err(error) => {
                self.runtime.actor_failed(raised(py, &name, task, &error));
                false
            }
        }
    }

    fn qualified(&self, name: &str) -> String {
        let assigned = context::assigned();
        match assigned.actor {
            Some(_) => format!("{}.{name}", self.label.lock().unwrap_or_else(PoisonError::into_inner)),
            None => name.to_owned(),
        }
    }

    /// Labels the output that follows; an actor keeps its class's name.
    fn label(&self, name: &str) {
        let mut label = self.label.lock().unwrap_or_else(PoisonError::into_inner);
        if *label == name || (!label.is_empty() && context::assigned().actor.is_some()) {
            return;
        }
        name.clone_into(&mut label);
        if let Ok(title) = CString::new(format!("ray::{label}")) {
            // What `ps` and `top` show; the kernel cuts it at 15 bytes.
            let _ = rustix::thread::set_name(&title);
        }
        let line = format!("\u{1e}oxiray-name:{}\n", name.replace('\n', " "));
        // Where the daemon no longer reads, nobody needs the label.
        let _ = rustix::io::write(rustix::stdio::stdout(), line.as_bytes());
        let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
    }
}

fn none() -> Value {
    Value { content: Some(Content::Inline(Bytes::from_static(&[2]))), contained: Vec::new() }
}

fn asks_retry(py: Python<'_>, wanted: &Bytes, error: &PyErr) -> bool {
    let answer = python::wants_retry(py).and_then(|ask| ask.call1((PyBytes::new(py, wanted), error.value(py))));
    answer.and_then(|answer| answer.is_truthy()).unwrap_or(false)
}

/// The value of a call that raised.
fn raised(py: Python<'_>, name: &str, task: TaskId, error: &PyErr) -> Value {
    if let Some(traceback) = error.traceback(py) {
        let _ = error.value(py).setattr("__traceback__", traceback);
    }
    let described = python::describe_error(py)
        .and_then(|describe| describe.call1((name, error.value(py), task.hex())))
        .and_then(|described| described.extract::<Vec<u8>>());
    let content = match described {
        Ok(pickle) if pickle.len() > INLINE_TOTAL_BYTES => Content::Failed(Failure {
            code: "system".into(),
            text: format!(
                "`{name}` raised {:.1000}, which carries {} MiB and is too large to travel: raise an error without its data",
                error.to_string(),
                pickle.len() >> 20
            ),
            cause: Bytes::new(),
        }),
        Ok(pickle) => {
            let mut blob = vec![0];
            blob.extend_from_slice(&pickle);
            Content::Raised(blob.into())
        }
        Err(second) => Content::Failed(Failure {
            code: "system".into(),
            text: format!("`{name}` raised {error}, which could not be described: {second}"),
            cause: Bytes::new(),
        }),
    };
    Value { content: Some(content), contained: Vec::new() }
}

fn flush_output(py: Python<'_>) {
    let _ = python::flush(py).and_then(PyAnyMethods::call0);
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(serve, module)?)?;
    module.add_function(wrap_pyfunction!(serve_too, module)?)
}
