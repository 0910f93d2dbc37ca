//! The store as a daemon and its clients use it, with real memory files and a real disk.

#[path = "store/storage.rs"]
mod storage;

use oxiray_ids::{JobId, ObjectId};
use oxiray_store::{Access, ClientId, Event, ObjectState, Options, SegmentCache, SegmentId, Store, StoreError, Ticket};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;
/// Names the spill directory to the child of `a_killed_daemon_leaves_nothing`.
const CHILD: &str = "OXIRAY_STORE_TEST_DIRECTORY";
/// The same to that of `thousands_of_objects_take_few_descriptors`.
const FEW: &str = "OXIRAY_STORE_TEST_FEW";

fn object(number: u64) -> ObjectId {
    let mut bytes = [0; 28];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    ObjectId::new(bytes)
}

/// One client and its daemon in one process.
struct Pair {
    store: Store,
    cache: SegmentCache,
    client: ClientId,
    tickets: u64,
    /// What the store said that it spilled.
    spilled: BTreeSet<ObjectId>,
}

impl Pair {
    fn new(capacity: u64, directory: Option<&Path>, spill_limit: u64) -> Self {
        let mut options = Options::new(capacity);
        options.spill_directory = directory.map(Path::to_owned);
        options.spill_limit_bytes = spill_limit;
        Self {
            store: Store::new(options).expect("a store"),
            cache: SegmentCache::new(),
            client: ClientId(1),
            tickets: 0,
            spilled: BTreeSet::new(),
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Runs the daemon until it answers; retired segments are dropped on the way.
    fn answer(&mut self, ticket: Ticket) -> Event {
        loop {
            for event in self.store.events() {
                match event {
                    Event::Retired { file, ref clients } => {
                        assert_eq!(*clients, [self.client]);
                        self.cache.retire(file);
                    }
                    Event::Spilled { object } => drop(self.spilled.insert(object)),
                    Event::Created { ticket: found, .. }
                    | Event::Pinned { ticket: found, .. }
                    | Event::Refused { ticket: found, .. } => {
                        assert_eq!(found, ticket);
                        return event;
                    }
                }
            }
            let wake = self.store.wake_fd().expect("who waits without a disk waits for ever");
            let deadline = rustix::time::Timespec { tv_sec: 60, tv_nsec: 0 };
            assert_eq!(poll(&mut [PollFd::from_borrowed_fd(wake, PollFlags::IN)], Some(&deadline)), Ok(1));
            self.store.progress();
        }
    }

    fn map(&mut self, segment: SegmentId, access: Access) {
        let file = segment.file;
        if let Some((descriptor, extent)) = self.store.descriptor(file, self.client, access).expect("a descriptor") {
            self.cache.insert(file, access, &descriptor, extent).expect("a mapping");
        }
    }

    fn put(&mut self, number: u64, bytes: &[u8]) -> Result<SegmentId, StoreError> {
        let ticket = self.ticket();
        self.store.create(ticket, self.client, object(number), bytes.len() as u64);
        match self.answer(ticket) {
            Event::Created { segment, .. } => {
                self.map(segment, Access::ReadWrite);
                let writer = self.cache.writer(segment, bytes.len()).expect("a mapped segment");
                writer.edit(|room| room.copy_from_slice(bytes));
                self.store.seal(self.client, object(number)).expect("its creator seals it");
                Ok(segment)
            }
            Event::Refused { error, .. } => Err(error),
            event => panic!("{event:?}"),
        }
    }

    fn get(&mut self, number: u64) -> Result<Vec<u8>, StoreError> {
        let ticket = self.ticket();
        self.store.pin(ticket, self.client, object(number));
        match self.answer(ticket) {
            Event::Pinned { segment, size, .. } => {
                self.map(segment, Access::ReadOnly);
                let bytes = self.cache.reader(segment, size as usize).expect("a mapped segment").as_slice().to_vec();
                self.store.unpin(self.client, object(number)).expect("it is pinned");
                Ok(bytes)
            }
            Event::Refused { error, .. } => Err(error),
            event => panic!("{event:?}"),
        }
    }
}

fn content(number: u64, size: usize) -> Vec<u8> {
    (0..size).map(|index| (index as u64 * 7 + number * 13) as u8).collect()
}

#[test]
fn a_full_store_spills_and_reads_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut pair = Pair::new(4 * MIB, Some(directory.path()), u64::MAX);
    for number in 0..10 {
        pair.put(number, &content(number, MIB as usize)).unwrap();
        let stats = pair.store.stats();
        assert!(stats.used + stats.pooled <= stats.capacity, "STORE-1: {stats:?}");
    }
    assert_eq!(pair.store.stats().spilled, 6);
    assert_eq!(pair.store.state(object(0)), Some(ObjectState::Spilled));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "STORE-5");
    for number in 0..10 {
        assert_eq!(pair.get(number).unwrap(), content(number, MIB as usize), "object {number}");
    }
    let first = (0..6).map(object).collect();
    assert!(pair.spilled.is_superset(&first), "{:?}", pair.spilled);
}

