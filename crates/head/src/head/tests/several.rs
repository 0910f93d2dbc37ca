//! A head and two members whose messages cross in any order that their streams allow: nobody waits for ever.

use super::{CPU, World, request};
use crate::demands::Need;
use crate::head::Key;
use oxiray_ids::{LeaseRequestNumber, NodeId, ObjectId, WorkerNumber};
use oxiray_machine::Whereabouts;
use oxiray_wire::Message;
use oxiray_wire::message::{Blocked, LeaseCancel, LeaseReturn, Sought, Stored, Unblocked};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The head's stream, at a member.
const HEAD: Key = 1 << 40;

struct Node {
    world: World,
    /// Its stream, at the head.
    stream: Key,
    is_alive: bool,
    up: VecDeque<Message>,
    down: VecDeque<Message>,
    /// Its store.
    stored: BTreeSet<ObjectId>,
}

struct Several {
    head: World,
    nodes: Vec<Node>,
    driver: Key,
    /// Which object each member asks for, and how often.
    asked: BTreeMap<(Option<Key>, ObjectId), usize>,
}

fn object(number: u8) -> ObjectId {
    ObjectId::new([number; 28])
}

fn node(place: usize) -> NodeId {
    NodeId::new([place as u8 + 1; 28])
}

impl Several {
    fn new() -> Self {
        let mut head = World::new(0, 0);
        let nodes = (0..2).map(|place| {
            let mut world = World::member(1 + place as u32, node(place));
            world.core.serve_head(HEAD, String::new());
            world.settle();
            let stream = head.core.new_key();
            let (up, down) = (VecDeque::new(), VecDeque::new());
            Node { world, stream, is_alive: true, up, down, stored: BTreeSet::new() }
        });
        let nodes = nodes.collect();
        let mut several = Self { head, nodes, driver: 0, asked: BTreeMap::new() };
        several.collect();
        several.deliver_all();
        several.driver = several.head.driver();
        several
    }

    /// What was said goes onto the streams.
    fn collect(&mut self) {
        for node in &mut self.nodes {
            let (down, left) = std::mem::take(&mut self.head.sent).into_iter().partition(|(to, _)| *to == node.stream);
            self.head.sent = left;
            let down: Vec<(Key, Message)> = down;
            node.down.extend(down.into_iter().map(|(_, message)| message));
            node.up.extend(
                std::mem::take(&mut node.world.sent).into_iter().filter(|(to, _)| *to == HEAD).map(|(_, said)| said),
            );
        }
    }

    /// The next message of one stream arrives; `false` where there is none.
    fn deliver(&mut self, place: usize, is_up: bool) -> bool {
        self.collect();
        let node = &mut self.nodes[place];
        if is_up {
            let Some(message) = node.up.pop_front() else { return false };
            self.head.hear_member(node.stream, message);
            self.head.settle();
        } else {
            let Some(message) = node.down.pop_front() else { return false };
            match message {
                Message::Relay(_) => {}
                Message::ObjectDelete(said) => {
                    node.stored.remove(&said.object);
                }
                Message::Seek(asked) => {
                    let object = asked.object;
                    let is_here = node.stored.contains(&object);
                    node.up.push_back(Sought { search: asked.search, is_here }.into());
                }
                message => node.world.hear_head(message),
            }
            node.world.settle();
        }
        self.bury();
        self.collect();
        true
    }

    fn deliver_all(&mut self) {
        while (0..self.nodes.len()).any(|place| self.deliver(place, true) || self.deliver(place, false)) {}
    }

    /// Those that were killed or told to leave do so.
    fn bury(&mut self) {
        for worker in self.head.ending() {
            if let Some((member, number)) = self.head.core.route(worker)
                && let Some(node) = self.nodes.iter_mut().find(|node| node.stream == member)
                && node.world.running.contains(&number.0)
            {
                node.world.bury(number.0, "killed by signal 9 (SIGKILL)");
            }
        }
        for node in &mut self.nodes {
            for worker in node.world.ending() {
                node.world.bury(worker, "killed by signal 9 (SIGKILL)");
            }
        }
    }

    fn lives(&self, place: usize) -> bool {
        self.nodes[place].is_alive
    }

    /// A worker of the member that is at work begins to write an object, and the member says so.
    fn write(&mut self, place: usize, object: ObjectId) {
        self.collect();
        let routes: Vec<WorkerNumber> = self
            .head
            .grants_of(self.driver)
            .iter()
            .filter_map(|(.., worker)| self.head.core.route(*worker))
            .collect::<Vec<_>>()
            .into_iter()
            .filter(|(member, _)| *member == self.nodes[place].stream)
            .map(|(_, number)| number)
            .collect();
        let node = &mut self.nodes[place];
        if let Some(worker) = routes.iter().find(|worker| node.world.running.contains(&worker.0)) {
            node.stored.insert(object);
            let said = Message::from(Stored { object });
            node.up.push_back(said.relayed(*worker).into());
        }
    }

    fn locate(&mut self, asker: Option<usize>, object: ObjectId) {
        let asker = asker.map(|place| self.nodes[place].stream);
        *self.asked.entry((asker, object)).or_default() += 1;
        self.head.core.locate(asker, object, None, false);
        self.head.settle();
    }

    fn die(&mut self, place: usize) {
        let node = &mut self.nodes[place];
        node.is_alive = false;
        self.head.core.member_silent(node.stream, false);
        self.head.settle();
        self.head.core.member_gone(node.stream);
        self.head.settle();
        node.up.clear();
        node.down.clear();
    }

