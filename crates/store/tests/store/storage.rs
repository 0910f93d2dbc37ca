//! The store with storage beyond the disk, which a thread of the test stands in for: it keeps files in memory, and dies or
//! does not answer when it is told to.

use super::{MIB, Pair, content, object};
use oxiray_store::storage::{StorageAnswer, StorageOptions, StorageOrder, StorageProgram, receive, send};
use oxiray_store::{Checksum, ClientId, Options, SegmentCache, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Debug, Default)]
struct Bucket {
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    writes: AtomicU32,
    starts: AtomicU32,
    /// Orders after which the program dies, without an answer to the last.
    lives_for: AtomicU32,
    is_away: AtomicBool,
    is_over: AtomicBool,
}

#[derive(Debug, Clone, Default)]
struct Program(Arc<Bucket>);

impl StorageProgram for Program {
    fn start(&self, socket: OwnedFd) -> io::Result<u32> {
        let bucket = Arc::clone(&self.0);
        bucket.starts.fetch_add(1, Ordering::SeqCst);
        #[expect(clippy::disallowed_methods, reason = "it stands for a process")]
        std::thread::spawn(move || bucket.serve(&socket));
        Ok(0)
    }

    fn kill(&self, _: u32) {}
}

impl Bucket {
    fn serve(&self, socket: &OwnedFd) {
        while let Ok(Some((order, files))) = receive::<StorageOrder>(socket) {
            let files: Vec<File> = files.into_iter().map(File::from).collect();
            let (id, answer) = self.carry_out(order, &files);
            let left = self.lives_for.load(Ordering::SeqCst);
            if left > 0 {
                self.lives_for.store(left - 1, Ordering::SeqCst);
                if left == 1 {
                    return;
                }
            }
            let answer = match answer {
                Some(_) if self.is_away.load(Ordering::SeqCst) => {
                    StorageAnswer::Away { id, reason: "connection refused".into() }
                }
                Some(Ok(checksums)) => StorageAnswer::Done { id, checksums },
                Some(Err(reason)) => StorageAnswer::Gone { id, reason },
                None => continue,
            };
            send(socket, &answer, &[]).expect("the store hears it");
        }
        self.is_over.store(true, Ordering::SeqCst);
    }

    fn carry_out(&self, order: StorageOrder, given: &[File]) -> (u64, Option<Result<Vec<u32>, String>>) {
        let mut files = self.files.lock().expect("whole");
        match order {
            StorageOrder::Probe { id } => (id, Some(Ok(Vec::new()))),
            StorageOrder::Put { id, key, ranges } => {
                self.writes.fetch_add(1, Ordering::SeqCst);
                let (mut whole, mut checksums) = (Vec::new(), Vec::new());
                for range in ranges {
                    let mut bytes = vec![0; range.bytes as usize];
                    given[range.file as usize].read_exact_at(&mut bytes, range.offset).expect("there");
                    checksums.push(sum(&bytes));
                    whole.extend(bytes);
                }
                files.insert(key, whole);
                (id, Some(Ok(checksums)))
            }
            StorageOrder::Get { id, key, offset, to, checksum } => {
                let bytes = &files[&key][offset as usize..(offset + to.bytes) as usize];
                if sum(bytes) != checksum {
                    return (id, Some(Err("its bytes changed in the storage".into())));
                }
                given[0].write_all_at(bytes, to.offset).expect("there is room");
                (id, Some(Ok(Vec::new())))
            }
            StorageOrder::Delete { key } => {
                files.remove(&key);
                (0, None)
            }
        }
    }

    fn count(&self) -> usize {
        self.files.lock().expect("whole").len()
    }
}

fn sum(bytes: &[u8]) -> u32 {
    let mut sum = Checksum::new();
    sum.update(bytes);
    sum.value()
}

fn pair(capacity: u64, directory: &std::path::Path) -> (Pair, Arc<Bucket>) {
    let program = Program::default();
    let bucket = Arc::clone(&program.0);
    let storage = StorageOptions { program: Arc::new(program), url: "s3://bucket/a".into() };
    let options =
        Options { spill_directory: Some(directory.into()), spill_storage: Some(storage), ..Options::new(capacity) };
    let store = Store::new(options).expect("a store");
    let (cache, client) = (SegmentCache::new(), ClientId(1));
    (Pair { store, cache, client, tickets: 0, spilled: BTreeSet::new() }, bucket)
}

