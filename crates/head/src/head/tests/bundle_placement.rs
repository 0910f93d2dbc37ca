//! Groups over a head and a member: set aside on both or on neither, run in, moved, given up.

use super::groups::{answers, group, group_id, lease};
use super::members::{Pair, seized};
use super::{CPU, request};
use oxiray_wire::Message;
use oxiray_wire::message::{GroupAwait, GroupRemove};
use proptest::prelude::*;

const TWO: (&str, u64) = ("CPU", 20_000);

#[test]
fn a_group_over_two_nodes_is_created_when_both_have_set_their_bundles_aside() {
    let mut pair = Pair::new(2, 2);
    let driver = pair.head.driver();
    pair.head.say(driver, group(1, &[&[TWO], &[TWO]]));
    pair.head.say(driver, GroupAwait { request: 7, group: group_id(1) });
    assert!(answers(&pair.head, driver, 7).is_empty(), "the member has not answered yet");
    pair.exchange();
    assert_eq!(answers(&pair.head, driver, 7).len(), 1);
    assert_eq!((pair.head.free("CPU"), pair.member.free("CPU")), (0, 0));
    for bundle in [1, 2] {
        pair.head.say(driver, lease(u64::from(bundle), 1, bundle, &[TWO]));
    }
    pair.head.say(driver, lease(3, 1, 0, &[CPU]));
    pair.exchange();
    let (one, other) = (pair.head.granted(driver, 1).1, pair.head.granted(driver, 2).1);
    assert_ne!(pair.is_on_member(one), pair.is_on_member(other));
    assert!(pair.head.grants_of(driver).iter().all(|(request, ..)| *request != 3), "the bundles are full");
    pair.head.say(driver, GroupRemove { group: group_id(1) });
    pair.exchange();
    pair.bury();
    pair.exchange();
    assert_eq!((pair.head.free("CPU"), pair.member.free("CPU")), (20_000, 20_000));
    pair.head.core.node().ledger().audit();
    pair.member.core.node().ledger().audit();
}

#[test]
fn where_one_node_refuses_the_other_gives_back_and_the_group_waits() {
    let mut pair = Pair::new(2, 2);
    let driver = pair.head.driver();
    let held = seized(&mut pair.member.core, 1);
    pair.head.say(driver, group(1, &[&[TWO], &[TWO]]));
    pair.exchange();
    assert_eq!((pair.head.free("CPU"), pair.member.free("CPU")), (20_000, 10_000), "nothing is kept");
    pair.member.core.node_mut().ledger_mut().release(held);
    pair.member.settle();
    pair.exchange();
    assert_eq!((pair.head.free("CPU"), pair.member.free("CPU")), (0, 0));
    pair.head.say(driver, GroupAwait { request: 7, group: group_id(1) });
    assert_eq!(answers(&pair.head, driver, 7).len(), 1);
}

#[test]
fn a_group_that_is_removed_while_a_member_is_asked_leaves_nothing_there() {
    let mut pair = Pair::new(1, 2);
    let driver = pair.head.driver();
    pair.head.say(driver, group(1, &[&[TWO]]));
    pair.head.say(driver, GroupRemove { group: group_id(1) });
    pair.exchange();
    assert_eq!(pair.member.free("CPU"), 20_000);
    pair.head.say(driver, request(1, &[TWO]));
    pair.exchange();
    assert!(pair.is_on_member(pair.head.granted(driver, 1).1));
}

#[test]
fn bundles_of_a_member_that_dies_wait_for_another_and_the_others_stay() {
    let mut pair = Pair::new(2, 2);
    let driver = pair.head.driver();
    pair.head.say(driver, group(1, &[&[TWO], &[TWO]]));
    pair.exchange();
    pair.head.say(driver, lease(1, 1, 2, &[CPU]));
    pair.head.say(driver, lease(2, 1, 1, &[CPU]));
    pair.exchange();
    let there = if pair.is_on_member(pair.head.granted(driver, 1).1) { 2 } else { 1 };
    pair.head.core.member_gone(pair.stream);
    pair.head.settle();
    assert_eq!(pair.head.free("CPU"), 0, "the bundle that was here stays");
    pair.head.say(driver, lease(3, 1, there, &[CPU]));
    let granted = |pair: &Pair, request| pair.head.grants_of(driver).iter().any(|(number, ..)| *number == request);
    assert!(!granted(&pair, 3), "its bundle has no node");
    let mut other = Pair::new(0, 2);
    std::mem::swap(&mut pair.member, &mut other.member);
    pair.stream = pair.head.core.new_key();
    pair.member.core.serve_head(super::members::HEAD, String::new());
    pair.member.settle();
    pair.exchange();
    assert!(granted(&pair, 3), "it came back under the same number");
    assert!(pair.is_on_member(pair.head.granted(driver, 3).1));
}

