//! Placement groups: whole or not at all, their own devices, and what becomes of those within when they go.

use super::*;
use oxiray_ids::{BundleNumber, PlacementGroupId};
use oxiray_wire::message::{
    FailureCode, GroupAnswer, GroupAwait, GroupBundle, GroupCreate, GroupRemove, LeaseEnded, PlacementStrategy,
    Strategy, StrategyKind,
};

pub(super) fn group_id(number: u8) -> PlacementGroupId {
    PlacementGroupId::new([number; 18])
}

pub(super) fn group(number: u8, bundles: &[&[(&str, u64)]]) -> GroupCreate {
    let bundle = |amounts: &&[(&str, u64)]| GroupBundle {
        demand: amounts.iter().map(|(name, units)| amount(name, *units)).collect(),
        conditions: Vec::new(),
    };
    GroupCreate {
        request: u64::from(number),
        group: group_id(number),
        strategy: PlacementStrategy::Pack,
        bundles: bundles.iter().map(bundle).collect(),
        ..GroupCreate::default()
    }
}

/// `bundle` counts from 1; 0 is any.
pub(super) fn within(number: u8, bundle: u32) -> Strategy {
    Strategy {
        kind: StrategyKind::Group,
        group: Some(group_id(number)),
        bundle: bundle.checked_sub(1).map(BundleNumber),
        ..Strategy::default()
    }
}

pub(super) fn lease(number: u64, group: u8, bundle: u32, demand: &[(&str, u64)]) -> LeaseRequest {
    LeaseRequest { strategy: Some(within(group, bundle)), ..request(number, demand) }
}

pub(super) fn answers(world: &World, client: Key, request: u64) -> Vec<GroupAnswer> {
    let to_client = world.sent.iter().filter(|(to, _)| *to == client);
    let answers = to_client.filter_map(|(_, message)| match message {
        Message::GroupAnswer(answer) if answer.request == request => Some(answer.clone()),
        _ => None,
    });
    answers.collect()
}

fn slots(world: &World, worker: Key) -> Vec<String> {
    world.assignment(worker).devices.first().map(|devices| devices.ids.clone()).unwrap_or_default()
}

#[test]
fn a_group_has_its_own_devices_and_tasks_within_it_get_exactly_those() {
    let mut world = World::new(4, 4);
    let driver = world.driver();
    world.say(driver, request(1, &[GPU]));
    world.say(driver, group(9, &[&[CPU, ("GPU", 20_000)], &[GPU]]));
    assert_eq!((world.free("CPU"), world.free("GPU")), (30_000, 0));
    world.say(driver, lease(2, 9, 2, &[GPU]));
    world.say(driver, lease(3, 9, 1, &[("GPU", 5_000)]));
    world.say(driver, lease(4, 9, 1, &[("GPU", 5_000)]));
    world.say(driver, lease(5, 9, 0, &[CPU, GPU]));
    let on: Vec<Vec<String>> = (2..=5).map(|request| slots(&world, world.granted(driver, request).1)).collect();
    assert_eq!(on, [["3"], ["1"], ["1"], ["2"]]);
    world.say(driver, lease(6, 9, 0, &[("GPU", 5_000)]));
    assert!(world.grants_of(driver).iter().all(|(request, ..)| *request != 6), "it waits for room within");
    assert_eq!(world.assignment(world.granted(driver, 2).1).group, Some(group_id(9)));
}

#[test]
fn two_groups_that_want_the_same_are_served_one_after_the_other() {
    let mut world = World::new(4, 2);
    let (one, other) = (world.driver(), world.driver());
    world.say(one, group(1, &[&[GPU], &[GPU]]));
    world.say(other, group(2, &[&[GPU], &[GPU]]));
    world.say(other, GroupAwait { request: 7, group: group_id(2) });
    world.say(other, lease(8, 2, 0, &[GPU]));
    assert!(answers(&world, other, 7).is_empty());
    world.say(one, GroupRemove { group: group_id(1) });
    assert_eq!(answers(&world, other, 7), [GroupAnswer { request: 7, failure: None }]);
    assert_eq!(slots(&world, world.granted(other, 8).1), ["0"], "who waited within the group is served with it");
}

