//! Cancelling calls, and being interrupted where one is cancelled that runs here.
//!
//! The runtime knocks with a signal sent to the main thread. Its handler runs where Python can raise, asks the runtime
//! whether the call that runs at this moment is to be interrupted, and raises `KeyboardInterrupt` if it is. A signal of
//! our own is used, so that a terminal's Ctrl-C and programs with a handler for SIGINT are left alone.

use crate::reference::ObjectRef;
use crate::{context, process, python};
use oxiray_ids::TaskId;
use oxiray_runtime::{NotForced, Runtime};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many real-time signals lie below the one that knocks: the lowest are those that other libraries take.
const BELOW: i32 = 19;

/// Whether a call was interrupted while it imported a module.
static IS_UNFIT: AtomicBool = AtomicBool::new(false);

fn signal_number() -> i32 {
    libc::SIGRTMIN() + BELOW
}

/// Interrupts whatever system call the main thread is in, and has Python run the signal's handler there.
fn knock() {
    // SAFETY: both calls only take numbers. The main thread's id is the process's; the handler was installed before
    // anybody could know of this function.
    unsafe {
        let process = libc::getpid();
        libc::syscall(libc::SYS_tgkill, process, process, signal_number());
    }
}

/// Calls that this thread, the main one, runs can be interrupted from here on.
pub(crate) fn make_interruptible(py: Python<'_>, runtime: &Runtime) -> PyResult<()> {
    python::listen_for_interrupts(py)?.call1((signal_number(),))?;
    runtime.interrupt_with(knock);
    Ok(())
}

/// `TaskCancelledError` for a call that was cancelled while it ran.
pub(crate) fn error(py: Python<'_>, task: TaskId) -> PyResult<PyErr> {
    let text = "cancel() came while it ran, and what it returned after that was dropped";
    python::cancelled(py)?.call1((task.hex(), text)).map(PyErr::from_value)
}

/// Cancels the call that makes a reference's value.
#[pyfunction]
fn cancel(reference: &Bound<'_, ObjectRef>, force: bool, recursive: bool) -> PyResult<()> {
    let runtime = process::required()?;
    let reference = reference.get();
    let object = reference.id_on(&runtime)?;
    runtime.cancel(object, force, recursive).map_err(|NotForced| {
        PyValueError::new_err(format!(
            "force=True is not supported for actor tasks: it kills a process, and that of {object} serves others too. Leave \
             force out, or end the actor with kill()"
        ))
    })
}

/// Whether the call that the main thread runs is to be interrupted now; asked by the signal's handler.
#[pyfunction]
fn take_interrupt() -> bool {
    process::current().is_some_and(|runtime| runtime.take_interrupt())
}

/// The call that runs is interrupted while it imports a module, so that this process is to run no other one.
#[pyfunction]
fn become_unfit() {
    IS_UNFIT.store(true, Ordering::Relaxed);
}

/// Whether this process is to run no other call.
pub(crate) fn is_unfit() -> bool {
    IS_UNFIT.load(Ordering::Relaxed)
}

/// An interrupt was raised where it ended nothing, and is to be raised again.
#[pyfunction]
fn interrupt_again() {
    if let Some(runtime) = process::current() {
        runtime.interrupt_again();
    }
}

/// Whether the call that this thread runs was cancelled.
#[pyfunction]
fn is_cancelled(py: Python<'_>) -> PyResult<bool> {
    Ok(process::required()?.is_cancelled(context::current_task(py)))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(cancel, module)?)?;
    module.add_function(wrap_pyfunction!(take_interrupt, module)?)?;
    module.add_function(wrap_pyfunction!(become_unfit, module)?)?;
    module.add_function(wrap_pyfunction!(interrupt_again, module)?)?;
    module.add_function(wrap_pyfunction!(is_cancelled, module)?)
}
