//! Whether a thread that waits looks for an answer for a moment before it sleeps.
//!
//! Waking a thread that sleeps on another core costs 10 to 30 µs here (an interrupt, and on virtual machines an exit),
//! as much as everything else in a call together. Where answers come sooner than that, it is cheaper to keep looking.
//! Where they do not, looking takes the core from whoever is to answer. So it is tried now and then, continued only as
//! long as it succeeds every time, and never lasts longer than [`SPIN`].

use std::time::Duration;

/// The longest look: about two wake-ups.
pub(crate) const SPIN: Duration = Duration::from_micros(50);
/// After a look in vain, so many waits go by without one.
const SOBER_WAITS: u32 = 64;

/// Remembers whether the last look paid.
#[derive(Debug)]
pub(crate) struct Spin {
    sober: u32,
    has_cores: bool,
}

impl Default for Spin {
    fn default() -> Self {
        // With one core, whoever is to answer cannot run meanwhile.
        let has_cores = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
        Self { sober: 0, has_cores }
    }
}

impl Spin {
    /// Whether to look before this wait.
    pub(crate) fn is_due(&mut self) -> bool {
        if self.sober > 0 {
            self.sober -= 1;
        }
        self.has_cores && self.sober == 0
    }

    /// What a look came to.
    pub(crate) fn learn(&mut self, found: bool) {
        self.sober = if found { 0 } else { SOBER_WAITS };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_in_vain_is_followed_by_many_waits_without() {
        let mut spin = Spin { sober: 0, has_cores: true };
        assert!(spin.is_due());
        spin.learn(true);
        assert!(spin.is_due());
        spin.learn(false);
        assert_eq!((0..SOBER_WAITS).filter(|_| spin.is_due()).count(), 1);
        assert!(!Spin { sober: 0, has_cores: false }.is_due());
    }
}
