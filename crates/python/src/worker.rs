//! A worker that runs Python: what of it is Python's.
//!
//! The loop of its threads, and how it begins and ends, are those of every language (`oxiray_client`), as are WORKER-1 to
//! WORKER-3.

mod actor;
mod thread;

use crate::raised::raised;
use crate::reference::ObjectRef;
use crate::values_of_call::left;
use crate::{cancel, common, context, process, python, stacks};
use bytes::Bytes;
use oxiray_client::worker::{Newborn, end, group_flaw};
use oxiray_client::{Functions, assigned, attend};
use oxiray_ids::TaskId;
use oxiray_runtime::{Outcome, Runtime};
use oxiray_wire::message::{Assign, Call, Content, FailureCode, Value, Variable};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
pub(crate) use thread::Thread;

/// The title of a worker that runs nothing.
pub(crate) const IDLE: &str = "IDLE";

/// What the loop of every thread of a worker shares.
pub(crate) struct Worker {
    pub(crate) runtime: Runtime,
    functions: Mutex<Functions<Py<PyAny>>>,
    actor: Mutex<Option<Py<PyAny>>>,
    /// Its methods that are the same for all calls, by their names.
    methods: Mutex<BTreeMap<String, Py<PyAny>>>,
    /// What runs the calls of an actor with async methods.
    event_loop: Mutex<Option<Py<PyAny>>>,
    /// The concurrency groups of an actor.
    groups: Vec<String>,
    /// Whether several calls of an actor may run at once.
    is_concurrent: AtomicBool,
    /// Whether Python's streams tell before they are written to.
    tells_of_prints: AtomicBool,
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

/// What is known of a call that is under way.
pub(crate) struct Known {
    name: String,
    /// Whether another language called: it is answered so that it can read it.
    pub(crate) is_common: bool,
}

/// A call that is not answered yet.
pub(crate) type UnderWay = oxiray_client::UnderWay<Known>;

/// Serves as the worker that the daemon wants at the other end of `descriptor`, until there is nothing
/// more to do. Returns the status that the process is to end with.
#[pyfunction]
fn serve(py: Python<'_>, descriptor: i32) -> PyResult<i32> {
    // SAFETY: the template passed this descriptor to this process alone, for this.
    let stream = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // Nobody waits for this process yet.
    stacks::prepare(py);
    let Some(newborn) = py.detach(|| Newborn::await_assignment(stream))? else { return Ok(0) };
    let flaw = become_assigned(py, &newborn.assign)?;
    let (runtime, assign) = newborn.begin()?;
    cancel::make_interruptible(py, &runtime)?;
    stacks::tell(py, &runtime);
    runtime.says_whether_alone();
    python::begin_worker(py)?.call0()?;
    let worker = SERVING.get_or_init(|| Worker {
        runtime,
        functions: Mutex::new(Functions::default()),
        actor: Mutex::new(None),
        methods: Mutex::default(),
        event_loop: Mutex::new(None),
        groups: assign.actor.iter().flat_map(|actor| &actor.groups).map(|group| group.name.clone()).collect(),
        is_concurrent: assign.actor.iter().any(|actor| actor.max_concurrency > 1 || !actor.groups.is_empty()).into(),
        tells_of_prints: AtomicBool::new(false),
        label: Mutex::new(String::new()),
        class: OnceLock::new(),
        status: AtomicI32::new(0),
        flaw: Mutex::new(None),
    });
    worker.note_flaw(flaw);
    let Some(actor) = &assign.actor else {
        attend(&mut worker.thread(py), None)?;
        py.detach(|| end(&worker.runtime, false));
        return Ok(worker.status.load(Ordering::Relaxed));
    };
    if !worker.construct(py, actor) {
        return Ok(worker.status.load(Ordering::Relaxed));
    }
    let groups: Vec<(&str, u32)> = actor.groups.iter().map(|group| (group.name.as_str(), group.limit)).collect();
    let event_loop = python::serve_beside(py)?.call1((actor.max_concurrency, groups))?;
    if !event_loop.is_none() {
        *worker.event_loop.lock().unwrap_or_else(PoisonError::into_inner) = Some(event_loop.unbind());
        worker.is_concurrent.store(true, Ordering::Relaxed);
        context::serve_with_event_loop();
        worker.runtime.serve_with_event_loop();
    }
    attend(&mut worker.thread(py), None)?;
    py.detach(|| end(&worker.runtime, true));
    // From here on nothing in the runtime keeps the actor from its end.
    drop(std::mem::take(&mut *worker.methods.lock().unwrap_or_else(PoisonError::into_inner)));
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
    attend(&mut worker.thread(py), group)?;
    worker.runtime.stop_serving();
    Ok(())
}

/// WORKER-1. What is wrong with the runtime environment, if anything, is what every call is answered with.
fn become_assigned(py: Python<'_>, assign: &Assign) -> PyResult<Option<String>> {
    assigned::assign(assign);
    let job = assign.welcome.iter().map(|welcome| ("RAY_JOB_ID".to_owned(), Some(welcome.job.hex())));
    let given = assign.variables.iter().map(|Variable { name, value }| (name.clone(), value.clone()));
    let variables: Vec<(String, Option<String>)> = given.chain(job).collect();
    let inherited: Vec<(String, Option<String>)> = assign
        .environment
        .iter()
        .flat_map(|own| &own.variables)
        .map(|one| (one.name.clone(), one.value.clone()))
        .collect();
    let fields = assign.environment.as_ref().map_or("", |own| &own.fields);
    let session = assign.welcome.as_ref().map_or("", |welcome| &welcome.session);
    let setup = PyBytes::new(py, &assign.setup);
    let home = (
        PyBytes::new(py, assign.group.as_ref().map_or(&[][..], |group| group.as_bytes())),
        assign.captures,
        assign.priority,
    );
    python::become_worker(py)?
        .call1((variables, setup, inherited, fields, session, home, assign.preemptible))?
        .extract()
}

impl Worker {
    /// The thread that calls, as one that runs calls.
    pub(crate) fn thread<'py>(&'static self, py: Python<'py>) -> Thread<'py> {
        Thread { worker: self, py }
    }

