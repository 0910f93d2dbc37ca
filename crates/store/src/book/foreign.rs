//! Objects that processes of another job read: from a copy that belongs to the readers' job (STORE-6).
//!
//! Whoever has a descriptor of a file may open it anew for writing, through `/proc`, where it is a process of the same
//! user. So no process is ever given a file of another job. The first reader of a job has the object copied into a file of
//! its own job, under the object's identifier with that job in it; further readers of the job share the copy. It goes with
//! the object, or with the last process of its job.
//!
//! The book makes copies as a client of its own, [`COPIER`]: it pins the original, asks for room, has the disk's thread
//! copy the bytes, and seals. What is told to that client is heard by [`Book::next_effect`].

use super::{Book, ClientId, CopyId, Effect, Event, Job, Object, ObjectId, Place, StoreError, Ticket, Waiting};
use super::{JobId, JobResult, Request, StoreRequest, job_of};
use oxiray_ids::TaskId;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The client that the book is itself.
const COPIER: ClientId = ClientId(u64::MAX);
/// The copier's tickets have this bit; no caller counts as far.
const COPIERS_TICKETS: u64 = 1 << 63;

/// Where a task's identifier names its job.
const JOB: std::ops::Range<usize> = TaskId::BYTES - JobId::BYTES..TaskId::BYTES;

#[derive(Debug)]
struct Copied {
    original: ObjectId,
    /// The copier has the original pinned.
    holds: bool,
}

/// The copies that there are, or that are being made.
#[derive(Debug, Default)]
pub(super) struct Copies {
    by_copy: HashMap<ObjectId, Copied>,
    /// The copies of each original.
    by_original: HashMap<ObjectId, BTreeSet<ObjectId>>,
    /// For which copy each pin of an original was asked.
    sought: BTreeMap<Ticket, ObjectId>,
    /// Originals whose pins are to be given back.
    let_go: Vec<ObjectId>,
    last_ticket: u64,
}

impl Copies {
    pub(super) fn has(&self, object: ObjectId) -> bool {
        !self.by_copy.is_empty() && self.by_copy.contains_key(&object)
    }

    fn insert(&mut self, copy: ObjectId, original: ObjectId) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(COPIERS_TICKETS | self.last_ticket);
        self.sought.insert(ticket, copy);
        self.by_copy.insert(copy, Copied { original, holds: false });
        self.by_original.entry(original).or_default().insert(copy);
        ticket
    }

    fn remove(&mut self, copy: ObjectId) {
        let Some(copied) = self.by_copy.remove(&copy) else { return };
        if copied.holds {
            self.let_go.push(copied.original);
        }
        if let Some(copies) = self.by_original.get_mut(&copied.original) {
            copies.remove(&copy);
            if copies.is_empty() {
                self.by_original.remove(&copied.original);
            }
        }
    }

    fn is_written(&mut self, copy: ObjectId) {
        if let Some(copied) = self.by_copy.get_mut(&copy).filter(|copied| copied.holds) {
            copied.holds = false;
            self.let_go.push(copied.original);
        }
    }

    /// What is said of a copy is said of the object that its readers asked for.
    pub(super) fn of_original(&self, error: StoreError) -> StoreError {
        let original = |object: ObjectId| self.by_copy.get(&object).map_or(object, |copied| copied.original);
        match error {
            StoreError::Unknown { object } => StoreError::Unknown { object: original(object) },
            StoreError::Lost { object, reason } => StoreError::Lost { object: original(object), reason },
            StoreError::NotReady { object, reason } => StoreError::NotReady { object: original(object), reason },
            StoreError::Away { object, reason } => StoreError::Away { object: original(object), reason },
            StoreError::NotCopied { object, reason } => StoreError::NotCopied { object: original(object), reason },
            other => other,
        }
    }
}

