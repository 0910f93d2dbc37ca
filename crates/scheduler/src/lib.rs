//! Which machine a demand runs on, or why none can; and the queue of those that wait.
//!
//! Everything here is a function of its arguments: no clock, no socket, no file, no thread and no
//! random source. The caller owns the ledgers and the clock, and starts what was placed.

mod node_view;
mod place;
mod reason;
mod strategy;
mod wait_queue;

pub use node_view::NodeView;
pub use place::{PACKED_UNTIL, Placement, place};
pub use reason::{Obstacle, Reason};
pub use strategy::{Condition, Operator, Otherwise, Place, Selector, Strategy, Wish};
pub use wait_queue::{PushError, WAITING_MAX, WaitQueue, Waiting};

#[cfg(test)]
mod tests;
