//! The core in a world without processes: what it orders is done at once, or when a test says so.

mod after_the_job;
mod any_order;
mod environments;
mod groups;
mod members;
mod world;

use super::*;
use crate::device_check::Residue;
use bytes::Bytes;
use oxiray_wire::message::{
    ActorConnect, ActorCreate, ActorKill, ActorLookup, ActorReady, Amount, Blocked, Content, Goodbye, LeaseCancel,
    LeaseRequest, LeaseReturn, Promise, Publish, Reference, Subscribe, Unblocked, Unhold, Value,
};
use std::time::Duration;
use world::{World, amount};

fn request(number: u64, demand: &[(&str, u64)]) -> LeaseRequest {
    let demand = demand.iter().map(|(name, units)| amount(name, *units)).collect();
    LeaseRequest { request: number, demand, label: "f".into(), ..LeaseRequest::default() }
}

fn actor(number: u8, placement: &[(&str, u64)], running: &[(&str, u64)]) -> ActorCreate {
    let amounts = |amounts: &[(&str, u64)]| amounts.iter().map(|(name, units)| amount(name, *units)).collect();
    ActorCreate {
        request: 1,
        actor: vec![number; 16].into(),
        class_name: "Counter".into(),
        handle: "handle".into(),
        placement: amounts(placement),
        running: amounts(running),
        ..ActorCreate::default()
    }
}

fn id(number: u8) -> bytes::Bytes {
    vec![number; 16].into()
}

fn actor_id(number: u8) -> ActorId {
    ActorId::new([number; 16])
}

fn anchor(number: u8) -> bytes::Bytes {
    bytes_of(actor_id(number).anchor().as_bytes())
}

const CPU: (&str, u64) = ("CPU", 10_000);
const GPU: (&str, u64) = ("GPU", 10_000);

#[test]
fn a_lease_is_granted_returned_and_its_worker_used_again() {
    let mut world = World::new(2, 2);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    let (lease, worker) = world.granted(driver, 1);
    assert_eq!(world.free("CPU"), 10_000);
    world.say(driver, LeaseReturn { lease, retiring: false });
    assert_eq!(world.free("CPU"), 20_000);
    world.say(driver, request(2, &[CPU]));
    assert_eq!(world.granted(driver, 2).1, worker, "the same process serves again");
    world.say(driver, LeaseRequest { fresh: true, ..request(3, &[CPU]) });
    assert_ne!(world.granted(driver, 3).1, worker);
}

#[test]
fn a_worker_with_devices_serves_once_and_the_device_comes_back_when_its_tree_is_gone() {
    let mut world = World::new(2, 1);
    let driver = world.driver();
    world.say(driver, request(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    let assign = world.assignment(worker);
    assert_eq!(assign.devices[0].ids, ["0"]);
    assert!(assign.variables.iter().any(|variable| variable.name == "CUDA_VISIBLE_DEVICES"));
    world.say(driver, request(2, &[GPU]));
    world.say(driver, LeaseReturn { lease, retiring: false });
    assert!(world.is_dismissed(worker) && !world.is_killed(worker), "what is to be run at exit is run");
    world.pass(Duration::from_secs(11));
    assert!(world.is_killed(worker), "but not for ever");
    assert_eq!(world.free("GPU"), 0, "its processes may still use the device (CORE-1)");
    assert!(world.grants_of(driver).iter().all(|(request, ..)| *request != 2));
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    let (_, next) = world.granted(driver, 2);
    assert_ne!(next, worker, "CORE-3");
}

#[test]
fn what_no_machine_could_meet_is_refused_with_the_reason() {
    let mut world = World::new(2, 2);
    let driver = world.driver();
    world.say(driver, request(1, &[("GPU", 30_000)]));
    let text = world.refusal(driver, 1);
    assert!(text.contains("task `f` asks for {GPU: 3}") && text.contains("2 GPU"), "{text}");
}

#[test]
fn a_dead_worker_is_reported_to_its_owner_once() {
    let mut world = World::new(2, 2);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.core.worker_died(worker);
    world.bury(worker, "killed by signal 11 (SIGSEGV)");
    assert_eq!(world.ended(driver), [(lease, "killed by signal 11 (SIGSEGV)".to_owned())]);
    world.pass(Duration::from_secs(1));
    world.say(driver, LeaseReturn { lease, retiring: false });
    assert_eq!(world.ended(driver).len(), 1, "CORE-2");
    assert_eq!(world.free("CPU"), 20_000);
}

#[test]
fn an_owner_hears_of_a_death_whose_leftovers_do_not_die() {
    let mut world = World::new(2, 2);
    let driver = world.driver();
    world.say(driver, request(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.core.worker_died(worker);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.ended(driver)[0].0, lease);
    assert_eq!(world.free("GPU"), 10_000, "the device of the tree that lives on stays granted");
}

#[test]
fn a_blocked_task_lends_its_cpu_and_not_its_device() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU, GPU]));
    let (_, worker) = world.granted(driver, 1);
    world.say(worker, request(7, &[CPU]));
    world.say(worker, Blocked {});
    assert_eq!((world.free("CPU"), world.free("GPU")), (0, 0), "the child has the CPU, nobody the device");
    let (lease, _) = world.granted(worker, 7);
    world.say(worker, Unblocked {});
    world.say(worker, LeaseReturn { lease, retiring: false });
    assert_eq!(world.free("CPU"), 0);
}

