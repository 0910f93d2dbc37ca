//! The in-process half of drivers and workers: references, ownership, submission, actor calls.
//!
//! ```text
//! Runtime ── Shared (lead.rs: one lock, and threads that wait; lead/protocol.rs: who of them reads)
//!               └── Client (core.rs: pure) ──▶ Shell (shell.rs: carries out what the core decides)
//!                                               ├── links.rs       sockets and rings; watched.rs, spin.rs
//!                                               ├── unfinished.rs  frames that were begun and do not end
//!                                               ├── away.rs        finds a daemon that comes back (returning.rs)
//!                                               ├── metrics.rs     what programs measure (telling.rs)
//!                                               ├── interrupts.rs  the thread that runs calls, interrupted
//!                                               └── segments       files of the store that are mapped (stored.rs)
//! ```
//!
//! What `Runtime` does for the front lies beside it, by subject: `runtime.rs` first, then `stored`, `waits`, `reading`,
//! `pins_ahead` (values), `serving`, `yielding` (calls that are run here), `groups`, `cancel`, `labels`, `title`. Methods of
//! the shell with the core in it, which is called `State`, lie in the folder `shell/`.
//!
//! Nothing here knows Python: values are bytes, and what they mean is the front's business.

mod away;
mod cancel;
mod contained;
mod core;
mod draining;
mod groups;
mod interrupts;
mod labels;
mod lead;
mod links;
mod looking;
mod metrics;
mod pins_ahead;
mod puts;
mod reading;
mod returning;
mod runtime;
mod serving;
mod shell;
mod spin;
mod stored;
mod telling;
mod title;
mod unfinished;
mod waits;
mod watched;
mod yielding;

pub use away::Entry;
pub use core::INLINE_BYTES;
pub use core::actors::ActorPhase;
pub use core::calls::amounts;
pub use core::client::cancel::NotForced;
pub use core::client::program::Retained;
pub use core::client::reading::{Next, Waitable};
pub use core::client::submit::INLINE_TOTAL_BYTES;
pub use core::contained::ScannedValue;
pub use core::draining::{Draining, Preempted};
pub use core::execute::{Duty, Outcome, Ticket};
pub use core::identity::Identity;
pub use core::questions::DaemonAnswer;
pub use core::retrying::MemoryRetries;
pub use core::signals::ClientEvent;
pub use core::work::{Arguments, Class, ClassIndex, EVERYTHING, Place, Routine, Streaming, Work};
pub use core::yielding::{Pace, Yielded};
pub use core::{Client, DAEMON, Io, Role, Token};
pub use labels::{begin_output, begin_prints, end_prints, has_prints, label_next_call, label_output, label_print};
pub use lead::protocol::Unmet;
pub use metrics::{MetricIndex, MetricKind, NotKept, declare_metric, record_metric};
pub use oxiray_store::PrivateMapping;
pub use pins_ahead::{AskedPin, PinsAhead};
pub use runtime::{ActorWork, Runtime, RuntimeError};
pub use stored::{Figures, Pinned};
pub use telling::begin_metrics;
pub use title::show_title;
pub use waits::{Gathered, ReadyPlaces};

/// In a process that workers are forked from: what each of them would find out for itself is found out once.
pub fn before_forks() {
    title::find_titles();
    spin::has_cores();
}
