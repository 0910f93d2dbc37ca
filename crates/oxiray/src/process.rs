//! The one connection of this process.

use crate::error::{Error, Result};
use oxiray_ids::{ActorId, ObjectId, TaskId, Unique, WorkerId};
use oxiray_runtime::{Runtime, RuntimeError, Unmet};
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicU64, Ordering};

static CURRENT: RwLock<Option<Runtime>> = RwLock::new(None);

/// Counts the connections of this process: what was prepared on an earlier one is prepared anew.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The runtime, where there is one.
pub(crate) fn current() -> Option<Runtime> {
    CURRENT.read().clone()
}

pub(crate) fn required() -> Result<Runtime> {
    current().ok_or(Error::NotConnected)
}

pub(crate) fn set(runtime: Option<Runtime>) -> Option<Runtime> {
    let mut current = CURRENT.write();
    GENERATION.fetch_add(1, Ordering::Relaxed);
    std::mem::replace(&mut *current, runtime)
}

pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Waits on where a signal ended the wait early: what it means is the program's business.
pub(crate) fn patiently<R>(mut wait: impl FnMut() -> std::result::Result<R, RuntimeError>) -> Result<R> {
    loop {
        match wait() {
            Err(RuntimeError::Unmet(Unmet::Interrupted)) => {}
            result => return Ok(result?),
        }
    }
}

/// Where the next object that this process puts is counted.
pub(crate) fn next_put(runtime: &Runtime) -> (TaskId, u32) {
    static OWN: Mutex<Option<(WorkerId, TaskId, u32)>> = Mutex::new(None);
    let mut own = OWN.lock();
    let identity = runtime.identity();
    let (task, number) = match *own {
        Some((worker, task, number)) if worker == identity.worker && number < ObjectId::FIRST_PUT - 1 => {
            (task, number + 1)
        }
        _ => (TaskId::generate(ActorId::nil_of(identity.job), &mut Unique::new()), 0),
    };
    *own = Some((identity.worker, task, number));
    (task, ObjectId::FIRST_PUT | number)
}
