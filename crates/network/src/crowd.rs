//! Who has shown wrong secrets, and is not listened to for a while. No I/O and no clock.
//!
//! A secret of 256 bits is not guessed; what is limited is the work that trying makes, here and in the log.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How many wrong proofs an address may show within [`WINDOW`].
pub(crate) const WRONG_PROOFS_MAX: u32 = 10;
/// For how long wrong proofs count.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// How many addresses are remembered; the one that erred longest ago is forgotten first.
const ADDRESSES_MAX: usize = 1024;

/// Addresses with wrong proofs: how many, and since when they are counted.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    wrong: BTreeMap<IpAddr, (u32, Instant)>,
}

impl Crowd {
    /// A peer showed a wrong proof.
    pub(crate) fn erred(&mut self, address: IpAddr, now: Instant) {
        self.wrong.retain(|_, (_, since)| now.saturating_duration_since(*since) < WINDOW);
        if self.wrong.len() >= ADDRESSES_MAX && !self.wrong.contains_key(&address) {
            let oldest = self.wrong.iter().min_by_key(|(_, (_, since))| *since).map(|(address, _)| *address);
            oldest.and_then(|oldest| self.wrong.remove(&oldest));
        }
        let (count, _) = self.wrong.entry(address).or_insert((0, now));
        *count = count.saturating_add(1);
    }

    /// Whether nothing more is read from the address for now.
    pub(crate) fn is_barred(&self, address: IpAddr, now: Instant) -> bool {
        let found = self.wrong.get(&address);
        found.is_some_and(|(count, since)| *count >= WRONG_PROOFS_MAX && now.saturating_duration_since(*since) < WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(number))
    }

    #[test]
    fn who_errs_often_is_barred_for_a_while_and_nobody_else() {
        let (mut crowd, begin) = (Crowd::default(), Instant::now());
        for _ in 0..WRONG_PROOFS_MAX {
            assert!(!crowd.is_barred(address(1), begin));
            crowd.erred(address(1), begin);
        }
        assert!(crowd.is_barred(address(1), begin));
        assert!(!crowd.is_barred(address(2), begin));
        assert!(!crowd.is_barred(address(1), begin + WINDOW));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut crowd, begin) = (Crowd::default(), Instant::now());
        for number in 0..3 * ADDRESSES_MAX as u32 {
            crowd.erred(address(number), begin + Duration::from_nanos(u64::from(number)));
        }
        assert_eq!(crowd.wrong.len(), ADDRESSES_MAX);
    }
}
