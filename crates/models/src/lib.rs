//! Protocols between threads and processes that are made by hand, run under loom: in every order of their steps, and with
//! every stale value that the memory model lets a processor see.
//!
//! The code is the product's own: each model includes the product's module by its path, with loom's atomics and locks in
//! place of the machine's. `cargo test --release -p oxiray-models --features loom` runs them.

#[cfg(all(test, feature = "loom"))]
mod lead;
#[cfg(all(test, feature = "loom"))]
mod ring;
