//! Groups over a head and a member: set aside on both or on neither, run in, moved, given up.

use super::groups::{answers, group, group_id, lease};
use super::members::{Pair, seized};
use super::{CPU, request};
use oxiray_wire::Message;
use oxiray_wire::message::{GroupAwait, GroupRemove};

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
    pair.head.core.ledger.audit();
    pair.member.core.ledger.audit();
}

#[test]
fn where_one_node_refuses_the_other_gives_back_and_the_group_waits() {
    let mut pair = Pair::new(2, 2);
    let driver = pair.head.driver();
    let held = seized(&mut pair.member.core, 1);
    pair.head.say(driver, group(1, &[&[TWO], &[TWO]]));
    pair.exchange();
    assert_eq!((pair.head.free("CPU"), pair.member.free("CPU")), (20_000, 10_000), "nothing is kept");
    pair.member.core.ledger.release(held);
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
    pair.member.core.serve_head(super::members::HEAD);
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
        *to == driver && matches!(message, Message::LeaseRefused(refused) if refused.request == 1)
    });
    assert!(refused && pair.head.grants_of(driver).is_empty());
    assert_eq!(pair.member.free("CPU"), 20_000);
    pair.member.core.ledger.audit();
}
