//! The object store's counter: clients' requests in, the store's answers out.

use oxiray_head::{LENT, StoreFigures};
use oxiray_ids::{JobId, ObjectId};
use oxiray_machine::Key;
use oxiray_store::storage::StorageOptions;
use oxiray_store::{
    Access, ClientId, Event, Expired, Extent, FileId, ObjectState, Options, SegmentId, Store, StoreError, Ticket,
    WriteMapping,
};
use oxiray_wire::message::{Allocated, FailureCode, Pinned, SegmentRetired, Stamp, StoreRefused, StoreToClient};
use oxiray_wire::state::{DaemonStatistics, TurnFigures};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a request for room waits for others to let go of theirs before it goes to disk.
const CROWDED_AFTER: Duration = Duration::from_secs(1);
/// How long it waits where the disk has no room for it either.
const ROOM_LIMIT: Duration = Duration::from_secs(5);
/// How long a request for an object waits for who writes it, or for the disk.
const PIN_LIMIT: Duration = Duration::from_secs(60);

/// Stands for this node itself, which writes what it fetches from others.
pub(crate) const OWN: Key = 0;

/// What is to be told to a client.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) to: Key,
    pub(crate) message: StoreToClient,
    pub(crate) descriptor: Option<OwnedFd>,
    /// The object that the client may write now, or found written: it becomes a holder.
    pub(crate) stored: Option<ObjectId>,
}

/// A request that is not answered.
#[derive(Debug, Clone, Copy)]
struct Open {
    request: u64,
    /// When it is looked at next.
    deadline: Instant,
    /// When it is to be answered, if that is not yet at the deadline.
    last: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct StoreClient {
    store: Store,
    /// The request of each ticket that is not answered, and when to look at it.
    requests: BTreeMap<Ticket, Open>,
    deadlines: BTreeSet<(Instant, Ticket)>,
    last_ticket: u64,
    /// Clients that are this daemon's own streams to other nodes: they map nothing.
    itself: BTreeSet<Key>,
    /// Of objects that went from node to node, which writing each is.
    stamps: BTreeMap<ObjectId, Stamp>,
    /// What was written to disk since [`StoreClient::take_spilled`] was last called.
    spilled: Vec<ObjectId>,
}

impl StoreClient {
    /// `fullness_max`: how full the file system of the spill directory may get, in thousandths.
    pub(crate) fn open(
        capacity_bytes: u64,
        spill_directory: PathBuf,
        fullness_max: u32,
        spill_storage: Option<StorageOptions>,
    ) -> io::Result<Self> {
        let options = Options {
            spill_directory: Some(spill_directory),
            spill_storage,
            spill_fullness_max: fullness_max,
            ..Options::new(capacity_bytes)
        };
        let store = Store::new(options)?;
        let itself = BTreeSet::from([OWN]);
        let (requests, deadlines) = (BTreeMap::new(), BTreeSet::new());
        Ok(Self { store, requests, deadlines, last_ticket: 0, itself, stamps: BTreeMap::new(), spilled: Vec::new() })
    }

    pub(crate) fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.store.wake_fd()
    }

    pub(crate) fn progress(&mut self) {
        self.store.progress();
    }

    /// Memory for segments of so many bytes is there.
    pub(crate) fn set_bound(&mut self, bytes: u64) {
        self.store.set_bound(bytes);
    }

    /// Bytes that the store is about to give back.
    pub(crate) fn leaving_bytes(&self) -> u64 {
        self.store.leaving_bytes()
    }

