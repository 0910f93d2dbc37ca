use super::*;
use oxiray_wire::state::{DemandKind, DeviceCondition, ServiceCause};
use proptest::prelude::*;

const NODE: u8 = 1;

fn node(number: u8) -> NodeId {
    NodeId::new([number; 28])
}

/// A step of a grant on a device.
fn grant(event: ChronicleEvent, on: u8, slot: u32, grant: u64) -> ChronicleEntry {
    let device = DevicePart {
        resource: "GPU".into(),
        slot,
        grant,
        share: 5_000,
        holder: DemandKind::Actor,
        ..DevicePart::default()
    };
    ChronicleEntry { event, node: Some(node(on)), device: Some(device), ..ChronicleEntry::default() }
}

fn plain(event: ChronicleEvent) -> ChronicleEntry {
    ChronicleEntry { event, ..ChronicleEntry::default() }
}

/// What a follower knows to hold: the number of the last word on each grant.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Follower {
    cursor: ChronicleCursor,
    holds: BTreeMap<Subject, u64>,
    seen: BTreeSet<u64>,
    missed: BTreeSet<u64>,
}

impl Follower {
    /// Asks once; whether it was told anything.
    fn ask(&mut self, chronicle: &Chronicle, kinds: &[ChronicleKind]) -> bool {
        let Found { batch, cursor } = chronicle.since(self.cursor, kinds, None);
        self.cursor = cursor;
        let Some(batch) = batch else { return false };
        assert!(batch.entries.iter().map(|entry| entry.encoded_len() + FRAMING).sum::<usize>() <= BATCH_BYTES_MAX);
        assert!(batch.entries.is_sorted_by_key(|entry| entry.number));
        if batch.is_fresh {
            self.holds.clear();
        }
        self.missed.extend(batch.gap.into_iter().flat_map(|gap| gap.from..=gap.to));
        for entry in batch.entries {
            self.seen.insert(entry.number);
            let Some(subject) = Subject::of(&entry) else { continue };
            if holds(entry.event) {
                self.holds.insert(subject, entry.number);
            } else {
                self.holds.remove(&subject);
            }
        }
        self.cursor = batch.cursor.expect("each batch has one");
        true
    }

    fn catch_up(&mut self, chronicle: &Chronicle) {
        while self.ask(chronicle, &[]) {}
    }
}

fn asked(chronicle: &mut Chronicle) -> &mut Chronicle {
    chronicle.name_origin(7);
    chronicle
}

#[test]
fn entries_are_numbered_timed_and_told_once() {
    let mut chronicle = Chronicle::default();
    let chronicle = asked(&mut chronicle);
    chronicle.write(1_000, plain(ChronicleEvent::HeadStarted));
    chronicle.write(1_001, plain(ChronicleEvent::NodeJoined));
    let Found { batch, cursor } = chronicle.since(ChronicleCursor::default(), &[], None);
    let batch = batch.expect("two entries");
    let told: Vec<_> = batch.entries.iter().map(|entry| (entry.number, entry.at_ms, entry.event)).collect();
    assert_eq!(told, [(1, 1_000, ChronicleEvent::HeadStarted), (2, 1_001, ChronicleEvent::NodeJoined)]);
    assert!(batch.is_fresh && batch.gap.is_none() && !batch.has_more);
    assert!(chronicle.since(cursor, &[], None).batch.is_none());
    chronicle.write(1_002, plain(ChronicleEvent::NodeLost));
    let batch = chronicle.since(cursor, &[], None).batch.expect("one more");
    assert_eq!((batch.entries.len(), batch.is_fresh), (1, false));
}

