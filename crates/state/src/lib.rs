//! Lists of the cluster's state: their columns, filters, limits and counts, and copies that follow their changes.
//!
//! ```text
//! head:    rows ── list ──▶ StateReport          those that pass the filters, as many as the limit allows, or counts
//! visitor: StateReport ── shown ──▶ columns      the same rows in Ray's columns, each value a Cell
//! ```
//!
//! Rows and messages are types of `oxiray_wire`. Nothing here knows JSON: whoever shows a [`Cell`] writes it.

mod cell;
mod changes;
mod columns;
mod list;
mod summary;

pub use cell::Cell;
pub use changes::{FOLLOWED, RowsByKey, StateCopy};
pub use columns::{Column, EVENT_COLUMNS, Row, Use, actor_state, columns, is_pending, state_name};
pub use list::{ROWS_MAX, Shown, list, shown};
pub use summary::{Counted, NOT_RECORDED, shown_summary};