#[test]
fn a_group_without_a_name_is_removed_by_its_own_job_and_by_no_other() {
    let mut world = World::new(4, 0);
    let (one, other) = (world.driver(), world.driver());
    let named = GroupCreate { name: "known".into(), ..group(2, &[&[CPU]]) };
    let detached = GroupCreate { detached: true, ..group(3, &[&[CPU]]) };
    for told in [group(1, &[&[CPU]]), named, detached] {
        world.say(one, told);
    }
    for number in 1..=3 {
        world.say(other, GroupRemove { group: group_id(number) });
    }
    let left: Vec<PlacementGroupId> = world.core.as_head().groups.reservations.keys().copied().collect();
    assert_eq!((left, world.free("CPU")), (vec![group_id(1)], 30_000));
    let is_told = |(to, message): &(Key, Message)| {
        *to == other
            && matches!(message, Message::Notice(notice) if notice.text.contains("only that job may remove it"))
    };
    assert!(world.sent.iter().any(is_told));
    world.say(one, GroupRemove { group: group_id(1) });
    assert_eq!(world.free("CPU"), 40_000);
}

#[test]
fn a_maker_that_asks_for_it_is_told_once_when_the_group_is_created_or_never_will_be() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    let told = |number: u8| GroupCreate { tells_when_created: true, ..group(number, &[&[CPU]]) };
    world.say(driver, told(1));
    world.say(driver, told(2));
    world.say(driver, told(3));
    let codes = |world: &World, request: u64| -> Vec<Option<FailureCode>> {
        answers(world, driver, request).into_iter().map(|answer| answer.failure.map(|failure| failure.code)).collect()
    };
    assert_eq!((codes(&world, 1), codes(&world, 2)), (vec![None], vec![]));
    world.say(driver, GroupRemove { group: group_id(3) });
    assert_eq!(codes(&world, 3), [Some(FailureCode::TaskGroupRemoved)]);
    world.say(driver, GroupRemove { group: group_id(1) });
    world.say(driver, GroupRemove { group: group_id(2) });
    assert_eq!((codes(&world, 1), codes(&world, 2)), (vec![None], vec![None]));
    world.say(driver, GroupCreate { bundles: Vec::new(), ..told(4) });
    assert_eq!(codes(&world, 4), [Some(FailureCode::Invalid)]);
}

#[test]
fn removal_kills_what_runs_refuses_what_waits_and_devices_come_back_clean() {
    let mut world = World::new(4, 2);
    let driver = world.driver();
    world.say(driver, group(1, &[&[CPU, ("GPU", 20_000)]]));
    world.say(driver, lease(1, 1, 1, &[GPU]));
    world.say(driver, ActorCreate { strategy: Some(within(1, 0)), ..actor(5, &[CPU], &[]) });
    world.say(driver, lease(2, 1, 0, &[("GPU", 20_000)]));
    let ((number, task), home) = (world.granted(driver, 1), world.placed(driver, 5).expect("it is placed"));
    world.say(driver, GroupRemove { group: group_id(1) });
    let ended: Vec<&LeaseEnded> = world
        .sent
        .iter()
        .filter_map(|(_, message)| if let Message::LeaseEnded(ended) = message { Some(&**ended) } else { None })
        .collect();
    assert_eq!(ended.len(), 1, "CORE-2");
    let code = ended[0].failure.as_ref().map(|failure| failure.code);
    assert_eq!((ended[0].lease, code), (number, Some(FailureCode::TaskGroupRemoved)));
    assert!(world.refusal(driver, 2).contains("remove_placement_group() was called"));
    assert!(world.deaths(driver, 5)[0].contains("is no more"));
    assert!(world.is_killed(task) && world.is_killed(home));
    assert_eq!(world.free("GPU"), 10_000, "what nobody within held is free at once");
    world.residue = Some(Residue::Held);
    world.bury(task, "killed");
    world.pass(Duration::from_secs(11));
    assert_eq!((world.free("GPU"), world.out_of_service().len()), (10_000, 1), "CORE-4");
    world.residue = Some(Residue::Gone);
    world.bury(home, "killed");
    world.pass(Duration::from_secs(11));
    assert_eq!((world.free("CPU"), world.free("GPU")), (40_000, 20_000));
    world.say(driver, GroupAwait { request: 9, group: group_id(1) });
    assert!(answers(&world, driver, 9)[0].failure.is_some());
    world.say(driver, lease(3, 1, 0, &[CPU]));
    assert!(world.refusal(driver, 3).contains("is no more"));
}

