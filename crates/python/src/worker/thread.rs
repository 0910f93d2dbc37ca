//! A thread of a worker that runs Python.

use super::{IDLE, Known, UnderWay, Worker, become_assigned, flush_output};
use crate::completion::Completion;
use crate::context::{self, Running};
use crate::raised::{asks_retry, raised};
use crate::values_of_call::{is_generator, none};
use crate::{cancel, process};
use bytes::Bytes;
use oxiray_client::{Attempt, Language, assigned, borrowing};
use oxiray_ids::TaskId;
use oxiray_runtime::{Duty, Outcome, Runtime, RuntimeError};
use oxiray_wire::message::{Assign, Call, Value};
use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the process was told to end, in case the exception that says so met code that drops exceptions.
static TERMINATED: AtomicBool = AtomicBool::new(false);

/// What the process ends with then: as a shell tells of an end by SIGTERM.
const TERMINATION_STATUS: i32 = 128 + libc::SIGTERM;

/// Called by the handler of SIGTERM. Returns the status to end with.
#[pyfunction]
pub(super) fn terminate() -> i32 {
    TERMINATED.store(true, Ordering::Relaxed);
    TERMINATION_STATUS
}

/// A thread of a worker, while it has the interpreter.
pub(crate) struct Thread<'py> {
    pub(super) worker: &'static Worker,
    pub(super) py: Python<'py>,
}

impl<'py> Language for Thread<'py> {
    type Own = Known;
    type Returned = Bound<'py, PyAny>;
    type Error = PyErr;
    type Stop = PyErr;

    fn runtime(&self) -> &Runtime {
        &self.worker.runtime
    }

    fn wait(&mut self, mut next: impl FnMut() -> Result<Duty, RuntimeError> + Send) -> PyResult<Duty> {
        loop {
            // A signal may have come since the last call, and interrupts no wait that begins later.
            let early = self.py.check_signals().err();
            let met = match early {
                None if TERMINATED.load(Ordering::Relaxed) => Err(PySystemExit::new_err(TERMINATION_STATUS)),
                None => process::patiently_for(self.py, true, &mut next),
                Some(error) => Err(error),
            };
            match met {
                Ok(duty) => return duty.map_err(|error| process::error(self.py, &error)),
                // Whoever terminates the process may do so while it runs nothing.
                Err(leaving) if leaving.is_instance_of::<PySystemExit>(self.py) => return Err(leaving),
                // A KeyboardInterrupt that arrived between two calls is nobody's.
                Err(_) => {}
            }
        }
    }

    fn become_assigned(&mut self, assign: &Assign) -> PyResult<()> {
        self.worker.note_flaw(become_assigned(self.py, assign)?);
        Ok(())
    }

    fn flaw(&self) -> Option<Value> {
        self.worker.flaw()
    }

    fn is_unfit(&self) -> bool {
        cancel::is_unfit()
    }

    fn cancel(&mut self, task: TaskId) -> PyResult<()> {
        self.worker.cancel_in_event_loop(self.py, task)
    }

    fn collect(&mut self) -> PyResult<()> {
        self.py.import("gc")?.call_method0("collect").map(drop)
    }

    fn begin(&mut self, call: &Call) -> Known {
        let name = if call.label.is_empty() { self.worker.qualified(&call.name) } else { call.label.clone() };
        self.worker.label(self.py, if call.label.is_empty() { &call.name } else { &call.label });
        oxiray_runtime::show_title(&name);
        Known { name, is_common: false }
    }

    fn shares_output(&self) -> bool {
        self.worker.is_concurrent.load(Ordering::Relaxed)
    }

    fn label_prints(&mut self) {
        self.worker.tell_of_prints(self.py);
    }

    fn flush_output(&mut self) {
        flush_output(self.py);
    }

    fn attempt(&mut self, mut call: UnderWay) -> Attempt<Self> {
        let (worker, py) = (self.worker, self.py);
        context::enter(Running::new(call.task(), call.own.name.clone(), call.call.name.clone()));
        borrowing::begin();
        match (worker.prepare(py, &mut call), worker.event_loop(py)) {
            (Ok((target, args, kwargs)), Some(event_loop)) => {
                let identity = (call.task().hex(), call.own.name.clone(), call.call.name.clone());
                let group = call.call.group.clone();
                let completion = Bound::new(py, Completion::new(call, borrowing::end()));
                let completion = completion.expect("WORKER-2: a process without memory for a completion dies");
                let arguments = (target, args, kwargs, &completion, identity, group);
                // WORKER-2: a loop takes every call until its process ends; one that it does not take is answered.
                if let Err(refused) = event_loop.bind(py).call_method1("submit", arguments) {
                    completion.get().failed(refused.value(py));
                }
                Attempt::HandedOn
            }
            (prepared, _) => {
                let returned = prepared.and_then(|(target, args, kwargs)| match kwargs {
                    Some(kwargs) if !kwargs.is_empty() => target.call(args, Some(&kwargs)),
                    _ => target.call1(args),
                });
                let returned = match call.call.stream {
                    Some(_) => returned.and_then(|value| worker.drain(py, &mut call, value)),
                    None => returned,
                };
                Attempt::Over(call, returned)
            }
        }
    }

    fn end(&mut self, retires: bool) {
        context::leave();
        oxiray_runtime::show_title(self.worker.class.get().map_or(IDLE, String::as_str));
        if retires {
            flush_output(self.py);
        }
    }

    fn cancelled(&self, call: &UnderWay, returned: PyResult<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        // A method that returns although it was cancelled has done what it could: its caller did not want the value.
        if assigned::is_actor() || call.streams() {
            returned.and_then(|_| Err(cancel::error(self.py, call.task())?))
        } else {
            returned
        }
    }

    fn keep(&self, call: &UnderWay, returned: Bound<'py, PyAny>, outcome: &mut Outcome) -> PyResult<()> {
        let wanted = (call.call.results, call.own.is_common);
        let Err(error) = self.worker.results(self.py, call.task(), wanted, &returned, outcome) else { return Ok(()) };
        let retried = &call.call.retry_exceptions;
        let ends = error.is_instance_of::<PySystemExit>(self.py);
        let runs_again = !retried.is_empty() && asks_retry(self.py, retried, &error);
        if outcome.results.is_empty() || !is_generator(&returned)? || ends || runs_again {
            return Err(error);
        }
        // What a generator yielded before it raised stays.
        let value = raised(self.py, &call.own.name, call.task(), &error, call.own.is_common);
        outcome.results.resize(call.call.results as usize, value);
        Ok(())
    }

    fn leave_on(&mut self, call: UnderWay, error: PyErr) -> Result<(), (UnderWay, PyErr)> {
        if !error.is_instance_of::<PySystemExit>(self.py) {
            return Err((call, error));
        }
        self.worker.leave_at_exit(self.py, call, &error);
        Ok(())
    }

    fn asks_retry(&self, wanted: &Bytes, error: &PyErr) -> bool {
        asks_retry(self.py, wanted, error)
    }

    fn raised(&self, call: &UnderWay, error: PyErr) -> Value {
        raised(self.py, &call.own.name, call.task(), &error, call.own.is_common)
    }

    fn nothing(&self) -> Value {
        none()
    }

    fn calls(&self, function: &Bytes) -> u32 {
        self.worker.functions.lock().unwrap_or_else(PoisonError::into_inner).calls(function)
    }
}
