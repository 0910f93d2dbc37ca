//! The loop of a worker: take a call, run it, reply.
//!
//! - WORKER-1: before anything of the user's runs, the environment that the daemon assigned is in force.
//! - WORKER-2: every call that is taken is answered once, or its process dies.
//! - WORKER-3: an actor's call that raises what is to be retried is run again in its place, before those behind it.

mod actor;

use crate::completion::Completion;
use crate::context::{self, Assigned, Running};
use crate::raised::{asks_retry, raised};
use crate::reference::{begin_borrowing, end_borrowing};
use crate::values_of_call::{left, none};
use crate::{cancel, common, connect, process, python};
use bytes::Bytes;
use oxiray_ids::{ActorId, ObjectId, PlacementGroupId, TaskId, WorkerId};
use oxiray_runtime::{Duty, Identity, Outcome, Runtime, Ticket};
use oxiray_wire::message::{Assign, Call, Content, Failure, Value, Variable};
use oxiray_wire::{Connection, Message};
use pyo3::exceptions::{PySystemExit, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::collections::HashMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long calls in other threads of an actor that ends have to finish; half of what the daemon leaves it.
const FINISHING_LIMIT: Duration = Duration::from_secs(5);

/// The most functions that a worker keeps; with one more, it begins anew, and counts their calls anew.
const FUNCTIONS_LIMIT: usize = 1_000;

/// The title of a worker that runs nothing.
pub(crate) const IDLE: &str = "IDLE";

/// Functions by content hash, and how often each has run here.
type Functions = HashMap<Bytes, (Py<PyAny>, u32)>;

/// What the loop of every thread of a worker shares.
pub(crate) struct Worker {
    pub(crate) runtime: Runtime,
    functions: Mutex<Functions>,
    actor: Mutex<Option<Py<PyAny>>>,
    /// What runs the calls of an actor with async methods.
    event_loop: Mutex<Option<Py<PyAny>>>,
    /// The concurrency groups of an actor.
    groups: Vec<String>,
    /// The name that the output is labelled with.
    label: Mutex<String>,
    /// The class of an actor.
    class: OnceLock<String>,
    /// What the process ends with: what the user's code asked for with `sys.exit`.
    status: AtomicI32,
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
    /// Whether another language called: it is answered so that it can read it.
    pub(crate) is_common: bool,
    /// Items that it yielded so far, where they go one by one.
    pub(crate) yielded: u32,
    /// References that the arguments of earlier attempts brought.
    borrowed: Vec<ObjectId>,
}

impl UnderWay {
    /// Whether an exception may make it run once more, here.
    fn may_run_again(&self) -> bool {
        self.call.function.is_empty() && self.call.retries != 0 && !self.call.retry_exceptions.is_empty()
    }

    /// One more attempt, which skips the items that earlier ones yielded.
    fn run_again(&mut self, borrowed: Vec<ObjectId>) {
        self.borrowed.extend(borrowed);
        self.call.retries -= i32::from(self.call.retries > 0);
        self.call.attempt += 1;
        if let Some(terms) = &mut self.call.stream {
            terms.arrived = terms.arrived.max(std::mem::take(&mut self.yielded));
        }
    }
}

/// How a call ended, apart from its results.
pub(crate) enum Ended {
    Replied,
    /// The worker leaves: `sys.exit` in a task, the last of `max_calls`, `exit_actor`.
    Leave,
    /// WORKER-3.
    Again(Box<UnderWay>),
}

/// Serves as the worker that the daemon wants at the other end of `descriptor`, until there is nothing
/// more to do. Returns the status that the process is to end with.
#[pyfunction]
fn serve(py: Python<'_>, descriptor: i32) -> PyResult<i32> {
    // SAFETY: the template passed this descriptor to this process alone, for this.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let mut connection = Connection::new(socket).map_err(std::io::Error::from)?;
    let Ok((first, early)) = py.detach(|| connect::first_message(&mut connection, None)) else { return Ok(0) };
    let Message::Assign(assign) = first.message else { return Ok(0) };
    let welcome = assign.welcome.clone().unwrap_or_default();
    let identity =
        Identity::from_welcome(&welcome).ok_or_else(|| PyValueError::new_err("the daemon assigned malformed ids"))?;
    let flaw = become_assigned(py, &assign)?;
    let runtime = Runtime::start(identity, connection, early, Some(&assign), None)?;
    process::set(Some(runtime.clone()));
    oxiray_runtime::begin_metrics(&runtime);
    cancel::make_interruptible(py, &runtime)?;
    py.import("oxiray._switches")?.call_method0("configure")?;
    let worker = SERVING.get_or_init(|| Worker {
        runtime,
        functions: Mutex::new(Functions::new()),
        actor: Mutex::new(None),
        event_loop: Mutex::new(None),
        groups: assign.actor.iter().flat_map(|actor| &actor.groups).map(|group| group.name.clone()).collect(),
        label: Mutex::new(String::new()),
        class: OnceLock::new(),
        status: AtomicI32::new(0),
        flaw: Mutex::new(None),
    });
    worker.note_flaw(flaw);
    let Some(actor) = &assign.actor else {
        worker.attend(py, None)?;
        worker.runtime.tell_all();
        worker.runtime.stop_serving();
        return Ok(worker.status.load(Ordering::Relaxed));
    };
    if !worker.construct(py, actor) {
        return Ok(worker.status.load(Ordering::Relaxed));
    }
    let groups: Vec<(&str, u32)> = actor.groups.iter().map(|group| (group.name.as_str(), group.limit)).collect();
    let event_loop = python::serve_beside(py)?.call1((actor.max_concurrency, groups))?;
    if !event_loop.is_none() {
        *worker.event_loop.lock().unwrap_or_else(PoisonError::into_inner) = Some(event_loop.unbind());
        context::serve_with_event_loop();
        worker.runtime.serve_with_event_loop();
    }
    worker.attend(py, None)?;
    worker.runtime.tell_all();
    worker.runtime.stop_serving();
    worker.runtime.actor_leaving("it was asked to end".into(), false);
    py.detach(|| worker.runtime.finish_calls(FINISHING_LIMIT));
    // From here on nothing in the runtime keeps the actor from its end.
    drop(worker.actor.lock().unwrap_or_else(PoisonError::into_inner).take());
    Ok(worker.status.load(Ordering::Relaxed))
}

/// Calls of an actor's concurrency groups go to threads of their own, see [`serve_too`].
#[pyfunction]
fn divide_calls(groups: Vec<String>) {
    if let Some(worker) = SERVING.get() {
        worker.runtime.divide_calls(groups);
    }
}

/// Serves the calls of a concurrency group, or of none, in one more thread of a worker that serves already.
#[pyfunction]
#[pyo3(signature = (group = None))]
fn serve_too(py: Python<'_>, group: Option<&str>) -> PyResult<()> {
    let Some(worker) = SERVING.get() else { return Ok(()) };
    worker.attend(py, group)?;
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
        restarts: assign.actor.as_ref().map_or(0, |actor| actor.restarts),
        driver: WorkerId::from_slice(&assign.driver),
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
    fn attend(&self, py: Python<'_>, group: Option<&str>) -> PyResult<()> {
        loop {
            let duty = process::patiently(py, || self.runtime.next_duty(group));
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

    fn run(&self, py: Python<'_>, ticket: Ticket, call: Call) -> Ended {
        if let Some(flaw) = self.flaw() {
            // Another worker may fare better: what was wrong may have been mended by then.
            let results = vec![flaw; call.results as usize];
            self.runtime.reply(ticket, Outcome { results, retiring: true, ..Outcome::default() });
            return Ended::Leave;
        }
        let task = TaskId::from_slice(&call.task).unwrap_or(TaskId::NIL);
        let name = if call.label.is_empty() { self.qualified(&call.name) } else { call.label.clone() };
        self.label(py, &call.name);
        oxiray_runtime::show_title(&name);
        let under_way = UnderWay { ticket, call, task, name, is_common: false, yielded: 0, borrowed: Vec::new() };
        let ended = self.attempt(py, under_way);
        oxiray_runtime::show_title(self.class.get().map_or(IDLE, String::as_str));
        ended
    }

    /// Runs a call, until it is answered or handed to an event loop.
    pub(crate) fn attempt(&self, py: Python<'_>, mut under_way: UnderWay) -> Ended {
        let loop_ =
            self.event_loop.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|own| own.clone_ref(py));
        loop {
            let (task, name, function) = (under_way.task, under_way.name.clone(), under_way.call.name.clone());
            context::enter(Running { task, name: name.clone(), function: function.clone() });
            begin_borrowing();
            let ended = match (self.prepare(py, &mut under_way), &loop_) {
                (Ok(prepared), Some(event_loop)) => {
                    let group = under_way.call.group.clone();
                    let completion = Bound::new(py, Completion::new(under_way, end_borrowing()));
                    let completion = completion.expect("WORKER-2: a process without memory for a completion dies");
                    let arguments =
                        (prepared.0, prepared.1, prepared.2, &completion, (task.hex(), name, function), group);
                    // WORKER-2: a loop takes every call until its process ends; one that it does not take is answered.
                    if let Err(refused) = event_loop.bind(py).call_method1("submit", arguments) {
                        completion.get().failed(refused.value(py));
                    }
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
            match ended {
                Ended::Again(again) => under_way = *again,
                ended => return ended,
            }
        }
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
        mut under_way: UnderWay,
        returned: PyResult<Bound<'_, PyAny>>,
        borrowed: impl FnOnce() -> Vec<ObjectId>,
    ) -> Ended {
        let mut outcome = Outcome { items: under_way.yielded, ..Outcome::default() };
        let (task, streams) = (under_way.task, under_way.call.stream.is_some());
        let (results, is_common) = (under_way.call.results, under_way.is_common);
        let cancelled = self.runtime.end_of_user_code(task);
        let is_actor = context::assigned_to_actor();
        // A method that returns although it was cancelled has done what it could: its caller did not want the value.
        let returned = if cancelled && (is_actor || streams) {
            returned.and_then(|_| Err(cancel::error(py, task)?))
        } else {
            returned
        };
        match returned.and_then(|value| self.results(py, task, (results, is_common), &value, &mut outcome)) {
            Ok(results) => outcome.results = results,
            Err(error) if error.is_instance_of::<PySystemExit>(py) => {
                self.runtime.discard(&outcome.handed, &outcome.stored);
                let results = vec![left(); results as usize];
                let last = Outcome { items: under_way.yielded, results, ..Outcome::default() };
                return self.leave_at_exit(py, under_way.ticket, last, &error);
            }
            Err(error) => {
                // Results that were made before one failed are nobody's.
                self.runtime.discard(&std::mem::take(&mut outcome.handed), &std::mem::take(&mut outcome.stored));
                let wanted = &under_way.call.retry_exceptions;
                outcome.retry = !cancelled && !wanted.is_empty() && asks_retry(py, wanted, &error);
                if outcome.retry && under_way.may_run_again() {
                    drop(error);
                    under_way.run_again(borrowed());
                    self.runtime.call_is_retried(&under_way.ticket);
                    return Ended::Again(Box::new(under_way));
                }
                let value = raised(py, &under_way.name, task, &error, is_common);
                if streams {
                    outcome.results = vec![none()];
                    outcome.raised = Some(value);
                } else {
                    outcome.results = vec![value; results as usize];
                }
            }
        }
        let UnderWay { ticket, call, borrowed: mut earlier, .. } = under_way;
        drop(call.references);
        earlier.extend(borrowed());
        outcome.borrowed = earlier;
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
    /// In an actor it ends the actor; a call that asked for that with `exit_actor` gets the outcome `last`.
    fn leave_at_exit(&self, py: Python<'_>, ticket: Ticket, last: Outcome, error: &PyErr) -> Ended {
        self.end_with_status_of(py, error);
        let is_actor = context::assigned_to_actor();
        if is_actor {
            self.runtime.begin_no_more();
            let intended = error.value(py).getattr("oxiray_exit_actor").is_ok();
            if intended {
                self.runtime.reply(ticket, last);
            } else {
                self.runtime.abandon_call(&ticket);
            }
            let text = if intended { "it called exit_actor()" } else { "its code called sys.exit()" };
            self.runtime.actor_leaving(text.into(), !intended);
        }
        flush_output(py);
        Ended::Leave
    }

    /// The process is to end as `sys.exit` was asked to.
    fn end_with_status_of(&self, py: Python<'_>, error: &PyErr) {
        let status = python::exit_status(py).and_then(|ask| ask.call1((error.value(py),))?.extract());
        self.status.store(status.unwrap_or(1), Ordering::Relaxed);
    }

    /// What is to be called, and with what.
    fn prepare<'py>(&self, py: Python<'py>, under_way: &mut UnderWay) -> PyResult<Prepared<'py>> {
        let runs_again = under_way.may_run_again();
        let call = &mut under_way.call;
        if !call.group.is_empty() && !self.groups.contains(&call.group) {
            return Err(PyValueError::new_err(format!(
                "the actor has no concurrency group `{}`; it has: {}",
                call.group,
                self.groups.join(", ")
            )));
        }
        under_way.is_common = common::is_common(&call.arguments);
        let (args, kwargs, is_common) = self.arguments(py, &call.arguments, &call.references)?;
        under_way.is_common = is_common;
        let target = if call.function.is_empty() {
            let actor =
                self.actor.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|actor| actor.clone_ref(py));
            let actor =
                actor.ok_or_else(|| PyValueError::new_err("a method was called on a worker that is no actor"))?;
            python::method(py)?.call1((actor, &call.name))?
        } else {
            self.function(py, call, &under_way.ticket.code())?
        };
        // Some code looks at reference counts: arguments belong to the call alone from here on.
        if !runs_again {
            call.arguments.clear();
        }
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
}

fn flush_output(py: Python<'_>) {
    let _ = python::flush(py).and_then(PyAnyMethods::call0);
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(serve, module)?)?;
    module.add_function(wrap_pyfunction!(divide_calls, module)?)?;
    module.add_function(wrap_pyfunction!(serve_too, module)?)
}