#[test]
fn whoever_is_on_the_way_into_a_group_that_is_removed_is_turned_away_and_leaves_nothing() {
    let mut pair = Pair::new(0, 2);
    let driver = pair.head.driver();
    pair.head.say(driver, group(1, &[&[TWO]]));
    pair.exchange();
    pair.head.say(driver, lease(1, 1, 1, &[CPU]));
    pair.head.say(driver, GroupRemove { group: group_id(1) });
    pair.exchange();
    pair.bury();
    pair.exchange();
    let refused = pair.head.sent.iter().any(|(to, message)| {
        *to == driver && matches!(message, Message::LeaseRefused(refused) if refused.request.0 == 1)
    });
    assert!(refused && pair.head.grants_of(driver).is_empty());
    assert_eq!(pair.member.free("CPU"), 20_000);
    pair.member.core.node().ledger().audit();
}

#[derive(Debug, Clone)]
enum Event {
    Create {
        number: u8,
        bundles: Vec<u64>,
    },
    Remove(u8),
    Lease {
        group: u8,
        bundle: u32,
    },
    /// Somebody else takes a CPU of the member, or gives it back.
    Seize,
    /// What was said arrives.
    Exchange,
    /// Those that were killed are gone.
    Bury,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (1..5_u8, prop::collection::vec(1..3_u64, 1..4))
            .prop_map(|(number, bundles)| Event::Create { number, bundles }),
        2 => (1..5_u8).prop_map(Event::Remove),
        4 => (1..5_u8, 0..3_u32).prop_map(|(group, bundle)| Event::Lease { group, bundle }),
        1 => Just(Event::Seize),
        4 => Just(Event::Exchange),
        1 => Just(Event::Bury),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is made, removed, leased and seized, and whenever words arrive: no ledger grants twice, and when all
    /// groups are removed nothing of them is left anywhere.
    #[test]
    fn in_any_order_everything_is_given_back(events in prop::collection::vec(event(), 1..40)) {
        let mut pair = Pair::new(2, 3);
        let driver = pair.head.driver();
        let mut held = None;
        for (number, event) in (100..).zip(events) {
            match event {
                Event::Create { number, bundles } => {
                    let bundles: Vec<[(&str, u64); 1]> = bundles.iter().map(|cpus| [("CPU", cpus * 10_000)]).collect();
                    let bundles: Vec<&[(&str, u64)]> = bundles.iter().map(<[_; 1]>::as_slice).collect();
                    pair.head.say(driver, group(number, &bundles));
                }
                Event::Remove(number) => pair.head.say(driver, GroupRemove { group: group_id(number) }),
                Event::Lease { group, bundle } => pair.head.say(driver, lease(number, group, bundle, &[CPU])),
                Event::Seize => match held.take() {
                    Some(grant) => {
                        pair.member.core.node_mut().ledger_mut().release(grant);
                        pair.member.settle();
                    }
                    None if pair.member.free("CPU") >= 10_000 => {
                        held = Some(seized(&mut pair.member.core, 1));
                        pair.member.settle();
                    }
                    None => {}
                },
                Event::Exchange => pair.exchange(),
                Event::Bury => pair.bury(),
            }
            pair.head.core.node().ledger().audit();
            pair.member.core.node().ledger().audit();
        }
        if let Some(grant) = held {
            pair.member.core.node_mut().ledger_mut().release(grant);
            pair.member.settle();
        }
        for number in 1..5 {
            pair.head.say(driver, GroupRemove { group: group_id(number) });
        }
        for _ in 0..3 {
            pair.exchange();
            pair.bury();
        }
        pair.exchange();
        prop_assert_eq!((pair.head.free("CPU"), pair.member.free("CPU")), (20_000, 30_000));
        prop_assert!(pair.head.core.as_head().groups.reservations.is_empty() && pair.head.core.as_head().members.prepares.is_empty());
        prop_assert!(pair.head.core.as_head().pending.queue.is_empty(), "nobody waits for a group that is no more");
    }
}