#[test]
fn kinds_are_told_apart_and_what_is_not_wanted_is_passed_over() {
    let mut chronicle = Chronicle::default();
    let chronicle = asked(&mut chronicle);
    chronicle.write(0, plain(ChronicleEvent::NodeJoined));
    let found = chronicle.since(ChronicleCursor::default(), &[ChronicleKind::Job], None);
    assert!(found.batch.is_some_and(|batch| batch.is_fresh && batch.entries.is_empty()));
    chronicle.write(0, plain(ChronicleEvent::NodeLost));
    let later = chronicle.since(found.cursor, &[ChronicleKind::Job], None);
    assert!(later.batch.is_none());
    assert_eq!(later.cursor.number, 2, "it is not looked at again");
    chronicle.write(0, plain(ChronicleEvent::JobStarted));
    let batch = chronicle.since(later.cursor, &[ChronicleKind::Job], None).batch.expect("a job");
    assert_eq!(batch.entries.len(), 1);
}

#[test]
fn the_ring_is_bounded_by_its_entries_and_its_bytes() {
    let mut chronicle = Chronicle::default();
    for _ in 0..ENTRIES_MAX + 10 {
        chronicle.write(0, plain(ChronicleEvent::NodeJoined));
    }
    assert_eq!((chronicle.ring.len(), chronicle.first()), (ENTRIES_MAX, 11), "CHRONICLE-1");
    let mut chronicle = Chronicle::default();
    let long = "ä".repeat(10 * TEXT_MAX);
    for _ in 0..ENTRIES_MAX {
        chronicle
            .write(0, ChronicleEntry { text: long.clone(), name: long.clone(), ..plain(ChronicleEvent::JobEnded) });
    }
    let bytes: usize = chronicle.ring.iter().map(Kept::bytes).sum();
    assert!(bytes <= BYTES_MAX && bytes == chronicle.bytes, "CHRONICLE-1: {bytes}");
    assert!(chronicle.ring.len() > BYTES_MAX / (2 * TEXT_MAX + 200), "no more is thrown away than must be");
    assert!(chronicle.old.is_empty() && chronicle.standing.is_empty());
}

#[test]
fn who_fell_behind_is_told_of_the_gap_and_of_what_holds() {
    let mut chronicle = Chronicle::default();
    let chronicle = asked(&mut chronicle);
    chronicle.write(5, grant(ChronicleEvent::DeviceGranted, NODE, 0, 1));
    let mut follower = Follower::default();
    follower.catch_up(chronicle);
    chronicle.write(6, grant(ChronicleEvent::DeviceFree, NODE, 0, 1));
    chronicle.write(7, grant(ChronicleEvent::DeviceGranted, NODE, 1, 2));
    for _ in 0..ENTRIES_MAX {
        chronicle.write(8, plain(ChronicleEvent::NodeJoined));
    }
    assert_eq!(chronicle.old.keys().copied().collect::<Vec<_>>(), [3], "only what holds is kept");
    let found = chronicle.since(follower.cursor, &[], None);
    let batch = found.batch.expect("a gap");
    assert_eq!(batch.gap, Some(ChronicleGap { from: 2, to: 3 }), "CHRONICLE-4");
    let first = &batch.entries[0];
    assert!(batch.is_fresh && (first.number, first.at_ms) == (3, 7), "{first:?}");
    follower.catch_up(chronicle);
    assert_eq!(follower.holds.values().copied().collect::<Vec<_>>(), [3], "CHRONICLE-2");
    chronicle.write(9, grant(ChronicleEvent::DeviceFree, NODE, 1, 2));
    assert!(chronicle.old.is_empty(), "what is over is let go of");
    follower.catch_up(chronicle);
    assert!(follower.holds.is_empty());
}

#[test]
fn who_begins_may_be_told_of_little_beside_what_holds() {
    let mut chronicle = Chronicle::default();
    let chronicle = asked(&mut chronicle);
    chronicle.write(0, grant(ChronicleEvent::DeviceGranted, NODE, 0, 1));
    for _ in 0..100 {
        chronicle.write(0, plain(ChronicleEvent::NodeJoined));
    }
    for (latest, expected) in [(0, vec![1]), (2, vec![1, 100, 101]), (u64::MAX, (1..=101).collect())] {
        let batch = chronicle.since(ChronicleCursor::default(), &[], Some(latest)).batch.expect("a beginning");
        assert_eq!(batch.entries.iter().map(|entry| entry.number).collect::<Vec<_>>(), expected);
        assert!(batch.gap.is_none());
        let found = chronicle.since(batch.cursor.expect("a cursor"), &[], Some(latest));
        assert!(found.batch.is_none(), "{latest}: {found:?}");
    }
}

