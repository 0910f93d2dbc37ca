//! Objects that processes of other jobs read (STORE-6).

use super::super::foreign;
use super::*;

/// A world in which client 1 writes objects of job 0, and clients 5 and 6 are processes of job 7.
fn world(capacity: u64, disk: u64) -> World {
    let mut world = World::new(capacity, disk);
    for (client, job) in [(1, 0), (5, 7), (6, 7)] {
        world.client_of(client, job);
    }
    world
}

fn pinned(events: &[Event]) -> SegmentId {
    match events {
        [Event::Pinned { segment, .. }] => *segment,
        other => panic!("one pin is wanted, not {other:?}"),
    }
}

#[test]
fn another_job_reads_a_copy_that_its_readers_share() {
    let mut world = world(8 * MIB, 0);
    let original = world.put(1, MIB);
    assert!(world.pin(1, 5, 1).is_empty(), "it is being copied");
    assert!(world.finish_job(Ok(())));
    let copy = pinned(&world.take());
    assert_ne!(copy.file, original.file);
    assert_eq!(pinned(&world.pin(2, 6, 1)), copy);
    assert_eq!(pinned(&world.pin(3, 1, 1)), original, "the object's own job reads the object");
    world.unpin(5, 1);
    world.unpin(6, 1);
    assert_eq!(pinned(&world.pin(4, 5, 1)), copy, "a copy stays for the next reader");
    assert_eq!(world.book.objects().count(), 1, "a copy is no object to anybody else");
    assert_eq!(world.book.state_of(foreign::of_job(object(1), JobId::from_number(7))), None);
}

#[test]
fn a_copy_goes_with_its_object_and_with_its_job() {
    let mut world = world(8 * MIB, 0);
    world.put(1, MIB);
    world.put(2, MIB);
    for number in [1, 2] {
        world.pin(number, 5, number);
        world.finish_job(Ok(()));
        world.unpin(5, number);
    }
    assert_eq!(world.book.stats().objects, 4);
    world.delete(1);
    assert_eq!(world.book.stats().objects, 2);
    world.gone(5);
    assert_eq!(world.book.stats().objects, 2, "client 6 is of the job");
    world.gone(6);
    assert_eq!(world.book.stats().objects, 1);
    world.delete(2);
    assert_eq!((world.book.stats().used, world.book.stats().objects), (0, 0));
}

#[test]
fn a_deleted_object_is_read_on_from_its_copy_and_by_nobody_else() {
    let mut world = world(8 * MIB, 0);
    world.put(1, MIB);
    world.pin(1, 5, 1);
    world.finish_job(Ok(()));
    let copy = pinned(&world.take());
    world.delete(1);
    assert_eq!(*refusal(&world.pin(2, 6, 1)), StoreError::Unknown { object: object(1) });
    assert_eq!(world.memory[&copy], 1, "STORE-3");
    // A task that is run again makes the same bytes.
    world.put(1, MIB);
    assert_eq!(pinned(&world.pin(3, 6, 1)), copy);
    world.unpin(5, 1);
    world.unpin(6, 1);
    world.delete(1);
    assert_eq!((world.book.stats().used, world.book.stats().objects), (0, 0));
}

#[test]
fn an_object_that_is_deleted_while_it_is_copied_is_refused_and_leaves_nothing() {
    let mut world = world(8 * MIB, 0);
    world.put(1, MIB);
    assert!(world.pin(1, 5, 1).is_empty());
    world.delete(1);
    assert_eq!(*refusal(&world.take()), StoreError::Unknown { object: object(1) });
    world.finish_job(Ok(()));
    assert_eq!((world.book.stats().used, world.book.stats().objects), (0, 0));
}

#[test]
fn an_object_on_disk_is_copied_into_memory_or_to_disk_where_memory_is_held() {
    let mut world = world(4 * MIB, 100 * MIB);
    world.put(1, 2 * MIB);
    world.put(2, 4 * MIB - 2 * MIB);
    world.create(1, 1, 3, 2 * MIB);
    world.finish_job(Ok(()));
    world.seal(1, 3);
    world.take();
    assert_eq!(world.book.state_of(object(1)), Some(ObjectState::Spilled));
    world.pin(2, 1, 2);
    world.pin(3, 1, 3);
    world.take();
    // All memory is pinned: the object is read where it is, and its copy is written to disk.
    assert!(world.pin(4, 5, 1).is_empty());
    while world.finish_job(Ok(())) {}
    pinned(&world.take());
    world.unpin(5, 1);
    // Its job's copy is an object on disk like others, and comes back into memory when that is free.
    world.delete(2);
    world.unpin(1, 2);
    assert!(world.pin(5, 6, 1).is_empty());
    while world.finish_job(Ok(())) {}
    pinned(&world.take());
}

#[test]
fn what_becomes_of_the_original_its_readers_elsewhere_hear_under_its_name() {
    let mut world = world(4 * MIB, 0);
    assert_eq!(*refusal(&world.pin(1, 5, 9)), StoreError::Unknown { object: object(9) });
    world.create(2, 1, 1, MIB);
    assert!(world.pin(3, 5, 1).is_empty(), "it waits for the seal");
    assert_eq!(
        *refusal(&world.expire(3)),
        StoreError::NotReady { object: object(1), reason: "its job's copy is being made" }
    );
    assert!(world.pin(4, 5, 1).is_empty());
    world.gone(1);
    let StoreError::Lost { object: lost, .. } = *refusal(&world.take()) else { panic!("it is lost") };
    assert_eq!(lost, object(1));
    world.client_of(1, 0);
    world.put(1, MIB);
    assert!(world.pin(5, 5, 1).is_empty());
    world.finish_job(Err("input/output error"));
    assert_eq!(
        *refusal(&world.take()),
        StoreError::NotCopied { object: object(1), reason: "input/output error".into() }
    );
    assert!(world.pin(6, 5, 1).is_empty(), "it is tried again");
    world.finish_job(Ok(()));
    pinned(&world.take());
}

#[test]
fn without_a_memory_file_there_is_no_copy_and_the_reader_hears_why() {
    let mut world = world(8 * MIB, 0);
    world.put(1, MIB);
    world.make_fails = true;
    let events = world.pin(1, 5, 1);
    assert!(matches!(refusal(&events), StoreError::NoMemoryFile { .. }), "{events:?}");
    world.make_fails = false;
    assert!(world.pin(2, 5, 1).is_empty());
    world.finish_job(Ok(()));
    pinned(&world.take());
}

#[test]
fn nobody_writes_another_jobs_objects() {
    let mut world = world(8 * MIB, 0);
    let foreign = StoreError::Foreign { object: object(1), job: JobId::from_number(7) };
    assert_eq!(*refusal(&world.create(1, 5, 1, MIB)), foreign);
    assert_eq!(*refusal(&world.create_ahead(2, 5, 1, MIB)), foreign);
    world.put(1, MIB);
}
