//! What is read travels before who reads it is given anything.

use super::members::Pair;
use super::near::{object, reading};
use super::world::{World, amount};
use super::{CPU, request};
use crate::queue::AHEAD_LIMIT;
use oxiray_ids::LeaseRequestNumber;
use oxiray_machine::Key;
use oxiray_wire::Message;
use oxiray_wire::message::LeaseCancel;

/// A head without processors whose store has object 1, a member that has processors, and a driver.
fn apart() -> (Pair, Key) {
    let mut pair = Pair::new(0, 2);
    let driver = pair.head.driver();
    let member = pair.head.core.as_head_mut().members.by_key.get_mut(&pair.stream).expect("it has joined");
    member.told.totals.push(amount("object_store_memory", (1 << 30) * 10_000));
    assert!(pair.head.core.stored_here(driver, object(1)));
    (pair, driver)
}

fn orders(world: &World) -> usize {
    world.sent.iter().filter(|(_, message)| matches!(message, Message::Place(_))).count()
}

/// What the member is told to have a copy of; nothing that it is told arrives.
fn told(pair: &mut Pair) -> usize {
    let (copies, left) =
        std::mem::take(&mut pair.head.sent).into_iter().partition(|(_, said)| matches!(said, Message::CopyWanted(_)));
    pair.head.sent = left;
    let copies: Vec<(Key, Message)> = copies;
    copies.len()
}

#[test]
fn nothing_is_granted_until_what_is_read_has_come() {
    let (mut pair, driver) = apart();
    pair.head.say(driver, reading(1, &[(1, 5)]));
    assert_eq!((told(&mut pair), orders(&pair.head)), (1, 0), "AHEAD-1");
    pair.head.say(driver, request(2, &[CPU]));
    pair.exchange();
    assert!(pair.is_on_member(pair.head.granted(driver, 2).1), "others are not held up");
    pair.head.core.copied(pair.stream, object(1));
    pair.head.settle();
    pair.exchange();
    assert!(pair.is_on_member(pair.head.granted(driver, 1).1));
    assert_eq!(told(&mut pair), 0, "it travels once");
}

#[test]
fn what_cannot_come_or_takes_too_long_is_read_as_ever() {
    for is_refused in [true, false] {
        let (mut pair, driver) = apart();
        pair.head.say(driver, reading(1, &[(1, 5)]));
        assert_eq!(told(&mut pair), 1);
        if is_refused {
            pair.head.core.cannot_come(Some(pair.stream), object(1));
            pair.head.settle();
        } else {
            pair.head.pass(AHEAD_LIMIT);
        }
        pair.exchange();
        assert!(pair.is_on_member(pair.head.granted(driver, 1).1));
        assert_eq!(told(&mut pair), 0, "AHEAD-1: nobody waits so twice");
    }
}

#[test]
fn a_request_that_is_withdrawn_is_forgotten_and_one_whose_node_is_gone_is_answered_as_any_other() {
    let (mut pair, driver) = apart();
    pair.head.say(driver, reading(1, &[(1, 5)]));
    pair.head.say(driver, reading(2, &[(1, 5)]));
    assert_eq!((told(&mut pair), pair.head.core.as_head().pending.ahead.len()), (2, 2));
    pair.head.say(driver, LeaseCancel { request: LeaseRequestNumber(1) });
    assert_eq!(pair.head.core.as_head().pending.ahead.len(), 1, "AHEAD-3");
    pair.head.core.member_gone(pair.stream);
    pair.head.settle();
    assert_eq!(pair.head.core.as_head().pending.ahead.len(), 0);
    assert_eq!(pair.head.refusals(driver), [2], "no node is left that could meet it");
    pair.head.core.audit();
}
