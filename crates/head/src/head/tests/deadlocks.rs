//! Workers that wait for what others of them hold.

use super::*;
use oxiray_wire::message::{
    GroupAnswer, GroupAwait, GroupCreate, Hold, StateFilter, StateQuery, WaitsQuery, WaitsReport,
};
use oxiray_wire::state::Explanation;

/// Why an actor waits.
fn explained(world: &World, actor: u8) -> Explanation {
    let filters = vec![StateFilter { value: id(actor).hex(), ..StateFilter::default() }];
    let asked = StateQuery { filters, ..StateQuery::default() };
    world.core.as_head().explanation(&asked, &[]).expect("it is known")
}

/// Has a worker say, in each round of so many seconds, that it cannot go on without an actor.
fn says_it_waits_for(world: &mut World, worker: Key, actor: u8, seconds: u64) {
    let mut answered = 0;
    for _ in 0..seconds {
        world.pass(Duration::from_secs(1));
        let queries = world.to(worker).filter_map(|message| match message {
            Message::WaitsQuery(WaitsQuery { number }) => Some(*number),
            _ => None,
        });
        let numbers: Vec<u64> = queries.collect();
        for number in &numbers[answered..] {
            world.say(worker, WaitsReport { number: *number, actors: vec![id(actor)], ..WaitsReport::default() });
        }
        answered = numbers.len();
    }
    assert!(answered > 2, "it is asked again and again");
}

#[test]
fn an_actor_that_waits_for_what_its_maker_holds_dies_with_the_reason() {
    let mut world = World::new(4, 1);
    let driver = world.driver();
    world.say(driver, actor(1, &[GPU], &[GPU]));
    let worker = world.placed(driver, 1).expect("it is placed");
    world.say(worker, ActorReady::default());
    world.say(worker, actor(2, &[GPU], &[GPU]));
    says_it_waits_for(&mut world, worker, 2, 9);
    assert!(world.deaths(worker, 2).is_empty(), "DEADLOCK-1");
    assert!(world.notices(driver).iter().any(|text| text.contains("would for ever")), "{:?}", world.notices(driver));
    says_it_waits_for(&mut world, worker, 2, 9);
    let [text] = &world.deaths(worker, 2)[..] else { panic!("it died {:?}", world.deaths(worker, 2)) };
    assert!(text.contains("would for ever"), "{text}");
}

#[test]
fn who_asks_why_it_waits_is_told_of_what_was_found_as_long_as_it_stands() {
    let mut world = World::new(4, 1);
    let driver = world.driver();
    world.say(driver, actor(1, &[GPU], &[GPU]));
    let worker = world.placed(driver, 1).expect("it is placed");
    world.say(worker, ActorReady::default());
    world.say(worker, actor(2, &[GPU], &[GPU]));
    world.say(driver, actor(3, &[GPU], &[GPU]));
    world.say(driver, actor(4, &[CPU, CPU, CPU, CPU, CPU], &[]));
    assert_eq!(explained(&world, 2).deadlock, None, "nothing was found yet");
    says_it_waits_for(&mut world, worker, 2, 7);
    for waits in [2, 3] {
        let told = explained(&world, waits);
        let found = told.deadlock.expect("it was found");
        let who = format!("`Counter` (pid {}", world.core.as_head().workers.pid_of(worker).expect("a process"));
        assert!(found.reason.contains("would for ever") && found.reason.contains(&who), "{}", found.reason);
        assert!(told.reason.contains(&found.reason), "{}", told.reason);
        let left = found.fails_in_s.expect("one fails");
        assert!(found.found_s > 0.0 && (found.found_s + left - 10.0).abs() < 0.001, "{found:?}");
        assert!(
            found.reason.ends_with(&format!("In {left} s one of them fails, so that the others go on")),
            "{found:?}"
        );
    }
    assert_eq!(explained(&world, 4).deadlock, None, "no device would help it");

    // Between two rounds: what was said last does not hold any more.
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    let told = explained(&world, 3);
    assert_eq!(told.deadlock, None, "{told:?}");
}

#[test]
fn nobody_fails_for_what_a_worker_of_another_job_says() {
    let mut world = World::new(4, 1);
    let (driver, other) = (world.driver(), world.driver());
    world.say(driver, actor(1, &[GPU], &[GPU]));
    let worker = world.placed(driver, 1).expect("it is placed");
    world.say(worker, ActorReady::default());
    world.say(other, actor(2, &[GPU], &[GPU]));
    says_it_waits_for(&mut world, worker, 2, 30);
    assert!(world.deaths(other, 2).is_empty(), "{:?}", world.deaths(other, 2));
}

