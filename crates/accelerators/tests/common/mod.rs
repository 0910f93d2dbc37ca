//! What the tests of this crate share.

use std::path::PathBuf;

/// The folder of a recorded machine.
pub(crate) fn machine(name: &str) -> PathBuf {
    machines().join(name)
}

/// The folder of all recorded machines.
pub(crate) fn machines() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hosts")
}