    fn ticket(&mut self, open: Open) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.look_at(ticket, open);
        ticket
    }

    fn look_at(&mut self, ticket: Ticket, open: Open) {
        self.requests.insert(ticket, open);
        self.deadlines.insert((open.deadline, ticket));
    }

    /// The client is a process of this job, and is given files of that job only (STORE-6).
    pub(crate) fn client_of(&mut self, client: Key, job: JobId) {
        self.store.client_of(ClientId(client), job);
    }

    /// From here on, what is said to this client is for this daemon.
    pub(crate) fn serve_itself(&mut self, client: Key) {
        self.itself.insert(client);
    }

    /// Whether what is said to this client is for this daemon.
    pub(crate) fn is_itself(&self, client: Key) -> bool {
        self.itself.contains(&client)
    }

    /// Bytes of a pinned object.
    pub(crate) fn bytes_of(&self, segment: SegmentId, offset: u64, count: u64) -> io::Result<bytes::Bytes> {
        let count = usize::try_from(count).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        self.store.read(segment, offset, count).map(bytes::Bytes::from)
    }

    /// A pinned object of `size` bytes, or room for one that this daemon was given, mapped.
    pub(crate) fn mapping_of(&mut self, segment: SegmentId, size: u64) -> Option<Arc<WriteMapping>> {
        self.store.mapping_of(segment, size)
    }

    /// A mapping is used no more.
    pub(crate) fn trim_mappings(&mut self) {
        self.store.trim_mappings();
    }

    /// Writes into room that this daemon was given.
    pub(crate) fn write(&self, segment: SegmentId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.store.write(segment, offset, bytes)
    }

    /// The same for all copies of one writing of an object.
    pub(crate) fn stamp_of(&mut self, object: ObjectId) -> Stamp {
        *self.stamps.entry(object).or_insert_with(|| Stamp(u64::from_ne_bytes(oxiray_ids::random())))
    }

    /// The object that was fetched is of this writing.
    pub(crate) fn has_stamp(&mut self, object: ObjectId, stamp: Stamp) {
        self.stamps.insert(object, stamp);
    }

    pub(crate) fn allocate(&mut self, client: Key, request: u64, object: ObjectId, size: u64, now: Instant) {
        self.stamps.remove(&object);
        let open = Open { request, deadline: now + CROWDED_AFTER, last: Some(now + ROOM_LIMIT) };
        let ticket = self.ticket(open);
        self.store.create(ticket, ClientId(client), object, size);
    }

    /// Room for what the client may write next.
    pub(crate) fn lend(&mut self, client: Key, request: u64, object: ObjectId, size: u64, now: Instant) {
        let ticket = self.ticket(Open { request, deadline: now + CROWDED_AFTER, last: None });
        self.store.create_ahead(ticket, ClientId(client), object, size);
    }

    pub(crate) fn pin(&mut self, client: Key, request: u64, object: ObjectId, now: Instant) {
        let ticket = self.ticket(Open { request, deadline: now + PIN_LIMIT, last: None });
        self.store.pin(ticket, ClientId(client), object);
    }

    pub(crate) fn seal(&mut self, client: Key, object: ObjectId) -> Result<(), StoreError> {
        self.store.seal(ClientId(client), object)
    }

    pub(crate) fn abort(&mut self, client: Key, object: ObjectId) -> Result<(), StoreError> {
        self.store.abort(ClientId(client), object)
    }

    pub(crate) fn unpin(&mut self, client: Key, object: ObjectId) -> Result<(), StoreError> {
        self.store.unpin(ClientId(client), object)
    }

    /// The client has these files mapped no more.
    pub(crate) fn unmapped(&mut self, client: Key, files: &[u64]) {
        for file in files {
            self.store.mapping_dropped(FileId(*file), ClientId(client));
        }
    }

    /// Whether the object's bytes are there, or being written.
    pub(crate) fn has(&self, object: ObjectId) -> bool {
        !matches!(self.store.state(object), None | Some(ObjectState::Lost))
    }

    /// The objects whose bytes are there, or being written.
    pub(crate) fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.store.objects().filter(|object| self.has(*object))
    }

    /// An object's bytes, and where they are.
    pub(crate) fn describe(&self, object: ObjectId) -> Option<(u64, &'static str)> {
        let place = match self.store.state(object)? {
            ObjectState::Unsealed => "being written",
            ObjectState::Lent => LENT,
            ObjectState::InMemory => "in memory",
            ObjectState::Spilled => "on disk",
            ObjectState::Lost => "lost",
        };
        Some((self.store.size(object)?, place))
    }

    pub(crate) fn delete(&mut self, object: ObjectId) {
        self.stamps.remove(&object);
        self.store.delete(object);
    }

    pub(crate) fn client_gone(&mut self, client: Key) {
        self.itself.remove(&client);
        self.store.client_gone(ClientId(client));
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((at, ticket)) = self.deadlines.first().copied()
            && at <= now
        {
            self.deadlines.pop_first();
            let Some(open) = self.requests.get(&ticket).copied() else { continue };
            if let Some(last) = open.last {
                self.store.hurry(ticket);
                self.look_at(ticket, Open { deadline: last, last: None, ..open });
                continue;
            }
            match self.store.expire(ticket) {
                // It is forgotten with the answer.
                Expired::Refused => {}
                Expired::Busy => self.look_at(ticket, Open { deadline: now + ROOM_LIMIT, ..open }),
                // Its client is.
                Expired::Gone => drop(self.requests.remove(&ticket)),
            }
        }
    }

    /// Bytes of segments that belong to objects.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.store.used_bytes()
    }

    pub(crate) fn figures(&self) -> StoreFigures {
        let stats = self.store.stats();
        StoreFigures {
            pid: 0,
            limits: Default::default(),
            turns: TurnFigures::default(),
            memory: None,
            capacity: stats.capacity,
            used: stats.used,
            pooled: stats.pooled,
            spilled: stats.spilled_bytes,
            objects: stats.objects,
            files: stats.files,
        }
    }

    /// The same for the head's metrics, beside what was counted of the daemon.
    pub(crate) fn counted(&self, daemon: DaemonStatistics) -> DaemonStatistics {
        let stats = self.store.stats();
        DaemonStatistics {
            objects: stats.objects as u64,
            pinned: stats.pinned as u64,
            spilled: stats.spilled as u64,
            spills: stats.spills,
            restores: stats.restores,
            ..daemon
        }
    }

    /// What the store has written to disk since this was last called.
    pub(crate) fn take_spilled(&mut self) -> Vec<ObjectId> {
        std::mem::take(&mut self.spilled)
    }

    /// What the store has said since the last call.
    pub(crate) fn answers(&mut self) -> Vec<Answer> {
        let events = self.store.events();
        let mut answers = Vec::with_capacity(events.len());
        for event in events {
            match event {
                Event::Created { ticket, client, object, segment, size } => {
                    let request = self.answered(ticket);
                    match self.descriptor(segment.file, client, Access::ReadWrite) {
                        Ok((descriptor, Extent { base, bytes: mapped })) => {
                            let (file, offset) = (segment.file.0, segment.offset);
                            let message = Allocated { request, file, mapped, offset, base, size }.into();
                            answers.push(Answer { to: client.0, message, descriptor, stored: Some(object) });
                        }
                        Err(error) => {
                            let _ = self.store.abort(client, object);
                            answers.push(refusal(client, request, FailureCode::StoreFull, error.to_string()));
                        }
                    }
                }
                Event::Pinned { ticket, client, object, segment, size } => {
                    let request = self.answered(ticket);
                    match self.descriptor(segment.file, client, Access::ReadOnly) {
                        Ok((descriptor, Extent { base, bytes: mapped })) => {
                            let (file, offset) = (segment.file.0, segment.offset);
                            let message = Pinned { request, file, mapped, size, offset, base }.into();
                            answers.push(Answer { to: client.0, message, descriptor, stored: None });
                        }
                        Err(error) => {
                            let _ = self.store.unpin(client, object);
                            answers.push(refusal(client, request, FailureCode::StoreFull, error.to_string()));
                        }
                    }
                }
                Event::Refused { ticket, client, error } => {
                    let request = self.answered(ticket);
                    let mut answer = refusal(client, request, code_of(&error), error.to_string());
                    if let StoreError::Sealed { object } = error {
                        answer.stored = Some(object);
                    }
                    answers.push(answer);
                }
                Event::Retired { file, clients } => answers.extend(clients.into_iter().map(|client| Answer {
                    to: client.0,
                    message: SegmentRetired { file: file.0 }.into(),
                    descriptor: None,
                    stored: None,
                })),
                Event::Spilled { object } => self.spilled.push(object),
            }
        }
        answers
    }

    /// What the client lacks to map the file, where it lacks it.
    fn descriptor(&mut self, file: FileId, client: ClientId, access: Access) -> io::Result<(Option<OwnedFd>, Extent)> {
        let sent = if self.is_itself(client.0) { None } else { self.store.descriptor(file, client, access)? };
        Ok(sent.map_or((None, Extent { base: 0, bytes: 0 }), |(descriptor, extent)| (Some(descriptor), extent)))
    }

    fn answered(&mut self, ticket: Ticket) -> u64 {
        let Some(open) = self.requests.remove(&ticket) else { return 0 };
        self.deadlines.remove(&(open.deadline, ticket));
        open.request
    }
}

