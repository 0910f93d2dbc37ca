//! The book against a simulated memory and disk: what is told.

mod bound;
mod fallback;
mod foreign;
mod lent;
mod orders;
mod slabs;
mod storage;
mod world;

use super::*;
use crate::terms::Expired;
use world::{MIB, MIB4, World, object};

fn refusal(events: &[Event]) -> &StoreError {
    match events {
        [Event::Refused { error, .. }] => error,
        other => panic!("one refusal is wanted, not {other:?}"),
    }
}

#[test]
fn a_segment_goes_back_to_the_client_that_has_it_mapped() {
    let mut world = World::new(8 * MIB, 0);
    let (first, second) = (world.put(1, MIB), world.put(2, MIB));
    world.book.give(first.file, ClientId(7), Access::ReadWrite);
    world.book.give(second.file, ClientId(7), Access::ReadOnly);
    world.delete(1);
    world.delete(2);
    let events = world.create(1, 7, 3, MIB);
    assert!(matches!(events[..], [Event::Created { segment, .. }] if segment == first), "{events:?}");
    let events = world.create(2, 8, 4, MIB);
    assert!(matches!(events[..], [Event::Created { segment, .. }] if segment == second), "{events:?}");
}

#[test]
fn pooled_segments_make_room_and_their_holders_hear_of_it() {
    let mut world = World::new(4 * MIB, 0);
    let segment = world.put(1, 2 * MIB);
    assert_eq!(world.book.give(segment.file, ClientId(7), Access::ReadWrite), Some(true));
    assert_eq!(world.book.give(segment.file, ClientId(7), Access::ReadWrite), Some(false));
    world.delete(1);
    assert_eq!(world.book.stats().pooled, 2 * MIB);
    world.create(1, 1, 2, 3 * MIB);
    assert_eq!(world.retired, [(segment.file, vec![ClientId(1), ClientId(7)])]);
    assert_eq!(world.book.give(segment.file, ClientId(7), Access::ReadOnly), None);
}

#[test]
fn full_memory_spills_what_was_unused_for_longest() {
    let mut world = World::new(4 * MIB, 100 * MIB);
    world.put(1, 2 * MIB);
    world.put(2, 2 * MIB);
    world.pin(1, 5, 1);
    world.unpin(5, 1);
    assert!(world.create(2, 1, 3, MIB).is_empty());
    assert!(world.finish_job(Ok(())));
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
    assert_eq!(world.book.state_of(object(2)), Some(ObjectState::Spilled));
    assert_eq!(world.book.state_of(object(1)), Some(ObjectState::InMemory));
    assert_eq!(world.spilled, [object(2)], "it is told");
    // And it comes back when it is asked for: object 1 makes room.
    assert!(world.pin(3, 5, 2).is_empty());
    while world.finish_job(Ok(())) {}
    assert!(matches!(world.take()[..], [Event::Pinned { .. }]));
    assert_eq!((world.book.stats().spills, world.book.stats().restores), (2, 1));
}

#[test]
fn a_pin_stops_the_spill_of_its_object() {
    let mut world = World::new(4 * MIB, 100 * MIB);
    world.put(1, 4 * MIB);
    assert!(world.create(1, 1, 2, MIB).is_empty());
    assert!(matches!(world.pin(2, 5, 1)[..], [Event::Pinned { .. }]));
    world.finish_job(Ok(()));
    assert!(world.files.is_empty() && world.take().is_empty());
    world.unpin(5, 1);
    world.finish_job(Ok(()));
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
}

#[test]
fn pinned_memory_makes_creates_wait_until_they_expire_while_smaller_ones_pass() {
    let mut world = World::new(4 * MIB, 0);
    world.put(1, 3 * MIB);
    world.pin(1, 5, 1);
    assert!(world.create(2, 6, 2, 2 * MIB).is_empty());
    assert!(matches!(world.create(3, 7, 3, MIB)[..], [Event::Created { .. }]));
    assert_eq!(
        *refusal(&world.expire(2)),
        StoreError::ObjectStoreFull {
            asked: 2 * MIB,
            capacity: 4 * MIB,
            used: 4 * MIB,
            held: 4 * MIB,
            spilling: false
        }
    );
    assert_eq!(world.book.expire(Ticket(2)), Expired::Gone);
    assert!(world.create(4, 6, 2, 2 * MIB).is_empty(), "its identifier is free again");
    world.delete(1);
    world.unpin(5, 1);
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
}

