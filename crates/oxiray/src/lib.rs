//! Functions and actors of a Rust program, run in other processes and on other machines, with the accelerators they ask
//! for.
//!
//! ```standalone_crate
//! #[oxiray::remote]
//! fn add(a: i64, b: i64) -> i64 {
//!     a + b
//! }
//!
//! #[oxiray::remote]
//! impl Counter {
//!     pub fn new(start: i64) -> Self {
//!         Self { value: start }
//!     }
//!
//!     pub fn add(&mut self, by: i64) -> i64 {
//!         self.value += by;
//!         self.value
//!     }
//! }
//!
//! struct Counter {
//!     value: i64,
//! }
//!
//! fn main() -> oxiray::Result<()> {
//!     let _cluster = oxiray::init()?;
//!     let three = add::remote(1, 2)?;
//!     let six = add::remote(&three, 3)?; // references are waited for where the function runs
//!     assert_eq!(six.get()?, 6);
//!
//!     let counter = Counter::remote(10)?;
//!     counter.add(1)?;
//!     assert_eq!(counter.add(1)?.get()?, 12);
//!     Ok(())
//! }
//! ```
//!
//! # How it works
//!
//! There is nothing to ship: **workers are the program itself**. [`init`] finds the daemon that `oxiray start` left running,
//! or starts one that ends with this program; the daemon starts the program once as a *template*, which forks a worker
//! whenever one is wanted, within a millisecond. A machine of the cluster that lacks the program fetches it, by the digest
//! of its content.
//!
//! The daemon is the program `oxiray`, which is installed once (`cargo install oxiray-cli`, or `pip install oxiray`): it is
//! no part of this crate. Where it is looked for, [`Builder::oxiray_binary`] tells.
//!
//! In such a process `init` never returns. What `main` does before it is done there too, so call it first; or write
//! `#[oxiray::main]`, which sees to that before an asynchronous runtime is started.
//!
//! # Values
//!
//! Arguments and results are anything that `serde` can write and read. [`Blob`] and [`Array`] are read where they lie, in
//! the machine's object store, without being copied. An [`ObjectRef`] may be part of any value.
//!
//! Python programs call these functions by their names, and the reverse: see [`python`].
//!
//! ```text
//! cluster.rs    init: a connection begun and ended; template.rs: what the daemon starts this program as. What all
//!               languages do in the same way is in `oxiray-client`
//! program.rs    this program, by its content; folder.rs: what goes with it; packages.rs: where both are kept
//! registry.rs   what `#[remote]` gathered; worker.rs runs it
//! task.rs, actor.rs, group.rs, options.rs   what a program asks for
//! outgoing.rs   arguments on their way out; incoming.rs: in; answer.rs: what came of the call; drive.rs: async ones
//! error.rs      why something could not be had; thrown.rs: errors of functions, on their way
//! reference.rs  ObjectRef; items.rs: results that come one by one; objects.rs: put, get, wait
//! news.rs       output, errors, values that are awaited
//! ```

mod actor;
mod addresses;
mod answer;
mod client_events;
mod cluster;
mod context;
mod drive;
mod error;
mod folder;
mod group;
mod incoming;
mod items;
mod objects;
mod options;
mod outgoing;
mod packages;
mod process;
mod program;
pub mod python;
mod reference;
mod registry;
mod stacks;
mod task;
mod template;
mod thread_context;
mod thrown;
mod worker;

pub use actor::{Actor, ActorHandle, get_actor, get_actor_in, kill};
pub use cluster::{Builder, Cluster, init};
pub use context::{Accelerator, RuntimeContext, preempted, runtime_context};
pub use drive::block_on;
pub use error::{Error, Result, TaskError};
pub use group::{PlacementGroup, Spread};
pub use items::{Items, NextItem};
pub use objects::{Awaited, Waited, cancel, cancel_alone, get, get_timeout, put, put_common, wait};
pub use options::{ActorOptions, Scheduling, TaskOptions};
pub use outgoing::Argument;
pub use oxiray_macros::{main, remote};
pub use oxiray_runtime::Preempted;
pub use oxiray_values::{Array, Blob, Common, Element, ShapeError, ValueError};
pub use oxiray_wire::message::FailureCode;
pub use reference::{Arrival, ObjectRef, Returned};
pub use template::serve_if_asked;

/// What the code that `#[remote]` makes leans on. Not for others.
#[doc(hidden)]
pub mod __private {
    pub use crate::actor::{MethodCall, create};
    pub use crate::answer::{Answer, Parts};
    pub use crate::drive::drive;
    pub use crate::incoming::{Incoming, Outcome};
    pub use crate::outgoing::Outgoing;
    pub use crate::registry::{Entry, Kind, Method};
    pub use crate::task::RemoteFunction;
    pub use crate::thrown::{InFull, InWords, Thrown};
    pub use inventory;
    pub use parking_lot::RwLock;
    pub use serde;
}
