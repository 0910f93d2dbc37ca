//! A head and a member whose messages arrive when a test says so.

use super::{CPU, World, actor, request};
use crate::Core;
use oxiray_ids::{ActorId, LeaseRequestNumber, NodeId};
use oxiray_machine::Key;
use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_wire::Message;
use oxiray_wire::message::{ActorCreate, ActorKill, LeaseCancel, LeaseKill, LeaseReturn};
use proptest::prelude::*;
use std::time::Duration;

/// How long what no node can meet waits for one, where a test is about that.
const WAIT: Duration = Duration::from_secs(30);

/// The head's stream, at the member.
pub(super) const HEAD: Key = 1 << 40;

pub(super) struct Pair {
    pub(super) head: World,
    pub(super) member: World,
    /// The member's stream, at the head.
    pub(super) stream: Key,
}

fn taken(world: &mut World, to: Key) -> Vec<Message> {
    let (taken, left) = std::mem::take(&mut world.sent).into_iter().partition(|(key, _)| *key == to);
    world.sent = left;
    let taken: Vec<(Key, Message)> = taken;
    taken.into_iter().map(|(_, message)| message).collect()
}

impl Pair {
    pub(super) fn new(own_cpus: u32, member_cpus: u32) -> Self {
        let mut pair = Self::apart(own_cpus, member_cpus);
        pair.join();
        pair
    }

    /// The member has not joined yet.
    pub(super) fn apart(own_cpus: u32, member_cpus: u32) -> Self {
        let (mut head, member) = (World::new(own_cpus, 0), World::member(member_cpus, NodeId::new([7; 28])));
        let stream = head.core.new_key();
        Self { head, member, stream }
    }

    pub(super) fn join(&mut self) {
        self.member.core.serve_head(HEAD, String::new());
        self.member.settle();
        self.exchange();
    }

    /// Everything that was said arrives, and what is said to that, until nothing more is.
    pub(super) fn exchange(&mut self) {
        loop {
            let (orders, news) = (taken(&mut self.head, self.stream), taken(&mut self.member, HEAD));
            if orders.is_empty() && news.is_empty() {
                return;
            }
            for order in orders.into_iter().filter(|order| !matches!(order, Message::Relay(_))) {
                self.member.hear_head(order);
                self.member.settle();
            }
            for message in news {
                self.head.hear_member(self.stream, message);
                self.head.settle();
            }
        }
    }

    pub(super) fn is_on_member(&self, worker: Key) -> bool {
        self.head.core.route(worker).is_some()
    }

    /// Those that were killed or told to leave do so.
    pub(super) fn bury(&mut self) {
        for worker in self.member.ending() {
            self.member.bury(worker, "killed by signal 9 (SIGKILL)");
        }
        for worker in self.head.ending() {
            match self.head.core.route(worker) {
                None => self.head.bury(worker, "killed by signal 9 (SIGKILL)"),
                // The shell would pass the request on.
                Some((_, number)) => self.member.bury(number.0, "killed by signal 9 (SIGKILL)"),
            }
        }
    }
}

fn cpus(count: u32) -> Demand {
    Demand::new([(ResourceName::CPU, Quantity::whole(count))]).expect("a demand")
}

pub(super) fn seized(core: &mut Core, count: u32) -> oxiray_resources::Grant {
    core.node_mut().ledger_mut().grant(&cpus(count)).expect("it is free")
}

#[test]
fn what_does_not_fit_here_is_done_there_and_its_worker_serves_again() {
    let mut pair = Pair::new(1, 1);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.head.say(driver, request(2, &[CPU]));
    pair.exchange();
    let (_, here) = pair.head.granted(driver, 1);
    let (lease, there) = pair.head.granted(driver, 2);
    assert!(!pair.is_on_member(here) && pair.is_on_member(there));
    assert_eq!((pair.head.free("CPU"), pair.member.free("CPU")), (0, 0));
    pair.head.say(driver, LeaseReturn { lease, retiring: false });
    pair.exchange();
    assert_eq!(pair.member.free("CPU"), 10_000);
    pair.head.say(driver, request(3, &[CPU]));
    pair.exchange();
    assert_eq!(pair.head.granted(driver, 3).1, there, "the same process serves again");
}

