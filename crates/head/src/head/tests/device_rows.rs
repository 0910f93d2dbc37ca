//! Who has which device of which machine, as people are told.

use super::members::Pair;
use super::memory::gpu_memory;
use super::*;
use oxiray_accelerators::DeviceUse;
use oxiray_families::{ProcessMemory, Usage};
use oxiray_ids::{NodeId, PlacementGroupId};
use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_scheduler::verdicts;
use oxiray_wire::message::{DeviceHolding, HoldingPhase, LeaseKill, NodeState, StateFilter, StateQuery};
use oxiray_wire::state::{DeviceCondition, DeviceRow, DeviceService, DeviceTier, Explanation, MemoryTier};

const MEMBER: NodeId = NodeId::new([7; 28]);
const GIB: u64 = 1 << 30;

/// A head without devices, and a member with a GPU of 16 GiB.
fn pair() -> Pair {
    let mut head = World::new(1, 0);
    let tiers = [MemoryTier::Framework, MemoryTier::Watched];
    let (member, stream) = (World::member_with_memory_tiers(&tiers, MEMBER), head.core.new_key());
    let mut pair = Pair { head, member, stream };
    pair.join();
    pair
}

fn rows(world: &World) -> Vec<DeviceRow> {
    world.core.report(1, &StoreFigures::default(), 0).state.expect("a state").devices
}

/// Why an actor waits, as it is explained.
fn why(world: &World, actor: u8) -> String {
    explained(world, actor).reason
}

/// All that is explained of an actor.
fn explained(world: &World, actor: u8) -> Explanation {
    let filters = vec![StateFilter { value: id(actor).hex(), ..StateFilter::default() }];
    let asked = StateQuery { filters, ..StateQuery::default() };
    world.core.as_head().explanation(&asked, &[]).expect("it is known")
}

/// Two machines of which the second has four GPUs: 0-1 and 2-3 are linked.
fn with_linked() -> Pair {
    let (mut head, member) = (World::new(1, 0), World::member_with_linked_pairs(MEMBER));
    let stream = head.core.new_key();
    let mut pair = Pair { head, member, stream };
    pair.join();
    pair
}

#[test]
fn who_has_devices_or_would_get_some_is_told_which_and_why_those() {
    let mut pair = with_linked();
    let driver = pair.head.driver();
    for (number, count) in [(1, 1), (2, 2)] {
        pair.head.say(driver, actor(number, &[("GPU", 10_000 * count)], &[("GPU", 10_000 * count)]));
        pair.exchange();
    }
    let [single] = &explained(&pair.head, 1).devices[..] else { panic!("it has one") };
    assert_eq!((single.node_id, single.address.as_str(), single.is_held), (Some(MEMBER), "127.0.0.1", true));
    assert_eq!((single.resource.as_str(), &single.slots[..]), ("GPU", &[0][..]));
    assert_eq!(single.why, "the lowest of those that were free whose nearest neighbour was the farthest off");
    let [two] = &explained(&pair.head, 2).devices[..] else { panic!("they are of one kind") };
    assert_eq!((&two.slots[..], two.is_held), (&[2, 3][..], true));
    assert_eq!(two.why, "the nearest to each other that were free (one NUMA node, 4 direct links between each two)");
    let row = rows(&pair.head).into_iter().find(|row| row.slot == 3).expect("four are listed");
    assert_eq!(row.holders[0].choice, two.why);
    pair.head.say(driver, actor(3, &[("GPU", 20_000)], &[("GPU", 20_000)]));
    assert!(explained(&pair.head, 3).devices.is_empty(), "one is free, and nowhere is room");
}

#[test]
fn devices_that_something_would_get_are_told_by_the_nearness_that_its_machine_told() {
    let pair = with_linked();
    let head = pair.head.core.as_head();
    let demand = Demand::new([(ResourceName::GPU, Quantity::whole(2))]).expect("a demand");
    let verdicts = verdicts(&head.members.all_views(), &demand.clone().into());
    let told = head.devices_within_reach(&verdicts, &demand);
    let [chosen] = &told[..] else { panic!("one machine has some: {told:?}") };
    assert_eq!((chosen.node_id, &chosen.slots[..], chosen.is_held), (Some(MEMBER), &[0, 1][..], false));
    assert_eq!(chosen.why, "the nearest to each other that are free (one NUMA node, 4 direct links between each two)");
}