#[test]
fn a_cancelled_request_is_not_granted() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    let (lease, _) = world.granted(driver, 1);
    world.say(driver, request(2, &[CPU]));
    world.say(driver, LeaseCancel { request: 2 });
    world.say(driver, LeaseReturn { lease, retiring: false });
    assert_eq!(world.grants_of(driver).len(), 1);
    assert_eq!(world.free("CPU"), 10_000);
}

#[test]
fn holders_are_asked_for_idle_leases_while_others_wait_and_told_why_after_ten_seconds() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU, GPU]));
    assert_eq!(world.reclaims(driver), 0);
    world.say(driver, request(2, &[GPU]));
    assert_eq!(world.reclaims(driver), 1);
    world.pass(Duration::from_secs(3));
    let asked = world.reclaims(driver);
    assert!((5..=20).contains(&asked), "ever more seldom: {asked}");
    assert!(world.notices(driver).is_empty());
    world.pass(Duration::from_secs(30));
    let notices = world.notices(driver);
    assert_eq!(notices.len(), 1, "once: {notices:?}");
    assert!(notices[0].contains("task `f` has waited 10 s for {GPU: 1}"), "{}", notices[0]);
    assert!(notices[0].contains("(f: 1 of GPU 0)"), "{}", notices[0]);
}

#[test]
fn an_actor_holds_what_it_was_placed_with_until_its_constructor_returned() {
    let mut world = World::new(1, 2);
    let driver = world.driver();
    world.say(driver, actor(1, &[CPU, GPU], &[GPU]));
    let worker = world.placed(driver, 1).expect("its creator is connected without asking");
    assert_eq!((world.free("CPU"), world.free("GPU")), (0, 10_000));
    world.say(worker, ActorReady {});
    assert_eq!((world.free("CPU"), world.free("GPU")), (10_000, 10_000));
    world.say(driver, ActorKill { actor: id(1), restart: false });
    assert_eq!(world.deaths(driver, 1), ["The actor is dead because it was killed by `ray.kill`."]);
    assert!(world.is_killed(worker));
    assert_eq!(world.free("GPU"), 10_000);
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    assert_eq!(world.free("GPU"), 20_000);
    assert_eq!(world.deaths(driver, 1).len(), 1, "CORE-2");
}

#[test]
fn names_find_actors_and_late_comers_hear_how_they_died() {
    let mut world = World::new(2, 0);
    let (driver, other) = (world.driver(), world.driver());
    world.say(driver, ActorCreate { name: "n".into(), namespace: "x".into(), ..actor(1, &[CPU], &[]) });
    let lookup = ActorLookup { request: 5, name: "n".into(), namespace: "x".into() };
    world.say(other, lookup.clone());
    assert_eq!(world.answer(other, 5).handle, "handle");
    world.say(other, ActorLookup { request: 6, namespace: String::new(), ..lookup });
    assert_eq!(world.answer(other, 6).failure.expect("not there").code, "actor_not_found");
    world.say(other, ActorConnect { actor: id(1), lost: Bytes::new() });
    let worker = world.placed(other, 1).expect("connected");
    world.say(
        worker,
        oxiray_wire::message::ActorFailed {
            error: Some(Value { content: Some(Content::Raised("boom".into())), contained: vec![] }),
        },
    );
    assert_eq!(world.deaths(other, 1), ["The actor is dead because its constructor raised an exception."]);
    world.bury(worker, "exited with status 1");
    let third = world.driver();
    world.say(third, ActorConnect { actor: id(1), lost: Bytes::new() });
    assert_eq!(world.deaths(third, 1), ["The actor is dead because its constructor raised an exception."]);
    world.say(third, ActorConnect { actor: id(9), lost: Bytes::new() });
    assert!(world.deaths(third, 9)[0].contains("no such actor"));
}

