//! Room that is lent ahead.

use super::*;

fn is_refused(events: &[Event]) -> bool {
    matches!(refusal(events), StoreError::NothingToSpare { .. })
}

#[test]
fn what_is_lent_is_no_object_until_it_is_sealed() {
    let mut world = World::new(8 * MIB, 0);
    world.put(1, MIB);
    let [Event::Created { segment, size: MIB, .. }] = world.create_ahead(1, 7, 2, MIB)[..] else {
        panic!("there is room to spare");
    };
    let stats = world.book.stats();
    assert_eq!((stats.used, stats.pooled, stats.objects, stats.unsealed), (MIB, MIB, 1, 0));
    assert_eq!((world.book.used_bytes(), world.book.state_of(object(2))), (MIB, Some(ObjectState::Lent)));
    // Whoever asks for it waits for it as for every other that is written.
    assert!(world.pin(2, 5, 2).is_empty());
    world.seal(7, 2);
    assert!(matches!(world.take()[..], [Event::Pinned { segment: pinned, .. }] if pinned == segment));
    let stats = world.book.stats();
    assert_eq!((stats.used, stats.pooled, stats.objects), (2 * MIB, 0, 2));
}

#[test]
fn what_is_given_back_is_pooled_and_what_the_dead_were_lent_is_gone() {
    let mut world = World::new(8 * MIB, 0);
    world.create_ahead(1, 7, 1, MIB);
    world.book.abort(ClientId(7), object(1)).unwrap();
    world.apply();
    assert_eq!((world.book.stats().pooled, world.book.segments.used()), (MIB, 0));
    world.create_ahead(2, 7, 2, MIB);
    assert_eq!(world.book.segments.pooled(), 0, "the pooled one is lent");
    world.gone(7);
    let stats = world.book.stats();
    assert_eq!((stats.used, stats.pooled, stats.objects, world.book.segments.used()), (0, 0, 0, 0));
}

#[test]
fn half_of_the_capacity_is_lent_to_nobody() {
    let mut world = World::new(8 * MIB, 0);
    world.put(1, 2 * MIB);
    assert!(matches!(world.create_ahead(1, 7, 2, MIB)[..], [Event::Created { .. }]));
    assert!(matches!(world.create_ahead(2, 8, 3, MIB)[..], [Event::Created { .. }]));
    assert!(is_refused(&world.create_ahead(3, 9, 4, MIB)), "what is lent counts against the capacity");
    world.delete(1);
    assert!(matches!(world.create_ahead(4, 9, 4, MIB)[..], [Event::Created { .. }]));
    assert!(is_refused(&world.create_ahead(5, 9, 5, 16 * MIB)), "larger than the store");
    assert!(is_refused(&world.create_ahead(6, 9, 4, MIB)), "it is taken");
}

#[test]
fn nothing_is_lent_while_somebody_waits_for_room() {
    let mut world = World::new(8 * MIB, 0);
    world.put(1, 2 * MIB);
    world.pin(1, 5, 1);
    assert!(world.create(2, 1, 2, 7 * MIB).is_empty());
    assert!(is_refused(&world.create_ahead(3, 7, 3, MIB)));
    // Room that comes back goes to who waits.
    world.unpin(5, 1);
    world.delete(1);
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
}

#[test]
fn room_that_comes_back_goes_to_who_waits() {
    let mut world = World::new(8 * MIB, 0);
    world.create_ahead(1, 7, 1, 2 * MIB);
    assert!(world.create(2, 1, 2, 7 * MIB).is_empty());
    world.book.abort(ClientId(7), object(1)).unwrap();
    world.apply();
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
}
