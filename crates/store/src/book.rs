//! What is where: the store's state without its I/O.
//!
//! Every method takes one event of the outside world and leaves [`Effect`]s to be carried out in order. Nothing here
//! touches a file, a clock or a thread.
//!
//! Requests that find no room stand in one queue. A request that memory being spilled will satisfy keeps that memory
//! for itself against younger ones; one that only an unpin, a seal or a delete could satisfy keeps nothing, so that
//! younger, smaller requests pass it and none waits for a pin that waits for it.

mod fallback;
mod foreign;
mod jobs;
mod lent;
mod place;
mod queue;
mod segments;
#[cfg(test)]
mod tests;

use crate::class::segment_capacity;
use crate::error::StoreError;
use crate::terms::{Access, ClientId, Event, FileId, ObjectState, SegmentId, Stats, Ticket};
use foreign::Copies;
pub(crate) use jobs::{CopyId, Failure, JobResult};
use jobs::{Disk, Job};
use oxiray_ids::{JobId, ObjectId};
use place::{Object, Place};
use queue::{Request, StoreRequest};
use segments::Segments;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// What the book wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Make a memory file. What it is for is the next effect.
    Make { file: FileId, bytes: u64 },
    /// Give the segment's pages back.
    Discard { segment: SegmentId, capacity: u64 },
    /// Drop a memory file with all its pages, or the name of a file on disk.
    Drop { file: FileId },
    /// Make a file of `size` bytes named by the job, for a client to write.
    File { job: CopyId, size: u64 },
    /// Copy `size` bytes of the segment into a new file named by the job.
    Spill { job: CopyId, segment: SegmentId, size: u64, owner: JobId },
    /// Compare the file with what was written to it.
    Check { job: CopyId, file: CopyId },
    /// The name stands for the file, for reading or for writing.
    Map { name: FileId, file: CopyId },
    /// Copy the file back into the segment.
    Restore { job: CopyId, segment: SegmentId, file: CopyId },
    /// Copy `size` bytes of one segment into another, for another job.
    Duplicate { job: CopyId, from: SegmentId, to: SegmentId, size: u64 },
    /// Drop a file.
    Forget { file: CopyId },
    /// Say something.
    Tell(Event),
}

/// How much there may be of everything.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) capacity: u64,
    pub(crate) pool: u64,
    /// The smallest segment.
    pub(crate) smallest: u64,
    /// About how many bytes a memory file has that several objects share.
    pub(crate) slab: u64,
    /// 0 turns spilling off.
    pub(crate) disk: u64,
    /// Where spilled objects go, for messages.
    pub(crate) spill_place: String,
    /// That is storage beyond the disk: what was read back is kept there, and files that clients write lie on disk still.
    pub(crate) is_storage: bool,
    /// How many bytes are moved there at once, where so many lie idle.
    pub(crate) batch: u64,
    /// Copies to and from disk under way at once.
    pub(crate) jobs: usize,
    /// Unanswered requests.
    pub(crate) waiting: usize,
}

#[derive(Debug, Default)]
struct Client {
    /// The job that it is a process of; none for the daemon itself, which reads everything where it lies.
    job: Option<JobId>,
    pins: BTreeMap<ObjectId, u32>,
    writing: BTreeSet<ObjectId>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    client: ClientId,
    object: ObjectId,
}

/// What a writer is done with.
struct Written {
    segment: SegmentId,
    deleted: bool,
    file: Option<CopyId>,
}

/// The job that an object belongs to.
fn job_of(object: ObjectId) -> JobId {
    object.task().job()
}

#[derive(Debug)]
pub(crate) struct Book {
    limits: Limits,
    objects: HashMap<ObjectId, Object>,
    clients: HashMap<ClientId, Client>,
    segments: Segments,
    /// Unpinned objects in memory, the longest unused first, and the bytes of their segments.
    idle: BTreeMap<u64, ObjectId>,
    idle_bytes: u64,
    /// Bytes of the segments that are lent ahead (LENT-1).
    lent: u64,
    queue: VecDeque<Request>,
    /// Memory has had no room for a while, and nothing was let go of since: creates go to disk without waiting.
    is_crowded: bool,
    /// Every unanswered request.
    waiting: BTreeMap<Ticket, Waiting>,
    jobs: HashMap<CopyId, Job>,
    copies: Copies,
    disk: Disk,
    /// Counts uses, for the order of idle objects, and names jobs.
    clock: u64,
    out: VecDeque<Effect>,
}

