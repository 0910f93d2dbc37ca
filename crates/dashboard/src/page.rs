//! What the page's views are answered from: tables that are kept from the chronicle and from the head's reports, and the answers
//! made of them ([the contract](../../../docs/formats/page.md)).
//!
//! ```text
//! daemon ── keeper ── tables: holdings, series, events, the head's last report
//!                       └── lists, pictures ── rows, bars ── routes ── page
//! ```
//!
//! - PAGE-1: what is kept is bounded, however long the cluster runs and however many look at it.
//! - PAGE-2: nobody who reads slowly, or not at all, makes anything wait or grow: a line of changes is made when the last one was
//!   taken.

pub(crate) mod acts;
pub(crate) mod counts;
pub(crate) mod cpus;
mod deadlines;
pub(crate) mod events;
pub(crate) mod holdings;
mod keeper;
pub(crate) mod lists;
mod machines;
pub(crate) mod merging;
pub(crate) mod pictures;
pub(crate) mod replies;
pub(crate) mod rows;
mod runs;
mod series;
pub(crate) mod tables;
pub(crate) mod views;

pub(crate) use keeper::{Page, now_ms};