    fn note_flaw(&self, text: Option<String>) {
        let failed = |text| FailureCode::RuntimeEnv.because(text);
        let value = |failure| Value { content: Some(Content::Failed(failure)), contained: Vec::new() };
        *self.flaw.lock().unwrap_or_else(PoisonError::into_inner) = text.map(failed).map(value);
    }

    fn flaw(&self) -> Option<Value> {
        self.flaw.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn cancel_in_event_loop(&self, py: Python<'_>, task: TaskId) -> PyResult<()> {
        self.event_loop(py).map_or(Ok(()), |own| own.bind(py).call_method1("cancel", (task.hex(),)).map(drop))
    }

    /// What runs the calls of an actor with async methods. Nothing is locked while it is used.
    fn event_loop(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.event_loop.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|own| own.clone_ref(py))
    }

    /// `sys.exit` in a task ends its worker without an answer: the owner hears of the exit, and may retry.
    /// In an actor it ends the actor; a call that asked for that with `exit_actor` is answered.
    fn leave_at_exit(&self, py: Python<'_>, call: UnderWay, error: &PyErr) {
        self.end_with_status_of(py, error);
        if assigned::is_actor() {
            self.runtime.begin_no_more();
            let intended = error.value(py).getattr("oxiray_exit_actor").is_ok();
            if intended {
                let results = vec![left(); call.call.results as usize];
                self.runtime.reply(call.ticket, Outcome { items: call.yielded, results, ..Outcome::default() });
            } else {
                self.runtime.abandon_call(&call.ticket);
            }
            let text = if intended { "it called exit_actor()" } else { "its code called sys.exit()" };
            self.runtime.actor_leaving(text.into(), !intended);
        }
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
        if let Some(flaw) = group_flaw(&call.group, &self.groups) {
            return Err(PyValueError::new_err(flaw));
        }
        under_way.own.is_common = common::is_common(&call.arguments);
        let task = (!call.function.is_empty()).then(|| under_way.ticket.task());
        let (args, kwargs, is_common) = self.arguments(py, &call.arguments, &call.references, task)?;
        under_way.own.is_common = is_common;
        let target = if call.function.is_empty() {
            let actor =
                self.actor.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|actor| actor.clone_ref(py));
            let actor =
                actor.ok_or_else(|| PyValueError::new_err("a method was called on a worker that is no actor"))?;
            self.method(py, &actor, &call.name)?
        } else {
            let function = self.function(py, call, &under_way.ticket.code())?;
            context::calls(&function);
            function
        };
        // Some code looks at reference counts: arguments belong to the call alone from here on.
        if !runs_again {
            call.arguments.clear();
        }
        Ok((target, args, kwargs))
    }