impl Book {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            segments: Segments::new(limits.capacity, limits.pool, limits.slab),
            disk: Disk::new(limits.disk, limits.is_storage),
            limits,
            objects: HashMap::new(),
            clients: HashMap::new(),
            idle: BTreeMap::new(),
            idle_bytes: 0,
            lent: 0,
            queue: VecDeque::new(),
            is_crowded: false,
            waiting: BTreeMap::new(),
            jobs: HashMap::new(),
            copies: Copies::default(),
            clock: 0,
            out: VecDeque::new(),
        }
    }

    pub(crate) fn create(&mut self, ticket: Ticket, client: ClientId, object: ObjectId, size: u64) {
        let refusal = if let Some(error) = self.refuse_foreign(client, object) {
            Some(error)
        } else if let Some(error) = self.objects.get_mut(&object).and_then(|known| known.refuse_another(object)) {
            Some(error)
        } else if self.waiting.len() >= self.limits.waiting {
            Some(StoreError::TooManyWaiting { limit: self.limits.waiting })
        } else {
            None
        };
        let capacity = match (refusal, self.capacity_for(size)) {
            (Some(error), _) => return self.refuse(ticket, client, error),
            (None, Some(capacity)) => capacity,
            // The disk may have room for what memory never will.
            (None, None) if self.has_disk_for(size) => size,
            (None, None) => return self.refuse(ticket, client, self.too_large(size)),
        };
        let place = Place::Queued(ticket);
        self.objects.insert(object, Object { size, capacity, place, is_lent: false, kept: None, waiters: Vec::new() });
        self.waiting.insert(ticket, Waiting { client, object });
        self.queue.push_back(Request { need: capacity, store_request: StoreRequest::Create(object) });
        self.disk.try_again();
        self.pump();
    }

    pub(crate) fn seal(&mut self, client: ClientId, object: ObjectId) -> Result<(), StoreError> {
        let Written { segment, deleted, file } = self.finish_writing(client, object)?;
        if let Some(file) = file {
            self.sealed_on_disk(object, segment, file, deleted);
        } else if deleted {
            self.segments.release(segment, &mut self.out);
            self.strike(object);
        } else {
            self.arrive(object, segment);
        }
        self.pump();
        Ok(())
    }

    pub(crate) fn abort(&mut self, client: ClientId, object: ObjectId) -> Result<(), StoreError> {
        let Written { segment, file, .. } = self.finish_writing(client, object)?;
        match file {
            None => self.segments.release(segment, &mut self.out),
            Some(file) => self.drop_file(object, segment, file),
        }
        self.remove(object, "its writer gave it up before it was sealed");
        self.pump();
        Ok(())
    }

    fn finish_writing(&mut self, client: ClientId, object: ObjectId) -> Result<Written, StoreError> {
        match self.objects.get(&object).ok_or(StoreError::Unknown { object })?.place {
            Place::Writing { segment, writer, deleted, file } if writer == client => {
                self.no_longer_lent(object);
                self.clients.entry(client).or_default().writing.remove(&object);
                Ok(Written { segment, deleted, file })
            }
            _ => Err(StoreError::NotWriter { object, client }),
        }
    }

    /// The sealed bytes of `object` are in `segment`: whoever waits gets pins.
    fn arrive(&mut self, object: ObjectId, segment: SegmentId) {
        let known = self.objects.get_mut(&object).expect("an object that arrives is known");
        let waiters = std::mem::take(&mut known.waiters);
        if waiters.is_empty() {
            return self.lie_idle(object, segment);
        }
        known.place = Place::Pinned { segment, pins: 0, deleted: false };
        for ticket in waiters {
            let client = self.answered(ticket).client;
            self.grant_pin(ticket, client, object);
        }
    }

    fn lie_idle(&mut self, object: ObjectId, segment: SegmentId) {
        let since = self.tick();
        let known = self.objects.get_mut(&object).expect("an object that lies idle is known");
        known.place = Place::Idle { segment, since };
        self.idle.insert(since, object);
        self.idle_bytes += known.capacity;
    }

    fn no_longer_idle(&mut self, since: u64, capacity: u64) {
        self.idle.remove(&since).expect("an idle object is in the order of use");
        self.idle_bytes -= capacity;
    }

    /// Pins the object where it lies.
    fn pin_here(&mut self, ticket: Ticket, client: ClientId, object: ObjectId) {
        let Some(known) = self.objects.get_mut(&object) else {
            return self.refuse(ticket, client, StoreError::Unknown { object });
        };
        match known.place {
            Place::Lost { ref reason } => {
                let error = StoreError::Lost { object, reason: reason.clone() };
                self.refuse(ticket, client, error);
            }
            Place::Writing { deleted: true, .. }
            | Place::Pinned { deleted: true, .. }
            | Place::OnDisk { deleted: true, .. } => {
                self.refuse(ticket, client, StoreError::Unknown { object });
            }
            Place::Idle { segment, since } => {
                let capacity = known.capacity;
                known.place = Place::Pinned { segment, pins: 0, deleted: false };
                self.no_longer_idle(since, capacity);
                self.grant_pin(ticket, client, object);
            }
            Place::Spilling { segment, job } => {
                known.place = Place::Pinned { segment, pins: 0, deleted: false };
                self.jobs.get_mut(&job).expect("a spilling object has a job").cancel();
                self.grant_pin(ticket, client, object);
                // What waited for this memory may have to wait for other memory now.
                self.pump();
            }
            Place::Pinned { .. } | Place::OnDisk { .. } => self.grant_pin(ticket, client, object),
            Place::Sought(_)
            | Place::Queued(_)
            | Place::Making { .. }
            | Place::Writing { .. }
            | Place::Spilled { .. }
            | Place::Restoring { .. }
            | Place::Checking { .. } => self.wait_for_bytes(ticket, client, object),
        }
    }

    fn wait_for_bytes(&mut self, ticket: Ticket, client: ClientId, object: ObjectId) {
        if self.waiting.len() >= self.limits.waiting {
            return self.refuse(ticket, client, StoreError::TooManyWaiting { limit: self.limits.waiting });
        }
        let known = self.objects.get_mut(&object).expect("the caller found the object");
        let first = known.waiters.is_empty();
        known.waiters.push(ticket);
        self.waiting.insert(ticket, Waiting { client, object });
        if first && matches!(known.place, Place::Spilled { .. }) {
            self.queue.push_back(Request { need: known.capacity, store_request: StoreRequest::Restore(object) });
            self.disk.try_again();
            self.pump();
        }
    }

    fn grant_pin(&mut self, ticket: Ticket, client: ClientId, object: ObjectId) {
        let known = self.objects.get_mut(&object).expect("a pinned object is known");
        let (Place::Pinned { segment, pins, .. } | Place::OnDisk { segment, pins, .. }) = &mut known.place else {
            unreachable!("the caller made the object pinned");
        };
        let segment = *segment;
        *pins += 1;
        *self.clients.entry(client).or_default().pins.entry(object).or_default() += 1;
        let size = known.size;
        self.tell(Event::Pinned { ticket, client, object, segment, size });
    }

    pub(crate) fn unpin(&mut self, client: ClientId, object: ObjectId) -> Result<(), StoreError> {
        let object = self.as_seen_by(client, object);
        let refusal = StoreError::NotPinned { object, client };
        let pins = &mut self.clients.get_mut(&client).ok_or(refusal.clone())?.pins;
        let count = pins.get_mut(&object).ok_or(refusal)?;
        *count -= 1;
        if *count == 0 {
            pins.remove(&object);
        }
        self.drop_pins(object, 1);
        self.pump();
        Ok(())
    }

    fn drop_pins(&mut self, object: ObjectId, count: u32) {
        let known = self.objects.get_mut(&object).expect("STORE-3: a pinned object stays");
        let (segment, pins, deleted, file) = match &mut known.place {
            Place::Pinned { segment, pins, deleted } => (*segment, pins, *deleted, None),
            Place::OnDisk { segment, pins, deleted, file } => (*segment, pins, *deleted, Some(*file)),
            _ => unreachable!("STORE-3: pins are held on pinned objects only"),
        };
        *pins -= count;
        if *pins > 0 {
            return;
        }
        match (deleted, file) {
            (true, None) => {
                self.segments.release(segment, &mut self.out);
                self.strike(object);
            }
            (false, None) => self.lie_idle(object, segment),
            (_, Some(file)) => self.no_longer_on_disk(object, segment, file, deleted),
        }
    }

    pub(crate) fn delete(&mut self, object: ObjectId) {
        self.delete_copies(object);
        let Some(known) = self.objects.get_mut(&object) else { return };
        match known.place {
            Place::Writing { ref mut deleted, .. } => {
                *deleted = true;
                self.refuse_waiters(object, &StoreError::Unknown { object });
                return;
            }
            Place::Pinned { ref mut deleted, .. } | Place::OnDisk { ref mut deleted, .. } => {
                *deleted = true;
                return;
            }
            Place::Idle { segment, since } => {
                let capacity = known.capacity;
                self.no_longer_idle(since, capacity);
                self.segments.release(segment, &mut self.out);
            }
            Place::Spilling { segment, job } => {
                // The disk thread may still read the segment; what it reads is thrown away.
                self.jobs.get_mut(&job).expect("a spilling object has a job").cancel();
                self.segments.release(segment, &mut self.out);
            }
            Place::Spilled { file } => {
                let size = known.size;
                self.forget(file, size);
            }
            Place::Checking { job, file } => {
                let size = known.size;
                self.jobs.get_mut(&job).expect("an object being checked has a job").cancel();
                self.forget(file, size);
            }
            Place::Restoring { job, file, .. } => {
                // The disk thread may still write the segment: the job gives it back when it ends.
                let size = known.size;
                self.jobs.get_mut(&job).expect("a restoring object has a job").cancel();
                self.forget(file, size);
            }
            Place::Sought(_) | Place::Queued(_) | Place::Making { .. } | Place::Lost { .. } => {}
        }
        self.remove(object, "it was deleted while it was waited for");
        self.pump();
    }

    /// Strikes out an object that holds nothing any more, and refuses who waits for it.
    fn remove(&mut self, object: ObjectId, reason: &str) {
        self.refuse_waiters(object, &StoreError::Lost { object, reason: reason.to_owned() });
        self.no_longer_lent(object);
        let known = self.strike(object);
        if let Place::Making { job, .. } = known.place {
            self.jobs.get_mut(&job).expect("a file being made has a job").cancel();
        }
        if let Place::Queued(ticket) | Place::Making { ticket, .. } = known.place {
            let error = StoreError::Lost { object, reason: reason.to_owned() };
            if self.waiting.contains_key(&ticket) {
                let client = self.answered(ticket).client;
                self.refuse(ticket, client, error);
            }
        }
        self.queue.retain(|request| request.store_request.object() != object);
    }

    fn refuse_waiters(&mut self, object: ObjectId, error: &StoreError) {
        let known = self.objects.get_mut(&object).expect("the caller found the object");
        for ticket in std::mem::take(&mut known.waiters) {
            let client = self.answered(ticket).client;
            self.refuse(ticket, client, error.clone());
        }
    }

    pub(crate) fn client_gone(&mut self, client: ClientId) {
        self.segments.client_gone(client, &mut self.out);
        let tickets: Vec<Ticket> =
            self.waiting.iter().filter(|(_, waiting)| waiting.client == client).map(|(&ticket, _)| ticket).collect();
        for ticket in tickets {
            // The end of the client's own create ends its pins of that object too.
            if self.waiting.contains_key(&ticket) {
                self.stop_waiting(ticket, "the client that would have written it is gone");
            }
        }
        let Client { job, pins, writing } = self.clients.remove(&client).unwrap_or_default();
        for object in writing {
            let Some(&Object { place: Place::Writing { segment, file, .. }, .. }) = self.objects.get(&object) else {
                unreachable!("clients are noted as writers of unsealed objects only");
            };
            match file {
                None => self.segments.discard(segment, &mut self.out),
                Some(file) => self.drop_file(object, segment, file),
            }
            self.remove(object, "its writer died before it was sealed");
        }
        for (object, count) in pins {
            self.drop_pins(object, count);
        }
        self.delete_copies_of_job(job);
        self.pump();
    }

    /// Strikes out one unanswered request without an answer.
    fn stop_waiting(&mut self, ticket: Ticket, reason: &str) {
        let Waiting { object, .. } = self.answered(ticket);
        let known = self.objects.get_mut(&object).expect("a request waits for a known object");
        if matches!(known.place, Place::Queued(create) | Place::Making { ticket: create, .. } if create == ticket) {
            return self.remove(object, reason);
        }
        known.waiters.retain(|&waiter| waiter != ticket);
        if known.waiters.is_empty() && matches!(known.place, Place::Spilled { .. }) {
            self.queue.retain(|request| request.store_request.object() != object);
        }
    }

    pub(crate) fn give(&mut self, file: FileId, client: ClientId, access: Access) -> Option<bool> {
        self.segments.give(file, client, access)
    }

    pub(crate) fn take_back(&mut self, file: FileId, client: ClientId) {
        self.segments.take_back(file, client, &mut self.out);
    }

    /// The bytes of the segment for an object of `size`; `None` where memory never has room for it.
    fn capacity_for(&self, size: u64) -> Option<u64> {
        segment_capacity(size, self.limits.smallest, self.limits.capacity)
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.keys().copied().filter(|object| !self.copies.has(*object))
    }

    pub(crate) fn trim(&mut self, keep: u64) {
        self.segments.trim(keep, &mut self.out);
    }

    fn answered(&mut self, ticket: Ticket) -> Waiting {
        self.waiting.remove(&ticket).expect("STORE-4: a ticket is answered once")
    }

    fn refuse(&mut self, ticket: Ticket, client: ClientId, error: StoreError) {
        let error = self.copies.of_original(error);
        self.tell(Event::Refused { ticket, client, error });
    }

    fn tell(&mut self, event: Event) {
        self.out.push_back(Effect::Tell(event));
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}
