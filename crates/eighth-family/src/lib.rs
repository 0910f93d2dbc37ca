//! A family of accelerators beside the product's, and what follows from its one file.
//!
//! `tests/fixtures/eighth_family/family.rs` is all that there is of the family; the recorded host beside it has four of its
//! devices. `cargo test --release -p oxiray-eighth-family --features eighth-family` builds the crates that read the table of
//! families with it, and nothing that a user runs ever has it. What Python is told of it is in `table.json` beside it, which
//! `tests/api/test_eighth_family.py` gives to the front.

#[cfg(all(test, feature = "eighth-family"))]
mod follows;
