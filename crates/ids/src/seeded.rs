//! Identifiers of runs that can be had again.

use crate::Unique;

impl Unique {
    /// Starts where a seed says.
    pub fn of_seed(seed: u64) -> Self {
        let mut start = Self { state: seed, row: 0 };
        Self { row: start.next(), state: start.next() }
    }
}
