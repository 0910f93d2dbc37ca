//! Who held which part of which device when, put together from the chronicle's entries (pure).
//!
//! - HOLDINGS-1: stretches of one device that overlap in time lie at different heights, as far as their shares leave room.
//! - HOLDINGS-2: there are at most [`STRETCHES_MAX`] stretches that are over; the oldest go first, and with them the time before
//!   they ended counts as not recorded.
//! - HOLDINGS-3: what happened while nothing was heard is a gap: no stretch goes through one.

use oxiray_ids::{ActorId, JobId, NodeId, PlacementGroupId, WorkerId};
use oxiray_wire::state::{ChronicleEntry, ChronicleEvent, DevicePart};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// How many stretches that are over are kept.
const STRETCHES_MAX: usize = 100_000;
/// How many gaps are kept.
const GAPS_MAX: usize = 256;
/// A whole device, as shares are counted.
pub(crate) const WHOLE: u32 = 10_000;

/// A device: its node, its resource and its number there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceKey {
    /// The node.
    pub(crate) node: NodeId,
    /// The resource.
    pub(crate) resource: String,
    /// The number among those of the node.
    pub(crate) slot: u32,
}

impl std::fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.node, self.resource, self.slot)
    }
}

/// What a part of a device was during a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// Somebody had it.
    Held = 0,
    /// It was returned, and is looked at for memory that is not free.
    Checking = 1,
    /// It is out of service.
    Quarantined = 2,
}

/// Who has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Holder {
    /// The name of the task, the class or the group.
    pub(crate) name: Rc<str>,
    /// The worker.
    pub(crate) worker: Option<WorkerId>,
    /// Its process.
    pub(crate) pid: u32,
    /// The job.
    pub(crate) job: Option<JobId>,
    /// The actor.
    pub(crate) actor: Option<ActorId>,
    /// The placement group.
    pub(crate) group: Option<PlacementGroupId>,
}

/// A stretch of time during which a part of a device was one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The number of the entry that began it, which names it.
    pub(crate) number: u64,
    /// From when on.
    pub(crate) from_ms: u64,
    /// Until when; nothing while it lasts.
    pub(crate) to_ms: Option<u64>,
    /// What it was.
    pub(crate) used: Use,
    /// Where it lies in its device's height, from the bottom.
    pub(crate) offset: u32,
    /// How much of the device it is.
    pub(crate) share: u32,
    /// Who had it; for a device out of service its name is why.
    pub(crate) holder: Holder,
}

impl Stretch {
    fn top(&self) -> u32 {
        self.offset.saturating_add(self.share)
    }
}

/// What is known of one device.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// Its UUID, or what the variable that shows devices to programs calls it.
    pub(crate) id: String,
    past: VecDeque<Stretch>,
    grants: BTreeMap<u64, Stretch>,
    quarantine: Option<Stretch>,
}

impl Device {
    /// All stretches, those that are over in the order of their ends first.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = &Stretch> {
        self.past.iter().chain(self.open())
    }

    /// Those that last.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Stretch> {
        self.grants.values().chain(self.quarantine.as_ref())
    }

    /// The lowest place with room for that much; the bottom where there is none (HOLDINGS-1).
    fn place(&self, share: u32) -> u32 {
        let mut taken: Vec<(u32, u32)> = self.grants.values().map(|one| (one.offset, one.top())).collect();
        taken.sort_unstable();
        let mut from = 0;
        for (offset, top) in taken {
            if offset.saturating_sub(from) >= share {
                return from;
            }
            from = from.max(top);
        }
        if from.saturating_add(share) <= WHOLE { from } else { 0 }
    }
}

/// All devices.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    devices: BTreeMap<DeviceKey, Device>,
    /// The devices whose stretches are over, in the order of their ends.
    ended: VecDeque<DeviceKey>,
    names: BTreeSet<Rc<str>>,
    /// How many names were in use when they were looked through last.
    names_used: usize,
    gaps: VecDeque<(u64, u64)>,
    begun_ms: u64,
    until_ms: u64,
}

