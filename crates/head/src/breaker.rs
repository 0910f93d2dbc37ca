//! How many devices nodes may take out of service by themselves. A fault of a driver looks like many bad devices, and a
//! cluster without any is worse than one with some that fail.
//!
//! - BREAKER-1: of the devices of a resource, more than half are never out of service for what was found within
//!   [`WINDOW`], but for those that do not answer at all.
//! - BREAKER-2: what is kept in service so is told as long as it counts, with why it would be out of it.
//! - BREAKER-3: nodes with more than half of the devices of a resource are never drained within [`WINDOW`] since their drivers
//!   need restarts of the machines: such a node may have many more devices that are well.

use oxiray_machine::Key;
use oxiray_wire::state::DeviceCondition;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// For how long a device counts that was taken out of service, and for how long it is said that one is kept in it.
const WINDOW: Duration = Duration::from_secs(600);

/// A device of a member.
type Device = (String, Key, u32);

/// A device that is kept in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    /// What it counts as.
    pub(crate) resource: String,
    /// Its member.
    pub(crate) member: Key,
    /// Its number there.
    pub(crate) slot: u32,
    /// Why it would be out of service.
    pub(crate) reason: String,
}

/// The devices that nodes took out of service of late.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    taken: BTreeMap<Device, Instant>,
    /// Those that were to be kept in service after all, since when and why they would not be.
    kept: BTreeMap<Device, (Instant, String)>,
    /// The members that were drained since their machines are to be started again, those that are gone among them.
    restarts: Vec<Restart>,
}

/// A member that was drained since its machine is to be started again.
#[derive(Debug)]
struct Restart {
    since: Instant,
    member: Key,
    /// Of which resource the device is for which it is to be, and how many of them the member has.
    resource: String,
    devices: u64,
}

impl Breaker {
    /// A member told of its devices. Returns those that it is to keep in service after all, each with whether that is news;
    /// `total` is how many devices of a resource the cluster has.
    pub(crate) fn judge<'a>(
        &mut self,
        member: Key,
        told: impl IntoIterator<Item = &'a DeviceCondition>,
        total: impl Fn(&str) -> u64,
        now: Instant,
    ) -> Vec<(Kept, bool)> {
        self.taken.retain(|_, since| now.saturating_duration_since(*since) < WINDOW);
        let told: Vec<&DeviceCondition> = told.into_iter().collect();
        // Of a device that is not told of there is nothing to be known any more.
        let is_told = |(resource, of, slot): &Device| {
            *of != member || told.iter().any(|told| told.resource == *resource && told.slot == *slot)
        };
        let is_late = |since: Instant| now.saturating_duration_since(since) >= WINDOW;
        self.kept.retain(|device, (since, _)| !is_late(*since) && is_told(device));
        let mut kept = Vec::new();
        for condition in told.into_iter().filter(|condition| condition.is_automatic) {
            let (resource, slot) = (condition.resource.clone(), condition.slot);
            let device = (resource.clone(), member, slot);
            self.taken.entry(device.clone()).or_insert(now);
            let taken = self.taken.keys().filter(|(of, _, _)| *of == resource).count() as u64;
            if taken * 2 > total(&resource) {
                self.taken.remove(&device);
                let reason = condition.reason.clone().unwrap_or_default();
                let is_news = self.kept.insert(device, (now, reason.clone())).is_none();
                kept.push((Kept { resource, member, slot, reason }, is_news));
            }
        }
        kept
    }

    /// A member is to be drained since its machine is to be started again for a device of a resource, of which it has `devices`.
    /// Returns whether it is drained (BREAKER-3); `living` is how many of them the members have that `is_there` knows.
    pub(crate) fn may_drain(
        &mut self,
        (member, resource, devices): (Key, &str, u64),
        living: u64,
        is_there: impl Fn(Key) -> bool,
        now: Instant,
    ) -> bool {
        self.restarts.retain(|of| now.saturating_duration_since(of.since) < WINDOW);
        let drained = || self.restarts.iter().filter(|of| of.resource == resource);
        let gone = drained().filter(|of| !is_there(of.member)).fold(0, |sum: u64, of| sum.saturating_add(of.devices));
        let taken = drained().fold(devices, |sum, of| sum.saturating_add(of.devices));
        if taken.saturating_mul(2) > living.saturating_add(gone) {
            return false;
        }
        self.restarts.push(Restart { since: now, member, resource: resource.to_owned(), devices });
        true
    }

    /// The devices that were kept in service of late.
    pub(crate) fn kept(&self, now: Instant) -> impl Iterator<Item = Kept> + '_ {
        let lately = self.kept.iter().filter(move |(_, (since, _))| now.saturating_duration_since(*since) < WINDOW);
        lately.map(|((resource, member, slot), (_, reason))| {
            let (resource, reason) = (resource.clone(), reason.clone());
            Kept { resource, member: *member, slot: *slot, reason }
        })
    }

    /// A member is gone, with its devices.
    pub(crate) fn member_gone(&mut self, member: Key) {
        self.taken.retain(|(_, of, _), _| *of != member);
        self.kept.retain(|(_, of, _), _| *of != member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(slot: u32) -> DeviceCondition {
        let reason = Some(format!("Xid {slot}"));
        DeviceCondition { resource: "GPU".into(), slot, is_automatic: true, reason, ..DeviceCondition::default() }
    }

    fn kept(member: Key, slot: u32) -> Kept {
        Kept { resource: "GPU".into(), member, slot, reason: format!("Xid {slot}") }
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
        assert_eq!(breaker.judge(2, &[out(0), out(1)], of_four, now), [(kept(2, 1), true)], "BREAKER-1");
        assert_eq!(breaker.judge(2, &[out(0), out(1)], of_four, now), [(kept(2, 1), false)], "it was told");
        assert_eq!(breaker.kept(now).collect::<Vec<_>>(), [kept(2, 1)], "BREAKER-2");
        assert_eq!(breaker.judge(2, &[out(0)], of_four, now), [], "those that are known count once");
        assert_eq!(breaker.kept(now).count(), 0, "nothing is told of the other any more");
        assert_eq!(breaker.judge(2, &[out(0), out(1)], of_four, now), [(kept(2, 1), true)]);
        let later = now + WINDOW;
        assert_eq!(breaker.kept(later).count(), 0, "BREAKER-2");
        assert_eq!(breaker.judge(2, &[out(1)], of_four, later), [], "those of long ago do not count");
        breaker.member_gone(2);
        assert!(breaker.taken.is_empty() && breaker.kept.is_empty());
    }

    #[test]
    fn nodes_with_half_of_the_devices_may_be_drained_and_no_more_even_when_the_first_are_gone() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        assert!(!breaker.may_drain((1, "GPU", 8), 8, |_| true, now), "it is the only one");
        assert!(breaker.may_drain((1, "GPU", 8), 32, |_| true, now));
        assert!(breaker.may_drain((2, "GPU", 8), 24, |member| member != 1, now), "two of four");
        assert!(!breaker.may_drain((3, "GPU", 8), 16, |member| member > 2, now), "BREAKER-3");
        assert!(breaker.may_drain((3, "TPU", 4), 8, |_| true, now), "others are not counted");
        assert!(breaker.may_drain((3, "GPU", 8), 16, |member| member > 2, now + WINDOW), "those were of long ago");
    }

    #[test]
    fn the_last_device_is_kept() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        assert_eq!(breaker.judge(1, &[out(0)], |_| 1, now), [(kept(1, 0), true)]);
        assert_eq!(breaker.judge(1, &[out(0)], |_| 2, now), [], "there is another one");
    }
}
