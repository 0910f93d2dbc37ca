//! Everything that is left to chance, from one seed.

use crate::agenda::Micros;

/// The world's dice.
#[derive(Debug)]
pub(crate) struct Chance(fastrand::Rng);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// True so many times of a thousand.
    pub(crate) fn odds(&mut self, per_mille: u32) -> bool {
        self.0.u32(..1000) < per_mille
    }

    /// From the one to the other, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0.u64(least..=most.max(least))
    }

    /// Mostly short, at times up to a hundred times as long.
    pub(crate) fn delay(&mut self, usual: Micros) -> Micros {
        let most = if self.odds(30) { usual * 100 } else { usual * 2 };
        self.between(usual / 4, most)
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.0.usize(..from.len())])
    }

    /// One of these, of which there is at least one.
    pub(crate) fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.0.usize(..from.len())]
    }

    /// A seed for somebody else.
    pub(crate) fn seed(&mut self) -> u64 {
        self.0.u64(..)
    }
}
