//! What a worker may take of its machine.

use crate::names::Key;

/// What an interpreter takes with the modules that it imports: a worker may have as much besides what its lease asked for.
pub const INTERPRETER_BYTES: u64 = 64 << 20;

/// How much memory a worker may take for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confinement {
    /// The worker.
    pub worker: Key,
    /// What its lease asked for with `memory=`, in bytes; nothing for as much as there is.
    pub memory: Option<u64>,
}

/// What the group of a worker tells, in which the kernel ended a process for want of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// What was asked for with `memory=`.
    pub asked: u64,
    /// What the group may have with all that is allowed besides.
    pub limit: u64,
    /// The most that it had.
    pub used: u64,
}
