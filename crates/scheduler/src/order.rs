//! In which order jobs are served, and whose leases may be recalled for whom.
//!
//! - ORDER-1: the higher priority goes first; among equals who holds the smaller share of what is asked for; among those
//!   the job of which a lease was recalled longer ago, so that who gave something back is not the first to have it again;
//!   then who came first.
//! - ORDER-2: a lease is recalled only for somebody whose job goes before the lease's job by priority or share. Who came
//!   first is no reason: two jobs that hold the same keep what they hold.

use std::cmp::Reverse;

use crate::JobShare;

/// How urgent a job is; a higher one goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority(pub i32);

/// Where a job stands among others. The smaller one goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    priority: Reverse<Priority>,
    share: JobShare,
}

impl Standing {
    /// A job of this priority that holds this share of what is asked for.
    pub const fn new(priority: Priority, share: JobShare) -> Self {
        Self { priority: Reverse(priority), share }
    }

    /// Whether leases of a job that stands at `holder` may be recalled for one that stands here (ORDER-2).
    pub fn may_recall_from(self, holder: Self) -> bool {
        self < holder
    }
}

/// Where an entry of the queue stands among those of other jobs (ORDER-1). The smaller one goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    standing: Standing,
    yielded: u64,
    age: u64,
}

impl Rank {
    /// An entry of a job that stands there. The job that yielded a lease later has the larger `yielded`, and the entry that
    /// came later the larger `age`.
    pub const fn new(standing: Standing, yielded: u64, age: u64) -> Self {
        Self { standing, yielded, age }
    }

    /// When it came.
    pub const fn age(self) -> u64 {
        self.age
    }
}
