//! What goes on when its job is over, what does not, and what is said last.

use super::groups::group;
use super::*;
use oxiray_wire::message::FailureCode;

/// A detached actor whose driver is gone, and another driver.
fn left_alone(world: &mut World) -> (Key, Key) {
    let driver = world.driver();
    world.say(driver, ActorCreate { detached: true, ..actor(1, &[CPU], &[]) });
    let detached = world.placed(driver, 1).expect("it is placed");
    world.say(detached, ActorReady::default());
    world.core.driver_left(driver);
    world.settle();
    (detached, world.driver())
}

#[test]
fn a_detached_actor_has_tasks_and_actors_run_when_its_driver_is_gone() {
    let mut world = World::new(4, 0);
    let (detached, _) = left_alone(&mut world);
    world.say(detached, request(1, &[CPU]));
    let (_, helper) = world.granted(detached, 1);
    world.say(helper, request(1, &[CPU]));
    assert_eq!(world.grants_of(helper).len(), 1, "and so has a task of it");
    world.say(detached, actor(2, &[CPU], &[CPU]));
    assert!(world.placed(detached, 2).is_some());
}

#[test]
fn an_actor_that_comes_too_late_is_answered_and_dead() {
    let mut world = World::new(4, 0);
    let driver = world.driver();
    world.say(driver, Goodbye::default());
    world.say(driver, ActorCreate { request: 7, name: "n".into(), ..actor(1, &[CPU], &[]) });
    assert_eq!(world.answer(driver, 7).failure.expect("it is refused").code, FailureCode::ActorDied);
    assert!(world.deaths(driver, 1)[0].contains("its job was ending"));
}

#[test]
fn a_detached_actor_whose_arguments_never_come_ends_with_its_maker() {
    let mut world = World::new(4, 0);
    let (driver, other) = (world.driver(), world.driver());
    let named = ActorCreate { name: "n".into(), namespace: "x".into(), detached: true, ..actor(1, &[CPU], &[]) };
    world.say(driver, ActorCreate { unfinished: true, ..named });
    world.say(other, ActorConnect { actor: id(1), lost: None });
    world.core.driver_left(driver);
    world.settle();
    assert!(world.deaths(other, 1)[0].contains("the arguments of its constructor were still awaited"));
    world.say(other, ActorLookup { request: 5, name: "n".into(), namespace: "x".into() });
    assert_eq!(world.answer(other, 5).failure.expect("the name is free").code, FailureCode::ActorNotFound);
}

#[test]
fn the_last_words_of_a_killed_detached_actor_reserve_nothing() {
    let mut world = World::new(4, 0);
    let (detached, other) = left_alone(&mut world);
    world.say(other, ActorKill { actor: id(1), restart: false });
    world.say(detached, group(1, &[&[CPU]]));
    world.bury(detached, "killed by signal 9 (SIGKILL)");
    assert_eq!(world.free("CPU"), 40_000);
}

#[test]
fn a_dying_worker_that_is_returned_keeps_its_grant_until_it_is_gone() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.core.worker_died(worker);
    world.say(driver, LeaseReturn { lease, retiring: false });
    assert_eq!(world.free("CPU"), 0, "CORE-1");
    world.say(driver, request(2, &[CPU]));
    assert_eq!(world.grants_of(driver).len(), 1, "it serves nobody else");
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    assert_ne!(world.granted(driver, 2).1, worker);
}
