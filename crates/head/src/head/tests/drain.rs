//! Members that are emptied ahead of their end.

use super::members::Pair;
use super::{CPU, World, actor, request};
use crate::members::DrainRow;
use oxiray_ids::ObjectId;
use oxiray_journal::Rows;
use oxiray_wire::Message;
use oxiray_wire::message::{ActorReady, DrainAsked, LeaseReturn, StateReport};
use std::time::Duration;

/// Who asks: the command line.
const VISITOR: u64 = 1 << 41;

/// What became of the request to have the member emptied.
fn ask(pair: &mut Pair, asked: &DrainAsked) -> StateReport {
    pair.head.core.drain_asked(VISITOR, asked);
    pair.head.settle();
    pair.exchange();
    let told = pair.head.sent.iter().rev().find_map(|(to, message)| match message {
        Message::StateReport(report) if *to == VISITOR => Some(report.clone()),
        _ => None,
    });
    *told.expect("it is answered")
}

fn within(pair: &Pair, seconds: Option<u64>) -> DrainAsked {
    let node = pair.member.core.node().plan().node.hex();
    DrainAsked { request: 1, node, deadline_ms: seconds.map(|seconds| seconds * 1000), ..DrainAsked::default() }
}

fn drain(pair: &mut Pair, seconds: Option<u64>) {
    let asked = within(pair, seconds);
    assert_eq!(ask(pair, &asked).failure, None);
}

fn is_dismissed(pair: &Pair) -> bool {
    pair.head.core.is_dismissed(pair.stream)
}

fn pass(pair: &mut Pair, seconds: u64) {
    pair.head.pass(Duration::from_secs(seconds));
    pair.exchange();
}

/// The member ends.
fn end(pair: &mut Pair) {
    assert!(is_dismissed(pair));
    pair.head.core.member_gone(pair.stream);
    pair.head.settle();
}

#[test]
fn nothing_is_placed_there_and_who_runs_there_gives_the_worker_back_first() {
    let mut pair = Pair::new(0, 2);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.exchange();
    let (lease, _) = pair.head.granted(driver, 1);
    drain(&mut pair, None);
    let retired = |(to, message): &(u64, Message)| *to == driver && matches!(message, Message::LeaseRetire(_));
    assert_eq!(pair.head.sent.iter().filter(|sent| retired(sent)).count(), 1);
    pair.head.say(driver, request(2, &[CPU]));
    pass(&mut pair, 5);
    assert_eq!(pair.head.grants_of(driver).len(), 1, "DRAIN-1");
    assert!(!is_dismissed(&pair), "DRAIN-3");
    pair.head.say(driver, LeaseReturn { lease, retiring: false });
    pair.exchange();
    pair.bury();
    pair.exchange();
    pass(&mut pair, 1);
    assert!(is_dismissed(&pair), "DRAIN-3");
}

#[test]
fn an_order_under_way_is_taken_back_before_it_is_used() {
    let mut pair = Pair::new(0, 1);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    let asked = within(&pair, Some(60));
    pair.head.core.drain_asked(VISITOR, &asked);
    pair.head.settle();
    pair.exchange();
    assert!(pair.head.grants_of(driver).is_empty(), "DRAIN-1");
    pair.bury();
    pair.exchange();
    assert_eq!(pair.member.free("CPU"), 10_000);
}

#[test]
fn at_the_deadline_tasks_and_actors_end_uncounted() {
    let mut pair = Pair::new(0, 2);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    let mut make = actor(7, &[CPU], &[CPU]);
    make.max_restarts = 1;
    pair.head.say(driver, make);
    pair.exchange();
    let worker = pair.head.placed(driver, 7).expect("it is placed");
    pair.head.say(worker, ActorReady::default());
    drain(&mut pair, Some(10));
    pass(&mut pair, 9);
    assert!(!is_dismissed(&pair));
    pass(&mut pair, 2);
    end(&mut pair);
    let uncounted = |(to, message): &(u64, Message)| {
        *to == driver && matches!(message, Message::LeaseEnded(ended) if ended.was_drained && ended.node_died)
    };
    assert_eq!(pair.head.sent.iter().filter(|sent| uncounted(sent)).count(), 1);
    assert_eq!(pair.head.restarts(driver, 7).len(), 1, "DRAIN-2");
    let uncounted = |(to, message): &(u64, Message)| {
        *to == driver && matches!(message, Message::ActorRestarting(said) if said.was_drained)
    };
    assert_eq!(pair.head.sent.iter().filter(|sent| uncounted(sent)).count(), 1, "nor do its calls spend a retry");
    let moved = pair.head.core.as_head().actors.known.iter().next().expect("it is known");
    assert_eq!((moved.restarts, moved.moves), (1, 1));
}

