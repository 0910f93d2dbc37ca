//! The one connection of this process.

use crate::error::{Error, Result};
use oxiray_runtime::{Runtime, RuntimeError, Unmet};
use parking_lot::RwLock;
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
