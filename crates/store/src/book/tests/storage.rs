//! Storage beyond the disk: what was read back is kept there, and what does not answer loses nothing.

use super::*;

fn away() -> JobResult {
    Err(Failure::Away("connection refused".to_owned()))
}

/// A store of 4 MiB in which object 1 has been spilled for object 2, both of 4 MiB.
fn spilled() -> World {
    let mut world = World::with(4 * MIB, 100 * MIB, true);
    world.put(1, 4 * MIB);
    assert!(world.create(1, 1, 2, 4 * MIB).is_empty());
    assert!(world.finish_job(Ok(())));
    world.seal(1, 2);
    world.take();
    world
}

#[test]
fn several_objects_go_at_once() {
    let mut world = World::with(4 * MIB, 100 * MIB, true);
    for number in 1..=4 {
        world.put(number, MIB);
    }
    world.create(1, 1, 5, MIB);
    assert_eq!(world.jobs.len(), 2, "2 MiB for the 1 MiB that is wanted");
    while world.finish_job(Ok(())) {}
    assert_eq!(world.spilled, [object(1), object(2)]);
}

#[test]
fn a_slow_storage_is_waited_for() {
    let mut world = World::with(4 * MIB, 100 * MIB, true);
    world.put(1, 4 * MIB);
    assert!(world.create(1, 1, 2, MIB).is_empty());
    assert_eq!(world.book.expire(Ticket(1)), Expired::Busy);
    assert!(matches!(world.jobs.make_contiguous(), [Effect::Spill { .. }]), "the disk is not asked");
    assert!(world.finish_job(Ok(())));
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
}

#[test]
fn what_was_read_back_leaves_memory_again_without_being_written() {
    let mut world = spilled();
    assert!(world.pin(2, 5, 1).is_empty(), "object 2 goes first");
    assert!(world.finish_job(Ok(())) && world.finish_job(Ok(())));
    assert!(matches!(world.take()[..], [Event::Pinned { .. }]));
    world.unpin(5, 1);
    assert_eq!(world.book.stats().spilled_bytes, 8 * MIB, "both are there");
    assert!(world.pin(3, 5, 2).is_empty());
    assert!(matches!(world.jobs.make_contiguous(), [Effect::Restore { .. }]), "nothing is written");
    assert!(world.finish_job(Ok(())));
    assert!(matches!(world.take()[..], [Event::Pinned { .. }]));
    world.unpin(5, 2);
    world.delete(1);
    world.delete(2);
    assert!(world.files.is_empty() && world.book.stats().spilled_bytes == 0);
}

#[test]
fn what_cannot_be_read_now_is_not_lost() {
    let mut world = spilled();
    world.pin(2, 5, 1);
    assert!(world.finish_job(Ok(())) && world.end_job(away()));
    let text = refusal(&world.take()).to_string();
    assert!(text.contains("cannot be read back for now: connection refused"), "{text}");
    assert_eq!(world.book.state_of(object(1)), Some(ObjectState::Spilled));
    assert!(world.pin(3, 5, 1).is_empty());
    assert!(world.finish_job(Ok(())));
    assert!(matches!(world.take()[..], [Event::Pinned { .. }]));
}

#[test]
fn where_the_storage_does_not_answer_objects_stay_and_new_ones_are_written_to_disk() {
    let mut world = World::with(4 * MIB, 100 * MIB, true);
    world.put(1, 4 * MIB);
    assert!(world.create(1, 1, 2, MIB).is_empty());
    assert!(world.end_job(away()));
    assert!(matches!(world.jobs.make_contiguous(), [Effect::File { .. }]), "the disk takes it");
    assert!(world.finish_job(Err("no space left on device")));
    let StoreError::OutOfDisk { reason: Some(reason), .. } = refusal(&world.take()).clone() else { panic!() };
    assert_eq!(reason, "connection refused; no space left on device");
    assert!(matches!(world.pin(3, 5, 1)[..], [Event::Pinned { .. }]), "it never left");
}
