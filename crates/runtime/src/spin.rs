//! Whether a thread that waits looks for an answer for a moment before it sleeps.
//!
//! Waking a thread that sleeps on another core costs 10 to 30 µs here (an interrupt, and on virtual machines an exit),
//! as much as everything else in a call together. Where answers come sooner than that, it is cheaper to keep looking.
//! Where they do not, looking takes the core from whoever is to answer. So it is given up for a while after a look in
//! vain: for longer each time that happens again, for less long after looks that paid. It never lasts longer than
//! [`SPIN`].

use std::sync::OnceLock;
use std::time::Duration;

/// The longest look: about two wake-ups.
pub(crate) const SPIN: Duration = Duration::from_micros(50);
/// After a look in vain at most so many waits go by without one.
const SOBER_WAITS_MAX: u32 = 64;
/// By how much a look in vain lengthens the time without. One that paid halves it, so that it takes three of those for each
/// in vain to go on looking: with fewer it would cost more than it saves.
const LENGTHENING: u32 = 8;

/// Remembers whether looks paid.
#[derive(Debug)]
pub(crate) struct Spin {
    /// Waits without a look that are left.
    sober: u32,
    /// How many waits the next look in vain is followed by, divided by [`LENGTHENING`].
    doubt: u32,
    has_cores: bool,
}

/// Whether there are several cores. With one, whoever is to answer cannot run meanwhile.
pub(crate) fn has_cores() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1))
}

impl Default for Spin {
    fn default() -> Self {
        Self::on(has_cores())
    }
}

impl Spin {
    fn on(has_cores: bool) -> Self {
        Self { sober: 0, doubt: 1, has_cores }
    }

    /// Whether to look before this wait.
    pub(crate) fn is_due(&mut self) -> bool {
        if self.sober > 0 {
            self.sober -= 1;
        }
        self.has_cores && self.sober == 0
    }

    /// What a look came to.
    pub(crate) fn learn(&mut self, found: bool) {
        self.doubt = if found { (self.doubt / 2).max(1) } else { (self.doubt * LENGTHENING).min(SOBER_WAITS_MAX) };
        self.sober = if found { 0 } else { self.doubt };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the next waits have a look, where all are in vain.
    fn looks(spin: &mut Spin, waits: u32) -> u32 {
        (0..waits)
            .map(|_| {
                let looks = spin.is_due();
                if looks {
                    spin.learn(false);
                }
                u32::from(looks)
            })
            .sum()
    }

    #[test]
    fn looks_in_vain_become_rare() {
        let mut spin = Spin::on(true);
        assert_eq!(looks(&mut spin, 1000), 1000 / SOBER_WAITS_MAX + 2, "two of them before it is as rare as it gets");
        assert_eq!(looks(&mut Spin::on(false), 1000), 0);
    }

    #[test]
    fn one_in_vain_among_many_that_pay_changes_little() {
        let mut spin = Spin::on(true);
        let mut waits = 0;
        for number in 0..1000 {
            while !spin.is_due() {
                waits += 1;
            }
            spin.learn(number % 100 != 0);
        }
        assert!(waits < 1000 / 100 * LENGTHENING, "{waits} waits without a look");
    }
}
