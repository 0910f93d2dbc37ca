//! The in-process half of drivers and workers: references, ownership, submission, actor calls.
//!
//! ```text
//! Runtime ── Shared (one lock, who waits reads: lead.rs)
//!               └── State ── links.rs      streams to the daemon, to workers and actors, from clients
//!                        ├── objects.rs    values and references
//!                        ├── submit.rs     tasks, classes, leases
//!                        ├── retrying.rs   tasks that are run again, and when
//!                        ├── lineage.rs    how stored values were made; recover.rs makes lost ones again, regaining.rs
//!                        │                 lost items
//!                        ├── actors.rs     ordered calls to actors, made in creation.rs
//!                        ├── streams.rs    results that come one by one, read in reading.rs
//!                        ├── execute.rs    calls to be run here, interrupted in interrupt.rs; yielding.rs: those whose
//!                        │                 results go one by one
//!                        ├── cancel.rs     calls that are not wanted any more
//!                        ├── groups.rs     placement groups that are awaited
//!                        ├── resuming.rs   what a head that came back is told; away.rs finds it
//!                        ├── room_ahead.rs room in the store for what is put next
//!                        └── questions.rs  answers of the daemon, segments of the store
//! ```
//!
//! Nothing here knows Python: values are bytes, and what they mean is the front's business.

mod actors;
mod awaited_groups;
mod away;
mod cancel;
mod classes;
mod code;
mod contained;
mod creation;
mod draining;
mod execute;
mod finish;
mod fresh_groups;
mod groups;
mod interrupt;
mod labels;
mod lead;
mod leases;
mod lending;
mod lineage;
mod links;
mod looking;
mod metrics;
mod near;
mod object_log;
mod objects;
mod pins_ahead;
mod puts;
mod questions;
mod reading;
mod recover;
mod regaining;
mod resuming;
mod retrying;
mod room_ahead;
mod runtime;
mod serving;
mod slack;
mod spin;
mod state;
mod stored;
mod streams;
mod submit;
mod table;
mod task_log;
mod title;
mod unfinished;
mod waits;
mod watched;
mod work;
mod yielding;

pub use away::Entry;
pub use cancel::NotForced;
pub use contained::Seen;
pub use draining::Draining;
pub use execute::{Duty, Outcome, Ticket};
pub use labels::{begin_output, label_output};
pub use lead::Unmet;
pub use metrics::{MetricIndex, MetricKind, NotKept, begin_metrics, declare_metric, record_metric};
pub use pins_ahead::{AskedPin, PinsAhead};
pub use reading::{Next, Waitable};
pub use retrying::MemoryRetries;
pub use runtime::{ActorWork, INLINE_BYTES, Runtime, RuntimeError};
pub use state::{Identity, News};
pub use stored::{Figures, LOST, Pinned};
pub use submit::{INLINE_TOTAL_BYTES, amounts};
pub use title::{begin_titles, show_title};
pub use waits::Gathered;
pub use work::{Arguments, Class, ClassIndex, EVERYTHING, Place, Routine, Streaming, Work};
pub use yielding::{Pace, Yielded};
