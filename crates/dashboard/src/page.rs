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

mod events;
mod holdings;
mod keeper;
mod lists;
mod merging;
mod pictures;
mod replies;
mod rows;
mod series;
mod tables;
pub(crate) mod views;

pub(crate) use keeper::Page;
