//! Finds the clusters that run on this machine, and asks their daemons.
//!
//! A *visitor* is a process that connects to a daemon to ask or to order, and runs nothing: the command line, the
//! autoscaler, the operator. [`session`] finds the daemons of this user, for visitors and for drivers; [`Visitor`] is the
//! connection of a visitor, [`json`] writes what a head answers for people and programs, and [`profile`] where threads spent
//! their time.

mod http_token;
pub mod json;
pub mod profile;
pub mod session;
mod visitor;

pub use http_token::http_token;
pub use session::{Description, FoundSession};
pub use visitor::{Question, Remembered, VisitError, Visitor, number_of};
