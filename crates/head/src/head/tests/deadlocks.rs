//! Workers that wait for what others of them hold.

use super::*;
use oxiray_wire::message::{WaitsQuery, WaitsReport};

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