/// Lets seconds pass in which these answer each question so.
fn answering(world: &mut World, seconds: u64, answers: &[(Key, WaitsReport)]) {
    let mut answered = vec![0; answers.len()];
    for _ in 0..seconds {
        world.pass(Duration::from_secs(1));
        for ((client, told), answered) in answers.iter().zip(&mut answered) {
            let queries = world.to(*client).filter_map(|message| match message {
                Message::WaitsQuery(WaitsQuery { number }) => Some(*number),
                _ => None,
            });
            let numbers: Vec<u64> = queries.skip(*answered).collect();
            for number in &numbers {
                world.say(*client, WaitsReport { number: *number, ..told.clone() });
            }
            *answered += numbers.len();
        }
    }
}

/// An actor with a call for nobody, in a process where nothing else goes on.
fn resting() -> WaitsReport {
    WaitsReport { is_alone: true, rests: true, ..WaitsReport::default() }
}

fn without_request(number: u64) -> WaitsReport {
    WaitsReport { requests: vec![LeaseRequestNumber(number)], is_alone: true, ..WaitsReport::default() }
}

fn without_group(number: u8) -> WaitsReport {
    WaitsReport { groups: vec![groups::group_id(number)], is_alone: true, ..WaitsReport::default() }
}

fn refusals(world: &World, client: Key) -> Vec<String> {
    let refused = world.to(client).filter_map(|message| match message {
        Message::LeaseRefused(refused) => refused.failure.as_ref(),
        _ => None,
    });
    let refused = refused.inspect(|failure| assert_eq!(failure.code, FailureCode::DeviceDeadlock));
    refused.map(|failure| failure.text.clone()).collect()
}

/// A driver whose actor has the only GPU and nothing to do, and which asks for a task that needs it.
fn with_an_idle_actor(world: &mut World, create: ActorCreate) -> (Key, Key) {
    let driver = world.driver();
    world.say(driver, create);
    let worker = world.placed(driver, 1).expect("it is placed");
    world.say(worker, ActorReady::default());
    world.say(driver, request(2, &[GPU]));
    (driver, worker)
}

#[test]
fn an_actor_without_a_call_keeps_what_whoever_has_its_handle_waits_for() {
    let mut world = World::new(4, 1);
    let (driver, worker) = with_an_idle_actor(&mut world, actor(1, &[GPU], &[GPU]));
    let said = [(driver, without_request(2)), (worker, resting())];
    answering(&mut world, 9, &said);
    assert!(refusals(&world, driver).is_empty(), "DEADLOCK-1");
    answering(&mut world, 9, &said);
    let [text] = &refusals(&world, driver)[..] else { panic!("{:?}", refusals(&world, driver)) };
    assert!(text.contains("is an actor without a call") && text.contains("`ray.kill`"), "{text}");
}

#[test]
fn an_actor_without_a_call_that_somebody_may_end_holds_nobody_up() {
    let named = ActorCreate { name: "known".into(), ..actor(1, &[GPU], &[GPU]) };
    let detached = ActorCreate { detached: true, ..named.clone() };
    for create in [named, detached] {
        let mut world = World::new(4, 1);
        let (driver, worker) = with_an_idle_actor(&mut world, create);
        answering(&mut world, 30, &[(driver, without_request(2)), (worker, resting())]);
        assert!(refusals(&world, driver).is_empty(), "it may be found by its name");
    }
    let others = [
        (WaitsReport { is_alone: false, ..without_request(2) }, resting(), "another thread of the driver goes on"),
        (WaitsReport { called: vec![id(1)], ..without_request(2) }, resting(), "it has a call to come"),
        (WaitsReport::default(), resting(), "the driver goes on"),
        (without_request(2), WaitsReport { rests: false, ..resting() }, "it runs something"),
    ];
    for (of_driver, of_actor, why) in others {
        let mut world = World::new(4, 1);
        let (driver, worker) = with_an_idle_actor(&mut world, actor(1, &[GPU], &[GPU]));
        answering(&mut world, 30, &[(driver, of_driver), (worker, of_actor)]);
        assert!(refusals(&world, driver).is_empty() && world.notices(driver).len() <= 1, "{why}");
    }
}

#[test]
fn an_actor_whose_handle_somebody_else_has_holds_nobody_up_while_that_one_goes_on() {
    let mut world = World::new(4, 1);
    let (driver, worker) = with_an_idle_actor(&mut world, actor(1, &[GPU], &[GPU]));
    let other = world.driver();
    let holder = world.core.as_head().clients.by_key[&other].id;
    world.say(other, Hold { objects: vec![anchor(1)], holder, ..Hold::default() });
    let said = [(driver, without_request(2)), (worker, resting())];
    answering(&mut world, 30, &said);
    assert!(refusals(&world, driver).is_empty());
    world.say(other, Unhold { objects: vec![anchor(1)] });
    answering(&mut world, 20, &said);
    assert_eq!(refusals(&world, driver).len(), 1);
}