#[test]
fn a_request_that_spilling_will_satisfy_is_not_overtaken() {
    let mut world = World::new(4 * MIB, 100 * MIB);
    for number in 0..3 {
        world.put(number, MIB);
    }
    assert!(world.create(1, 1, 10, 4 * MIB).is_empty());
    assert!(world.create(2, 1, 11, MIB).is_empty(), "the free MiB is promised to the older request");
    let mut tickets = Vec::new();
    while world.finish_job(Ok(())) {
        for event in world.take() {
            let Event::Created { ticket, object, .. } = event else { panic!("{event:?}") };
            world.book.seal(ClientId(1), object).unwrap();
            world.apply();
            tickets.push(ticket);
        }
    }
    assert_eq!(tickets, [Ticket(1), Ticket(2)]);
}

#[test]
fn a_full_disk_is_told_apart_from_a_full_store() {
    let mut world = World::new(2 * MIB, MIB);
    world.put(1, MIB);
    world.put(2, MIB);
    assert!(world.create(1, 1, 3, MIB).is_empty());
    world.finish_job(Ok(()));
    world.take();
    world.seal(1, 3);
    let events = world.create(2, 1, 4, MIB);
    let StoreError::OutOfDisk { asked, spilled, limit, reason: None, .. } = *refusal(&events) else {
        panic!("{events:?}");
    };
    assert_eq!((asked, spilled, limit), (MIB, MIB, MIB));
    world.delete(1);
    assert!(world.create(3, 1, 4, MIB).is_empty(), "the deleted file made room on disk");
}

#[test]
fn what_the_disk_says_is_passed_on_and_it_is_asked_again() {
    let mut world = World::new(2 * MIB, 100 * MIB);
    world.put(1, 2 * MIB);
    assert!(world.create(1, 1, 2, MIB).is_empty());
    world.finish_job(Err("no space left on device"));
    let events = world.take();
    let StoreError::OutOfDisk { reason: Some(reason), .. } = refusal(&events) else { panic!("{events:?}") };
    assert_eq!(reason, "no space left on device");
    assert!(matches!(world.pin(2, 5, 1)[..], [Event::Pinned { .. }]), "the object is still there");
    world.unpin(5, 1);
    assert!(world.create(3, 1, 2, MIB).is_empty());
    world.finish_job(Ok(()));
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
}

#[test]
fn an_object_that_does_not_come_back_is_lost_and_can_be_made_again() {
    let mut world = World::new(2 * MIB, 100 * MIB);
    world.put(1, 2 * MIB);
    world.create(1, 1, 2, MIB);
    world.finish_job(Ok(()));
    world.gone(1);
    world.take();
    assert!(world.pin(2, 5, 1).is_empty());
    world.finish_job(Err("its spilled bytes changed on disk"));
    let lost = StoreError::Lost { object: object(1), reason: "its spilled bytes changed on disk".into() };
    assert_eq!(*refusal(&world.take()), lost);
    assert_eq!(*refusal(&world.pin(3, 5, 1)), lost);
    world.put(1, MIB);
    assert!(matches!(world.pin(4, 5, 1)[..], [Event::Pinned { .. }]));
}

#[test]
fn a_writer_that_dies_leaves_nothing_and_its_segment_is_never_used_again() {
    let mut world = World::new(4 * MIB, 0);
    let [Event::Created { segment, .. }] = world.create(1, 1, 1, 2 * MIB)[..] else { panic!() };
    assert!(world.pin(2, 5, 1).is_empty(), "an unsealed object is waited for");
    assert!(world.create(3, 1, 2, 3 * MIB).is_empty());
    world.gone(1);
    assert!(matches!(refusal(&world.take()), StoreError::Lost { .. }));
    assert!(!world.memory.contains_key(&segment));
    let stats = world.book.stats();
    assert_eq!((stats.used, stats.pooled, stats.objects, stats.waiting), (0, 0, 0, 0));
}

#[test]
fn what_memory_has_no_room_for_is_read_from_disk() {
    let mut world = World::new(4 * MIB, 100 * MIB);
    world.put(1, 4 * MIB);
    assert!(world.create(1, 1, 2, 4 * MIB).is_empty());
    assert!(world.finish_job(Ok(())));
    world.seal(1, 2);
    world.take();
    world.pin(2, 5, 2);
    assert!(world.pin(3, 5, 1).is_empty(), "it is compared with what was written first");
    assert!(world.pin(4, 6, 1).is_empty());
    assert!(world.finish_job(Ok(())));
    let granted = world.take();
    assert!(matches!(granted[..], [Event::Pinned { size: MIB4, .. }, Event::Pinned { .. }]), "{granted:?}");
    assert_eq!((world.book.stats().used, world.book.stats().spilled), (4 * MIB, 1), "it takes no memory");
    assert!(matches!(world.pin(5, 6, 1)[..], [Event::Pinned { .. }]));
    world.unpin(6, 1);
    world.unpin(6, 1);
    world.delete(1);
    assert!(matches!(refusal(&world.pin(6, 6, 1)), StoreError::Unknown { .. }));
    world.unpin(5, 1);
    assert_eq!((world.book.stats().spilled_bytes, world.book.stats().objects), (0, 1));
}