#[test]
fn an_actor_that_can_never_be_placed_is_made_and_dies_of_it() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    world.say(driver, actor(1, &[GPU], &[GPU]));
    assert!(world.answer(driver, 1).failure.is_none());
    assert!(world.deaths(driver, 1)[0].contains("actor `Counter` asks for {GPU: 1}"));
}

#[test]
fn an_unreachable_actor_is_told_to_leave_and_one_that_waits_never_starts() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    world.say(driver, actor(1, &[CPU], &[CPU]));
    world.say(driver, actor(2, &[CPU], &[CPU]));
    let worker = world.placed(driver, 1).expect("placed");
    world.say(driver, Unhold { objects: vec![anchor(2)] });
    assert!(world.deaths(driver, 2)[0].contains("all references to the actor were removed"));
    assert!(world.deaths(driver, 2)[0].contains("It never ran: it was still waiting for {CPU: 1}"));
    world.say(driver, Unhold { objects: vec![anchor(1)] });
    assert!(world.is_told_to_leave(worker));
    world.bury(worker, "exited with status 0");
    assert!(world.deaths(driver, 1)[0].contains("all references to the actor were removed"));
    assert_eq!(world.free("CPU"), 10_000);
}

fn restartable(number: u8, max_restarts: i32) -> ActorCreate {
    ActorCreate { max_restarts, ..actor(number, &[GPU], &[GPU]) }
}

#[test]
fn a_restart_waits_for_the_tree_of_the_last_process_and_for_its_devices() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    world.residue.set(Residue::Held);
    world.say(driver, restartable(1, 1));
    let first = world.placed(driver, 1).expect("placed");
    world.say(first, ActorReady {});
    world.core.worker_died(first);
    world.pass(Duration::from_millis(300));
    assert_eq!(world.restarts(driver, 1), [false], "its callers know before what it left behind is gone");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.placed(driver, 1), Some(first), "RESTARTS-1");
    world.bury(first, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.placed(driver, 1), Some(first), "its device still holds memory");
    world.residue.set(Residue::Gone);
    world.pass(Duration::from_secs(1));
    let second = world.placed(driver, 1).expect("placed");
    assert_ne!(second, first);
    assert_eq!(world.assignment(second).actor.as_ref().map(|actor| actor.restarts), Some(1));
    world.bury(second, "killed by signal 9 (SIGKILL)");
    assert!(world.deaths(driver, 1)[0].contains("restarted 1 times"));
}

#[test]
fn starts_that_fail_again_and_again_come_ever_more_seldom() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    world.say(driver, restartable(1, -1));
    let mut starts = 0;
    let mut last = None;
    for _ in 0..6_000 {
        if let Some(worker) = world.placed(driver, 1).filter(|worker| Some(*worker) != last) {
            last = Some(worker);
            starts += 1;
            world.bury(worker, "killed by signal 11 (SIGSEGV)");
        }
        world.pass(Duration::from_millis(10));
    }
    assert!((8..=14).contains(&starts), "{starts} starts in a minute");
    assert!(world.restarts(driver, 1).iter().all(|began_nothing| *began_nothing));
    world.say(driver, ActorKill { actor: id(1), restart: false });
    world.pass(Duration::from_secs(20));
    assert_eq!((world.deaths(driver, 1).len(), world.free("GPU")), (1, 10_000));
}

#[test]
fn nothing_restarts_with_its_owner_or_its_job_gone() {
    let mut world = World::new(4, 2);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    let (_, owner) = world.granted(driver, 1);
    world.say(owner, restartable(1, -1));
    world.say(driver, restartable(2, -1));
    let (owned, own) = (world.placed(owner, 1).expect("placed"), world.placed(driver, 2).expect("placed"));
    world.bury(owner, "killed by signal 9 (SIGKILL)");
    assert!(world.is_killed(owned));
    world.bury(owned, "killed by signal 9 (SIGKILL)");
    world.say(driver, Goodbye {});
    world.bury(own, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(1));
    assert!(world.core.making.is_empty() && world.core.queue.is_empty());
    assert_eq!(world.free("GPU"), 20_000);
}

#[test]
fn a_process_that_does_not_die_is_the_end_of_its_actor() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    world.say(driver, restartable(1, -1));
    let worker = world.placed(driver, 1).expect("placed");
    world.say(driver, ActorKill { actor: id(1), restart: true });
    world.core.worker_died(worker);
    world.pass(Duration::from_secs(11));
    assert!(world.deaths(driver, 1)[0].contains("does not die"));
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.placed(driver, 1), Some(worker));
}

