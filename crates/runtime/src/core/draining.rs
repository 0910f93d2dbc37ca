//! That this process's node is being emptied, or the process itself is to end early for what is more urgent.

use oxiray_wire::message;
use std::time::{Duration, Instant};

/// This process's node is being emptied, and ends then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draining {
    /// When it ends at the latest; nothing where it ends when nothing is left there.
    pub until: Option<Instant>,
    /// Why, for people.
    pub reason: String,
}

impl Draining {
    pub(crate) fn heard(said: message::Draining, now: Instant) -> Option<Self> {
        let until = said.left_ms.map(|left| now + Duration::from_millis(left));
        (!said.is_over).then_some(Self { until, reason: said.reason })
    }
}

/// This process is to end early, for what is more urgent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preempted {
    /// When it is killed at the latest.
    pub until: Instant,
    /// For what, for people.
    pub reason: String,
}
