//! Errors of functions, on their way to whoever called: what they say, and where their type allows it, they themselves.

use crate::error::{Cause, Error, TaskError};
use oxiray_values::{Decoded, Encoded};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::type_name;
use std::fmt::Display;

/// The most bytes of an error that travel.
const CAUSE_MAX: usize = 1 << 20;

/// What a function may return as its error.
///
/// ```compile_fail,E0277
/// struct Mute;
///
/// #[oxiray::remote]
/// fn fails() -> Result<(), Mute> {
///     Err(Mute) // there are no words for it
/// }
/// ```
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no error that a caller could be sent",
    label = "the error of a remote function implements `Display`",
    note = "one that implements serde's `Serialize` and `DeserializeOwned`, too, is had by the caller as it is, with `Error::cause`"
)]
pub trait Tellable {
    fn words(&self) -> String;
}

impl<E: Display> Tellable for E {
    fn words(&self) -> String {
        // In the long form, errors of `anyhow` and its like tell what caused them.
        format!("{self:#}")
    }
}

/// What a function returned as its error. The code that `#[remote]` makes calls `(&Thrown::of(&error)).told()`: of the two
/// traits below the compiler takes the one that needs fewer references, which is [`InFull`] where the error has it.
#[doc(hidden)]
pub struct Thrown<'error, E> {
    error: &'error E,
    words: String,
}

/// An error of which only what it says can travel.
#[doc(hidden)]
pub trait InWords {
    fn told(&self) -> Error;
}

/// An error that can be written.
#[doc(hidden)]
pub trait InFull {
    fn told(&self) -> Error;
}

impl<E> InWords for &Thrown<'_, E> {
    fn told(&self) -> Error {
        self.told_with(None)
    }
}

impl<E: Serialize> InFull for Thrown<'_, E> {
    fn told(&self) -> Error {
        // One that holds a reference to a value would have to keep that, and one that is too large would be in the way.
        let written = Encoded::native(self.error).ok().filter(|written| written.size() <= CAUSE_MAX);
        let kind = type_name::<E>().to_owned();
        self.told_with(written.map(|written| Cause { kind, written: written.into_bytes().into() }))
    }
}

impl<'error, E> Thrown<'error, E> {
    /// The error, which can be told of.
    pub fn of(error: &'error E) -> Self
    where
        E: Tellable,
    {
        Self { error, words: error.words() }
    }

    fn told_with(&self, cause: Option<Cause>) -> Error {
        let kind = type_name::<E>().rsplit("::").next().unwrap_or_default();
        // These say nothing.
        let kind = if matches!(kind, "String" | "str" | "Error") { "" } else { kind };
        let message = self.words.clone();
        Error::Task(Box::new(TaskError { message, kind: kind.to_owned(), cause, ..TaskError::default() }))
    }
}

impl TaskError {
    /// The error that the function returned, where that was an `E`, and one that can be written and read.
    pub fn cause<E: DeserializeOwned>(&self) -> Option<E> {
        let cause = self.cause.as_ref().filter(|cause| cause.kind == type_name::<E>())?;
        Decoded::new(&cause.written.clone().into_bytes()).and_then(Decoded::value).ok()
    }
}

impl Error {
    /// The error that the function returned, where that was an `E`, and one that can be written and read. What a function
    /// returned because a call of its own failed is an [`Error`].
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Debug, Serialize, Deserialize, thiserror::Error)]
    /// #[error("{missing} of {wanted} are missing")]
    /// struct TooFew {
    ///     wanted: u32,
    ///     missing: u32,
    /// }
    ///
    /// #[oxiray::remote]
    /// fn gather(wanted: u32) -> Result<(), TooFew> {
    ///     Err(TooFew { wanted, missing: 1 })
    /// }
    ///
    /// # #[oxiray::main]
    /// fn main() -> oxiray::Result<()> {
    /// #   let _cluster = oxiray::Builder::new().address("local").num_cpus(1.0).init()?;
    ///     let error = gather::remote(3)?.get().expect_err("one is missing");
    ///     assert_eq!(error.cause::<TooFew>().map(|too_few| too_few.missing), Some(1));
    ///     Ok(())
    /// }
    /// ```
    pub fn cause<E: DeserializeOwned>(&self) -> Option<E> {
        if let Self::Task(error) = self { error.cause() } else { None }
    }
}