#[test]
fn a_group_that_only_those_could_remove_who_wait_keeps_what_another_waits_for() {
    let mut world = World::new(4, 1);
    let driver = world.driver();
    world.say(driver, groups::group(1, &[&[GPU]]));
    world.say(driver, groups::group(2, &[&[GPU]]));
    world.say(driver, GroupAwait { request: 7, group: groups::group_id(2) });
    answering(&mut world, 9, &[(driver, without_group(2))]);
    assert!(groups::answers(&world, driver, 7).is_empty(), "DEADLOCK-1");
    answering(&mut world, 9, &[(driver, without_group(2))]);
    let [GroupAnswer { failure: Some(failure), .. }] = &groups::answers(&world, driver, 7)[..] else {
        panic!("{:?}", groups::answers(&world, driver, 7))
    };
    assert_eq!(failure.code, FailureCode::DeviceDeadlock);
    assert!(failure.text.contains("remove a placement group that is not needed"), "{}", failure.text);
    assert!(!world.core.as_head().groups.reservations.contains_key(&groups::group_id(2)), "nobody waits for it");
}

#[test]
fn a_group_that_somebody_may_remove_holds_nobody_up() {
    let detached = GroupCreate { detached: true, ..groups::group(1, &[&[GPU]]) };
    let named = GroupCreate { name: "known".into(), ..groups::group(1, &[&[GPU]]) };
    let plain = groups::group(1, &[&[GPU]]);
    let with_threads = WaitsReport { is_alone: false, ..without_group(2) };
    let cases = [(detached, without_group(2)), (named, without_group(2)), (plain, with_threads)];
    for (first, told) in cases {
        let mut world = World::new(4, 1);
        let driver = world.driver();
        world.say(driver, first);
        world.say(driver, groups::group(2, &[&[GPU]]));
        world.say(driver, GroupAwait { request: 7, group: groups::group_id(2) });
        answering(&mut world, 30, &[(driver, told)]);
        assert!(groups::answers(&world, driver, 7).is_empty());
    }
}

