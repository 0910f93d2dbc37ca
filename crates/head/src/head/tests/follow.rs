//! What visitors are told that follow the lists.

use super::world::World;
use super::{CPU, actor};
use oxiray_machine::Key;
use oxiray_state::StateCopy;
use oxiray_wire::Message;
use oxiray_wire::message::{StateChanges, StateFollow};
use oxiray_wire::state::StateKind;
use std::time::Duration;

const VISITOR: Key = 1 << 42;
const PERIOD: Duration = Duration::from_millis(250);

fn ask(world: &mut World, request: u64, kinds: &[StateKind], copy: &StateCopy) {
    world.core.state_follow(VISITOR, StateFollow { request, kinds: kinds.to_vec(), cursor: Some(copy.cursor()) });
    world.settle();
}

fn told(world: &World) -> Vec<StateChanges> {
    let told = world.sent.iter().filter_map(|(to, message)| match message {
        Message::StateChanges(told) if *to == VISITOR => Some((**told).clone()),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_follower_is_told_all_at_first_and_then_each_change_once() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    let mut copy = StateCopy::default();
    ask(&mut world, 1, &[StateKind::Actors, StateKind::Nodes], &copy);
    world.pass(PERIOD);
    let first = told(&world).pop().expect("all that there is");
    assert!(first.is_fresh && first.request == 1 && copy.apply(first));
    assert_eq!((copy.nodes.len(), copy.actors.len()), (1, 0));

    world.say(driver, actor(1, &[CPU], &[]));
    world.pass(PERIOD);
    assert_eq!(told(&world).len(), 1, "FOLLOW-1");
    ask(&mut world, 2, &[StateKind::Actors, StateKind::Nodes], &copy);
    world.pass(PERIOD);
    let second = told(&world).pop().expect("the actor");
    assert!(!second.is_fresh && second.request == 2 && copy.apply(second));
    assert_eq!((copy.nodes.len(), copy.actors.len()), (1, 1));

    ask(&mut world, 3, &[StateKind::Jobs], &StateCopy::default());
    world.pass(PERIOD);
    assert_eq!(told(&world).pop().expect("the job").tables.expect("rows").jobs.len(), 1);
    ask(&mut world, 4, &[StateKind::Jobs], &copy);
    let count = told(&world).len();
    world.pass(PERIOD * 20);
    world.core.visitor_left(VISITOR);
    world.settle();
    world.driver();
    world.pass(PERIOD);
    assert!(told(&world).len() <= count + 1, "who has left is told nothing");
    assert!(world.core.as_head().figures.following.is_idle(), "and nothing is kept for it");
}

#[test]
fn a_list_that_is_collected_from_processes_cannot_be_followed() {
    let mut world = World::new(1, 0);
    ask(&mut world, 1, &[StateKind::Tasks], &StateCopy::default());
    let failure = told(&world).pop().and_then(|told| told.failure).expect("it is refused");
    assert!(failure.text.contains("those of actors, jobs, nodes"), "{}", failure.text);
}