#[test]
fn a_full_disk_is_an_error_that_says_so_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut pair = Pair::new(2 * MIB, Some(directory.path()), 2 * MIB);
    for number in 0..4 {
        pair.put(number, &content(number, MIB as usize)).unwrap();
    }
    let error = pair.put(4, &content(4, MIB as usize)).unwrap_err();
    assert!(matches!(error, StoreError::OutOfDisk { .. }), "{error}");
    assert!(error.to_string().contains(directory.path().to_str().unwrap()), "{error}");
    for number in 2..4 {
        assert_eq!(pair.get(number).unwrap(), content(number, MIB as usize));
    }
    pair.store.delete(object(0));
    pair.put(4, &content(4, MIB as usize)).unwrap();
    assert_eq!(pair.get(4).unwrap(), content(4, MIB as usize));
}

#[test]
fn a_client_is_sent_a_segments_descriptor_once() {
    let mut pair = Pair::new(4 * MIB, None, 0);
    let first = pair.put(1, b"one").unwrap();
    pair.store.delete(object(1));
    assert_eq!(pair.put(2, b"two").unwrap(), first, "the segment that the client has mapped is used again");
    assert!(pair.store.descriptor(first.file, ClientId(1), Access::ReadWrite).unwrap().is_none());
    assert!(pair.store.descriptor(first.file, ClientId(2), Access::ReadWrite).unwrap().is_some());
    pair.store.mapping_dropped(first.file, ClientId(2));
    assert!(pair.store.descriptor(first.file, ClientId(2), Access::ReadWrite).unwrap().is_some());
    pair.store.client_gone(ClientId(2));
    pair.store.delete(object(2));
    pair.store.trim(0);
    assert_eq!(pair.store.events(), [Event::Retired { file: first.file, clients: vec![ClientId(1)] }]);
    assert!(pair.store.descriptor(first.file, ClientId(1), Access::ReadOnly).is_err());
}

#[test]
fn deleted_bytes_stay_while_they_are_pinned() {
    let mut pair = Pair::new(2 * MIB, None, 0);
    let segment = pair.put(1, &content(1, MIB as usize)).unwrap();
    let ticket = pair.ticket();
    pair.store.pin(ticket, pair.client, object(1));
    pair.answer(ticket);
    pair.store.delete(object(1));
    assert_ne!(pair.put(2, &content(2, MIB as usize)).unwrap(), segment);
    pair.map(segment, Access::ReadOnly);
    let reader = pair.cache.reader(segment, MIB as usize).unwrap();
    assert_eq!(reader.as_slice(), content(1, MIB as usize));
    pair.store.unpin(pair.client, object(1)).unwrap();
    assert_eq!(pair.put(3, &content(3, MIB as usize)).unwrap(), segment);
}

#[test]
fn bad_options_say_what_to_change() {
    let small = Store::new(Options::new(1000)).unwrap_err().to_string();
    assert!(small.contains("1000 bytes") && small.contains("object_store_memory"), "{small}");
    let mut options = Options::new(MIB);
    options.spill_directory = Some("/proc/no/such".into());
    let missing = Store::new(options).unwrap_err().to_string();
    assert!(missing.contains("/proc/no/such"), "{missing}");
}

/// The daemon of `a_killed_daemon_leaves_nothing`; does nothing when it is run as a test of its own.
#[test]
fn child_daemon() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let mut pair = Pair::new(2 * MIB, Some(Path::new(&directory)), u64::MAX);
    for number in 0..6 {
        pair.put(number, &content(number, MIB as usize)).unwrap();
    }
    println!("\nspilled {}", pair.store.stats().spilled);
    std::io::stdout().flush().unwrap();
    // Until the parent kills this process.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_killed_daemon_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_daemon", "--nocapture"])
        .env(CHILD, directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let spilled = lines.map(Result::unwrap).find(|line| line.starts_with("spilled"));
    assert_eq!(spilled.as_deref(), Some("spilled 4"));
    let open_files = |wanted: &str| {
        let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
        open.filter(|entry| {
            let target = std::fs::read_link(entry.as_ref().unwrap().path()).unwrap_or_default();
            target.to_string_lossy().starts_with(wanted)
        })
        .count()
    };
    // The files are there, on disk and in memory, and none has a name.
    assert!(open_files(&format!("{}/", directory.path().display())) >= 1);
    assert_eq!(open_files("/memfd:oxiray-object"), 1);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "STORE-5");
}