impl Book {
    /// The next thing to be done; what is told to the copier is heard on the way.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        loop {
            if let Some(original) = self.copies.let_go.pop() {
                self.unpin(COPIER, original).expect("the copier pins what it copies");
                continue;
            }
            match self.out.pop_front() {
                Some(Effect::Tell(Event::Pinned { ticket, client: COPIER, object, .. })) => {
                    self.original_pinned(ticket, object);
                }
                Some(Effect::Tell(Event::Refused { ticket, client: COPIER, error })) => {
                    self.original_refused(ticket, &error);
                }
                other => return other,
            }
        }
    }

    /// The client is a process of this job, and stays one.
    pub(crate) fn client_of(&mut self, client: ClientId, job: JobId) {
        self.clients.entry(client).or_default().job = Some(job);
    }

    fn job_of_client(&self, client: ClientId) -> Option<JobId> {
        self.clients.get(&client).and_then(|known| known.job)
    }

    /// What this client has of an object: the object, or its job's copy.
    pub(super) fn as_seen_by(&self, client: ClientId, object: ObjectId) -> ObjectId {
        self.job_of_client(client).map_or(object, |job| of_job(object, job))
    }

    /// Why the client may not write the object: where it is another job's.
    pub(super) fn refuse_foreign(&self, client: ClientId, object: ObjectId) -> Option<StoreError> {
        let job = self.job_of_client(client).filter(|job| *job != job_of(object))?;
        Some(StoreError::Foreign { object, job })
    }

    /// Asks for an object's bytes to stay where they are, or for a copy that does.
    pub(crate) fn pin(&mut self, ticket: Ticket, client: ClientId, object: ObjectId) {
        let seen = self.as_seen_by(client, object);
        if seen == object {
            return self.pin_here(ticket, client, object);
        }
        let is_there = self.state_of(object).is_some();
        match self.objects.get_mut(&seen).map(|copy| &mut copy.place) {
            // Its bytes are gone, and those of the original may be there.
            Some(Place::Lost { .. }) => {
                self.strike(seen);
                self.pin_copy(ticket, client, object, seen);
            }
            None => self.pin_copy(ticket, client, object, seen),
            Some(Place::Pinned { deleted, .. } | Place::OnDisk { deleted, .. }) if *deleted && is_there => {
                // It was deleted with an original that was made again since.
                *deleted = false;
                self.pin_here(ticket, client, seen);
            }
            Some(_) => self.pin_here(ticket, client, seen),
        }
    }

    fn pin_copy(&mut self, ticket: Ticket, client: ClientId, object: ObjectId, copy: ObjectId) {
        let Some(known) = self.objects.get(&object) else {
            return self.refuse(ticket, client, StoreError::Unknown { object });
        };
        let (size, capacity) = (known.size, known.capacity);
        let own = self.copies.insert(copy, object);
        let place = Place::Sought(own);
        self.objects.insert(copy, Object { size, capacity, place, is_lent: false, kept: None, waiters: Vec::new() });
        self.pin_here(ticket, client, copy);
        self.pin_here(own, COPIER, object);
    }

    /// The original stays until the copy is made, for which there must be room.
    fn original_pinned(&mut self, ticket: Ticket, original: ObjectId) {
        let copy = self.copies.sought.remove(&ticket).expect("the copier pins for a copy");
        let Some(known) = self.objects.get_mut(&copy).filter(|known| is_sought(&known.place, ticket)) else {
            // It was deleted meanwhile.
            return self.copies.let_go.push(original);
        };
        if self.waiting.len() >= self.limits.waiting {
            self.copies.let_go.push(original);
            self.refuse_waiters(copy, &StoreError::TooManyWaiting { limit: self.limits.waiting });
            self.strike(copy);
            return;
        }
        known.place = Place::Queued(ticket);
        let need = known.capacity;
        self.copies.by_copy.get_mut(&copy).expect("what is sought for a copy is of one").holds = true;
        self.waiting.insert(ticket, Waiting { client: COPIER, object: copy });
        self.queue.push_back(Request { need, store_request: StoreRequest::Create(copy) });
        self.disk.try_again();
        self.pump();
    }

    /// The original is not to be had; or no room was found for the copy, whose readers have heard of that.
    fn original_refused(&mut self, ticket: Ticket, error: &StoreError) {
        let Some(copy) = self.copies.sought.remove(&ticket) else { return };
        if self.objects.get(&copy).is_some_and(|known| is_sought(&known.place, ticket)) {
            self.refuse_waiters(copy, error);
            self.strike(copy);
        }
    }

    /// Says that there is room, or has it written where it is for a copy.
    pub(super) fn tell_created(&mut self, created: Event) {
        let Event::Created { client: COPIER, object: copy, segment: to, size, .. } = created else {
            return self.tell(created);
        };
        let original = self.copies.by_copy[&copy].original;
        let (Place::Pinned { segment: from, .. } | Place::OnDisk { segment: from, .. }) = self.objects[&original].place
        else {
            unreachable!("the copier has the original pinned");
        };
        let job = CopyId(self.tick());
        self.jobs.insert(job, Job::Duplicate { object: copy });
        self.out.push_back(Effect::Duplicate { job, from, to, size });
    }

    /// The copy is written, or could not be.
    pub(super) fn duplicate_done(&mut self, copy: ObjectId, result: JobResult) {
        self.copies.is_written(copy);
        if let Err(failure) = result {
            let reason = failure.to_string();
            self.refuse_waiters(copy, &StoreError::NotCopied { object: copy, reason });
            self.abort(COPIER, copy).expect("the copier writes its copies");
        } else {
            self.seal(COPIER, copy).expect("the copier writes its copies");
        }
    }

    /// No memory file could be made for the copy, whose segment is given back already.
    pub(super) fn duplicate_not_begun(&mut self, job: CopyId, error: &StoreError) {
        let Some(Job::Duplicate { object: copy }) = self.jobs.remove(&job) else {
            unreachable!("a copy that was not begun is under way");
        };
        self.clients.entry(COPIER).or_default().writing.remove(&copy);
        self.refuse_waiters(copy, error);
        self.strike(copy);
    }

    /// Forgets an object, and a copy's original with it.
    pub(super) fn strike(&mut self, object: ObjectId) -> Object {
        self.copies.remove(object);
        let known = self.objects.remove(&object).expect("objects are removed once");
        if let Some(file) = known.kept {
            self.forget(file, known.size);
        }
        known
    }

    /// The object goes, and with it what other jobs have of it.
    pub(super) fn delete_copies(&mut self, object: ObjectId) {
        if let Some(copies) = self.copies.by_original.get(&object) {
            copies.clone().into_iter().for_each(|copy| self.delete(copy));
        }
    }

    #[cfg(test)]
    pub(super) fn check_copies(&self) {
        for (copy, Copied { original, holds }) in &self.copies.by_copy {
            assert!(self.objects.contains_key(copy) && *copy == of_job(*original, job_of(*copy)));
            assert!(self.copies.by_original[original].contains(copy));
            let pins = self.clients.get(&COPIER).and_then(|copier| copier.pins.get(original));
            assert!(!holds || pins.is_some_and(|pins| *pins > 0), "what is copied is pinned");
            let is_coming =
                matches!(self.objects[copy].place, Place::Queued(_) | Place::Making { .. } | Place::Writing { .. });
            assert_eq!(*holds, is_coming, "the original is pinned while its copy is made");
        }
        let copies: usize = self.copies.by_original.values().map(BTreeSet::len).sum();
        assert_eq!(copies, self.copies.by_copy.len());
    }

    /// A process of this job is gone; with the last one its copies go.
    pub(super) fn delete_copies_of_job(&mut self, job: Option<JobId>) {
        if job.is_none() || self.clients.values().any(|client| client.job == job) {
            return;
        }
        let copies = self.copies.by_copy.keys().copied().filter(|copy| Some(job_of(*copy)) == job);
        copies.collect::<Vec<_>>().into_iter().for_each(|copy| self.delete(copy));
    }
}

/// The name of a job's copy of the object: the same bytes, with that job in them.
pub(super) fn of_job(object: ObjectId, job: JobId) -> ObjectId {
    let mut bytes = *object.task().as_bytes();
    bytes[JOB].copy_from_slice(job.as_bytes());
    TaskId::new(bytes).object(object.index())
}

fn is_sought(place: &Place, ticket: Ticket) -> bool {
    matches!(place, Place::Sought(own) if *own == ticket)
}
