//! Device nodes that the kernel refuses to a process.
//!
//! A fence is a list of device nodes that a process, and whatever descends from it, cannot open. Three mechanisms of
//! the kernel make one, strongest first ([`Mechanism`]):
//!
//! ```text
//!            refuses by     error   taken on                                exchanged
//! cgroup     device number  EPERM   by entering a cgroup, at birth          at any time, in place
//! cgroup1    device number  EPERM   by entering a cgroup, at birth          at any time, in place
//! landlock   path           EACCES  by the process itself, with one thread  never
//! ```
//!
//! ```text
//! in the daemon                                            in the worker
//! DaemonCgroup::make_worker, refuse ── directory ────────▶ enter, between fork and exec
//! Ruleset::all_but ── descriptor ────────────────────────▶ restrict_self, before a second thread
//! DenyList ──────────────────────────────────────────────▶ close_strays, before code of the user
//! ```
//!
//! - FENCE-1: a fence refuses the nodes of its deny-list and no others. By number it does so under any name; by path,
//!   under the given names, those that mounts give to them, and those of their number beside them.
//! - FENCE-2: while a fence is exchanged for another, nothing can be opened that neither of the two lets through.
//! - FENCE-3: no fence opens what a fence of somebody else refuses.
//! - FENCE-4: what a probe says to work was tried here, by a process that was refused a node and opened another.
//! - FENCE-5: what a daemon left behind is removed only when that daemon is dead: while it lives it holds a lock.
//!
//! What no fence does: take back a descriptor that is open already ([`close_strays`] closes inherited ones), or hold a
//! process of root that writes itself into a cgroup further up.

mod cgroup;
mod error;
mod exceptions;
mod landlock;
mod means;
mod mounts;
mod node;
mod own_cgroup;
mod program;
mod strays;
mod tree;

pub use cgroup::{DaemonCgroup, WorkerCgroup, end_processes_in, enter, processes_in};
pub use error::FenceError;
pub use landlock::{Ruleset, restrict_self};
pub use means::{Isolation, Means, Mechanism, keep_capabilities_to_oneself};
pub use node::{DenyList, DenyRule, Node, NodeKind};
pub use own_cgroup::CgroupVersion;
pub use strays::{Stray, close_strays, own_strays, strays_of};
