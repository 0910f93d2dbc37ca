//! Every thread of the product by name: whose it is and how it ends; and how one hands something to another's loop.
//!
//! - THREADS-1: every thread is started here and stands in the register below, which `docs/threads.md` explains and a test
//!   compares. Clippy refuses any other way to start one (`clippy.toml`).

mod mailbox;
mod register;
mod waker;

pub use mailbox::{Mailbox, Over, Post, mailbox};
pub use register::*;
pub use waker::Waker;

use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// A kind of thread. Its name is what the system shows, of which that has room for 15 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread {
    /// What the system calls it.
    pub name: &'static str,
    /// The process and the part of it that has it.
    pub owner: &'static str,
    /// When it is gone.
    pub ends: &'static str,
}

/// Starts a thread of that kind.
///
/// # Errors
/// Where the system has no more of them.
pub fn spawn<T: Send + 'static>(
    thread: Thread,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    #[expect(clippy::disallowed_methods, reason = "THREADS-1: this is where threads are started")]
    Builder::new().name(thread.name.to_owned()).spawn(body)
}

/// Starts a thread of that kind which ends within a scope.
///
/// # Errors
/// Where the system has no more of them.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    thread: Thread,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    #[expect(clippy::disallowed_methods, reason = "THREADS-1: this is where threads are started")]
    Builder::new().name(thread.name.to_owned()).spawn_scoped(scope, body)
}
