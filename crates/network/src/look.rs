//! Whether the thread looks for what comes for a moment before it sleeps.
//!
//! To wake a thread that sleeps costs 10 to 30 µs here, and a call to another machine and back wakes this thread, or
//! its like, four times. So after something came it looks on for a little, and lets whoever wants the core have it
//! between two looks. After one in vain many waits go by without.

use std::time::Duration;

/// The longest look: about two wake-ups.
pub(crate) const LOOK: Duration = Duration::from_micros(50);
/// After a look in vain, so many waits go by without one.
const SOBER_WAITS: u32 = 64;
/// The same where others had the core for much longer than the look was to last: on a busy machine, who sleeps is woken
/// sooner than who yields is heard again.
const CROWDED_WAITS: u32 = 4096;
/// What is much longer.
const CROWDED: Duration = Duration::from_micros(500);

/// Remembers whether the last look paid.
#[derive(Debug)]
pub(crate) struct Look {
    sober: u32,
    has_cores: bool,
}

impl Default for Look {
    fn default() -> Self {
        // With one core, whoever is to answer cannot run meanwhile.
        let has_cores = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
        Self { sober: 0, has_cores }
    }
}

impl Look {
    /// Whether to look before this wait.
    pub(crate) fn is_due(&mut self) -> bool {
        self.sober = self.sober.saturating_sub(1);
        self.has_cores && self.sober == 0
    }

    /// What a look came to, and how long it took.
    pub(crate) fn learn(&mut self, found: bool, took: Duration) {
        self.sober = match found {
            _ if took > CROWDED => CROWDED_WAITS,
            true => 0,
            false => SOBER_WAITS,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_in_vain_is_followed_by_many_waits_without() {
        let mut look = Look { sober: 0, has_cores: true };
        assert!(look.is_due());
        look.learn(true, LOOK);
        assert!(look.is_due());
        look.learn(false, LOOK);
        assert_eq!((0..SOBER_WAITS).filter(|_| look.is_due()).count(), 1);
        look.learn(true, CROWDED * 2);
        assert_eq!((0..CROWDED_WAITS).filter(|_| look.is_due()).count(), 1);
        assert!(!Look { sober: 0, has_cores: false }.is_due());
    }
}