#[test]
fn an_actor_whose_arguments_are_awaited_has_its_name_and_its_callers() {
    let mut world = World::new(1, 0);
    let (driver, other) = (world.driver(), world.driver());
    let named = ActorCreate { name: "n".into(), namespace: "x".into(), ..actor(1, &[CPU], &[]) };
    world.say(driver, ActorCreate { unfinished: true, ..named.clone() });
    world.say(other, ActorLookup { request: 5, name: "n".into(), namespace: "x".into() });
    assert_eq!(world.answer(other, 5).actor, id(1));
    world.say(other, ActorConnect { actor: id(1), lost: Bytes::new() });
    assert!(world.placed(driver, 1).is_none() && world.deaths(other, 1).is_empty());
    world.say(driver, named);
    assert!(world.placed(driver, 1).is_some() && world.placed(driver, 1) == world.placed(other, 1));
}

#[test]
fn all_that_a_driver_made_goes_with_it_except_what_is_detached() {
    let mut world = World::new(4, 2);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU, GPU]));
    let (_, parent) = world.granted(driver, 1);
    world.say(parent, request(1, &[CPU]));
    let (_, child) = world.granted(parent, 1);
    world.say(driver, actor(1, &[CPU], &[]));
    world.say(driver, ActorCreate { detached: true, name: "d".into(), ..actor(2, &[GPU], &[GPU]) });
    let (bound, detached) = (world.placed(driver, 1).expect("placed"), world.placed(driver, 2).expect("placed"));
    world.say(detached, request(1, &[CPU]));
    let (_, helper) = world.granted(detached, 1);
    world.core.driver_left(driver);
    world.settle();
    assert!([parent, child, bound].iter().all(|worker| world.is_killed(*worker)));
    assert!([detached, helper].iter().all(|worker| !world.is_killed(*worker)));
    for worker in [parent, child, bound] {
        world.bury(worker, "killed by signal 9 (SIGKILL)");
    }
    assert_eq!((world.free("CPU"), world.free("GPU")), (30_000, 10_000));
}

#[test]
fn a_goodbye_is_answered_when_the_last_worker_is_gone() {
    let mut world = World::new(2, 0);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    let (_, worker) = world.granted(driver, 1);
    world.say(driver, Goodbye {});
    assert!(world.is_killed(worker) && !world.is_closed(driver));
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    assert!(world.is_closed(driver));
}

