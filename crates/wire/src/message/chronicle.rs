//! The chronicle, for visitors that follow it.

use super::Failure;
use crate::state::{ChronicleCursor, ChronicleEntry, ChronicleGap, ChronicleKind};
use oxiray_fields::Fields;

/// visitor → head: what happened since the cursor? Answered by one [`ChronicleBatch`], when something did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ChronicleFollow {
    /// Names the question. It takes the place of the visitor's last one.
    #[field(1)]
    pub request: u64,
    /// The kinds of entries that are wanted; empty for all.
    #[field(2)]
    pub kinds: Vec<ChronicleKind>,
    /// Where the last answer ended; nothing at first.
    #[field(3)]
    pub cursor: Option<ChronicleCursor>,
    /// Of what there is, one who begins wants so many of the last entries, and of earlier ones only what still holds; nothing
    /// for all that the head remembers.
    #[field(4)]
    pub latest: Option<u64>,
}

/// head → visitor: entries since the cursor of a [`ChronicleFollow`], in the order of their numbers.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct ChronicleBatch {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// The version of the entries' types ([`STATE_VERSION`](crate::state::STATE_VERSION)).
    #[field(2)]
    pub version: u32,
    /// Where the answer ends.
    #[field(3)]
    pub cursor: Option<ChronicleCursor>,
    /// Whether what the follower knows to hold is to be forgotten first: all that holds is told anew, from here on.
    #[field(4)]
    pub is_fresh: bool,
    /// The entries that a follower of this head missed. Of those, the ones that still hold are told all the same.
    #[field(5)]
    pub gap: Option<ChronicleGap>,
    /// Whether there is more already.
    #[field(6)]
    pub has_more: bool,
    /// The entries.
    #[field(7)]
    pub entries: Vec<ChronicleEntry>,
    /// Why there is no answer.
    #[field(8)]
    pub failure: Option<Failure>,
}
