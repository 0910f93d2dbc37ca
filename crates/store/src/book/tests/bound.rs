//! A bound below the capacity, since others need the machine's memory (STORE-7).

use super::*;

fn bound(world: &mut World, bytes: u64) {
    world.book.set_bound(bytes);
    world.apply();
}

#[test]
fn pooled_segments_go_first_and_idle_objects_after_them() {
    let mut world = World::new(8 * MIB, 100 * MIB);
    for number in 1..=3 {
        world.put(number, MIB);
    }
    world.delete(3);
    world.pin(1, 5, 2);
    bound(&mut world, 2 * MIB);
    assert_eq!((world.book.stats().pooled, world.jobs.len()), (0, 0), "dropping the pooled one was enough");
    bound(&mut world, 0);
    while world.finish_job(Ok(())) {}
    assert_eq!(world.book.state_of(object(1)), Some(ObjectState::Spilled));
    assert_eq!(world.book.state_of(object(2)), Some(ObjectState::InMemory), "somebody reads it");
    world.unpin(5, 2);
    bound(&mut world, 0);
    while world.finish_job(Ok(())) {}
    assert_eq!((world.book.stats().used, world.book.stats().pooled), (0, 0));
}

#[test]
fn what_is_made_under_a_bound_waits_for_room_within_it() {
    let mut world = World::new(8 * MIB, 100 * MIB);
    world.put(1, 2 * MIB);
    bound(&mut world, 2 * MIB);
    assert!(world.create(1, 1, 2, 2 * MIB).is_empty());
    assert!(world.finish_job(Ok(())));
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
    assert!(world.create(2, 1, 3, 2 * MIB).is_empty(), "the other is being written");
    bound(&mut world, 4 * MIB);
    assert!(matches!(world.take()[..], [Event::Created { .. }]), "memory is there again");
}

#[test]
fn nothing_is_lent_ahead_beyond_the_bound() {
    let mut world = World::new(8 * MIB, 0);
    bound(&mut world, MIB);
    assert!(matches!(refusal(&world.create_ahead(1, 7, 1, MIB)), StoreError::NothingToSpare { .. }));
}