#[test]
fn a_cursor_that_this_head_did_not_give_begins_anew() {
    let mut chronicle = Chronicle::default();
    let chronicle = asked(&mut chronicle);
    chronicle.write(0, plain(ChronicleEvent::NodeJoined));
    for cursor in [
        ChronicleCursor { origin: 8, number: 1, begun: 0 },
        ChronicleCursor { origin: 7, number: u64::MAX, begun: 0 },
        ChronicleCursor { origin: 7, number: 0, begun: u64::MAX },
        ChronicleCursor { origin: 0, number: u64::MAX, begun: u64::MAX },
    ] {
        let batch = chronicle.since(cursor, &[], None).batch.expect("a beginning");
        assert!(batch.is_fresh && batch.gap.is_none() && batch.entries.len() == 1, "{cursor:?}");
    }
}

#[test]
fn a_batch_is_bounded_and_says_that_there_is_more() {
    let mut chronicle = Chronicle::default();
    let chronicle = asked(&mut chronicle);
    let text = "x".repeat(TEXT_MAX);
    for _ in 0..2_000 {
        chronicle.write(0, ChronicleEntry { text: text.clone(), ..plain(ChronicleEvent::NodeJoined) });
    }
    let mut follower = Follower::default();
    let batch = chronicle.since(follower.cursor, &[], None).batch.expect("a first batch");
    assert!(batch.has_more && batch.encoded_len() <= 256 << 10, "CHRONICLE-3: {}", batch.encoded_len());
    follower.catch_up(chronicle);
    assert_eq!(follower.seen.len(), 2_000);
}

#[test]
fn a_node_that_tells_of_ever_more_holders_takes_bounded_memory_and_no_room_of_others() {
    let mut chronicle = Chronicle::default();
    let name = "r".repeat(10 * TEXT_MAX);
    for number in 0..2 * STANDING_MAX as u64 {
        let mut entry = grant(ChronicleEvent::DeviceGranted, 1, number as u32, number + 1);
        entry.device.as_mut().expect("it is of a device").resource.clone_from(&name);
        chronicle.write(1, entry);
    }
    assert_eq!(chronicle.standing_of(node(1)).count(), STANDING_MAX);
    assert!(chronicle.grants_of(node(1)).iter().all(|(resource, ..)| resource.len() <= TEXT_MAX + "…".len()));
    chronicle.write(2, grant(ChronicleEvent::DeviceGranted, 2, 0, 1));
    assert_eq!(chronicle.grants_of(node(2)).len(), 1);
    assert_eq!(chronicle.device_time.timed(), STANDING_MAX + 1, "TIME-2");
    chronicle.node_gone(3, node(1));
    assert_eq!(chronicle.standing_of(node(1)).count(), 0);
    assert_eq!(chronicle.device_time.timed(), 1, "TIME-2: each ends");
}

#[test]
fn nothing_of_a_node_that_is_gone_holds() {
    let mut chronicle = Chronicle::default();
    let chronicle = asked(&mut chronicle);
    chronicle.write(0, grant(ChronicleEvent::DeviceGranted, 1, 0, 1));
    chronicle.write(0, grant(ChronicleEvent::DeviceReturning, 1, 1, 2));
    chronicle.write(0, grant(ChronicleEvent::DeviceOutOfService, 1, 2, 0));
    chronicle.write(0, grant(ChronicleEvent::DeviceIll, 1, 2, 0));
    chronicle.write(0, grant(ChronicleEvent::DeviceGranted, 2, 0, 1));
    let mut follower = Follower::default();
    follower.catch_up(chronicle);
    assert_eq!(follower.holds.len(), 5);
    chronicle.node_gone(9, node(1));
    follower.catch_up(chronicle);
    assert_eq!(follower.holds.keys().map(|subject| subject.node).collect::<Vec<_>>(), [node(2)]);
}

