//! Who is to end early for whom.

use std::collections::{BTreeMap, BTreeSet};

use oxiray_ids::NodeId;
use oxiray_resources::{Demand, Ledger, Quantity, ResourceName};

use super::{demand, ledger, node};
use crate::{
    Bundle, Eviction, Group, GroupStrategy, HeldPart, NodeView, Preemptible, Priority, ResourceRequest, Selector,
    SoughtRoom, UrgentWaiter, preempt,
};

/// Machines, and who holds what of them: later ones have larger names.
struct World {
    ledgers: BTreeMap<NodeId, Ledger>,
    held: Vec<Preemptible<u32>>,
}

impl World {
    fn new(machines: &[&str]) -> Self {
        let ledgers = (1..).zip(machines).map(|(number, text)| (node(number), ledger(text))).collect();
        Self { ledgers, held: Vec::new() }
    }

    /// Somebody with that priority holds these parts.
    fn holds(&mut self, priority: i32, parts: &[(u8, &str)]) -> u32 {
        let victim = self.held.len() as u32;
        let parts = parts.iter().map(|(number, text)| {
            let grant = self.ledgers.get_mut(&node(*number)).unwrap().grant(&demand(text)).unwrap();
            let of = |shares: &oxiray_resources::DeviceShares| shares.shares.iter().map(|share| share.device).collect();
            let devices = grant.devices().iter().map(|shares| (shares.resource.clone(), of(shares))).collect();
            HeldPart { node: node(*number), demand: demand(text), devices }
        });
        let parts = parts.collect();
        self.held.push(Preemptible { victim, priority: Priority(priority), parts });
        victim
    }

    fn views(&self) -> BTreeMap<NodeId, NodeView> {
        let view = |(node, ledger): (&NodeId, &Ledger)| (*node, NodeView::new(*node, ledger, BTreeMap::new()));
        self.ledgers.iter().map(view).collect()
    }

