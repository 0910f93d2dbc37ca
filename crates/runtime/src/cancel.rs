//! Cancelling calls, as the language front does it.

use crate::core::client::cancel::NotForced;
use crate::runtime::Runtime;
use oxiray_ids::ObjectId;

impl Runtime {
    /// Cancels the call that makes an object, wherever its owner is. With `force` the worker that runs it is killed;
    /// `recursive` takes what the call has called with it.
    pub fn cancel(&self, object: ObjectId, force: bool, recursive: bool) -> Result<(), NotForced> {
        self.shared.with_time(|state| state.cancel_object(object, force, recursive))
    }
}
