//! What becomes of actors: made, found, made anew and ended.

use super::*;
use oxiray_wire::message::FailureCode;

#[test]
fn an_actor_holds_what_it_was_placed_with_until_its_constructor_returned() {
    let mut world = World::new(1, 2);
    let driver = world.driver();
    world.say(driver, actor(1, &[CPU, GPU], &[GPU]));
    let worker = world.placed(driver, 1).expect("its creator is connected without asking");
    assert_eq!((world.free("CPU"), world.free("GPU")), (0, 10_000));
    world.say(worker, ActorReady::default());
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
    assert_eq!(world.answer(other, 6).failure.expect("not there").code, FailureCode::ActorNotFound);
    world.say(other, ActorConnect { actor: id(1), lost: None });
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
    world.say(third, ActorConnect { actor: id(1), lost: None });
    assert_eq!(world.deaths(third, 1), ["The actor is dead because its constructor raised an exception."]);
    world.say(third, ActorConnect { actor: id(9), lost: None });
    assert!(world.deaths(third, 9).is_empty(), "it may be made yet");
    world.pass(Duration::from_secs(1));
    assert!(world.deaths(third, 9)[0].contains("no such actor"));
}

/// A handle travels with a call, and may be there before its creator's word is.
#[test]
fn who_asks_for_an_actor_before_it_is_made_is_connected_when_it_is() {
    let mut world = World::new(2, 0);
    let (driver, other) = (world.driver(), world.driver());
    world.say(other, ActorConnect { actor: id(1), lost: None });
    world.say(driver, actor(1, &[CPU], &[CPU]));
    world.placed(other, 1).expect("connected");
    world.pass(Duration::from_secs(5));
    assert!(world.deaths(other, 1).is_empty());
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
    world.residue = Some(Residue::Held);
    world.say(driver, restartable(1, 1));
    let first = world.placed(driver, 1).expect("placed");
    world.say(first, ActorReady::default());
    world.core.worker_died(first);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.restarts(driver, 1), [false], "its callers know before what it left behind is gone");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.placed(driver, 1), Some(first), "RESTARTS-1");
    world.bury(first, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.placed(driver, 1), Some(first), "its device still holds memory");
    world.residue = Some(Residue::Gone);
    world.pass(Duration::from_secs(1));
    let second = world.process_of(1).expect("placed");
    assert_ne!(second, first);
    assert_eq!(world.placed(driver, 1), Some(first), "ACTOR-5");
    world.say(second, ActorReady::default());
    assert_eq!(world.placed(driver, 1), Some(second), "ACTOR-5");
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
        if let Some(worker) = world.process_of(1).filter(|worker| Some(*worker) != last) {
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
    world.say(driver, Goodbye::default());
    world.bury(own, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(1));
    assert!(world.core.as_head().actors.making.is_empty() && world.core.as_head().pending.queue.is_empty());
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
    assert_eq!(world.answer(other, 5).actor, Some(id(1)));
    world.say(other, ActorConnect { actor: id(1), lost: None });
    assert!(world.placed(driver, 1).is_none() && world.deaths(other, 1).is_empty());
    world.say(driver, named);
    assert!(world.placed(driver, 1).is_some() && world.placed(driver, 1) == world.placed(other, 1));
}

#[test]
fn what_follows_an_announcement_that_was_refused_makes_nothing() {
    let mut world = World::new(2, 0);
    let (driver, other) = (world.driver(), world.driver());
    let named = |number| ActorCreate { name: "n".into(), namespace: "x".into(), ..actor(number, &[CPU], &[]) };
    world.say(other, named(1));
    world.say(driver, ActorCreate { unfinished: true, request: 5, ..named(2) });
    assert_eq!(world.answer(driver, 5).failure.expect("the name is taken").code, FailureCode::ActorNameTaken);
    world.say(other, ActorKill { actor: id(1), restart: false });
    // It was sent before the answer came, and the name is free by now.
    world.say(driver, ActorCreate { finishes: true, request: 6, ..named(2) });
    world.say(driver, Unhold { objects: vec![anchor(2)] });
    assert!(world.placed(driver, 2).is_none() && world.core.as_head().actors.known.get(actor_id(2)).is_none());
    assert!(
        !world.core.as_head().objects.known.holdings(&[]).any(|(object, ..)| object == actor_id(2).anchor()),
        "and holds nothing"
    );
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
fn an_actor_whose_argument_is_made_again_waits_for_it_without_a_process() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    let owner = Some(world.core.as_head().clients.by_key[&driver].id);
    let object = ObjectId::new([7; 28]);
    let reference = Reference { object, owner };
    let value = Some(Value { content: Some(Content::Stored(1)), contained: vec![] });
    world.say(driver, Promise { objects: vec![object] });
    world.say(driver, Publish { object, value: value.clone() });
    let argument = ArgumentReference { reference: Some(reference.clone()), ..ArgumentReference::default() };
    world.say(driver, ActorCreate { references: vec![argument], ..actor(1, &[GPU], &[GPU]) });
    let first = world.process_of(1).expect("placed");
    world.say(first, ArgumentLost { object });
    assert!(!world.is_killed(first), "it is there all the same");
    world.say(first, Recover { reference: Some(reference) });
    world.say(first, ArgumentLost { object });
    assert!(world.is_killed(first));
    assert_eq!(world.restarts(driver, 1), [true], "no call was begun");
    world.bury(first, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(1));
    assert_eq!((world.free("GPU"), world.process_of(1)), (10_000, None));
    world.say(driver, Publish { object, value });
    let second = world.process_of(1).expect("it has its argument");
    assert_eq!(world.assignment(second).actor.as_ref().map(|actor| actor.restarts), Some(0));
}

#[test]
fn an_argument_that_nobody_makes_again_is_not_waited_for() {
    let mut world = World::new(1, 1);
    let (driver, other) = (world.driver(), world.driver());
    let owner = Some(world.core.as_head().clients.by_key[&other].id);
    let object = ObjectId::new([7; 28]);
    let reference = Reference { object, owner };
    world.say(other, Promise { objects: vec![object] });
    world.say(driver, Hold { objects: vec![object], ..Hold::default() });
    let argument = ArgumentReference { reference: Some(reference.clone()), ..ArgumentReference::default() };
    world.say(driver, ActorCreate { references: vec![argument], ..actor(1, &[GPU], &[GPU]) });
    let first = world.process_of(1).expect("placed");
    world.say(first, Recover { reference: Some(reference) });
    world.say(first, ArgumentLost { object });
    world.bury(first, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.process_of(1), None);
    world.core.driver_left(other);
    world.settle();
    let second = world.process_of(1).expect("its owner is dead");
    world.say(second, ArgumentLost { object });
    assert!(!world.is_killed(second), "the constructor hears the reason");
}