    fn ends_for(&self, waiters: &[UrgentWaiter<'_, u32>]) -> Vec<(usize, Vec<u32>)> {
        let found = preempt(waiters, self.views(), &[], self.held.clone(), 64);
        found.into_iter().map(|Eviction { waiter, victims }| (waiter, victims)).collect()
    }

    /// Who ends for so many requests of that priority.
    fn ends(&self, priority: i32, text: &str, count: usize) -> Vec<Vec<u32>> {
        let request = ResourceRequest::from(demand(text));
        self.ends_for(&[waiter(priority, SoughtRoom::Request(&request), count)])
            .into_iter()
            .map(|(_, ends)| ends)
            .collect()
    }
}

fn waiter(priority: i32, sought: SoughtRoom<'_>, count: usize) -> UrgentWaiter<'_, u32> {
    UrgentWaiter { priority: Priority(priority), sought, count, spared: BTreeSet::new() }
}

fn group(strategy: GroupStrategy, bundles: &[&str]) -> Group {
    let bundle = |text: &&str| Bundle { demand: demand(text), selector: Selector::default() };
    Group { strategy, bundles: bundles.iter().map(bundle).collect(), preferred: None, domain: None }
}

#[test]
fn the_least_urgent_ends_and_among_equals_the_youngest_and_nobody_as_urgent_as_who_waits() {
    let mut world = World::new(&["CPU 4"]);
    let [_, low, _, young] = [0, -1, 0, 0].map(|priority| world.holds(priority, &[(1, "CPU 1")]));
    assert_eq!(world.ends(1, "CPU 1", 1), [[low]]);
    assert_eq!(world.ends(1, "CPU 1", 2), [[low], [young]]);
    assert_eq!(world.ends(0, "CPU 1", 3), [[low]], "PREEMPT-2: there is nobody else below");
    assert!(world.ends(-1, "CPU 1", 1).is_empty());
}

#[test]
fn nobody_ends_where_there_is_room_or_will_be() {
    let mut world = World::new(&["CPU 2"]);
    let first = world.holds(0, &[(1, "CPU 1")]);
    assert!(world.ends(1, "CPU 1", 1).is_empty(), "PREEMPT-1");
    let second = world.holds(0, &[(1, "CPU 1")]);
    let request = ResourceRequest::from(demand("CPU 1"));
    let of = |count| {
        let ending = [world.held[0].clone()];
        let rest = vec![world.held[1].clone()];
        preempt(&[waiter(1, SoughtRoom::Request(&request), count)], world.views(), &ending, rest, 64)
    };
    assert!(of(1).is_empty(), "{first} ends already");
    assert_eq!(of(2), [Eviction { waiter: 0, victims: vec![second] }]);
}

#[test]
fn each_that_ends_is_needed_and_shares_count_on_the_device_where_they_are() {
    let mut world = World::new(&["CPU 8, GPU 2"]);
    // The first device is full of shares, the second half.
    let shares: Vec<u32> = (0..4).map(|_| world.holds(0, &[(1, "GPU 0.25")])).collect();
    let half = world.holds(0, &[(1, "GPU 0.5")]);
    let cpus = world.holds(0, &[(1, "CPU 8")]);
    assert_eq!(world.ends(1, "GPU 1", 1), [[half]], "the four shares are of another device, and end for nothing");
    assert_eq!(world.ends(1, "GPU 0.25", 3).len(), 1, "two of them are free");
    assert_eq!(world.ends(1, "GPU 2", 1).concat().len(), shares.len() + 1);
    assert_eq!(world.ends(1, "CPU 1, GPU 1", 1), [[cpus, half]], "PREEMPT-3");
    assert!(world.ends(1, "GPU 3", 1).is_empty(), "there are two");
}

#[test]
fn the_machine_is_taken_where_less_becomes_free_for_nobody() {
    let mut world = World::new(&["GPU 4", "GPU 1"]);
    let _large = world.holds(0, &[(1, "GPU 4")]);
    let small = world.holds(0, &[(2, "GPU 1")]);
    assert_eq!(world.ends(1, "GPU 1", 1), [[small]]);
    let mut world = World::new(&["GPU 1", "GPU 4"]);
    let _less_urgent_but_too_small = world.holds(-5, &[(1, "GPU 1")]);
    let large = world.holds(0, &[(2, "GPU 4")]);
    assert_eq!(world.ends(1, "GPU 2", 1), [[large]]);
}

#[test]
fn what_is_held_on_several_machines_ends_as_a_whole_and_makes_room_on_each() {
    let mut world = World::new(&["GPU 1", "GPU 1"]);
    let both = world.holds(0, &[(1, "GPU 1"), (2, "GPU 1")]);
    assert_eq!(world.ends(1, "GPU 1", 2), [[both]], "PREEMPT-4");
}

#[test]
fn a_group_has_room_on_all_its_machines_and_nobody_ends_beyond_that() {
    let mut world = World::new(&["GPU 2", "GPU 2", "GPU 2"]);
    let [one, two] = [1, 1].map(|number| world.holds(0, &[(number, "GPU 1")]));
    let [three, four] = [2, 2].map(|number| world.holds(0, &[(number, "GPU 1")]));
    let firm = world.holds(9, &[(3, "GPU 2")]);
    let spread = group(GroupStrategy::StrictSpread, &["GPU 1", "GPU 1"]);
    let ends = world.ends_for(&[waiter(1, SoughtRoom::Group(&spread), 1)]);
    assert_eq!(ends, [(0, vec![four, two])], "one on each of two machines, the youngest");
    let packed = group(GroupStrategy::StrictPack, &["GPU 1", "GPU 1"]);
    assert_eq!(world.ends_for(&[waiter(1, SoughtRoom::Group(&packed), 1)]), [(0, vec![four, three])]);
    let all = group(GroupStrategy::Pack, &["GPU 2", "GPU 2"]);
    let [(_, ends)] = &world.ends_for(&[waiter(1, SoughtRoom::Group(&all), 1)])[..] else { panic!("there is a way") };
    assert_eq!(ends.iter().copied().collect::<BTreeSet<_>>(), [one, two, three, four].into());
    assert!(!ends.contains(&firm));
    let too_much = group(GroupStrategy::Pack, &["GPU 2", "GPU 2", "GPU 2"]);
    assert!(world.ends_for(&[waiter(1, SoughtRoom::Group(&too_much), 1)]).is_empty());
}

#[test]
fn who_waits_for_the_request_is_spared() {
    let mut world = World::new(&["GPU 1"]);
    let parent = world.holds(0, &[(1, "GPU 1")]);
    let request = ResourceRequest::from(demand("GPU 1"));
    let child = UrgentWaiter { spared: [parent].into(), ..waiter(5, SoughtRoom::Request(&request), 1) };
    assert!(world.ends_for(&[child]).is_empty());
}

#[test]
fn no_more_end_than_may_and_all_of_a_request_or_none() {
    let mut world = World::new(&["CPU 4"]);
    for _ in 0..4 {
        world.holds(0, &[(1, "CPU 1")]);
    }
    let request = ResourceRequest::from(demand("CPU 2"));
    let waiters = [waiter(1, SoughtRoom::Request(&request), 2)];
    let ends = preempt(&waiters, world.views(), &[], world.held.clone(), 3);
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0].victims.len(), 2);
}

#[test]
fn memory_of_devices_comes_back_with_the_share() {
    let asked = |gib: u64| {
        let bytes = Quantity::from_units((gib << 30) * Quantity::UNITS_PER_WHOLE);
        Demand::new([(ResourceName::GPU_MEMORY, bytes)]).expect("a demand")
    };
    let inventory = oxiray_resources::Inventory::new([(ResourceName::GPU, 1.0)]).expect("one");
    let mut ledger = Ledger::new(inventory.with_device_memory(ResourceName::GPU, vec![80 << 30]));
    let _grants = [asked(30), asked(40)].map(|asked| ledger.grant(&asked).expect("room"));
    let views = BTreeMap::from([(node(1), NodeView::new(node(1), &ledger, BTreeMap::new()))]);
    let holder = |victim, count| {
        let devices = BTreeMap::from([(ResourceName::GPU, vec![0])]);
        let parts = vec![HeldPart { node: node(1), demand: asked(count), devices }];
        Preemptible { victim, priority: Priority(0), parts }
    };
    let ends = |count, all: Vec<Preemptible<u32>>| {
        let request = ResourceRequest::from(asked(count));
        preempt(&[waiter(1, SoughtRoom::Request(&request), 1)], views.clone(), &[], all, 64)
    };
    let both = vec![holder(0, 30), holder(1, 40)];
    assert_eq!(ends(50, both.clone())[0].victims, [1], "ten are free");
    assert_eq!(ends(10, both.clone()), []);
    assert_eq!(ends(80, both)[0].victims.len(), 2);
}