#[test]
fn what_the_head_before_counted_as_out_of_service_is_not_counted_again() {
    let mut chronicle = Chronicle::default();
    let chronicle = asked(&mut chronicle);
    let host = |number| DeviceHost { node: node(number), sizes: &[] };
    let out = |slot| DeviceCondition {
        resource: "GPU".into(),
        slot,
        reason: Some("its fan is broken".into()),
        cause: ServiceCause::Drained,
        ..DeviceCondition::default()
    };
    chronicle.conditions_told_again((1, host(1)), &[out(0)]);
    assert_eq!(chronicle.device_time.quarantined().count(), 0);
    assert!(chronicle.out_since(node(1), "GPU", 0).is_some(), "it is told of all the same");
    chronicle.conditions_told((2, host(1)), &[out(0)], &[out(0), out(1)]);
    chronicle.conditions_told((3, host(2)), &[], &[out(0)]);
    assert_eq!(chronicle.device_time.quarantined().collect::<Vec<_>>(), [(ServiceCause::Drained, 2)]);
}

/// A ring that is full all but so many entries, so that properties are looked at where entries fall out.
fn nearly_full(room: usize) -> Chronicle {
    let mut chronicle = Chronicle::default();
    chronicle.name_origin(7);
    for _ in 0..ENTRIES_MAX - room {
        chronicle.write(0, plain(ChronicleEvent::NodeJoined));
    }
    chronicle
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// CHRONICLE-2, CHRONICLE-4: whoever resumes anywhere knows in the end what one knows who never left.
    #[test]
    fn who_resumes_anywhere_knows_what_holds(
        room in 0_usize..40,
        steps in proptest::collection::vec((0_u8..10, 1_u8..3, 0_u32..3, 1_u64..4), 1..150),
    ) {
        let mut chronicle = nearly_full(room);
        let (mut always, mut sometimes, mut late) = (Follower::default(), Follower::default(), Follower::default());
        late.ask(&chronicle, &[ChronicleKind::Device]);
        always.catch_up(&chronicle);
        for (what, on, slot, number) in steps {
            match what {
                0..=2 => chronicle.write(1, grant(ChronicleEvent::DeviceGranted, on, slot, number)),
                3 => chronicle.write(2, grant(ChronicleEvent::DeviceReturning, on, slot, number)),
                4 | 5 => chronicle.write(3, grant(ChronicleEvent::DeviceFree, on, slot, number)),
                6 => chronicle.write(4, grant(ChronicleEvent::DeviceOutOfService, on, slot, 0)),
                7 => chronicle.write(5, grant(ChronicleEvent::DeviceInService, on, slot, 0)),
                8 => chronicle.node_gone(6, node(on)),
                _ => drop(sometimes.ask(&chronicle, &[])),
            }
            always.catch_up(&chronicle);
            prop_assert!(chronicle.ring.len() <= ENTRIES_MAX, "CHRONICLE-1");
            prop_assert!(chronicle.old.len() <= chronicle.standing.len(), "CHRONICLE-1");
            prop_assert_eq!(chronicle.standing.len(), chronicle.numbers.len());
        }
        sometimes.catch_up(&chronicle);
        let mut resumed = Follower { cursor: always.cursor, ..always.clone() };
        resumed.catch_up(&chronicle);
        while late.ask(&chronicle, &[ChronicleKind::Device]) {}
        prop_assert_eq!(&always.holds, &chronicle.standing);
        prop_assert_eq!(&sometimes.holds, &always.holds, "CHRONICLE-2");
        prop_assert_eq!(&late.holds, &always.holds, "CHRONICLE-2");
        prop_assert_eq!(&resumed.holds, &always.holds);
        prop_assert!(always.missed.is_empty());
        let unseen = (1..=chronicle.last()).filter(|number| !sometimes.seen.contains(number));
        for number in unseen {
            let before = number < sometimes.seen.first().copied().unwrap_or(u64::MAX);
            prop_assert!(before || sometimes.missed.contains(&number) || number < chronicle.first(), "CHRONICLE-4: {number}");
        }
    }
}
