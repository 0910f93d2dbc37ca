//! The control plane's state machines: jobs, actors, placement groups, published objects, kept values, metrics,
//! submitted jobs.
//!
//! Nothing here does I/O, reads a clock or draws a random number; every map is ordered. The daemon
//! feeds in what happened and carries out what comes back.

mod actors;
mod jobs;
mod kept;
mod metrics;
mod metrics_text;
mod objects;
mod placement_groups;
mod submissions;

pub use actors::{Actor, ActorState, Actors, Connect, Created, DEAD_ACTORS_KEPT, Description, Lost};
pub use jobs::{ENDED_JOBS_KEPT, Job, JobEnd, JobFacts, Jobs};
pub use kept::{KEPT_BYTES_MAX, KEPT_KEY_BYTES_MAX, KEPT_VALUE_BYTES_MAX, Kept, NotKept};
pub use metrics::{
    ClusterGauge, ClusterSample, METRIC_LINES_MAX, METRIC_TEXT_BYTES_MAX, MetricKind, Metrics, NotRecorded, Sample,
};
pub use objects::{Objects, Outcome};
pub use placement_groups::{
    Awaited, GroupCreated, GroupDescription, GroupOwner, GroupPhase, PlacementGroup, PlacementGroups,
    REMOVED_GROUPS_KEPT,
};
pub use submissions::{
    ENDED_SUBMISSIONS_KEPT, LIVING_SUBMISSIONS_MAX, NotSubmitted, SUBMISSION_BYTES_MAX, SUBMISSION_NAME_BYTES_MAX,
    Stopping, Submissions, Submitted, Word,
};