#[test]
fn an_object_without_another_copy_is_copied_and_then_let_go_of() {
    let mut pair = Pair::new(1, 1);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.head.say(driver, request(2, &[CPU]));
    pair.exchange();
    let there = pair.head.grants_of(driver).into_iter().map(|(_, _, worker)| worker);
    let worker = there.into_iter().find(|worker| pair.is_on_member(*worker)).expect("one is there");
    let object = ObjectId::new([9; 28]);
    pair.head.core.stored_elsewhere(worker, object);
    drain(&mut pair, None);
    assert_eq!(pair.head.core.as_head().left_on(pair.stream).objects, 1);
    // The head's own store is told to have it, for want of another member.
    pair.head.core.copied_here(object);
    assert_eq!(pair.head.core.as_head().left_on(pair.stream).objects, 0);
}

#[test]
fn a_node_is_kept_after_all_and_serves_again() {
    let mut pair = Pair::new(0, 1);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.exchange();
    drain(&mut pair, Some(10));
    let undo = DrainAsked { undo: true, ..within(&pair, None) };
    assert_eq!(ask(&mut pair, &undo).failure, None);
    pair.head.say(driver, request(2, &[CPU]));
    let (lease, _) = pair.head.granted(driver, 1);
    pair.head.say(driver, LeaseReturn { lease, retiring: false });
    pair.exchange();
    pass(&mut pair, 60);
    assert!(!is_dismissed(&pair));
    pair.head.granted(driver, 2);
}

/// A head with a journal, and a member.
fn with_journal() -> Pair {
    let mut pair = Pair { head: World::keeping(0, 0, Rows::new()), ..Pair::apart(0, 1) };
    pair.stream = pair.head.core.new_key();
    pair.join();
    pair
}

/// How the next head is to empty the member.
fn left_to_the_next(pair: &Pair) -> Option<DrainRow> {
    let mut next = World::keeping(0, 0, pair.head.rows.clone());
    let node = pair.member.core.node().plan().node;
    next.core.as_head_mut().members.drained_before.remove(&node)
}

#[test]
fn the_next_head_goes_on_emptying_a_node_and_keeps_one_that_was_to_be_kept() {
    let mut pair = with_journal();
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.exchange();
    drain(&mut pair, Some(10));
    pair.head.core.set_wall_clock(4_000);
    let asked = left_to_the_next(&pair).expect("it is written down");
    assert_eq!(asked.until_ms, Some(10_000));
    let undo = DrainAsked { undo: true, ..within(&pair, None) };
    assert_eq!(ask(&mut pair, &undo).failure, None);
    assert_eq!(left_to_the_next(&pair), None);
    let node = pair.member.core.node().plan().node;
    let head = pair.head.core.as_head_mut();
    head.members.drained_before.insert(node, asked);
    head.drain_again(pair.stream, node);
    pair.head.settle();
    pass(&mut pair, 5);
    assert!(!is_dismissed(&pair));
    pass(&mut pair, 2);
    assert!(is_dismissed(&pair));
}

#[test]
fn a_drain_that_cannot_be_written_down_is_refused_and_taken_back() {
    let mut pair = with_journal();
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.exchange();
    pair.head.disk_fault = Some("the disk is full".to_owned());
    let asked = DrainAsked { reason: "notice".into(), ..within(&pair, Some(10)) };
    let refused = |report: StateReport| report.failure.expect("it is refused").text;
    assert_eq!(refused(ask(&mut pair, &asked)), "the disk is full");
    assert!(pair.head.core.as_head().members.drains.is_empty());
    pair.head.disk_fault = None;
    assert_eq!(ask(&mut pair, &asked).failure, None);
    pair.head.disk_fault = Some("the disk is full".to_owned());
    for asked in [within(&pair, Some(1)), DrainAsked { undo: true, ..within(&pair, None) }] {
        assert_eq!(refused(ask(&mut pair, &asked)), "the disk is full");
        let is = &pair.head.core.as_head().members.drains[&pair.stream].asked;
        assert_eq!((is.reason.as_str(), is.until_ms), ("notice", Some(10_000)));
    }
}

#[test]
fn who_is_not_idle_is_left_alone_where_that_is_asked() {
    let mut pair = Pair::new(0, 1);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.exchange();
    let asked = DrainAsked { only_if_idle: true, ..within(&pair, None) };
    let text = ask(&mut pair, &asked).failure.expect("it is refused").text;
    assert!(text.contains("1 workers on tasks"), "{text}");
    let head = DrainAsked { node: pair.head.core.node().plan().node.hex(), ..within(&pair, None) };
    let text = ask(&mut pair, &head).failure.expect("it is refused").text;
    assert!(text.contains("oxiray stop"), "{text}");
}
