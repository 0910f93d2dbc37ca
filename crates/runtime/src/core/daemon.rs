//! The process's side of its daemon.

use crate::core::allocation_credit::AllocationCredit;
use crate::core::draining::{Draining, Preempted};
use crate::core::questions::Questions;
use crate::core::resuming::Resuming;
use oxiray_wire::message::Failure;
use std::time::Instant;

/// The process's side of its daemon: what was asked of it, and whether it is there.
#[derive(Debug, Default)]
pub(crate) struct Daemon {
    pub(crate) questions: Questions,
    pub(crate) room: AllocationCredit,
    /// What is said again to a head that comes back.
    pub(crate) resuming: Resuming,
    pub(crate) draining: Option<Draining>,
    pub(crate) preempted: Option<Preempted>,
    /// The process finds its daemon again where that comes back.
    pub(crate) comes_back: bool,
    /// Since when the daemon is away that may come back.
    pub(crate) away_since: Option<Instant>,
    /// The daemon is gone; nothing new can be asked of it.
    pub(crate) lost: Option<Failure>,
}