fn refusal(client: ClientId, request: u64, code: FailureCode, text: String) -> Answer {
    let failure = code.because(text);
    let message = StoreRefused { request, failure: Some(failure) }.into();
    Answer { to: client.0, message, descriptor: None, stored: None }
}

fn code_of(error: &StoreError) -> FailureCode {
    match error {
        StoreError::OutOfDisk { .. } => FailureCode::OutOfDisk,
        StoreError::Sealed { .. } => FailureCode::ObjectSealed,
        StoreError::Unknown { .. } | StoreError::Lost { .. } => FailureCode::ObjectLost,
        StoreError::NotReady { .. } | StoreError::Away { .. } => FailureCode::ObjectNotReady,
        _ => FailureCode::StoreFull,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: u8) -> ObjectId {
        ObjectId::new([number; 28])
    }

    #[test]
    fn a_request_is_answered_under_its_own_number_or_refused_when_its_time_is_over() {
        let mut desk = StoreClient { store: Store::new(Options::new(2 << 20)).expect("a store"), ..empty() };
        let now = Instant::now();
        desk.allocate(7, 41, object(1), 2 << 20, now);
        let [granted] = <[Answer; 1]>::try_from(desk.answers()).expect("an answer");
        assert!(matches!(granted.message, StoreToClient::Allocated(Allocated { request: 41, .. })));
        assert!(granted.descriptor.is_some() && granted.stored == Some(object(1)) && granted.to == 7);
        desk.allocate(8, 42, object(2), 1 << 20, now);
        assert!(desk.answers().is_empty(), "it waits for room");
        assert_eq!(desk.next_deadline(), Some(now + CROWDED_AFTER));
        desk.expire(now + CROWDED_AFTER);
        assert!(desk.answers().is_empty(), "there is no disk to go to");
        assert_eq!(desk.next_deadline(), Some(now + ROOM_LIMIT));
        desk.expire(now + ROOM_LIMIT);
        let [refused] = <[Answer; 1]>::try_from(desk.answers()).expect("an answer");
        let StoreToClient::StoreRefused(StoreRefused { request: 42, failure: Some(failure) }) = refused.message else {
            panic!("{refused:?}")
        };
        assert_eq!(failure.code, FailureCode::StoreFull);
        assert!(desk.requests.is_empty() && desk.deadlines.is_empty());
    }

    #[test]
    fn what_the_gone_asked_for_is_forgotten() {
        let mut desk = StoreClient { store: Store::new(Options::new(2 << 20)).expect("a store"), ..empty() };
        let now = Instant::now();
        desk.pin(7, 1, object(9), now);
        let [refused] = <[Answer; 1]>::try_from(desk.answers()).expect("an answer");
        assert!(
            matches!(&refused.message, StoreToClient::StoreRefused(said) if said.failure.as_ref().is_some_and(|failure| failure.code == FailureCode::ObjectLost))
        );
        desk.allocate(7, 2, object(1), 2 << 20, now);
        desk.answers();
        desk.allocate(8, 3, object(2), 2 << 20, now);
        desk.client_gone(8);
        desk.expire(now + PIN_LIMIT);
        desk.expire(now + PIN_LIMIT);
        assert!(desk.answers().is_empty() && desk.requests.is_empty() && desk.deadlines.is_empty());
    }

    #[test]
    fn room_is_lent_ahead_or_refused_at_once() {
        let mut desk = StoreClient { store: Store::new(Options::new(4 << 20)).expect("a store"), ..empty() };
        let now = Instant::now();
        desk.lend(7, 41, object(1), 1 << 20, now);
        let [granted] = <[Answer; 1]>::try_from(desk.answers()).expect("an answer");
        assert!(matches!(granted.message, StoreToClient::Allocated(Allocated { request: 41, .. })));
        assert_eq!(granted.stored, Some(object(1)), "whoever is lent room for an object holds it");
        assert_eq!((desk.used_bytes(), desk.figures().objects, desk.figures().pooled), (0, 0, 1 << 20));
        assert_eq!(desk.describe(object(1)), Some((1 << 20, LENT)));
        desk.lend(8, 42, object(2), 2 << 20, now);
        let [refused] = <[Answer; 1]>::try_from(desk.answers()).expect("an answer");
        assert!(matches!(refused.message, StoreToClient::StoreRefused(StoreRefused { request: 42, .. })));
        assert!(desk.requests.is_empty() && desk.deadlines.is_empty());
        desk.seal(7, object(1)).expect("it is written");
        assert_eq!((desk.used_bytes(), desk.figures().objects, desk.figures().pooled), (1 << 20, 1, 0));
    }

    fn empty() -> StoreClient {
        StoreClient {
            store: Store::new(Options::new(1 << 20)).expect("a store"),
            requests: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            last_ticket: 0,
            itself: BTreeSet::new(),
            stamps: BTreeMap::new(),
            spilled: Vec::new(),
        }
    }
}
