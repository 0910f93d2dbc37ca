//! Features of dependencies, the same whichever packages cargo is asked for.
//!
//! Cargo unifies the features of a dependency over the packages that it was asked to build. Where the command line asks
//! for one set and the tests for another, it compiles the dependency twice, and everything of ours that leans on it. So
//! the programs that `make` builds lean on this crate, whose manifest asks for all features that any of them asks for;
//! it has no code. `cargo-hakari` calls such a crate a workspace hack. `tests/repository/test_features.py` says which
//! features are missing here.