#[test]
fn what_changed_on_disk_is_lost_where_it_is_read_too() {
    let mut world = World::new(4 * MIB, 100 * MIB);
    world.put(1, 4 * MIB);
    world.create(1, 1, 2, 4 * MIB);
    world.finish_job(Ok(()));
    world.seal(1, 2);
    world.pin(2, 5, 2);
    world.take();
    world.pin(3, 5, 1);
    world.finish_job(Err("its spilled bytes changed on disk"));
    assert!(matches!(refusal(&world.take()), StoreError::Lost { .. }));
    assert_eq!(world.book.state_of(object(1)), Some(ObjectState::Lost));
}

#[test]
fn a_second_attempt_finds_what_the_first_wrote_even_where_only_readers_keep_it() {
    let mut world = World::new(4 * MIB, 0);
    world.put(1, 2 * MIB);
    assert!(matches!(refusal(&world.create(1, 1, 1, MIB)), StoreError::Sealed { .. }));
    world.pin(2, 5, 1);
    world.delete(1);
    assert!(matches!(refusal(&world.create(3, 1, 1, MIB)), StoreError::Sealed { .. }));
    world.unpin(5, 1);
    assert_eq!(world.book.stats().objects, 1, "it was wanted again before its last reader left");
}

#[test]
fn pins_outlive_deletion_and_end_with_their_client() {
    let mut world = World::new(4 * MIB, 0);
    world.put(1, 2 * MIB);
    world.pin(1, 5, 1);
    world.pin(2, 5, 1);
    world.pin(3, 6, 1);
    world.delete(1);
    assert!(matches!(refusal(&world.pin(4, 6, 1)), StoreError::Unknown { .. }));
    world.unpin(5, 1);
    world.unpin(6, 1);
    assert_eq!(world.book.stats().used, 2 * MIB);
    world.gone(5);
    assert_eq!((world.book.stats().used, world.book.stats().objects), (0, 0));
}

#[test]
fn only_the_writer_seals_and_only_holders_unpin() {
    let mut world = World::new(4 * MIB, 0);
    let (id, client) = (object(1), ClientId(2));
    assert_eq!(world.book.seal(client, id), Err(StoreError::Unknown { object: id }));
    world.create(1, 1, 1, MIB);
    assert_eq!(world.book.seal(client, id), Err(StoreError::NotWriter { object: id, client }));
    assert_eq!(world.book.unpin(client, id), Err(StoreError::NotPinned { object: id, client }));
    world.seal(1, 1);
    assert_eq!(world.book.abort(ClientId(1), id), Err(StoreError::NotWriter { object: id, client: ClientId(1) }));
    assert!(matches!(refusal(&world.create(2, 2, 2, 5 * MIB)), StoreError::TooLarge { .. }));
}

#[test]
fn waiting_requests_are_bounded() {
    let mut world = World::new(MIB, 0);
    world.create(0, 1, 0, MIB);
    for ticket in 1..=8 {
        assert!(world.create(ticket, 1, ticket, MIB).is_empty());
    }
    assert_eq!(*refusal(&world.create(9, 1, 9, MIB)), StoreError::TooManyWaiting { limit: 8 });
    assert_eq!(*refusal(&world.pin(10, 1, 0)), StoreError::TooManyWaiting { limit: 8 });
}

#[test]
fn a_memory_file_that_cannot_be_made_refuses_its_request_only() {
    let mut world = World::new(2 * MIB, 100 * MIB);
    world.put(1, 2 * MIB);
    world.create(1, 1, 2, MIB);
    world.make_fails = true;
    world.finish_job(Ok(()));
    assert!(matches!(refusal(&world.take()), StoreError::NoMemoryFile { asked: MIB, .. }));
    world.book.trim(0);
    assert!(matches!(refusal(&world.pin(2, 5, 1)), StoreError::NoMemoryFile { .. }));
    world.make_fails = false;
    world.pin(3, 5, 1);
    world.finish_job(Ok(()));
    assert!(matches!(world.take()[..], [Event::Pinned { .. }]));
}