#[test]
fn who_has_processors_of_another_machine_is_named() {
    let mut pair = Pair::new(0, 2);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[("CPU", 20_000)]));
    pair.exchange();
    let (_, worker) = pair.head.granted(driver, 1);
    pair.head.say(driver, actor(2, &[CPU], &[CPU]));
    let pid = pair.head.core.as_head().workers.pid_of(worker).expect("it has a process");
    let held = format!("held by pid {pid} (f: 2 on 127.0.0.1)");
    assert!(why(&pair.head, 2).contains(&held), "{}", why(&pair.head, 2));
    let waiting = pair.head.core.report(1, &StoreFigures::default(), 0).state.expect("a state").waiting;
    assert!(waiting[0].why.contains(&held), "{waiting:?}");

    let mut pair = Pair::new(0, 18);
    let driver = pair.head.driver();
    for number in 1..=18 {
        pair.head.say(driver, request(number, &[CPU]));
        pair.exchange();
    }
    pair.head.say(driver, actor(2, &[CPU], &[CPU]));
    let told = why(&pair.head, 2);
    assert_eq!((told.matches("(f: 1 on 127.0.0.1)").count(), told.ends_with(", and 2 more")), (16, true), "{told}");
}

/// The member's driver says what a process and one that it started have of the GPU.
fn measured(pair: &mut Pair, pid: u32, bytes: [u64; 2]) {
    let process =
        |pid: u32, bytes: u64, ancestors: Vec<u32>| ProcessMemory { pid, bytes, ancestors, ..ProcessMemory::default() };
    let processes = vec![process(pid, bytes[0], vec![1]), process(9_000, bytes[1], vec![pid, 1])];
    let usage = Usage { processes, unlisted_bytes: Some(0), ..Usage::default() };
    pair.member.core.devices_measured(vec![DeviceUse { resource: "GPU", slot: 0, id: "0".to_owned(), usage }]);
    pair.member.settle();
    pair.exchange();
}

#[test]
fn who_has_a_device_of_another_machine_is_told_as_for_the_heads_own() {
    let mut pair = pair();
    let row = rows(&pair.head).pop().expect("a GPU that nobody has is listed");
    assert_eq!((row.resource.as_str(), row.slot, row.node, row.is_logical()), ("GPU", 0, Some(MEMBER), true));
    assert!(row.holders.is_empty() && row.family.is_some_and(|family| family == "nvidia"));

    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &gpu_memory(8)));
    pair.exchange();
    let (lease, worker) = pair.head.granted(driver, 1);
    let row = rows(&pair.head).pop().expect("a GPU");
    let [holder] = &row.holders[..] else { panic!("one has it: {row:?}") };
    let isolation = holder.isolation.clone().expect("it is told");
    assert_eq!((holder.name.as_str(), holder.share, isolation.tier), ("f", 0.5, DeviceTier::Variable));
    let memory = holder.memory.clone().expect("it asked for some");
    assert_eq!((memory.asked_bytes, memory.tier, memory.is_watched), (8 * GIB, MemoryTier::Framework, false));
    assert_eq!((memory.used_bytes, holder.pid > 100, holder.is_ending), (None, true, false));

    measured(&mut pair, holder.pid, [3 * GIB, GIB]);
    let memory = rows(&pair.head)[0].holders[0].memory.clone().expect("it asked for some");
    assert_eq!((memory.used_bytes, memory.is_watched), (Some(4 * GIB), true), "it is watched since somebody can tell");
    measured(&mut pair, holder.pid, [0, GIB]);
    assert_eq!(rows(&pair.head)[0].holders[0].memory.clone().and_then(|memory| memory.used_bytes), Some(GIB));

    pair.head.say(driver, actor(2, &[GPU], &[GPU]));
    let held = format!("held by pid {} (f: 0.5 of GPU 0 on 127.0.0.1)", holder.pid);
    assert!(why(&pair.head, 2).contains(&held), "{}", why(&pair.head, 2));
    let waiting = pair.head.core.report(1, &StoreFigures::default(), 0).state.expect("a state").waiting;
    assert!(waiting[0].why.contains(&held), "{waiting:?}");

    pair.head.say(driver, LeaseKill { lease });
    pair.exchange();
    let ending = rows(&pair.head)[0].holders.clone();
    assert!(ending.len() == 1 && ending[0].is_ending, "{ending:?}");
    pair.bury();
    pair.exchange();
    assert!(!pair.head.core.as_head().workers.by_key.contains_key(&worker));
    let now = rows(&pair.head)[0].holders.clone();
    let [holder] = &now[..] else { panic!("one has it: {now:?}") };
    assert_eq!((holder.name.as_str(), holder.share, holder.is_ending), ("Counter", 1.0, false));
}

