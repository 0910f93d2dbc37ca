//! Objects that go to disk at once, since memory has no room for them.

use super::*;

/// A store whose memory is all read, so that one more object waits for it.
fn full(disk: u64) -> World {
    let mut world = World::new(4 * MIB, disk);
    world.put(1, 4 * MIB);
    world.pin(1, 5, 1);
    assert!(world.create(2, 6, 2, 2 * MIB).is_empty());
    world
}

fn hurry(world: &mut World, ticket: u64) {
    world.book.hurry(Ticket(ticket));
    world.apply();
}

fn segment_of(event: &Event) -> SegmentId {
    match event {
        Event::Created { segment, .. } | Event::Pinned { segment, .. } => *segment,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_waits_too_long_is_written_to_disk_and_read_there() {
    let mut world = full(100 * MIB);
    hurry(&mut world, 2);
    assert!(world.finish_job(Ok(())));
    let created = world.take();
    assert!(matches!(created[..], [Event::Created { .. }]));
    assert!(world.pin(3, 7, 2).is_empty(), "nobody reads what is being written");
    world.seal(6, 2);
    let told = world.take();
    let [pinned] = &told[..] else { panic!("{told:?}") };
    let [(file, clients)] = &world.retired[..] else { panic!("{:?}", world.retired) };
    assert_eq!((*file, &clients[..]), (segment_of(&created[0]).file, &[ClientId(6)][..]), "the writer lets go");
    assert_ne!(segment_of(pinned).file, *file, "the reader has a name of its own for the file");
    assert_eq!(world.book.state_of(object(2)), Some(ObjectState::Spilled));
    world.delete(2);
    world.unpin(7, 2);
    assert!(world.files.is_empty());
}

#[test]
fn those_behind_it_do_not_wait_until_somebody_lets_go() {
    let mut world = full(100 * MIB);
    hurry(&mut world, 2);
    assert!(world.create(3, 6, 3, 2 * MIB).is_empty());
    assert_eq!(world.jobs.len(), 2, "both files are being made");
    while world.finish_job(Ok(())) {}
    assert_eq!(world.take().len(), 2);
    world.unpin(5, 1);
    world.delete(1);
    assert!(matches!(world.create(4, 6, 4, MIB)[..], [Event::Created { .. }]));
    assert!(world.jobs.is_empty(), "memory again");
    world.pin(5, 6, 4);
    world.put(5, 3 * MIB);
    world.pin(6, 6, 5);
    assert!(world.create(7, 6, 6, 4 * MIB).is_empty());
    assert!(world.jobs.is_empty(), "it waits first");
}

#[test]
fn what_is_larger_than_the_store_goes_to_disk_at_once() {
    let mut world = World::new(4 * MIB, 10 * MIB);
    assert!(world.create(1, 1, 1, 9 * MIB).is_empty());
    assert!(world.finish_job(Ok(())));
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
    world.seal(1, 1);
    assert!(world.pin(2, 2, 1).is_empty());
    assert!(world.finish_job(Ok(())), "it is looked at before it is read");
    assert!(matches!(world.take()[..], [Event::Pinned { .. }]));
    let StoreError::OutOfDisk { asked, .. } = refusal(&world.create(3, 1, 2, 9 * MIB)).clone() else {
        panic!("the disk is full")
    };
    assert_eq!(asked, 9 * MIB);
    let mut without = World::new(4 * MIB, 0);
    assert!(matches!(refusal(&without.create(1, 1, 1, 9 * MIB)), StoreError::TooLarge { .. }));
}

#[test]
fn a_file_that_cannot_be_made_leaves_its_create_waiting() {
    let mut world = full(100 * MIB);
    hurry(&mut world, 2);
    assert!(world.finish_job(Err("no space left on device")));
    assert!(world.take().is_empty());
    let refused = world.expire(2);
    let StoreError::OutOfDisk { reason, .. } = refusal(&refused) else { panic!("{refused:?}") };
    assert_eq!(reason.as_deref(), Some("no space left on device"));
}

#[test]
fn a_create_is_answered_when_its_file_is_there_however_late() {
    let mut world = full(100 * MIB);
    assert_eq!(world.book.expire(Ticket(2)), Expired::Busy, "its last chance");
    world.apply();
    assert_eq!(world.book.expire(Ticket(2)), Expired::Busy);
    assert!(world.finish_job(Ok(())));
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
    assert_eq!(world.book.expire(Ticket(2)), Expired::Gone);
}

#[test]
fn a_file_whose_writer_goes_is_dropped() {
    for before in [true, false] {
        let mut world = full(100 * MIB);
        hurry(&mut world, 2);
        if before {
            world.gone(6);
        }
        assert!(world.finish_job(Ok(())));
        world.gone(6);
        assert!(world.files.is_empty());
        assert_eq!(world.book.stats().spilled_bytes, 0);
    }
}
