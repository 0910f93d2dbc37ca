//! Work that ends early for what is more urgent.

use super::groups::{answers, group, lease};
use super::members::Pair;
use super::*;
use oxiray_wire::message::{ActorRestarting, GroupCreate, GroupRemove, LeaseEnded, Preemption};

const GRACE: Duration = Duration::from_secs(10);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn world(cpus: u32, gpus: u32) -> World {
    let mut world = World::new(cpus, gpus);
    world.core.node_mut().plan_mut().rules.preemption_grace = Some(GRACE);
    world
}

/// What may end early for whatever is more urgent than nothing in particular.
fn preemptible(number: u64, demand: &[(&str, u64)]) -> LeaseRequest {
    LeaseRequest { preemptible: true, ..request(number, demand) }
}

fn urgent(number: u64, demand: &[(&str, u64)]) -> LeaseRequest {
    LeaseRequest { priority: 5, label: "urgent".into(), ..request(number, demand) }
}

/// What a worker was told of its early end, in order.
fn told(world: &World, worker: Key) -> Vec<Preemption> {
    let told = world.to(worker).filter_map(|message| match message {
        Message::Preemption(said) => Some(said.clone()),
        _ => None,
    });
    told.collect()
}

fn ends(world: &World, client: Key) -> Vec<LeaseEnded> {
    let ended = world.to(client).filter_map(|message| match message {
        Message::LeaseEnded(said) => Some((**said).clone()),
        _ => None,
    });
    ended.collect()
}