/// Waits until as many files lie there: they are removed by another thread.
fn wait_for(bucket: &Bucket, count: usize) {
    let begun = std::time::Instant::now();
    while bucket.count() != count {
        assert!(begun.elapsed().as_secs() < 60, "{} files lie there", bucket.count());
        std::thread::yield_now();
    }
}

#[test]
fn small_objects_go_together_come_back_and_are_written_once() {
    const COUNT: u64 = 200;
    let directory = tempfile::tempdir().unwrap();
    let (mut pair, bucket) = pair(20 * MIB, directory.path());
    for number in 0..COUNT {
        pair.put(number, &content(number, 200_000)).unwrap();
    }
    assert!(bucket.count() < 60, "{} files for {} objects", bucket.count(), pair.store.stats().spilled);
    for _ in 0..2 {
        for number in 0..COUNT {
            assert_eq!(pair.get(number).unwrap(), content(number, 200_000), "object {number}");
        }
    }
    let writes = bucket.writes.load(Ordering::SeqCst);
    for number in 0..COUNT {
        assert_eq!(pair.get(number).unwrap(), content(number, 200_000), "object {number}");
    }
    assert_eq!(bucket.writes.load(Ordering::SeqCst), writes, "all have been written");
    (0..COUNT).for_each(|number| pair.store.delete(object(number)));
    assert_eq!((pair.store.stats().spilled_bytes, pair.store.used_bytes()), (0, 0));
    wait_for(&bucket, 0);
    drop(pair);
    assert!(bucket.is_over.load(Ordering::SeqCst), "the store has waited for the program");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_program_that_dies_is_started_again_and_asked_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (mut pair, bucket) = pair(8 * MIB, directory.path());
    for number in 0..40 {
        bucket.lives_for.store(u32::from(number % 7 == 3), Ordering::SeqCst);
        pair.put(number, &content(number, MIB as usize)).unwrap();
        bucket.lives_for.store(u32::from(number % 5 == 3), Ordering::SeqCst);
        assert_eq!(pair.get(number / 2).unwrap(), content(number / 2, MIB as usize), "object {}", number / 2);
    }
    assert!(bucket.starts.load(Ordering::SeqCst) > 3);
}

#[test]
fn storage_that_does_not_answer_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (mut pair, bucket) = pair(4 * MIB, directory.path());
    for number in 0..8 {
        pair.put(number, &content(number, MIB as usize)).unwrap();
    }
    bucket.is_away.store(true, Ordering::SeqCst);
    pair.put(8, &content(8, MIB as usize)).expect("the disk takes it");
    let refused = (0..8).filter_map(|number| pair.get(number).err()).collect::<Vec<_>>();
    assert!(!refused.is_empty());
    assert!(refused.iter().all(|error| matches!(error, StoreError::Away { .. })), "{refused:?}");
    bucket.is_away.store(false, Ordering::SeqCst);
    for number in 0..9 {
        assert_eq!(pair.get(number).unwrap(), content(number, MIB as usize), "object {number}");
    }
}

#[test]
fn what_memory_has_no_room_for_is_read_from_a_copy_on_disk_and_what_changed_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let (mut pair, bucket) = pair(4 * MIB, directory.path());
    pair.put(1, &content(1, 4 * MIB as usize)).unwrap();
    pair.put(2, &content(2, 4 * MIB as usize)).unwrap();
    let ticket = pair.ticket();
    pair.store.pin(ticket, pair.client, object(2));
    pair.answer(ticket);
    assert_eq!(pair.get(1).unwrap(), content(1, 4 * MIB as usize));
    assert_eq!(pair.store.used_bytes(), 4 * MIB, "it takes no memory");
    pair.store.unpin(pair.client, object(2)).unwrap();
    pair.put(3, &content(3, 4 * MIB as usize)).unwrap();
    bucket.files.lock().unwrap().values_mut().for_each(|file| file[1000] ^= 1);
    let Err(StoreError::Lost { reason, .. }) = pair.get(2) else { panic!("it is not what was written") };
    assert_eq!(reason, "its bytes changed in the storage");
}