    fn nobody_waits_in_vain(&self) -> Result<(), TestCaseError> {
        for waiting in self.head.core.as_head().pending.queue.waiting() {
            if let Need::ResourceRequest(resource_request) = waiting.resource_request {
                prop_assert!(
                    self.head.core.as_head().members.obstacle(resource_request).is_some(),
                    "{} could be placed",
                    waiting.count
                );
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone)]
enum Event {
    Ask(bool),
    Cancel(usize),
    Return(usize, bool),
    Die(usize, usize),
    Lend(usize, usize),
    Write(usize, u8),
    Locate(Option<usize>, u8),
    Deliver(usize, bool),
    NodeDies(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let place = || 0..2_usize;
    prop_oneof![
        30 => any::<bool>().prop_map(Event::Ask),
        10 => (0..20_usize).prop_map(Event::Cancel),
        20 => (0..20_usize, any::<bool>()).prop_map(|(which, retiring)| Event::Return(which, retiring)),
        10 => (place(), 0..4_usize).prop_map(|(place, which)| Event::Die(place, which)),
        10 => (place(), 0..4_usize).prop_map(|(place, which)| Event::Lend(place, which)),
        10 => (place(), 0..3_u8).prop_map(|(place, object)| Event::Write(place, object)),
        10 => (prop::option::of(place()), 0..3_u8).prop_map(|(place, object)| Event::Locate(place, object)),
        100 => (place(), any::<bool>()).prop_map(|(place, is_up)| Event::Deliver(place, is_up)),
        1 => place().prop_map(Event::NodeDies),
    ]
}

fn happen(several: &mut Several, event: &Event, asked: &mut u64) {
    let driver = several.driver;
    match *event {
        Event::Ask(fresh) => {
            *asked += 1;
            let asked = oxiray_wire::message::LeaseRequest { fresh, ..request(*asked, &[CPU]) };
            several.head.say(driver, asked);
        }
        Event::Cancel(which) => several.head.say(driver, LeaseCancel { request: LeaseRequestNumber(which as u64 + 1) }),
        Event::Return(which, retiring) => {
            if let Some((_, lease, _)) = several.head.grants_of(driver).get(which) {
                several.head.say(driver, LeaseReturn { lease: *lease, retiring });
            }
        }
        Event::Die(place, which) if several.lives(place) => {
            let world = &mut several.nodes[place].world;
            if let Some(worker) = world.running.iter().nth(which).copied() {
                world.bury(worker, "killed by signal 9 (SIGKILL)");
            }
        }
        Event::Lend(place, which) if several.lives(place) => {
            let world = &mut several.nodes[place].world;
            if let Some(worker) = world.running.iter().nth(which).copied() {
                world.say(worker, Blocked {});
                world.say(worker, Unblocked {});
            }
        }
        Event::Write(place, number) if several.lives(place) => several.write(place, object(number)),
        Event::Locate(place, number) if place.is_none_or(|place| several.lives(place)) => {
            several.locate(place, object(number));
        }
        Event::Deliver(place, is_up) => drop(several.deliver(place, is_up)),
        Event::NodeDies(place) if several.lives(place) => several.die(place),
        _ => {}
    }
    several.bury();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_any_order_everybody_is_answered(events in prop::collection::vec(event(), 1..120)) {
        let (mut several, mut asked) = (Several::new(), 0);
        for event in &events {
            happen(&mut several, event, &mut asked);
        }
        several.deliver_all();
        several.nobody_waits_in_vain()?;
        prop_assert!(several.head.core.as_head().members.orders.is_empty(), "MEMBER-3");
        let dead = |asker: &Option<Key>| several.nodes.iter().any(|node| Some(node.stream) == *asker && !node.is_alive);
        let mut asked = several.asked.clone();
        for Whereabouts { asker, object, .. } in &several.head.found {
            *asked.get_mut(&(*asker, *object)).expect("it was asked for") -= 1;
        }
        asked.retain(|(asker, _), open| *open > 0 && !dead(asker));
        prop_assert!(asked.is_empty(), "LOCATION-4: {asked:?}");
    }
}

#[test]
fn a_member_whose_process_outlives_its_stream_is_killed_and_gone() {
    let mut several = Several::new();
    for number in 1..=3 {
        several.head.say(several.driver, request(number, &[CPU]));
    }
    several.deliver_all();
    several.head.core.member_silent(several.nodes[1].stream, false);
    several.head.settle();
    several.head.pass(Duration::from_secs(9));
    assert!(several.head.ended(several.driver).is_empty() && several.head.ending().is_empty());
    several.head.pass(Duration::from_secs(1));
    assert_eq!(several.head.ending(), [several.nodes[1].stream]);
    assert_eq!(several.head.ended(several.driver).len(), 2, "its two leases");
    several.head.core.member_gone(several.nodes[1].stream);
    several.head.settle();
    assert_eq!(several.head.ended(several.driver).len(), 2, "once");
}

/// A member's worker writes an object, whose reader on the other member asks before the head has heard of it.
#[test]
fn what_is_written_is_found_though_its_reader_asks_first() {
    let mut several = Several::new();
    for number in 1..=3 {
        several.head.say(several.driver, request(number, &[CPU]));
    }
    several.deliver_all();
    for writer in 0..2 {
        let written = object(writer as u8);
        several.write(writer, written);
        let reader = 1 - writer;
        several.locate(Some(reader), written);
        assert!(several.head.found.is_empty(), "LOCATION-3");
        several.deliver_all();
        let asker = Some(several.nodes[reader].stream);
        assert_eq!(several.head.found, [Whereabouts { asker, object: written, node: Some(node(writer)) }]);
        several.head.found.clear();
    }
    several.locate(None, object(9));
    several.deliver(0, false);
    several.deliver(0, true);
    assert!(several.head.found.is_empty(), "one has not answered");
    several.die(1);
    assert_eq!(several.head.found, [Whereabouts { asker: None, object: object(9), node: None }], "LOCATION-4");
}
