//! What is due at a certain time.

use crate::environments;
use crate::names::Key;

/// What is due at a certain time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    DeviceCheck(Key),
    Measure,
    OpenNodes,
    Overdue(Key),
    Verdict(Key),
    Undying(Key),
    Group(Key),
    Templates,
    Adjust,
    Environment(environments::Alarm),
}
