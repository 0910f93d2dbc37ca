//! The core in a world without processes: what it orders is done at once, or when a test says so.

mod actors;
mod after_the_job;
mod any_order;
mod bundle_placement;
mod by_hand;
mod census;
mod deadlocks;
mod device_rows;
mod devices;
mod drain;
mod environments;
mod fairness;
mod follow;
mod groups;
mod growth;
mod held;
mod journal;
mod liars;
mod members;
mod memory;
mod metrics;
mod near;
mod preemption;
mod prefetch;
mod proxied_clients;
mod recent;
mod resumption;
mod several;
mod world;

use super::waiting::STARTING_MAX;
use super::*;
use bytes::Bytes;
use oxiray_ids::ActorId;
use oxiray_ids::{LeaseNumber, LeaseRequestNumber, ObjectId};
use oxiray_machine::Residue;
use oxiray_wire::message::{
    ActorConnect, ActorCreate, ActorKill, ActorLookup, ActorReady, Amount, ArgumentLost, ArgumentReference, Blocked,
    Content, Environment, FailureCode, Goodbye, Hold, LeaseCancel, LeaseRequest, LeaseReturn, Promise, Publish,
    Recover, Reference, Subscribe, Unblocked, Unhold,
};
use oxiray_wire::message::{Driver, Failure, Value};
use oxiray_wire::state::ExitKind;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use world::{World, amount};

fn request(number: u64, demand: &[(&str, u64)]) -> LeaseRequest {
    let demand = demand.iter().map(|(name, units)| amount(name, *units)).collect();
    LeaseRequest { request: LeaseRequestNumber(number), demand, label: "f".into(), ..LeaseRequest::default() }
}

fn actor(number: u8, placement: &[(&str, u64)], running: &[(&str, u64)]) -> ActorCreate {
    let amounts = |amounts: &[(&str, u64)]| amounts.iter().map(|(name, units)| amount(name, *units)).collect();
    ActorCreate {
        request: 1,
        actor: id(number),
        class_name: "Counter".into(),
        handle: "handle".into(),
        placement: amounts(placement),
        running: amounts(running),
        ..ActorCreate::default()
    }
}

fn id(number: u8) -> ActorId {
    actor_id(number)
}

fn actor_id(number: u8) -> ActorId {
    ActorId::new([number; 16])
}

fn anchor(number: u8) -> ObjectId {
    actor_id(number).anchor()
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
fn idle_workers_that_are_not_kept_end_on_purpose() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    let leases: Vec<LeaseNumber> = (1..=3)
        .map(|number| {
            world.say(driver, request(number, &[]));
            world.granted(driver, number).0
        })
        .collect();
    for lease in leases {
        world.say(driver, LeaseReturn { lease, retiring: false });
    }
    assert!(world.ending().is_empty(), "three served at once just now");
    for _ in 0..60 {
        world.pass(Duration::from_secs(2));
    }
    let ending = world.ending();
    assert_eq!(ending.len(), 2, "there is one processor");
    for worker in ending {
        world.bury(worker, "killed by signal 9 (SIGKILL)");
    }
    let kinds: Vec<Option<ExitKind>> =
        world.core.as_head().figures.ends.rows().map(|row| Some(row.exit.as_ref()?.kind)).collect();
    assert_eq!(kinds, [Some(ExitKind::IntendedSystem); 2]);
}

#[test]
fn an_owner_hears_of_a_death_whose_leftovers_do_not_die() {
    let mut world = World::new(2, 2);
    let driver = world.driver();
    world.say(driver, request(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.core.worker_died(worker);
    world.pass(Duration::from_secs(3));
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
    world.say(driver, LeaseCancel { request: LeaseRequestNumber(2) });
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
fn who_needs_no_resources_is_told_that_it_waits_for_a_process() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    world.core.as_head_mut().workers.starting = STARTING_MAX;
    world.say(driver, request(1, &[]));
    world.pass(Duration::from_secs(30));
    let notices = world.notices(driver);
    let expected = format!("it needs no resources, and its worker process has not started yet ({STARTING_MAX} are");
    assert!(notices[0].contains(&expected), "{notices:?}");
}

#[test]
fn a_goodbye_is_answered_when_the_last_worker_is_gone() {
    let mut world = World::new(2, 0);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    let (_, worker) = world.granted(driver, 1);
    world.say(driver, Goodbye::default());
    assert!(world.is_killed(worker) && !world.is_closed(driver));
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    assert!(world.is_closed(driver));
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
    let object = |number: u8| ObjectId::new([number; 28]);
    let owner = world.core.as_head().clients.by_key[&worker].id;
    let resource_request =
        |number: u8| Subscribe { reference: Some(Reference { object: object(number), owner: Some(owner) }) };
    world.say(worker, Promise { objects: vec![object(1), object(2)] });
    world.say(other, resource_request(1));
    world.say(other, resource_request(2));
    let value = Value { content: Some(Content::Inline("v".into())), contained: vec![] };
    world.say(worker, Publish { object: object(1), value: Some(value.clone()) });
    assert_eq!(world.published(other, 1), Some(value));
    assert_eq!(world.published(other, 2), None);
    world.bury(worker, "exited with status 1");
    let Some(Content::Failed(failure)) = world.published(other, 2).and_then(|value| value.content) else {
        panic!("not told")
    };
    assert_eq!(failure.code, FailureCode::OwnerDied);
    assert!(world.core.as_head().objects.known.is_empty());
}

#[test]
fn what_a_constructor_needs_is_kept_until_it_returned() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    let object = ObjectId::new([7; 28]);
    world.core.stored(driver, object);
    let inside = Reference { object, owner: None };
    world.say(driver, ActorCreate { contained: vec![inside], ..actor(1, &[CPU], &[]) });
    world.say(driver, Unhold { objects: vec![object] });
    assert!(world.deleted.is_empty());
    let worker = world.placed(driver, 1).expect("placed");
    world.say(worker, ActorReady::default());
    assert_eq!(world.deleted, [object]);
}
