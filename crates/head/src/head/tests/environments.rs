//! Environments that must be made first: once for all who wait, and nobody waits behind them.

use super::*;
use oxiray_wire::message::{Environment, FailureCode, LeaseCancel};

const LIMIT_S: u32 = 60;

fn environment(preparation: &str) -> Environment {
    let (fields, preparation) = (format!("of {preparation}"), preparation.to_owned());
    Environment { fields, preparation, setup_timeout_s: LIMIT_S, eager: true, ..Environment::default() }
}

fn prepared(world: &mut World, number: u64, result: Result<&str, &str>) {
    let result = result.map(|command| vec![command.to_owned()]).map_err(str::to_owned);
    world.core.prepared(number, result);
    world.settle();
}

fn refusals(world: &World) -> Vec<(u64, FailureCode)> {
    let refused = world.sent.iter().filter_map(|(_, message)| match message {
        Message::LeaseRefused(refused) => Some((refused.request.0, refused.failure.clone()?.code)),
        _ => None,
    });
    refused.collect()
}

#[test]
fn one_preparation_serves_all_who_wait_and_holds_up_nobody_else() {
    let mut world = World::new(3, 0);
    let driver = world.driver();
    for number in 1..=2 {
        world.say(driver, LeaseRequest { environment: Some(environment("a")), ..request(number, &[CPU]) });
    }
    assert_eq!(world.preparing.len(), 1, "ENVIRONMENT-1");
    assert_eq!(world.free("CPU"), 30_000);
    world.say(driver, request(3, &[CPU]));
    world.granted(driver, 3);
    let number = world.preparing[0];
    prepared(&mut world, number, Ok("/made/python"));
    world.granted(driver, 1);
    world.granted(driver, 2);
    assert_eq!(world.free("CPU"), 0);
    let commands: Vec<_> = world.core.node().origins().map(|origin| origin.command.clone()).collect();
    assert_eq!(commands, [vec!["python".to_owned()], vec!["/made/python".to_owned()]]);
}

#[test]
fn a_failure_reaches_everybody_and_is_remembered_for_a_while() {
    let mut world = World::new(2, 0);
    let driver = world.driver();
    world.say(driver, LeaseRequest { environment: Some(environment("a")), ..request(1, &[CPU]) });
    let mut make = actor(7, &[CPU], &[CPU]);
    make.environment = Some(environment("a"));
    world.say(driver, make);
    let number = world.preparing[0];
    prepared(&mut world, number, Err("no such package"));
    assert_eq!(refusals(&world), [(1, FailureCode::RuntimeEnv)]);
    let died = world.sent.iter().any(|(_, message)| {
        matches!(message, Message::ActorDied(died) if died.failure.as_ref().is_some_and(|failure| {
            failure.code == FailureCode::RuntimeEnv && failure.text.starts_with("[Node ") && failure.text.ends_with("] no such package")
        }))
    });
    assert!(died);
    world.say(driver, LeaseRequest { environment: Some(environment("a")), ..request(2, &[CPU]) });
    assert_eq!((refusals(&world).len(), world.preparing.len()), (2, 1), "not tried again at once");
    world.pass(Duration::from_secs(11));
    world.say(driver, LeaseRequest { environment: Some(environment("a")), ..request(3, &[CPU]) });
    assert_eq!(world.preparing.len(), 2);
    assert_eq!(world.free("CPU"), 20_000);
}

#[test]
fn what_takes_too_long_is_given_up_and_its_late_end_means_nothing() {
    let mut world = World::new(2, 0);
    let driver = world.driver();
    world.say(driver, LeaseRequest { environment: Some(environment("a")), ..request(1, &[CPU]) });
    let number = world.preparing[0];
    world.pass(Duration::from_secs(u64::from(LIMIT_S) + 1));
    assert_eq!(refusals(&world), [(1, FailureCode::RuntimeEnv)]);
    assert_eq!(world.given_up, [number]);
    prepared(&mut world, number, Ok("/made/python"));
    world.say(driver, LeaseRequest { environment: Some(environment("a")), ..request(2, &[CPU]) });
    assert_eq!(world.free("CPU"), 20_000, "nothing was made");
}

#[test]
fn whoever_stops_waiting_is_forgotten_and_a_job_that_ends_lets_go() {
    let mut world = World::new(2, 0);
    let driver = world.driver();
    world.say(driver, LeaseRequest { environment: Some(environment("a")), ..request(1, &[CPU]) });
    world.say(driver, LeaseCancel { request: LeaseRequestNumber(1) });
    let number = world.preparing[0];
    prepared(&mut world, number, Ok("/made/python"));
    assert_eq!(world.free("CPU"), 20_000);
    world.say(driver, LeaseRequest { environment: Some(environment("b")), ..request(2, &[CPU]) });
    world.core.driver_left(driver);
    world.settle();
    assert_eq!(world.given_up, world.preparing, "both, the one that is made and the one under way");
    let under_way = world.preparing[1];
    prepared(&mut world, under_way, Ok("/made/python"));
    assert_eq!(world.free("CPU"), 20_000);
}

#[test]
fn the_template_of_an_environment_ends_when_nobody_uses_it() {
    let mut world = World::new(2, 0);
    let driver = world.driver();
    world.say(driver, LeaseRequest { environment: Some(environment("a")), ..request(1, &[CPU]) });
    let number = world.preparing[0];
    prepared(&mut world, number, Ok("/made/python"));
    let (lease, worker) = world.granted(driver, 1);
    world.pass(Duration::from_secs(300));
    assert_eq!(world.core.node().origins().count(), 2, "its worker is in use");
    world.say(driver, LeaseReturn { lease, retiring: true });
    world.bury(worker, "exited");
    world.pass(Duration::from_secs(300));
    assert_eq!(world.core.node().origins().count(), 1);
    for spare in world.ending() {
        world.bury(spare, "died with its template");
    }
    world.say(driver, LeaseRequest { environment: Some(environment("a")), ..request(2, &[CPU]) });
    world.granted(driver, 2);
    assert_eq!(world.preparing.len(), 1, "it is still prepared");
}

#[test]
fn only_so_many_are_made_at_once() {
    let mut world = World::new(2, 0);
    let driver = world.driver();
    for number in 1..=20 {
        let environment = Some(environment(&number.to_string()));
        world.say(driver, LeaseRequest { environment, ..request(number, &[CPU]) });
    }
    assert_eq!(world.preparing.len(), 8);
    let number = world.preparing[0];
    prepared(&mut world, number, Err("no"));
    assert_eq!(world.preparing.len(), 9);
    world.core.driver_left(driver);
    world.settle();
    assert_eq!(world.preparing.len(), 9, "nobody wants the others any more");
}