#[test]
fn a_member_refuses_what_its_ledger_has_not_and_is_asked_again() {
    let mut pair = Pair::new(0, 2);
    let driver = pair.head.driver();
    let seized = seized(&mut pair.member.core, 2);
    pair.head.say(driver, request(1, &[CPU]));
    pair.exchange();
    assert!(pair.head.grants_of(driver).is_empty(), "MEMBER-1");
    pair.member.core.node_mut().ledger_mut().release(seized);
    pair.member.settle();
    pair.exchange();
    assert!(pair.is_on_member(pair.head.granted(driver, 1).1));
}

#[test]
fn what_is_cancelled_while_it_is_ordered_is_given_back() {
    let mut pair = Pair::new(0, 1);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.head.say(driver, LeaseCancel { request: LeaseRequestNumber(1) });
    pair.exchange();
    assert!(pair.head.grants_of(driver).is_empty());
    assert_eq!(pair.member.free("CPU"), 10_000);
}

#[test]
fn nothing_stays_for_a_driver_that_went_while_its_order_was_under_way() {
    let mut pair = Pair::new(0, 1);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.head.core.driver_left(driver);
    pair.head.settle();
    for _ in 0..3 {
        pair.exchange();
        pair.bury();
    }
    assert_eq!(pair.member.free("CPU"), 10_000);
    assert!(pair.head.core.as_head().jobs.details.is_empty(), "the job is forgotten");
    assert_eq!(pair.member.core.leftovers(), [], "there, too");
}

#[test]
fn with_a_member_end_its_leases_and_its_orders_are_queued_again() {
    let mut pair = Pair::new(0, 2);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.exchange();
    let (lease, _) = pair.head.granted(driver, 1);
    pair.head.say(driver, request(2, &[CPU]));
    pair.head.core.node_mut().plan_mut().rules.node = WAIT;
    pair.head.core.member_gone(pair.stream);
    pair.head.settle();
    let ended = pair.head.ended(driver);
    assert_eq!(ended.len(), 1);
    assert!(ended[0].0 == lease && ended[0].1.contains("that it ran on died"), "{ended:?}");
    assert_eq!(pair.head.core.as_head().pending.queue.len(), 1, "MEMBER-3");
    pair.head.pass(WAIT);
    let refusal = pair.head.refusal(driver, 2);
    assert!(refusal.contains("A machine that could died, and no other has come for 30 s"), "{refusal}");
}

/// Owners see the streams to their workers end before anybody knows of the node, and ask for the workers' end.
#[test]
fn who_is_killed_on_a_node_that_is_silent_is_lost_with_it_and_not_said_to_outlive_that() {
    let mut pair = Pair::new(0, 2);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.head.say(driver, ActorCreate { max_restarts: -1, ..actor(1, &[CPU], &[CPU]) });
    pair.exchange();
    let (lease, _) = pair.head.granted(driver, 1);
    pair.head.core.member_silent(pair.stream, true);
    pair.head.say(driver, LeaseKill { lease });
    pair.head.say(driver, ActorKill { actor: ActorId::new([1; 16]), restart: true });
    pair.head.pass(Duration::from_secs(45));
    assert!(pair.head.ended(driver).is_empty() && pair.head.deaths(driver, 1).is_empty(), "nothing is known yet");
    pair.head.core.member_gone(pair.stream);
    pair.head.settle();
    let ended = pair.head.ended(driver);
    assert!(ended.len() == 1 && ended[0].1.contains("that it ran on died"), "{ended:?}");
    assert_eq!(pair.head.restarts(driver, 1).len(), 1, "the actor is made anew");
}

/// Calls go to an actor's first process before its constructor returns, and that it did may be on its way for ever.
#[test]
fn of_an_actor_whose_node_is_lost_nobody_says_that_it_had_begun_nothing() {
    for is_lost in [true, false] {
        let mut pair = Pair::new(0, 1);
        let driver = pair.head.driver();
        pair.head.say(driver, ActorCreate { max_restarts: -1, ..actor(1, &[CPU], &[CPU]) });
        pair.exchange();
        let process = pair.head.process_of(1).expect("the member has made it");
        if is_lost {
            pair.head.core.member_gone(pair.stream);
            pair.head.settle();
        } else {
            let (_, number) = pair.head.core.route(process).expect("it is the member's");
            pair.member.bury(number.0, "killed by signal 9 (SIGKILL)");
            pair.exchange();
        }
        assert_eq!(pair.head.restarts(driver, 1), [!is_lost]);
    }
}

