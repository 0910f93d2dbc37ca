//! Cancelling calls, as the language front does it.

use crate::core::cancel::NotForced;
use crate::runtime::{Runtime, RuntimeError};
use bytes::Bytes;
use oxiray_ids::ObjectId;
use oxiray_wire::message::Failure;

impl Runtime {
    /// Cancels the call that makes an object, wherever its owner is. With `force` the worker that runs it is killed;
    /// `recursive` takes what the call has called with it.
    pub fn cancel(&self, object: ObjectId, force: bool, recursive: bool) -> Result<(), NotForced> {
        self.shared.with_time(|state| state.cancel_object(object, force, recursive))
    }
}

/// What a call meets that waits for something after it was cancelled.
pub(crate) fn waits_for_nothing() -> RuntimeError {
    RuntimeError::Failed(Failure {
        code: "cancelled".into(),
        text: "this call was cancelled, so that it waits for nothing more".into(),
        cause: Bytes::new(),
    })
}
