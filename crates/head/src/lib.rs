//! What the head of a cluster decides: who gets a worker and where, and what becomes of jobs, actors, placement groups,
//! objects and kept values.
//!
//! ```text
//!  Core ── what a daemon is told ──▶ HeadCore ── orders ──▶ members
//!    │                                  │                     ▲
//!    └── what happens on its machine ──▶ NodeCore (crate machine), the member in the same process
//! ```
//!
//! [`head`] places, grants and tells; each of the other modules is a state machine of its own that it feeds.
//! Nothing here does I/O or reads a clock; every map is ordered. The daemon feeds in what happened and carries out what
//! comes back.

mod actors;
mod changes;
mod core;
mod head;
mod jobs;
mod key_value;
mod metrics;
mod metrics_text;
mod objects;
mod outbox;
mod placement_groups;
mod submissions;

use actors::{Actor, ActorState, Actors, Connect, Created, Description};
use jobs::{Job, JobEnd, JobFacts, Jobs};
use key_value::{KeyValueStore, NotKept};
use metrics::{ClusterGauge, ClusterSample, MetricKind, Metrics, Sample};
use objects::{Objects, Outcome};
use placement_groups::{
    Awaited, GroupCreated, GroupDescription, GroupOwner, GroupPhase, PlacementGroup, PlacementGroups,
};
use submissions::{Stopping, Submissions, Submitted};

pub use core::Core;
pub use head::{LENT, NotRestored, StoreFigures, table};
pub use submissions::Word;