#[test]
fn what_no_node_can_meet_waits_for_one_that_can() {
    let mut pair = Pair::apart(1, 2);
    pair.head.core.node_mut().plan_mut().rules.node = WAIT;
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[("CPU", 20_000)]));
    let notices = pair.head.notices(driver);
    assert!(notices.len() == 1 && notices[0].contains("It waits up to 30 s"), "SHORTAGE-2: {notices:?}");
    pair.head.say(driver, request(2, &[("CPU", 20_000)]));
    assert_eq!(pair.head.notices(driver).len(), 1, "once for each demand");
    pair.head.pass(WAIT / 2);
    pair.join();
    assert!(pair.is_on_member(pair.head.granted(driver, 1).1));
    pair.head.pass(WAIT);
    assert!(pair.head.refusals(driver).is_empty(), "the second one waits its turn");
}

#[test]
fn each_is_refused_when_it_has_waited_long_enough() {
    let mut pair = Pair::apart(1, 2);
    pair.head.core.node_mut().plan_mut().rules.node = WAIT;
    let driver = pair.head.driver();
    let large = [("CPU", 30_000)];
    pair.head.say(driver, request(1, &large));
    pair.head.pass(WAIT / 2);
    pair.head.say(driver, request(2, &large));
    pair.head.say(driver, request(3, &large));
    pair.head.say(driver, LeaseCancel { request: LeaseRequestNumber(3) });
    pair.join();
    pair.head.pass(WAIT / 2);
    assert_eq!(pair.head.refusals(driver), [1], "SHORTAGE-1");
    let text = pair.head.refusal(driver, 1);
    assert!(text.contains("2 CPU") && text.contains("No such machine has joined for 30 s"), "{text}");
    pair.head.pass(WAIT / 2);
    assert_eq!(pair.head.refusals(driver), [1, 2]);
    pair.head.pass(WAIT);
    assert!(
        pair.head.core.as_head().pending.shortages.is_empty() && pair.head.core.as_head().pending.wanted.is_empty()
    );
}

#[derive(Debug, Clone)]
enum Event {
    Ask(bool),
    Cancel(usize),
    Return(usize, bool),
    Die(usize),
    Exchange,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => any::<bool>().prop_map(Event::Ask),
        1 => (0..20_usize).prop_map(Event::Cancel),
        2 => (0..20_usize, any::<bool>()).prop_map(|(which, retiring)| Event::Return(which, retiring)),
        1 => (0..20_usize).prop_map(Event::Die),
        3 => Just(Event::Exchange),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_any_order_everything_is_given_back(events in prop::collection::vec(event(), 1..60)) {
        let mut pair = Pair::new(1, 2);
        let driver = pair.head.driver();
        let mut asked = 0;
        for event in events {
            match event {
                Event::Ask(fresh) => {
                    asked += 1;
                    let asked = oxiray_wire::message::LeaseRequest { fresh, ..request(asked, &[CPU]) };
                    pair.head.say(driver, asked);
                }
                Event::Cancel(which) => pair.head.say(driver, LeaseCancel { request: LeaseRequestNumber(which as u64 + 1) }),
                Event::Return(which, retiring) => {
                    let grants = pair.head.grants_of(driver);
                    if let Some((_, lease, _)) = grants.get(which) {
                        pair.head.say(driver, LeaseReturn { lease: *lease, retiring });
                    }
                }
                Event::Die(which) => {
                    let running: Vec<Key> = pair.member.running.iter().copied().collect();
                    if let Some(worker) = running.get(which) {
                        pair.member.bury(*worker, "killed by signal 9 (SIGKILL)");
                    }
                }
                Event::Exchange => pair.exchange(),
            }
        }
        for number in 1..=asked {
            pair.head.say(driver, LeaseCancel { request: LeaseRequestNumber(number) });
        }
        for _ in 0..4 {
            pair.exchange();
            for (_, lease, _) in pair.head.grants_of(driver) {
                pair.head.say(driver, LeaseReturn { lease, retiring: false });
            }
            pair.bury();
        }
        pair.exchange();
        prop_assert_eq!((pair.head.free("CPU"), pair.member.free("CPU")), (10_000, 20_000));
        let shadows = pair.head.core.as_head().workers.by_key.keys().filter(|worker| pair.is_on_member(**worker)).count();
        let known = pair.head.core.as_head().members.by_key[&pair.stream].workers.len();
        prop_assert_eq!(shadows, known, "MEMBER-2");
    }
}
