//! What Ray 2.60 answers over HTTP, made of what Oxiray knows: the bodies of its jobs API and of its lists of the
//! cluster's state, and metrics under its names.
//!
//! Pure: no clock, no socket, no file. The dashboard asks the head, hands the answers to these functions, and sends what
//! they return.

mod answer;
pub mod cluster_status;
pub mod discovery;
pub mod jobs;
pub mod logs;
pub mod nodes;
mod ordered;
pub mod profiling;
mod rows;
pub mod state;

pub use answer::RayAnswer;
pub use ordered::Ordered;
