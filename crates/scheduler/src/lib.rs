//! Which machine a demand runs on, or why none can; the queue of those that wait; and which leases are recalled for them, or
//! who ends early.
//!
//! Everything here is a function of its arguments: no clock, no socket, no file, no thread and no
//! random source. The caller owns the ledgers and the clock, and starts what was placed.

mod bits;
mod draw;
mod fleet;
mod group;
mod group_reason;
mod group_search;
mod growth;
mod machine;
mod near;
mod node_group;
mod node_view;
mod order;
mod place;
mod preempt;
mod reason;
mod recall;
mod shape;
mod shares;
mod strategy;
mod verdict;
mod wait_queue;

pub use draw::{BundlePart, DrawnBundle, draw};
pub use fleet::{Fleet, Found};
pub use group::{BUNDLES_MAX, Bundle, Group, GroupPlacement, GroupStrategy, place_group};
pub use group_reason::{GroupObstacle, GroupReason};
pub use growth::{
    GroupSituation, GrowthNeed, Launch, MachineSituation, Plan, Removal, Replica, ReplicaState, SeenDomains, Situation,
    Unmet, Waiting as WaitingKind, plan,
};
pub use near::{LARGE_BYTES_MIN, Near};
pub use node_group::{IDLE_TIMEOUT_MS, NodeGroup};
pub use node_view::{HALF, Misfit, NodeView, STEPS};
pub use order::{Claimant, Priority, Rank, Standing};
pub use place::{Placement, place};
pub use preempt::{Eviction, HeldPart, Preemptible, SoughtRoom, UrgentWaiter, preempt};
pub use reason::{Obstacle, Reason};
pub use recall::{HeldLease, Recall, Waiter, recalls};
pub use shares::{Asks, JobShare, Shares};
pub use strategy::{Condition, Operator, Otherwise, Place, ResourceRequest, Selector, Strategy};
pub use verdict::{Rule, Verdict, group_verdicts, verdicts};
pub use wait_queue::{PushError, WAITING_MAX, WaitQueue, Waiting};

#[cfg(test)]
mod tests;