#[test]
fn a_device_that_does_not_forget_the_dead_is_taken_out_of_service() {
    let mut world = World::new(1, 2);
    let driver = world.driver();
    world.residue.set(Residue::Held);
    world.say(driver, request(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(5));
    assert_eq!((world.free("GPU"), world.total("GPU")), (10_000, 20_000), "it may still forget");
    world.pass(Duration::from_secs(6));
    assert_eq!((world.free("GPU"), world.total("GPU")), (10_000, 10_000), "out of service");
    let report = world.core.report(1, StoreFigures::default(), 0);
    let detail: serde_json::Value = serde_json::from_str(&report.detail).expect("JSON");
    assert_eq!(detail["devices"][0]["state"], "quarantined");
    assert!(detail["devices"][0]["reason"].as_str().expect("a reason").contains("still holds memory"));
}

#[test]
fn a_device_that_forgets_in_time_is_granted_again() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    world.residue.set(Residue::Held);
    world.say(driver, request(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.say(driver, request(2, &[GPU]));
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.grants_of(driver).len(), 1);
    world.residue.set(Residue::Gone);
    world.pass(Duration::from_secs(1));
    world.granted(driver, 2);
}

#[test]
fn a_device_out_of_service_comes_back_when_it_forgets_after_all() {
    for late in [Residue::Held, Residue::Pending] {
        let mut world = World::new(1, 1);
        let driver = world.driver();
        world.residue.set(late);
        world.say(driver, request(1, &[CPU, GPU]));
        let (lease, worker) = world.granted(driver, 1);
        world.say(driver, request(2, &[GPU]));
        world.say(driver, LeaseReturn { lease, retiring: false });
        world.bury(worker, "killed by signal 9 (SIGKILL)");
        world.pass(Duration::from_secs(60));
        assert_eq!((world.free("CPU"), world.total("GPU")), (10_000, 0), "the rest of the grant is back");
        assert!(world.out_of_service()[0].contains("memory"), "{:?}", world.out_of_service());
        world.residue.set(Residue::Gone);
        world.pass(Duration::from_secs(11));
        world.granted(driver, 2);
        assert!(world.out_of_service().is_empty());
    }
}

#[test]
fn devices_of_a_tree_that_does_not_die_are_out_of_service_until_it_does() {
    let mut world = World::new(4, 2);
    let driver = world.driver();
    let half = ("GPU", 5_000);
    world.say(driver, request(1, &[half]));
    world.say(driver, request(2, &[half]));
    let ((lease, returned), (_, crashed)) = (world.granted(driver, 1), world.granted(driver, 2));
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.pass(Duration::from_secs(15));
    world.core.worker_died(crashed);
    world.settle();
    assert_eq!(world.total("GPU"), 20_000, "they may still die");
    world.pass(Duration::from_secs(6));
    assert_eq!((world.total("GPU"), world.free("GPU")), (10_000, 10_000), "out of service");
    assert!(world.out_of_service()[0].contains("does not die"), "{:?}", world.out_of_service());
    world.pass(Duration::from_secs(6));
    world.bury(returned, "killed by signal 9 (SIGKILL)");
    assert_eq!(world.total("GPU"), 10_000, "the other is still there");
    world.say(driver, request(3, &[("GPU", 20_000)]));
    world.bury(crashed, "exited with status 1");
    world.granted(driver, 3);
    assert!(world.out_of_service().is_empty());
}

#[test]
fn the_owner_of_a_task_that_cannot_be_killed_is_told() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    world.say(driver, request(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.core.worker_left(worker);
    world.settle();
    world.pass(Duration::from_secs(9));
    assert_eq!(world.ended(driver), []);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.ended(driver), [(lease, "was killed, and has not ended since".to_owned())]);
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    assert_eq!(world.ended(driver).len(), 1, "once");
}

#[test]
fn the_environment_of_a_task_stands_above_that_of_its_job() {
    let mut world = World::new(2, 0);
    let driver = world.driver_with(&[("A", "job"), ("B", "job")]);
    let variable =
        |name: &str, value: &str| oxiray_wire::message::Variable { name: name.into(), value: Some(value.into()) };
    let environment = Environment {
        variables: vec![variable("B", "task"), variable("OMP_NUM_THREADS", "7")],
        ..Environment::default()
    };
    world.say(driver, LeaseRequest { environment: Some(environment), ..request(1, &[("CPU", 20_000)]) });
    let (_, worker) = world.granted(driver, 1);
    let assign = world.assignment(worker);
    let expected = [variable("A", "job"), variable("B", "task"), variable("OMP_NUM_THREADS", "7")];
    assert_eq!(assign.variables, expected);
    assert_eq!(assign.resources, [Amount { resource: "CPU".into(), units: 20_000 }]);
}

#[test]
fn values_reach_those_who_asked_and_owners_that_die_are_told_of() {
    let mut world = World::new(2, 0);
    let (driver, other) = (world.driver(), world.driver());
    world.say(driver, request(1, &[CPU]));
    let (_, worker) = world.granted(driver, 1);
    let object = |number: u8| bytes::Bytes::from(vec![number; 28]);
    let owner = bytes_of(world.core.clients[&worker].id.as_bytes());
    let wish = |number: u8| Subscribe { reference: Some(Reference { object: object(number), owner: owner.clone() }) };
    world.say(worker, Promise { objects: vec![object(1), object(2)] });
    world.say(other, wish(1));
    world.say(other, wish(2));
    let value = Value { content: Some(Content::Inline("v".into())), contained: vec![] };
    world.say(worker, Publish { object: object(1), value: Some(value.clone()) });
    assert_eq!(world.published(other, 1), Some(value));
    assert_eq!(world.published(other, 2), None);
    world.bury(worker, "exited with status 1");
    let Some(Content::Failed(failure)) = world.published(other, 2).and_then(|value| value.content) else {
        panic!("not told")
    };
    assert_eq!(failure.code, "owner_died");
    assert!(world.core.objects.is_empty());
}

#[test]
fn what_a_constructor_needs_is_kept_until_it_returned() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    let object = ObjectId::new([7; 28]);
    world.core.stored(driver, object);
    let inside = Reference { object: bytes_of(object.as_bytes()), owner: bytes::Bytes::new() };
    world.say(driver, ActorCreate { contained: vec![inside], ..actor(1, &[CPU], &[]) });
    world.say(driver, Unhold { objects: vec![bytes_of(object.as_bytes())] });
    assert!(world.deleted.is_empty());
    let worker = world.placed(driver, 1).expect("placed");
    world.say(worker, ActorReady {});
    assert_eq!(world.deleted, [object]);
}
