//! How many devices nodes may take out of service by themselves. A fault of a driver looks like many bad devices, and a
//! cluster without any is worse than one with some that fail.
//!
//! - BREAKER-1: of the devices of a resource, more than half are never out of service for what was found within
//!   [`WINDOW`], but for those that do not answer at all.

use oxiray_machine::Key;
use oxiray_wire::state::DeviceCondition;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// For how long a device counts that was taken out of service.
const WINDOW: Duration = Duration::from_secs(600);

/// A device of a member.
type Device = (String, Key, u32);

/// The devices that nodes took out of service of late.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    taken: BTreeMap<Device, Instant>,
}

impl Breaker {
    /// A member told of its devices. Returns those that it is to keep in service after all; `total` is how many devices of a
    /// resource the cluster has.
    pub(crate) fn judge<'a>(
        &mut self,
        member: Key,
        told: impl IntoIterator<Item = &'a DeviceCondition>,
        total: impl Fn(&str) -> u64,
        now: Instant,
    ) -> Vec<(String, u32)> {
        self.taken.retain(|_, since| now.saturating_duration_since(*since) < WINDOW);
        let mut kept = Vec::new();
        for condition in told.into_iter().filter(|condition| condition.is_automatic) {
            let resource = &condition.resource;
            self.taken.entry((resource.clone(), member, condition.slot)).or_insert(now);
            let taken = self.taken.keys().filter(|(of, _, _)| of == resource).count() as u64;
            if taken * 2 > total(resource) {
                self.taken.remove(&(resource.clone(), member, condition.slot));
                kept.push((resource.clone(), condition.slot));
            }
        }
        kept
    }

    /// A member is gone, with its devices.
    pub(crate) fn member_gone(&mut self, member: Key) {
        self.taken.retain(|(_, of, _), _| *of != member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(slot: u32) -> DeviceCondition {
        DeviceCondition { resource: "GPU".into(), slot, is_automatic: true, ..DeviceCondition::default() }
    }

    fn by_hand(slot: u32) -> DeviceCondition {
        DeviceCondition { is_automatic: false, ..out(slot) }
    }

    #[test]
    fn half_of_the_devices_may_be_taken_out_and_no_more() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        let of_four = |_: &str| 4;
        assert_eq!(breaker.judge(1, &[out(0), by_hand(3)], of_four, now), []);
        assert_eq!(breaker.judge(2, &[out(0)], of_four, now), []);
        assert_eq!(breaker.judge(2, &[out(0), out(1)], of_four, now), [("GPU".to_owned(), 1)], "BREAKER-1");
        assert_eq!(breaker.judge(2, &[out(0)], of_four, now), [], "those that are known count once");
        let later = now + WINDOW;
        assert_eq!(breaker.judge(2, &[out(1)], of_four, later), [], "those of long ago do not count");
        breaker.member_gone(2);
        assert!(breaker.taken.is_empty());
    }

    #[test]
    fn the_last_device_is_kept() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        assert_eq!(breaker.judge(1, &[out(0)], |_| 1, now), [("GPU".to_owned(), 0)]);
        assert_eq!(breaker.judge(1, &[out(0)], |_| 2, now), [], "there is another one");
    }
}
