//! What went wrong, in the words of whoever has to put it right.

use std::fmt::Display;
use thiserror::Error;

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Trouble {
    /// The storage does not have it, or not as it was written.
    #[error("{0}")]
    Gone(String),
    /// The storage says no, and will until somebody changes something.
    #[error("{0}")]
    Refused(String),
    /// It did not work for now.
    #[error("{0}")]
    Away(String),
}

impl Trouble {
    /// It was this machine's.
    pub(crate) fn here(what: &str, error: &impl Display) -> Self {
        Self::Away(format!("could not {what} on this machine: {error}"))
    }
}
