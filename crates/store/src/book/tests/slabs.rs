//! Files that several objects share.

use super::*;

const KIB: u64 = 1 << 10;

/// An object of a job; `number` is below 2^64 in all.
fn of_job(job: u32, number: u64) -> ObjectId {
    let mut bytes = [0; 28];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let mut actor = [0; 16];
    actor[12..].copy_from_slice(JobId::from_number(job).as_bytes());
    bytes[8..24].copy_from_slice(&actor);
    let object = ObjectId::new(bytes);
    assert_eq!(job_of(object), JobId::from_number(job));
    object
}

fn limits(capacity: u64, smallest: u64, slab: u64) -> Limits {
    Limits {
        capacity,
        pool: capacity,
        smallest,
        slab,
        disk: 0,
        spill_place: String::new(),
        is_storage: false,
        batch: 0,
        jobs: 2,
        waiting: 8,
    }
}

/// Creates and seals an object, counting the files that are made and dropped.
fn put(book: &mut Book, files: &mut BTreeSet<FileId>, object: ObjectId, size: u64) -> SegmentId {
    book.create(Ticket(1), ClientId(1), object, size);
    let mut found = None;
    while let Some(effect) = book.next_effect() {
        match effect {
            Effect::Make { file, .. } => assert!(files.insert(file)),
            Effect::Tell(Event::Created { segment, .. }) => found = Some(segment),
            other => panic!("{other:?}"),
        }
    }
    let segment = found.expect("there is room");
    book.give(segment.file, ClientId(1), Access::ReadWrite);
    book.seal(ClientId(1), object).unwrap();
    segment
}

fn dropped(book: &mut Book, files: &mut BTreeSet<FileId>) {
    while let Some(effect) = book.next_effect() {
        if let Effect::Drop { file } = effect {
            assert!(files.remove(&file));
        }
    }
}

#[test]
fn a_million_objects_lie_in_hundreds_of_files_and_the_last_of_each_takes_it_along() {
    const COUNT: u64 = 1_000_000;
    let capacity = COUNT * 4 * KIB;
    let mut book = Book::new(Limits { pool: 0, ..limits(capacity, 4 * KIB, capacity / 128) });
    let mut files = BTreeSet::new();
    for number in 0..COUNT {
        put(&mut book, &mut files, object(number), 100);
    }
    assert_eq!((book.stats().objects as u64, book.used_bytes()), (COUNT, capacity));
    assert!(files.len() <= 130, "{}", files.len());
    assert_eq!(book.stats().files, files.len());
    for number in 0..COUNT {
        book.delete(object(number));
        dropped(&mut book, &mut files);
    }
    assert!(files.is_empty() && book.stats().files == 0);
}

#[test]
fn segments_of_one_size_are_disjoint_parts_of_one_file() {
    let mut world = World::new(8 * MIB, 0);
    let segments: Vec<SegmentId> = (0..8).map(|number| world.put(number, 101 * KIB)).collect();
    assert!(segments.iter().all(|segment| segment.file == segments[0].file));
    let offsets: BTreeSet<u64> = segments.iter().map(|segment| segment.offset).collect();
    assert_eq!(offsets, (0..8).map(|slot| slot * 104 * KIB).collect());
    assert_ne!(world.put(8, 120 * KIB).file, segments[0].file, "of another size");
    (0..8).for_each(|number| world.delete(number));
    assert_eq!(world.put(9, 100 * KIB + 1), segments[7], "the last one used is used again");
}

#[test]
fn objects_of_two_jobs_never_share_a_file() {
    let mut book = Book::new(limits(64 * MIB, 64 * KIB, MIB));
    let mut files = BTreeSet::new();
    let mut jobs_of: BTreeMap<FileId, BTreeSet<u32>> = BTreeMap::new();
    for number in 0..200 {
        let job = (number % 3) as u32;
        let segment = put(&mut book, &mut files, of_job(job, number), 101 * KIB);
        jobs_of.entry(segment.file).or_default().insert(job);
        if number % 5 == 0 {
            // What one job lets go of is for none of the others either.
            book.delete(of_job(job, number));
            dropped(&mut book, &mut files);
        }
    }
    assert!(jobs_of.len() > 3 && jobs_of.values().all(|jobs| jobs.len() == 1), "STORE-6: {jobs_of:?}");
}

#[test]
fn a_file_without_objects_goes_with_the_last_client_that_has_it_mapped() {
    let mut world = World::new(8 * MIB, 0);
    world.put(1, 101 * KIB);
    world.delete(1);
    assert_eq!((world.made.len(), world.book.stats().pooled), (1, 104 * KIB));
    world.gone(1);
    assert_eq!((world.made.len(), world.book.stats().pooled), (0, 0));
    // The other way round: first the client, then the object.
    world.put(2, 101 * KIB);
    world.gone(1);
    assert_eq!(world.made.len(), 1);
    world.delete(2);
    assert!(world.made.is_empty());
}

#[test]
fn what_a_dead_writer_had_is_not_used_again_while_its_file_lives() {
    let mut world = World::new(8 * MIB, 0);
    let kept = world.put(1, 101 * KIB);
    let [Event::Created { segment, .. }] = world.create(2, 6, 2, 101 * KIB)[..] else { panic!("there is room") };
    assert_eq!(segment.file, kept.file);
    world.gone(6);
    assert_eq!((world.book.used_bytes(), world.book.stats().pooled), (104 * KIB, 0));
    assert!((3..20).all(|number| world.put(number, 101 * KIB) != segment));
}