#[test]
fn groups_end_with_their_job_unless_they_are_detached() {
    let mut world = World::new(4, 0);
    let (one, other) = (world.driver(), world.driver());
    world.say(one, group(1, &[&[CPU]]));
    world.say(one, GroupCreate { detached: true, name: "kept".into(), ..group(2, &[&[CPU]]) });
    world.say(one, group(3, &[&[("CPU", 40_000)]]));
    assert_eq!(world.free("CPU"), 20_000);
    world.core.driver_left(one);
    world.settle();
    assert_eq!(world.free("CPU"), 30_000);
    world.say(other, lease(1, 2, 0, &[CPU]));
    let (_, worker) = world.granted(other, 1);
    world.core.worker_died(worker);
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.say(other, lease(2, 2, 0, &[CPU]));
    assert_eq!(world.grants_of(other).len(), 2, "the bundle outlives a process that dies within it");
    assert_eq!(world.free("CPU"), 30_000);
}

#[test]
fn a_group_of_a_detached_actor_ends_with_it() {
    let mut world = World::new(4, 0);
    let driver = world.driver();
    world.say(driver, ActorCreate { detached: true, ..actor(1, &[CPU], &[]) });
    let detached = world.placed(driver, 1).expect("it is placed");
    world.say(detached, ActorReady::default());
    world.say(detached, group(1, &[&[CPU]]));
    world.core.driver_left(driver);
    world.settle();
    assert_eq!(world.free("CPU"), 30_000);
    let other = world.driver();
    world.say(other, ActorKill { actor: id(1), restart: false });
    assert_eq!(world.free("CPU"), 40_000);
}

#[test]
fn what_no_group_or_bundle_can_be_is_refused_or_told() {
    let mut world = World::new(2, 0);
    let driver = world.driver();
    world.say(driver, group(1, &[&[CPU], &[("GPU", 10_000)]]));
    let notice = &world.notices(driver)[0];
    assert!(notice.contains("can never be placed") && notice.contains("bundle 1 asks for {GPU: 1}"), "{notice}");
    world.say(driver, lease(1, 1, 1, &[("CPU", 20_000)]));
    assert!(world.refusal(driver, 1).contains("no bundle it may use has that: {CPU: 1}"));
    world.say(driver, lease(2, 1, 7, &[CPU]));
    assert!(world.refusal(driver, 2).contains("there is no such bundle"));
    for (number, wrong) in [(4, group(4, &[])), (5, group(5, &[&[CPU], &[]]))] {
        world.say(driver, wrong);
        let failure = answers(&world, driver, number)[0].failure.clone().expect("it is refused");
        assert_eq!(failure.code, FailureCode::Invalid, "{}", failure.text);
    }
    world.say(driver, lease(6, 1, 0, &[CPU]));
    world.pass(Duration::from_secs(11));
    assert!(world.notices(driver).iter().any(|notice| notice.contains("is not created yet")));
}

#[test]
fn a_blocked_task_lends_its_cpu_within_its_bundle() {
    let mut world = World::new(2, 0);
    let driver = world.driver();
    world.say(driver, group(1, &[&[CPU]]));
    world.say(driver, lease(1, 1, 0, &[CPU]));
    let (_, worker) = world.granted(driver, 1);
    world.say(worker, lease(2, 1, 0, &[CPU]));
    assert!(world.grants_of(worker).is_empty());
    world.say(worker, Blocked {});
    assert_eq!(world.grants_of(worker).len(), 1, "its child runs on the CPU that it lent");
    assert_eq!(world.free("CPU"), 10_000);
}

#[test]
fn bundles_of_a_machine_give_together_what_none_has_alone() {
    let mut world = World::new(4, 0);
    let driver = world.driver();
    world.say(driver, group(9, &[&[("CPU", 20_000)], &[("CPU", 20_000)]]));
    for request in 1..=2 {
        world.say(driver, lease(request, 9, 0, &[("CPU", 15_000)]));
    }
    world.say(driver, lease(3, 9, 0, &[CPU]));
    let (granted, worker) = world.granted(driver, 3);
    world.say(driver, lease(4, 9, 0, &[("CPU", 1_000)]));
    assert!(world.grants_of(driver).iter().all(|(request, ..)| *request != 4), "all of the group is in use");
    assert_eq!(world.assignment(worker).resources, [amount("CPU", 10_000)]);
    world.say(driver, LeaseReturn { lease: granted, retiring: false });
    world.granted(driver, 4);
    world.core.node().ledger().audit();
}
