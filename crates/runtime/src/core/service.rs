//! The calls that others send to this process.

use crate::core::code::Codes;
use crate::core::execute::Inbox;
use crate::core::io::Token;
use crate::core::lending::Blocked;
use crate::core::standstill::Standstill;
use crate::core::yielding::Yieldings;
use rustc_hash::FxHashMap;

/// The calls that others send to this process.
#[derive(Debug, Default)]
pub(crate) struct Service {
    pub(crate) inbox: Inbox,
    pub(crate) yieldings: Yieldings,
    /// What each client's calls name by its hash.
    pub(crate) codes: FxHashMap<Token, Codes>,
    /// Threads that wait inside a leased task, the time the first began, and whether the daemon knows.
    pub(crate) blocked: Blocked,
    pub(crate) standstill: Standstill,
}