#[test]
fn a_task_of_the_job_that_runs_may_remove_its_groups() {
    let mut world = World::new(4, 1);
    let driver = world.driver();
    world.say(driver, groups::group(1, &[&[GPU]]));
    world.say(driver, request(1, &[CPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.say(driver, groups::group(2, &[&[GPU]]));
    world.say(driver, GroupAwait { request: 7, group: groups::group_id(2) });
    answering(&mut world, 30, &[(driver, without_group(2)), (worker, WaitsReport::default())]);
    assert!(groups::answers(&world, driver, 7).is_empty());
    world.say(driver, LeaseReturn { lease, retiring: false });
    answering(&mut world, 20, &[(driver, without_group(2)), (worker, resting())]);
    assert_eq!(groups::answers(&world, driver, 7).len(), 1, "a process that runs nothing removes nothing");
}

#[test]
fn who_holds_a_device_and_waits_for_a_group_of_its_own_is_told() {
    for (is_private, told) in [(true, 1), (false, 0)] {
        let mut world = World::new(4, 2);
        let driver = world.driver();
        world.say(driver, request(1, &[GPU]));
        let (_, worker) = world.granted(driver, 1);
        world.say(worker, groups::group(2, &[&[GPU], &[GPU]]));
        world.say(worker, GroupAwait { request: 7, group: groups::group_id(2) });
        let private_groups = if is_private { vec![groups::group_id(2)] } else { Vec::new() };
        answering(&mut world, 20, &[(worker, WaitsReport { private_groups, ..without_group(2) })]);
        assert_eq!(
            groups::answers(&world, worker, 7).len(),
            told,
            "only the driver, which goes on, may remove it else"
        );
    }
}

#[test]
fn what_waits_within_a_group_waits_for_those_who_run_there() {
    for has_room in [false, true] {
        let mut world = World::new(4, 2);
        let driver = world.driver();
        world.say(driver, groups::group(1, &[&[CPU, ("GPU", if has_room { 20_000 } else { 10_000 })]]));
        world.say(driver, groups::lease(1, 1, 0, &[GPU]));
        let (lease, worker) = world.granted(driver, 1);
        world.say(worker, groups::lease(5, 1, 0, &[GPU]));
        world.say(worker, groups::lease(6, 1, 0, &[GPU]));
        let of_driver = WaitsReport { leases: vec![lease], is_alone: true, ..WaitsReport::default() };
        let mut said = vec![(driver, of_driver), (worker, without_request(6))];
        if has_room {
            said.push((world.granted(worker, 5).1, WaitsReport::default()));
        }
        answering(&mut world, 20, &said);
        assert_eq!(refusals(&world, worker).is_empty(), has_room);
    }
}

#[test]
fn who_only_waits_behind_others_does_not_fail_for_them() {
    let mut world = World::new(4, 1);
    let driver = world.driver();
    world.say(driver, request(1, &[GPU]));
    let (_, worker) = world.granted(driver, 1);
    world.say(worker, request(5, &[GPU]));
    world.say(driver, request(2, &[GPU]));
    answering(&mut world, 20, &[(driver, without_request(2)), (worker, without_request(5))]);
    assert_eq!((refusals(&world, worker).len(), refusals(&world, driver).len()), (1, 0));
}

const GIB: u64 = 1 << 30;

/// So many GPUs of 16 GiB.
fn with_memory(gpus: f64) -> World {
    World::with([("CPU", 4.0), ("GPU", gpus), ("GPU:memory", (16 * GIB) as f64)])
}

fn memory(bytes: u64) -> (&'static str, u64) {
    ("GPU:memory", bytes * 10_000)
}

/// Actors with these parts of devices, each in its process.
fn actors_with(world: &mut World, driver: Key, parts: &[(&'static str, u64)]) -> Vec<Key> {
    let made = (1..).zip(parts).map(|(number, part)| {
        world.say(driver, actor(number, &[*part], &[*part]));
        let worker = world.placed(driver, number).expect("it is placed");
        world.say(worker, ActorReady::default());
        worker
    });
    made.collect()
}

fn without_actor(number: u8) -> WaitsReport {
    WaitsReport { actors: vec![id(number)], is_alone: true, ..WaitsReport::default() }
}

#[test]
fn memory_of_devices_is_waited_for_as_devices_are() {
    let cases = [
        (memory(10 * GIB), memory(7 * GIB), "memory beside memory"),
        (memory(10 * GIB), ("GPU", 5_000), "a share beside memory"),
        (("GPU", 5_000), memory(9 * GIB), "memory beside a share"),
    ];
    for (held, asked, case) in cases {
        let mut world = with_memory(1.0);
        let driver = world.driver();
        let [worker] = actors_with(&mut world, driver, &[held])[..] else { panic!("there is one") };
        world.say(worker, actor(9, &[asked], &[asked]));
        answering(&mut world, 9, &[(worker, without_actor(9))]);
        assert!(world.deaths(worker, 9).is_empty(), "DEADLOCK-1: {case}");
        answering(&mut world, 9, &[(worker, without_actor(9))]);
        let [text] = &world.deaths(worker, 9)[..] else { panic!("{case}: {:?}", world.deaths(worker, 9)) };
        assert!(text.contains("would for ever") && text.contains("which holds {"), "{case}: {text}");
    }
}

#[test]
fn shares_that_are_left_of_several_devices_are_no_whole_one() {
    for (parts, asked) in [([("GPU", 6_000); 2], GPU), ([memory(9 * GIB); 2], memory(8 * GIB))] {
        for goes_on in [None, Some(0), Some(1)] {
            let mut world = with_memory(2.0);
            let driver = world.driver();
            let workers = actors_with(&mut world, driver, &parts);
            world.say(workers[0], actor(9, &[asked], &[asked]));
            let told = |index| if goes_on == Some(index) { WaitsReport::default() } else { without_actor(9) };
            let said: Vec<_> = workers.iter().enumerate().map(|(index, worker)| (*worker, told(index))).collect();
            answering(&mut world, 20, &said);
            let deaths = world.deaths(workers[0], 9);
            assert_eq!(deaths.len(), usize::from(goes_on.is_none()), "{parts:?}, {goes_on:?} goes on: {deaths:?}");
        }
    }
}

#[test]
fn a_group_waits_for_memory_and_for_whole_devices_that_another_group_keeps() {
    let cases: [(&[_], &[_]); 3] = [
        (&[memory(10 * GIB)], &[memory(10 * GIB); 2]),
        (&[("GPU", 6_000), ("GPU", 6_000)], &[GPU]),
        (&[("GPU", 6_000)], &[GPU, GPU]),
    ];
    for (kept, asked) in cases {
        let mut world = with_memory(2.0);
        let driver = world.driver();
        let create = |number, parts: &[(&'static str, u64)]| {
            groups::group(number, &parts.iter().map(std::slice::from_ref).collect::<Vec<_>>())
        };
        world.say(driver, create(1, kept));
        world.say(driver, create(2, asked));
        world.say(driver, GroupAwait { request: 7, group: groups::group_id(2) });
        answering(&mut world, 20, &[(driver, without_group(2))]);
        assert_eq!(groups::answers(&world, driver, 7).len(), 1, "{kept:?}, {asked:?}");
    }
}
