//! The in-process half of drivers and workers: references, ownership, submission, actor calls.
//!
//! ```text
//! Runtime ── Shared (one lock, who waits reads: lead.rs)
//!               └── Client (core.rs: pure) ──▶ Shell (shell.rs: carries out what the core decides)
//!                                               ├── links.rs       sockets and rings; watched.rs, spin.rs
//!                                               ├── unfinished.rs  frames that were begun and do not end
//!                                               ├── away.rs        finds a daemon that comes back
//!                                               ├── metrics.rs     what programs measure
//!                                               └── segments       files of the store that are mapped (stored.rs)
//! ```
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
mod runtime;
mod serving;
mod shell;
mod spin;
mod stored;
mod title;
mod unfinished;
mod waits;
mod watched;
mod yielding;

pub use away::Entry;
pub use core::INLINE_BYTES;
pub use core::cancel::NotForced;
pub use core::client::{Identity, News};
pub use core::contained::Seen;
pub use core::draining::Draining;
pub use core::execute::{Duty, Outcome, Ticket};
pub use core::program::Retained;
pub use core::questions::DaemonAnswer;
pub use core::reading::{Next, Waitable};
pub use core::retrying::MemoryRetries;
pub use core::submit::{INLINE_TOTAL_BYTES, amounts};
pub use core::work::{Arguments, Class, ClassIndex, EVERYTHING, Place, Routine, Streaming, Work};
pub use core::yielding::{Pace, Yielded};
pub use core::{Client, DAEMON, Io, Role, Token};
pub use labels::{begin_output, label_output};
pub use lead::Unmet;
pub use metrics::{MetricIndex, MetricKind, NotKept, begin_metrics, declare_metric, record_metric};
pub use pins_ahead::{AskedPin, PinsAhead};
pub use runtime::{ActorWork, Runtime, RuntimeError};
pub use stored::{Figures, LOST, Pinned};
pub use title::{begin_titles, show_title};
pub use waits::Gathered;