/// A head, and so many members with eight GPUs each, that say this of themselves.
fn many(count: u8, said: impl Fn(u8) -> NodeState) -> World {
    let mut head = World::new(1, 2);
    for number in 1..=count {
        let mut member = World::member_with_devices(8, NodeId::new([number; 28]));
        let stream = head.core.new_key();
        let mut join = member.core.node_mut().described(0, String::new());
        let state = join.state.take().unwrap_or_default();
        let NodeState { holdings, conditions, .. } = said(number);
        join.state = Some(NodeState { holdings, conditions, ..state });
        head.hear_member(stream, join.into());
        head.settle();
    }
    head
}

fn held(slot: u32, grant: u64) -> DeviceHolding {
    let group = Some(PlacementGroupId::new([9; 18]));
    DeviceHolding { resource: "GPU".to_owned(), slot, grant, share: 5_000, group, ..DeviceHolding::default() }
}

#[test]
fn of_too_many_devices_those_are_listed_that_somebody_has_or_that_are_ill() {
    let head = many(199, |number| {
        let holdings = if number == 199 { vec![held(7, 1), held(7, 2)] } else { Vec::new() };
        let reason = Some("stuck".to_owned());
        let notes = vec!["Xid 31".to_owned(), "violation: g has it open".to_owned()];
        let ill = DeviceCondition { resource: "GPU".to_owned(), slot: 6, reason, notes, ..DeviceCondition::default() };
        NodeState { holdings, conditions: if number == 198 { vec![ill] } else { Vec::new() }, ..NodeState::default() }
    });
    let told = rows(&head);
    let nodes: Vec<_> = told.iter().map(|row| row.node).collect();
    assert_eq!((told.len(), nodes.is_sorted()), (1_000, true), "by their nodes, the head's own first");
    assert!(told[..2].iter().all(|row| row.node.is_none()) && told[2].node == Some(NodeId::new([1; 28])));
    let [ill, held] = &told[998..] else { panic!("two") };
    assert_eq!((ill.slot, ill.state, ill.reason.as_deref()), (6, DeviceService::Quarantined, Some("stuck")));
    let now_ms = head.core.as_head().clock.wall_ms;
    assert_eq!((ill.since_ms, held.since_ms, told[2].since_ms), (Some(now_ms), None, None));
    assert_eq!((&ill.notes[..], &ill.violations[..]), (&["Xid 31".to_owned()][..], &["g has it open".to_owned()][..]));
    let name = "placement group 090909090909090909090909090909090909, unused";
    assert_eq!((held.slot, held.holders.len(), held.holders[0].name.as_str()), (7, 2, name));
}

#[test]
fn of_too_many_holders_as_many_are_listed_as_fit() {
    let head = many(20, |_| NodeState {
        holdings: (0..1_500).map(|grant| DeviceHolding { phase: HoldingPhase::Held, ..held(0, grant) }).collect(),
        ..NodeState::default()
    });
    let counts: Vec<usize> = rows(&head).iter().map(|row| row.holders.len()).filter(|count| *count > 0).collect();
    assert_eq!(counts, [1_000; 8]);
}