impl Holdings {
    /// The devices.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&DeviceKey, &Device)> {
        self.devices.iter()
    }

    /// What is known of one.
    pub(crate) fn device(&self, key: &DeviceKey) -> Option<&Device> {
        self.devices.get(key)
    }

    /// When the record begins; 0 before anything was heard.
    pub(crate) fn begun_ms(&self) -> u64 {
        self.begun_ms
    }

    /// Until when all is known.
    pub(crate) fn until_ms(&self) -> u64 {
        self.until_ms
    }

    /// The stretches of time of which nothing is known, oldest first.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = (u64, u64)> {
        self.gaps.iter().copied()
    }

    /// All that happened until then is known.
    pub(crate) fn know_until(&mut self, now_ms: u64) {
        if self.begun_ms == 0 {
            self.begun_ms = now_ms;
        }
        self.until_ms = self.until_ms.max(now_ms);
    }

    /// Nothing is known of the time before that, where it is not known to be later already.
    pub(crate) fn begin_at(&mut self, at_ms: u64) {
        self.begun_ms = self.begun_ms.max(at_ms);
    }

    /// What is held is told anew: what lasted is over where something was heard last (HOLDINGS-3).
    pub(crate) fn begin_anew(&mut self, now_ms: u64) {
        let keys: Vec<DeviceKey> = self.devices.keys().cloned().collect();
        let until = self.until_ms;
        for key in keys {
            self.end_all(&key, until);
        }
        if until > 0 && now_ms > until {
            self.gaps.push_back((until, now_ms));
            if self.gaps.len() > GAPS_MAX {
                self.gaps.pop_front();
            }
        }
        if until > 0 {
            self.know_until(now_ms);
        }
    }

    /// Takes an entry in.
    pub(crate) fn apply(&mut self, entry: &ChronicleEntry) {
        let Some(node) = entry.node else { return };
        if entry.event == ChronicleEvent::NodeLost {
            let lost: Vec<DeviceKey> = self.devices.keys().filter(|key| key.node == node).cloned().collect();
            for key in lost {
                self.end_all(&key, entry.at_ms);
            }
            return;
        }
        let Some(part) = &entry.device else { return };
        let key = DeviceKey { node, resource: part.resource.clone(), slot: part.slot };
        let device = self.devices.entry(key.clone()).or_default();
        if !part.id.is_empty() {
            device.id.clone_from(&part.id);
        }
        match entry.event {
            ChronicleEvent::DeviceGranted => self.begin(&key, part, entry, Use::Held),
            ChronicleEvent::DeviceReturning => self.begin(&key, part, entry, Use::Checking),
            ChronicleEvent::DeviceFree => self.end(&key, part.grant, entry.at_ms),
            ChronicleEvent::DeviceOutOfService => self.take_out(&key, entry),
            ChronicleEvent::DeviceInService => self.take_in(&key, entry.at_ms),
            _ => {}
        }
    }

    /// A grant is something from now on.
    fn begin(&mut self, key: &DeviceKey, part: &DevicePart, entry: &ChronicleEntry, used: Use) {
        let share = u32::try_from(part.share).unwrap_or(WHOLE).min(WHOLE);
        let holder = self.holder(entry);
        let after = self.begin_of(entry, part);
        let Some(device) = self.devices.get_mut(key) else { return };
        let before = device.grants.get_mut(&part.grant);
        if let Some(before) = before.filter(|before| before.used == used && before.share == share) {
            // The same for longer, and perhaps with a process by now.
            before.holder = holder;
            return;
        }
        let before = device.grants.get(&part.grant).map(|before| (before.offset, before.share));
        self.end(key, part.grant, entry.at_ms);
        let Some(device) = self.devices.get_mut(key) else { return };
        let offset = before.filter(|(_, was)| *was >= share).map_or_else(|| device.place(share), |(offset, _)| offset);
        let from_ms = if before.is_some() { entry.at_ms } else { after };
        let stretch = Stretch { number: entry.number, from_ms, to_ms: None, used, offset, share, holder };
        device.grants.insert(part.grant, stretch);
    }

    /// When a grant began that is told of for the first time: before that what was not heard, it is not known (HOLDINGS-3).
    fn begin_of(&self, entry: &ChronicleEntry, part: &DevicePart) -> u64 {
        let since = if part.since_ms > 0 { part.since_ms.min(entry.at_ms) } else { entry.at_ms };
        self.gaps.back().map_or(since, |(_, heard_again)| since.max(*heard_again))
    }

    fn holder(&mut self, entry: &ChronicleEntry) -> Holder {
        Holder {
            name: self.name(&entry.name),
            worker: entry.worker,
            pid: entry.pid,
            job: entry.job,
            actor: entry.actor,
            group: entry.group,
        }
    }

    /// A name, kept once however often it is used.
    fn name(&mut self, text: &str) -> Rc<str> {
        if let Some(known) = self.names.get(text) {
            return Rc::clone(known);
        }
        // Names are looked through when they are twice as many as were in use: not for each new one.
        if self.names.len() >= 2 * self.names_used.max(STRETCHES_MAX) {
            self.names.retain(|name| Rc::strong_count(name) > 1);
            self.names_used = self.names.len();
        }
        let name: Rc<str> = text.into();
        self.names.insert(Rc::clone(&name));
        name
    }

    fn end(&mut self, key: &DeviceKey, grant: u64, at_ms: u64) {
        let stretch = self.devices.get_mut(key).and_then(|device| device.grants.remove(&grant));
        self.put_away(key, stretch, at_ms);
    }

    fn end_all(&mut self, key: &DeviceKey, at_ms: u64) {
        let Some(device) = self.devices.get_mut(key) else { return };
        let open: Vec<Stretch> =
            std::mem::take(&mut device.grants).into_values().chain(device.quarantine.take()).collect();
        for stretch in open {
            self.put_away(key, Some(stretch), at_ms);
        }
    }

    fn take_out(&mut self, key: &DeviceKey, entry: &ChronicleEntry) {
        self.take_in(key, entry.at_ms);
        let holder = Holder { name: self.name(&entry.text), ..Holder::default() };
        let Some(device) = self.devices.get_mut(key) else { return };
        device.quarantine = Some(Stretch {
            number: entry.number,
            from_ms: entry.at_ms,
            to_ms: None,
            used: Use::Quarantined,
            offset: 0,
            share: WHOLE,
            holder,
        });
    }

    fn take_in(&mut self, key: &DeviceKey, at_ms: u64) {
        let stretch = self.devices.get_mut(key).and_then(|device| device.quarantine.take());
        self.put_away(key, stretch, at_ms);
    }

    /// Keeps what is over, and forgets the oldest of it (HOLDINGS-2).
    fn put_away(&mut self, key: &DeviceKey, stretch: Option<Stretch>, at_ms: u64) {
        let Some(mut stretch) = stretch else { return };
        stretch.to_ms = Some(at_ms.max(stretch.from_ms));
        let Some(device) = self.devices.get_mut(key) else { return };
        device.past.push_back(stretch);
        self.ended.push_back(key.clone());
        if self.ended.len() > STRETCHES_MAX {
            let oldest = self.ended.pop_front().and_then(|key| self.devices.get_mut(&key)?.past.pop_front());
            let ended = oldest.and_then(|stretch| stretch.to_ms).unwrap_or_default();
            self.begun_ms = self.begun_ms.max(ended);
        }
    }

    /// The stretch with that number, and its device.
    pub(crate) fn find(&self, number: u64) -> Option<(&DeviceKey, &Stretch)> {
        self.devices.iter().find_map(|(key, device)| Some((key, device.stretches().find(|one| one.number == number)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, at_ms: u64, event: ChronicleEvent, grant: u64, share: u64, name: &str) -> ChronicleEntry {
        let part = DevicePart { resource: "GPU".into(), slot: 1, grant, share, ..DevicePart::default() };
        ChronicleEntry {
            number,
            at_ms,
            event,
            node: Some(NodeId::new([7; 28])),
            device: Some(part),
            name: name.into(),
            ..ChronicleEntry::default()
        }
    }

    fn told(holdings: &Holdings) -> Vec<(u64, Option<u64>, Use, u32, u32, String)> {
        let devices = holdings.devices().flat_map(|(_, device)| device.stretches());
        devices
            .map(|one| (one.from_ms, one.to_ms, one.used, one.offset, one.share, one.holder.name.to_string()))
            .collect()
    }

    #[test]
    fn a_grant_is_held_then_checked_then_over() {
        let mut holdings = Holdings::default();
        holdings.know_until(5);
        for one in [
            entry(1, 10, ChronicleEvent::DeviceGranted, 3, 10_000, "train"),
            entry(2, 20, ChronicleEvent::DeviceReturning, 3, 10_000, "train"),
            entry(3, 25, ChronicleEvent::DeviceFree, 3, 10_000, "train"),
        ] {
            holdings.apply(&one);
        }
        let expected = [
            (10, Some(20), Use::Held, 0, 10_000, "train".to_owned()),
            (20, Some(25), Use::Checking, 0, 10_000, "train".to_owned()),
        ];
        assert_eq!(told(&holdings), expected);
        assert_eq!((holdings.begun_ms(), holdings.find(2).map(|(key, _)| key.slot)), (5, Some(1)));
    }

    #[test]
    fn shares_of_one_device_lie_above_each_other_and_rooms_are_used_again() {
        let mut holdings = Holdings::default();
        for one in [
            entry(1, 1, ChronicleEvent::DeviceGranted, 1, 2_500, "a"),
            entry(2, 2, ChronicleEvent::DeviceGranted, 2, 5_000, "b"),
            entry(3, 3, ChronicleEvent::DeviceFree, 1, 2_500, "a"),
            entry(4, 4, ChronicleEvent::DeviceGranted, 3, 2_500, "c"),
            entry(5, 5, ChronicleEvent::DeviceGranted, 4, 2_500, "d"),
        ] {
            holdings.apply(&one);
        }
        let mut lanes: Vec<(String, u32)> = told(&holdings).into_iter().map(|one| (one.5, one.3)).collect();
        lanes.sort();
        let expected = [("a", 0), ("b", 2_500), ("c", 0), ("d", 7_500)];
        assert_eq!(lanes, expected.map(|(name, offset)| (name.to_owned(), offset)));
    }

    #[test]
    fn a_million_entries_leave_no_more_than_is_kept() {
        let mut holdings = Holdings::default();
        let mut full = 0;
        for number in 0..500_000_u64 {
            let (at, name) = (10 * number, format!("task {number}"));
            holdings.apply(&entry(2 * number, at, ChronicleEvent::DeviceGranted, number, 5_000, &name));
            holdings.apply(&entry(2 * number + 1, at + 5, ChronicleEvent::DeviceFree, number, 5_000, &name));
            if number == STRETCHES_MAX as u64 {
                full = told(&holdings).len();
            }
        }
        assert_eq!((full, told(&holdings).len(), holdings.ended.len()), (STRETCHES_MAX, STRETCHES_MAX, STRETCHES_MAX));
        assert!(holdings.names.len() <= 3 * STRETCHES_MAX, "{}", holdings.names.len());
        assert_eq!(holdings.begun_ms(), 10 * 399_999 + 5, "what was before is not told of any more");
    }

    #[test]
    fn what_is_told_again_goes_on_and_takes_the_process_along() {
        let mut holdings = Holdings::default();
        holdings.apply(&entry(1, 1, ChronicleEvent::DeviceGranted, 1, 10_000, "a"));
        holdings.apply(&ChronicleEntry { pid: 77, ..entry(2, 9, ChronicleEvent::DeviceGranted, 1, 10_000, "a") });
        let (_, device) = holdings.devices().next().expect("the device");
        let open: Vec<_> = device.open().map(|one| (one.from_ms, one.holder.pid)).collect();
        assert_eq!(open, [(1, 77)]);
    }

    #[test]
    fn a_device_is_out_of_service_for_a_while_and_a_lost_node_has_nothing() {
        let mut holdings = Holdings::default();
        let out = ChronicleEntry { text: "Xid 79".into(), ..entry(1, 1, ChronicleEvent::DeviceOutOfService, 0, 0, "") };
        holdings.apply(&out);
        holdings.apply(&entry(2, 4, ChronicleEvent::DeviceInService, 0, 0, ""));
        holdings.apply(&entry(3, 5, ChronicleEvent::DeviceGranted, 1, 10_000, "a"));
        holdings.apply(&ChronicleEntry { device: None, ..entry(4, 8, ChronicleEvent::NodeLost, 0, 0, "") });
        let expected = [
            (1, Some(4), Use::Quarantined, 0, 10_000, "Xid 79".to_owned()),
            (5, Some(8), Use::Held, 0, 10_000, "a".to_owned()),
        ];
        assert_eq!(told(&holdings), expected);
    }

    #[test]
    fn no_stretch_goes_through_a_gap() {
        let mut holdings = Holdings::default();
        holdings.apply(&entry(1, 10, ChronicleEvent::DeviceGranted, 1, 10_000, "a"));
        holdings.know_until(20);
        holdings.begin_anew(50);
        let mut again = entry(9, 50, ChronicleEvent::DeviceGranted, 1, 10_000, "a");
        again.device.as_mut().expect("a part").since_ms = 10;
        holdings.apply(&again);
        let times: Vec<_> = told(&holdings).into_iter().map(|one| (one.0, one.1)).collect();
        assert_eq!((times, holdings.gaps().collect::<Vec<_>>()), (vec![(10, Some(20)), (50, None)], vec![(20, 50)]));
    }

    #[test]
    fn the_oldest_stretches_are_forgotten_and_their_time_counts_as_not_recorded() {
        let mut holdings = Holdings::default();
        let many = STRETCHES_MAX as u64 + 5;
        for number in 1..=many {
            holdings.apply(&entry(2 * number, 10 * number, ChronicleEvent::DeviceGranted, number, 10_000, "a"));
            holdings.apply(&entry(2 * number + 1, 10 * number + 5, ChronicleEvent::DeviceFree, number, 10_000, "a"));
        }
        assert_eq!((told(&holdings).len(), holdings.begun_ms()), (STRETCHES_MAX, 55));
        assert_eq!(holdings.names.len(), 1);
    }
}
