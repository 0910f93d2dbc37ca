//! What a thread that runs calls knows for itself.

use crate::error::{Error, Result};
use crate::registry::{self, Entry};
use bytes::Bytes;
use oxiray_client::Functions;

/// What a thread that runs calls knows for itself: others have no part in it, so that it costs no lock.
#[derive(Default)]
pub(crate) struct ThreadContext {
    /// Why nothing can run here: what it was to have around it is not there.
    pub(crate) unfit: Option<Error>,
    label: String,
    functions: Functions<&'static Entry>,
}

impl ThreadContext {
    pub(crate) fn fit(&self) -> Result<()> {
        self.unfit.clone().map_or(Ok(()), Err)
    }

    /// Labels the output of the call that begins.
    pub(crate) fn label(&mut self, name: &str) {
        if self.label != name {
            name.clone_into(&mut self.label);
            oxiray_runtime::label_next_call(name);
        }
    }

    /// The function of that hash, which is called once more; `code` names it where it is not known yet.
    pub(crate) fn function(&mut self, hash: &Bytes, code: impl FnOnce() -> Bytes) -> Result<&'static Entry> {
        if let Some(entry) = self.functions.called(hash) {
            return Ok(entry);
        }
        let entry = registry::find(&String::from_utf8_lossy(&code()))?;
        // What the program offers is forgotten at no cost.
        drop(self.functions.learn(hash, entry));
        Ok(entry)
    }

    /// How often a function was called here.
    pub(crate) fn calls(&self, hash: &Bytes) -> u32 {
        self.functions.calls(hash)
    }
}