    fn method<'py>(&self, py: Python<'py>, actor: &Py<PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let known = || self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(method) = known().get(name) {
            return Ok(method.bind(py).clone());
        }
        let (method, is_same): (Bound<'py, PyAny>, bool) = python::method(py)?.call1((actor, name))?.extract()?;
        if is_same {
            known().insert(name.to_owned(), method.clone().unbind());
        }
        Ok(method)
    }

    fn function<'py>(&self, py: Python<'py>, call: &Call, code: &Bytes) -> PyResult<Bound<'py, PyAny>> {
        let hash = &call.function;
        if let Some(function) = self.functions.lock().unwrap_or_else(PoisonError::into_inner).called(hash) {
            return Ok(function.bind(py).clone());
        }
        let function = python::load_function(py)?.call1((PyBytes::new(py, code),))?;
        let known = function.clone().unbind();
        let forgotten = self.functions.lock().unwrap_or_else(PoisonError::into_inner).learn(hash, known);
        // Only now: what functions refer to may run the user's code when it goes.
        drop(forgotten);
        Ok(function)
    }
}

impl Worker {
    /// Has Python's streams ask for a label before they are written to.
    fn tell_of_prints(&self, py: Python<'_>) {
        if !self.tells_of_prints.swap(true, Ordering::Relaxed) {
            let _ = python::tell_of_prints(py).and_then(PyAnyMethods::call0);
        }
    }
}

fn flush_output(py: Python<'_>) {
    let _ = python::flush(py).and_then(PyAnyMethods::call0);
}

/// Keeps an exception as if the running call had raised it; returns a reference that raises it.
#[pyfunction]
fn put_raised(py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<ObjectRef> {
    let runtime = process::required()?;
    let name = context::running().map(|running| running.name.clone()).unwrap_or_default();
    let (task, index) = runtime.next_put(0);
    let value = raised(py, &name, task, &PyErr::from_value(error.clone()), false);
    Ok(ObjectRef::adopt(runtime.clone(), runtime.put(task, index, value)))
}

/// Python is about to write to standard output or standard error, and does not tell of the next time.
#[pyfunction]
fn label_print(is_error: bool) {
    if let Some(worker) = SERVING.get() {
        worker.tells_of_prints.store(false, Ordering::Relaxed);
    }
    oxiray_runtime::label_print(is_error);
}

/// Names this process in lists of processes.
#[pyfunction]
fn show_title(title: &str) {
    oxiray_runtime::show_title(title);
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(serve, module)?)?;
    module.add_function(wrap_pyfunction!(divide_calls, module)?)?;
    module.add_function(wrap_pyfunction!(put_raised, module)?)?;
    module.add_function(wrap_pyfunction!(label_print, module)?)?;
    module.add_function(wrap_pyfunction!(show_title, module)?)?;
    module.add_function(wrap_pyfunction!(thread::terminate, module)?)?;
    module.add_function(wrap_pyfunction!(serve_too, module)?)
}
