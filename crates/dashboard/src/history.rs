//! History: what happened in a cluster and how its lists were, in files that outlive it
//! ([the contract](../../../docs/formats/history.md)).
//!
//! ```text
//! daemon ── recorder ── lines ── writer ── shelf ── <session>/<job>.jsonl.gz, or parts in storage that speaks S3
//!                                            └── reading ── past ── page, JSON, report
//! ```
//!
//! - HISTORY-1: a kill loses what was seen since the last flush, 5 s at most where the shelf takes what it is given; what is
//!   in the files before can be read.
//! - HISTORY-2: what is kept is bounded, of a job, of all sessions and in days, and so is what waits for a shelf that does not
//!   take it. What was left out is told of in the files.
//! - HISTORY-3: what is read takes bounded memory, whatever is in the files.
//! - HISTORY-4: nothing waits for history: neither the daemon, nor who looks at the page.

mod index;
mod line;
mod mending;
mod past;
mod processors;
mod reading;
mod recorder;
mod report;
mod seen;
mod serving;
mod shelf;
mod storage;
mod tidying;
mod unpacking;
mod views;
mod writer;

pub(crate) use past::Past;
pub(crate) use reading::{Asked, read};
pub(crate) use recorder::{Recorder, Recording};
pub(crate) use report::report;
pub(crate) use serving::serve;
pub(crate) use tidying::Bounds;
