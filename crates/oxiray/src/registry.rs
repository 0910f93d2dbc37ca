//! What this program offers to be called: gathered by the linker, found by name.

use crate::error::{Error, Result};
use crate::incoming::{Incoming, Outcome};
use std::any::Any;

/// What a constructor makes: the state that methods share.
pub(crate) type State = Box<dyn Any + Send + Sync>;

/// A method of an actor.
#[doc(hidden)]
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// Calls it.
    pub call: fn(&(dyn Any + Send + Sync), Incoming<'_>) -> Outcome,
}

/// What an entry is.
#[doc(hidden)]
pub enum Kind {
    /// A function.
    Function(fn(Incoming<'_>) -> Outcome),
    /// A class of actors: its constructor and its methods.
    Class(fn(Incoming<'_>) -> Result<Box<dyn Any + Send + Sync>>, &'static [Method]),
}

/// A function or class of this program.
#[doc(hidden)]
pub struct Entry {
    /// Its whole path.
    pub path: &'static str,
    /// What it is.
    pub kind: Kind,
}

inventory::collect!(Entry);

/// The entry of that path, or the only one whose path ends with that.
pub(crate) fn find(name: &str) -> Result<&'static Entry> {
    let entries = || inventory::iter::<Entry>.into_iter();
    if let Some(exact) = entries().find(|entry| entry.path == name) {
        return Ok(exact);
    }
    let suffix = format!("::{name}");
    let fitting: Vec<&'static Entry> = entries().filter(|entry| entry.path.ends_with(&suffix)).collect();
    match fitting[..] {
        [one] => Ok(one),
        [] => {
            let mut paths: Vec<&str> = entries().map(|entry| entry.path).collect();
            paths.sort_unstable();
            Err(Error::NotFound(format!(
                "the program has no remote function or actor `{name}`; it has: {}",
                if paths.is_empty() { "none".to_owned() } else { paths.join(", ") }
            )))
        }
        [..] => {
            let paths: Vec<&str> = fitting.iter().map(|entry| entry.path).collect();
            Err(Error::NotFound(format!("`{name}` may be any of {}: write more of its path", paths.join(", "))))
        }
    }
}
