//! The object store's counter: clients' wishes in, the store's answers out.

use crate::core::{Key, StoreFigures};
use oxiray_ids::ObjectId;
use oxiray_store::{Access, ClientId, Event, Options, Store, StoreError, Ticket};
use oxiray_wire::Message;
use oxiray_wire::message::{Allocated, Failure, Pinned, SegmentRetired, StoreRefused};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a request for room, or for an object on its way, waits at most.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// What is to be told to a client.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) to: Key,
    pub(crate) message: Message,
    pub(crate) descriptor: Option<OwnedFd>,
    /// The object that the client may write now: it becomes its first holder.
    pub(crate) stored: Option<ObjectId>,
}

#[derive(Debug)]
pub(crate) struct StoreDesk {
    store: Store,
    requests: BTreeMap<Ticket, u64>,
    deadlines: VecDeque<(Instant, Ticket)>,
    last_ticket: u64,
}

impl StoreDesk {
    pub(crate) fn open(capacity_bytes: u64, spill_directory: PathBuf) -> io::Result<Self> {
        let options = Options { spill_directory: Some(spill_directory), ..Options::new(capacity_bytes) };
        let store = Store::new(options)?;
        Ok(Self { store, requests: BTreeMap::new(), deadlines: VecDeque::new(), last_ticket: 0 })
    }

    pub(crate) fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.store.wake_fd()
    }

    pub(crate) fn progress(&mut self) {
        self.store.progress();
    }

    fn ticket(&mut self, request: u64, now: Instant) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.requests.insert(ticket, request);
        self.deadlines.push_back((now + WAIT_LIMIT, ticket));
        ticket
    }

    pub(crate) fn allocate(&mut self, client: Key, request: u64, object: ObjectId, size: u64, now: Instant) {
        let ticket = self.ticket(request, now);
        self.store.create(ticket, ClientId(client), object, size);
    }

    pub(crate) fn pin(&mut self, client: Key, request: u64, object: ObjectId, now: Instant) {
        let ticket = self.ticket(request, now);
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

    pub(crate) fn delete(&mut self, object: ObjectId) {
        self.store.delete(object);
    }

    pub(crate) fn client_gone(&mut self, client: Key) {
        self.store.client_gone(ClientId(client));
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(at, _)| *at)
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((at, ticket)) = self.deadlines.front().copied()
            && (at <= now || !self.requests.contains_key(&ticket))
        {
            self.deadlines.pop_front();
            // A ticket that waited is refused, and forgotten with the answer; the others are those of the gone.
            if !self.store.expire(ticket) {
                self.requests.remove(&ticket);
            }
        }
    }

    pub(crate) fn figures(&self) -> StoreFigures {
        let stats = self.store.stats();
        StoreFigures {
            capacity: stats.capacity,
            used: stats.used,
            pooled: stats.pooled,
            spilled: stats.spilled_bytes,
            objects: stats.objects,
        }
    }

    /// What the store has said since the last call.
    pub(crate) fn answers(&mut self) -> Vec<Answer> {
        let events = self.store.events();
        let mut answers = Vec::with_capacity(events.len());
        for event in events {
            match event {
                Event::Created { ticket, client, object, segment, capacity, .. } => {
                    let request = self.answered(ticket);
                    match self.store.descriptor(segment, client, Access::ReadWrite) {
                        Ok(descriptor) => {
                            let message = Allocated { request, segment: segment.0, capacity }.into();
                            answers.push(Answer { to: client.0, message, descriptor, stored: Some(object) });
                        }
                        Err(error) => {
                            let _ = self.store.abort(client, object);
                            answers.push(refusal(client, request, "store_full", error.to_string()));
                        }
                    }
                }
                Event::Pinned { ticket, client, object, segment, capacity, size } => {
                    let request = self.answered(ticket);
                    match self.store.descriptor(segment, client, Access::ReadOnly) {
                        Ok(descriptor) => {
                            let message = Pinned { request, segment: segment.0, capacity, size }.into();
                            answers.push(Answer { to: client.0, message, descriptor, stored: None });
                        }
                        Err(error) => {
                            let _ = self.store.unpin(client, object);
                            answers.push(refusal(client, request, "object_lost", error.to_string()));
                        }
                    }
                }
                Event::Refused { ticket, client, error } => {
                    let request = self.answered(ticket);
                    answers.push(refusal(client, request, code_of(&error), error.to_string()));
                }
                Event::Retired { segment, clients } => answers.extend(clients.into_iter().map(|client| Answer {
                    to: client.0,
                    message: SegmentRetired { segment: segment.0 }.into(),
                    descriptor: None,
                    stored: None,
                })),
            }
        }
        answers
    }

    fn answered(&mut self, ticket: Ticket) -> u64 {
        let request = self.requests.remove(&ticket).unwrap_or(0);
        while let Some((_, front)) = self.deadlines.front()
            && !self.requests.contains_key(front)
        {
            self.deadlines.pop_front();
        }
        request
    }
}

fn refusal(client: ClientId, request: u64, code: &str, text: String) -> Answer {
    let failure = Failure { code: code.into(), text, cause: bytes::Bytes::new() };
    let message = StoreRefused { request, failure: Some(failure) }.into();
    Answer { to: client.0, message, descriptor: None, stored: None }
}

fn code_of(error: &StoreError) -> &'static str {
    match error {
        StoreError::OutOfDisk { .. } => "out_of_disk",
        StoreError::Unknown { .. } | StoreError::Lost { .. } | StoreError::NotReady { .. } => "object_lost",
        _ => "store_full",
    }
}
