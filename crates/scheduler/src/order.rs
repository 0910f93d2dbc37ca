//! In which order jobs are served, and whose leases may be recalled for whom.
//!
//! - ORDER-1: the higher priority goes first; among equals who holds the smaller share of what is asked for; among those
//!   the job of which a lease was recalled longer ago, so that who gave something back is not the first to have it again;
//!   then who came first.
//! - ORDER-2: a lease is recalled only for somebody who goes before its holder by priority or share. Who came first is no
//!   reason: two jobs that hold the same keep what they hold. Within a job the priority alone counts.

use std::cmp::Reverse;

use crate::JobShare;

/// How urgent something is; a higher one goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

/// In whose name somebody waits for something or holds it: a job's, with one of the priorities that its requests have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claimant<J> {
    /// The job.
    pub job: J,
    /// The priority.
    pub priority: Priority,
}

impl<J> Claimant<J> {
    /// The job's requests of that priority.
    pub const fn new(job: J, priority: i32) -> Self {
        Self { job, priority: Priority(priority) }
    }
}

/// A job with the priority that those have of which nothing is said.
impl<J> From<J> for Claimant<J> {
    fn from(job: J) -> Self {
        Self { job, priority: Priority::default() }
    }
}

/// Where a claimant stands among others. The smaller one goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    priority: Reverse<Priority>,
    share: JobShare,
}

impl Standing {
    /// One of this priority, whose job holds this share of what is asked for.
    pub const fn new(priority: Priority, share: JobShare) -> Self {
        Self { priority: Reverse(priority), share }
    }

    /// Whether leases of one that stands at `holder` may be recalled for one that stands here (ORDER-2).
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
