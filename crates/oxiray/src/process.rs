//! The one connection of this process.

use crate::error::{Error, Result};
pub(crate) use oxiray_client::process::{current, generation, set};
use oxiray_runtime::{Runtime, RuntimeError, Unmet};

pub(crate) fn required() -> Result<Runtime> {
    current().ok_or(Error::NotConnected)
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
