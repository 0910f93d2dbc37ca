//! A family of accelerators beside the product's, and what follows from its one file.
//!
//! `tests/fixtures/eighth_family/family.rs` is all that there is of the family; the recorded host beside it has four of its
//! devices. `cargo test --release -p oxiray-eighth-family --features eighth-family` builds the crates that read the table of
//! families with it, and nothing that a user runs ever has it. What Python would be told of it is in `table.json` beside it.

#[cfg(all(test, feature = "eighth-family"))]
mod follows;