/// The daemon of `thousands_of_objects_take_few_descriptors`; does nothing when it is run as a test of its own.
#[test]
fn child_of_few_descriptors() {
    const COUNT: u64 = 20_000;
    let Some(directory) = std::env::var_os(FEW) else { return };
    let limit = Some(256);
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: limit, maximum: limit },
    )
    .unwrap();
    let smallest_bytes = 4096;
    let options = Options { smallest_bytes, spill_directory: Some(directory.into()), ..Options::new(40 * MIB) };
    let store = Store::new(options).unwrap();
    let mut pair =
        Pair { store, cache: SegmentCache::new(), client: ClientId(1), tickets: 0, spilled: BTreeSet::new() };
    for number in 0..COUNT {
        pair.put(number, &content(number, 1000)).unwrap();
    }
    assert!(pair.store.stats().spilled > 9000);
    for number in (0..COUNT).step_by(97) {
        assert_eq!(pair.get(number).unwrap(), content(number, 1000), "object {number}");
    }
    let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(files < 50, "{files}");
    (0..COUNT).for_each(|number| pair.store.delete(object(number)));
    assert_eq!((pair.store.stats().spilled_bytes, pair.store.used_bytes()), (0, 0));
}

#[test]
fn thousands_of_objects_take_few_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_of_few_descriptors", "--nocapture"])
        .env(FEW, directory.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[derive(Debug, Clone)]
enum Step {
    Put { number: u64, size: usize },
    Get { number: u64 },
    Delete { number: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..12_u64, 1..MIB as usize).prop_map(|(number, size)| Step::Put { number, size }),
        3 => (0..12_u64).prop_map(|number| Step::Get { number }),
        1 => (0..12_u64).prop_map(|number| Step::Delete { number }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 15, failure_persistence: None, ..ProptestConfig::default() })]

    /// What was sealed reads back equal, from memory or from disk, whatever happens in between.
    #[test]
    fn sealed_bytes_read_back_equal(steps in prop::collection::vec(step(), 1..60)) {
        let directory = tempfile::tempdir().unwrap();
        let mut pair = Pair::new(2 * MIB, Some(directory.path()), u64::MAX);
        let mut model = BTreeMap::new();
        for (turn, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put { number, size } => {
                    let bytes = content(number + turn as u64, size);
                    let put = pair.put(number, &bytes);
                    if let std::collections::btree_map::Entry::Vacant(vacant) = model.entry(number) {
                        prop_assert!(put.is_ok());
                        vacant.insert(bytes);
                    } else {
                        prop_assert_eq!(put, Err(StoreError::Sealed { object: object(number) }));
                    }
                }
                Step::Get { number } => {
                    let unknown = StoreError::Unknown { object: object(number) };
                    let wanted = model.get(&number).cloned().ok_or(unknown);
                    prop_assert!(pair.get(number) == wanted, "object {}", number);
                }
                Step::Delete { number } => {
                    pair.store.delete(object(number));
                    model.remove(&number);
                }
            }
        }
    }
}

#[test]
fn what_another_job_was_given_does_not_reach_the_object() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut pair = Pair::new(8 * MIB, Some(directory.path()), u64::MAX);
    pair.store.client_of(pair.client, JobId::from_number(0));
    let bytes = vec![7; MIB as usize];
    pair.put(1, &bytes).expect("room");
    // A reader of another job, which opens what it is given anew for writing, as a process of the same user can.
    let reader = ClientId(2);
    pair.store.client_of(reader, JobId::from_number(9));
    let ticket = pair.ticket();
    pair.store.pin(ticket, reader, object(1));
    let Event::Pinned { segment, .. } = pair.answer(ticket) else { panic!("it can be read") };
    let given = pair.store.descriptor(segment.file, reader, Access::ReadOnly).expect("a descriptor");
    let (descriptor, _) = given.expect("the first of this file");
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    rustix::fs::fchmod(&descriptor, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).expect("its owner may");
    let writer = std::fs::OpenOptions::new().write(true).open(path).expect("the same user may");
    writer.write_all_at(&vec![9; MIB as usize], segment.offset).expect("nothing keeps it from writing");
    assert!(pair.get(1).expect("it is there") == bytes, "the object's own job reads what was sealed");
}