#[test]
fn a_task_is_told_asked_and_ended_and_its_owner_hears_that_this_is_not_counted() {
    let mut world = world(1, 1);
    let driver = world.driver();
    world.say(driver, preemptible(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.say(driver, urgent(2, &[GPU]));
    world.pass(ms(900));
    assert!(told(&world, worker).is_empty(), "what waits for less than a second may find room");
    world.pass(ms(300));
    let [first] = &told(&world, worker)[..] else { panic!("it was told {:?}", told(&world, worker)) };
    assert_eq!((first.left_ms, first.is_over, first.ends_now), (10_000, false, false));
    assert!(first.reason.contains("`urgent`, whose priority is 5"), "{}", first.reason);
    assert_eq!(super::fairness::recalled(&world, driver), [lease], "nothing more is begun on it");
    assert!(world.notices(driver).iter().any(|text| text.starts_with("task `f`") && text.contains("make room")));
    world.pass(GRACE / 2);
    assert!(told(&world, worker)[1].ends_now && !world.is_killed(worker));
    world.pass(GRACE / 2);
    assert!(world.is_killed(worker));
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    let [ended] = &ends(&world, driver)[..] else { panic!("it ended once") };
    assert!(ended.was_preempted && !ended.was_drained);
    world.granted(driver, 2);
}

#[test]
fn nobody_ends_who_did_not_say_so_or_is_as_urgent_or_where_the_cluster_does_not() {
    for (is_on, first) in [
        (true, request(1, &[GPU])),
        (true, LeaseRequest { priority: 5, ..preemptible(1, &[GPU]) }),
        (false, preemptible(1, &[GPU])),
    ] {
        let mut world = World::new(1, 1);
        world.core.node_mut().plan_mut().rules.preemption_grace = is_on.then_some(GRACE);
        let driver = world.driver();
        world.say(driver, first);
        let (_, worker) = world.granted(driver, 1);
        world.say(driver, urgent(2, &[GPU]));
        world.pass(Duration::from_secs(60));
        assert!(told(&world, worker).is_empty() && !world.is_killed(worker));
    }
}

#[test]
fn it_goes_on_where_nobody_needs_it_any_more() {
    let mut world = world(1, 1);
    let driver = world.driver();
    world.say(driver, preemptible(1, &[GPU]));
    let (_, worker) = world.granted(driver, 1);
    world.say(driver, urgent(2, &[GPU]));
    world.pass(Duration::from_secs(2));
    assert_eq!(told(&world, worker).len(), 1);
    world.say(driver, LeaseCancel { request: LeaseRequestNumber(2) });
    world.pass(GRACE * 2);
    let last = told(&world, worker).pop().expect("it was told");
    assert!(last.is_over && !world.is_killed(worker), "PREEMPTION-2");
    // What it dies of later is its own affair.
    world.core.worker_died(worker);
    world.bury(worker, "killed by signal 11 (SIGSEGV)");
    assert!(!ends(&world, driver)[0].was_preempted);
}

#[test]
fn what_ends_by_itself_in_time_makes_room_for_who_waits() {
    let mut world = world(1, 1);
    let driver = world.driver();
    world.say(driver, preemptible(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.say(driver, urgent(2, &[GPU]));
    world.pass(Duration::from_secs(2));
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(worker, "exited with status 0");
    world.granted(driver, 2);
    assert!(ends(&world, driver).is_empty());
    world.pass(GRACE * 2);
}

#[test]
fn an_actor_is_made_anew_though_it_may_not_be_restarted() {
    let mut world = world(1, 1);
    let driver = world.driver();
    world.say(driver, ActorCreate { preemptible: true, ..actor(1, &[GPU], &[GPU]) });
    let worker = world.placed(driver, 1).expect("it is placed");
    world.say(worker, ActorReady::default());
    world.say(driver, urgent(2, &[GPU]));
    world.pass(Duration::from_secs(2) + GRACE);
    assert!(world.is_killed(worker));
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    let restarting = world.to(driver).filter_map(|message| match message {
        Message::ActorRestarting(said) => Some((**said).clone()),
        _ => None,
    });
    let restarting: Vec<ActorRestarting> = restarting.collect();
    assert!(restarting.len() == 1 && restarting[0].was_drained, "its calls that are repeated are not counted");
    let (lease, urgent) = world.granted(driver, 2);
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(urgent, "exited with status 0");
    let again = world.process_of(1).expect("PREEMPTION-3");
    assert_ne!(again, worker);
    world.say(again, ActorReady::default());
    // Once more: that it was made anew is not counted against anything.
    world.say(driver, super::preemption::urgent(3, &[GPU]));
    world.pass(Duration::from_secs(2) + GRACE);
    assert!(world.is_killed(again) && world.deaths(driver, 1).is_empty());
}

#[test]
fn a_group_ends_as_a_whole_and_waits_for_room_again() {
    let mut world = world(4, 2);
    let driver = world.driver();
    let bundles = [&[GPU][..], &[GPU][..]];
    world.say(driver, GroupCreate { request: 5, preemptible: true, ..group(5, &bundles) });
    assert_eq!(answers(&world, driver, 5).len(), 1);
    world.say(driver, lease(1, 5, 0, &[GPU]));
    let (_, worker) = world.granted(driver, 1);
    world.say(driver, urgent(2, &[GPU]));
    world.pass(Duration::from_secs(2));
    assert_eq!(told(&world, worker).len(), 1, "who runs within it is told");
    world.say(driver, lease(3, 5, 1, &[GPU]));
    assert!(world.grants_of(driver).iter().all(|(request, ..)| *request != 3), "PREEMPTION-4");
    world.pass(GRACE);
    assert!(world.is_killed(worker));
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    assert!(ends(&world, driver)[0].was_preempted);
    let (urgent, there) = world.granted(driver, 2);
    assert_eq!(world.free("GPU"), 10_000, "PREEMPT-4: its other bundle is free too");
    // The group comes back when the urgent is done, and with it whoever waits within.
    world.say(driver, LeaseReturn { lease: urgent, retiring: false });
    world.bury(there, "exited with status 0");
    world.granted(driver, 3);
}

#[test]
fn nobody_takes_the_rest_of_what_others_end_for() {
    let two_gpus: (&str, u64) = ("GPU", 20_000);
    for waits in [None, Some(group(6, &[&[GPU], &[GPU]]))] {
        let mut world = world(4, 2);
        let driver = world.driver();
        world.say(driver, preemptible(1, &[GPU]));
        let (_, worker) = world.granted(driver, 1);
        match &waits {
            None => world.say(driver, urgent(2, &[two_gpus])),
            Some(group) => world.say(driver, GroupCreate { priority: 5, tells_when_created: true, ..group.clone() }),
        }
        world.pass(Duration::from_secs(2));
        assert_eq!(told(&world, worker).len(), 1);
        world.say(driver, request(3, &[GPU]));
        world.say(driver, GroupCreate { tells_when_created: true, ..group(5, &[&[GPU]]) });
        let is_granted = |world: &World, number| world.grants_of(driver).iter().any(|(request, ..)| *request == number);
        assert!(!is_granted(&world, 3) && answers(&world, driver, 5).is_empty(), "LARGE-4");
        world.say(driver, LeaseRequest { priority: 6, ..request(4, &[GPU]) });
        let (lease, more_urgent) = world.granted(driver, 4);
        world.say(driver, LeaseReturn { lease, retiring: false });
        world.bury(more_urgent, "exited with status 0");
        assert!(!is_granted(&world, 3) && answers(&world, driver, 5).is_empty());
        world.pass(GRACE);
        world.bury(worker, "killed by signal 9 (SIGKILL)");
        assert!(!is_granted(&world, 3) && answers(&world, driver, 5).is_empty());
        match &waits {
            None => {
                let (lease, there) = world.granted(driver, 2);
                world.say(driver, LeaseReturn { lease, retiring: false });
                world.bury(there, "exited with status 0");
            }
            Some(group) => {
                assert_eq!(answers(&world, driver, 6).len(), 1);
                world.say(driver, GroupRemove { group: group.group });
            }
        }
        assert!(is_granted(&world, 3) && answers(&world, driver, 5).len() == 1, "it is kept for nobody");
    }
}

#[test]
fn a_parent_does_not_end_for_its_own_child() {
    let mut world = world(1, 1);
    let driver = world.driver();
    world.say(driver, preemptible(1, &[GPU]));
    let (_, parent) = world.granted(driver, 1);
    world.say(parent, urgent(7, &[GPU]));
    world.pass(Duration::from_secs(5));
    assert!(told(&world, parent).is_empty(), "it would end with it, and ask again");
}

#[test]
fn on_a_member_no_more_end_than_are_needed() {
    let mut pair = Pair::new(1, 8);
    pair.head.core.node_mut().plan_mut().rules.preemption_grace = Some(GRACE);
    let driver = pair.head.driver();
    // One of them on the head's own machine.
    for number in 0..9 {
        pair.head.say(driver, preemptible(number, &[CPU]));
    }
    pair.exchange();
    pair.head.say(driver, urgent(9, &[("CPU", 30_000)]));
    for _ in 0..12 {
        pair.head.pass(ms(250));
        pair.exchange();
    }
    let workers = (0..9).map(|number| pair.head.granted(driver, number).1);
    let warned: Vec<Key> = workers.filter(|key| !told(&pair.head, *key).is_empty()).collect();
    assert_eq!(warned.len(), 3, "PREEMPT-3");
    assert!(warned.iter().all(|key| pair.is_on_member(*key)));
}

#[test]
fn what_waits_within_a_group_that_goes_on_begins() {
    let mut world = world(4, 2);
    let driver = world.driver();
    world.say(driver, GroupCreate { request: 5, preemptible: true, ..group(5, &[&[GPU][..], &[GPU][..]]) });
    world.say(driver, urgent(2, &[GPU]));
    world.pass(Duration::from_secs(2));
    world.say(driver, lease(3, 5, 1, &[GPU]));
    assert!(world.grants_of(driver).is_empty(), "PREEMPTION-4");
    world.say(driver, LeaseCancel { request: LeaseRequestNumber(2) });
    world.pass(Duration::from_secs(1));
    world.granted(driver, 3);
}
