//! Who waits for memory, and what is moved to disk for them.

use super::{Book, ClientId, Event, ObjectId, Place, StoreError, Ticket, Waiting, job_of};
use crate::terms::Expired;

#[derive(Debug)]
pub(super) struct Request {
    /// Bytes of the segment wanted.
    pub(super) need: u64,
    pub(super) store_request: StoreRequest,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum StoreRequest {
    Create(ObjectId),
    Restore(ObjectId),
}

impl StoreRequest {
    pub(super) fn object(self) -> ObjectId {
        match self {
            Self::Create(object) | Self::Restore(object) => object,
        }
    }
}

/// Memory that no older request counts on.
struct Unclaimed {
    /// There now.
    room: u64,
    /// There when the copies under way are done.
    coming: u64,
}

impl Unclaimed {
    fn total(&self) -> u64 {
        self.room + self.coming
    }

    fn claim(&mut self, bytes: u64) {
        let now = bytes.min(self.room);
        self.room -= now;
        self.coming = self.coming.saturating_sub(bytes - now);
    }
}

/// Bytes of memory that objects leave.
struct Moved {
    /// At once, since the storage still had them.
    gone: u64,
    /// When the copies are done.
    coming: u64,
}

/// What moving idle objects to disk can do for a request.
pub(super) enum Remedy {
    Spill(Vec<ObjectId>),
    DiskFull,
    /// Too much is pinned or being written.
    Held,
}

impl Book {
    /// Gives every waiting request, the oldest first, what there is for it.
    pub(super) fn pump(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        let mut unclaimed = Unclaimed { room: self.segments.room(), coming: self.coming() };
        for request in std::mem::take(&mut self.queue) {
            if !self.attempt(&request, &mut unclaimed) {
                self.queue.push_back(request);
            }
        }
    }

    /// Whether the request is done with.
    fn attempt(&mut self, request: &Request, unclaimed: &mut Unclaimed) -> bool {
        let need = request.need;
        if need <= unclaimed.room {
            unclaimed.claim(need);
            return match request.store_request {
                StoreRequest::Create(copy) if self.copies.has(copy) && self.jobs.len() >= self.limits.jobs => false,
                StoreRequest::Create(object) => {
                    self.grant_create(object);
                    true
                }
                StoreRequest::Restore(_) if self.jobs.len() >= self.limits.jobs => false,
                StoreRequest::Restore(object) => {
                    self.start_restore(object);
                    true
                }
            };
        }
        if need > unclaimed.total() {
            let remedy = self.remedy(need - unclaimed.total());
            if let (StoreRequest::Restore(object), Remedy::Held | Remedy::DiskFull) = (request.store_request, &remedy) {
                // Memory is to be had only when somebody lets go: it is read from disk meanwhile.
                return self.start_check(object);
            }
            match remedy {
                Remedy::Held => {
                    let StoreRequest::Create(object) = request.store_request else { return false };
                    let goes_to_disk = self.is_crowded || need > self.limits.capacity || self.copies.has(object);
                    return goes_to_disk && self.start_file(object);
                }
                Remedy::DiskFull if !self.jobs.is_empty() => return false,
                Remedy::DiskFull => {
                    if let (StoreRequest::Create(object), true) = (request.store_request, self.limits.is_storage)
                        && self.start_file(object)
                    {
                        return true;
                    }
                    self.refuse_request(request);
                    return true;
                }
                Remedy::Spill(objects) => {
                    let Moved { gone, coming } = self.start_spills(objects);
                    unclaimed.room += gone;
                    unclaimed.coming += coming;
                    if need <= unclaimed.room {
                        return self.attempt(request, unclaimed);
                    }
                }
            }
        }
        unclaimed.claim(need);
        false
    }

    /// Segments may take so many bytes of the capacity from now on: the machine's memory is needed by others, or is not
    /// any more.
    pub(crate) fn set_bound(&mut self, bytes: u64) {
        self.segments.set_bound(bytes, &mut self.out);
        self.shrink();
        self.pump();
    }

    /// Bytes of segments whose objects are on the way to disk.
    fn moving(&self) -> u64 {
        self.jobs.values().map(super::Job::coming).sum()
    }

    /// Bytes above the bound that are on the way to disk.
    pub(crate) fn leaving_bytes(&self) -> u64 {
        self.moving().min(self.segments.excess())
    }

    /// Room that there will be when the copies under way are done.
    pub(super) fn coming(&self) -> u64 {
        self.moving().saturating_sub(self.segments.excess())
    }

    /// Moves idle objects to disk while segments take more than the bound.
    pub(super) fn shrink(&mut self) {
        let excess = self.segments.excess().saturating_sub(self.moving()).min(self.idle_bytes);
        if excess == 0 {
            return;
        }
        if let Remedy::Spill(objects) = self.remedy(excess) {
            self.start_spills(objects);
        }
    }

    /// Starts to move objects to disk, as many as may be under way.
    fn start_spills(&mut self, objects: Vec<ObjectId>) -> Moved {
        let mut moved = Moved { gone: 0, coming: 0 };
        for object in objects {
            let capacity = self.objects[&object].capacity;
            if self.drop_kept(object) {
                moved.gone += capacity;
            } else if self.jobs.len() < self.limits.jobs {
                moved.coming += capacity;
                self.start_spill(object);
            }
        }
        moved
    }

    /// The objects unused for longest that make `short` bytes together, where the disk takes them.
    pub(super) fn remedy(&self, short: u64) -> Remedy {
        if self.disk.is_off() || self.idle_bytes < short {
            return Remedy::Held;
        }
        let wanted = short.max(self.limits.batch.min(self.idle_bytes));
        let (mut objects, mut gained, mut disk) = (Vec::new(), 0, self.disk.room());
        for object in self.idle.values() {
            let known = &self.objects[object];
            let size = if known.kept.is_some() { 0 } else { known.size };
            if size > disk {
                continue;
            }
            disk -= size;
            gained += known.capacity;
            objects.push(*object);
            if gained >= wanted {
                break;
            }
        }
        if gained >= short { Remedy::Spill(objects) } else { Remedy::DiskFull }
    }

    pub(super) fn grant_create(&mut self, object: ObjectId) {
        let known = &self.objects[&object];
        let (size, capacity) = (known.size, known.capacity);
        let Place::Queued(ticket) = known.place else {
            unreachable!("creates wait for queued objects");
        };
        let client = self.answered(ticket).client;
        self.is_crowded = false;
        let segment = self.segments.take(capacity, job_of(object), Some(client), &mut self.out);
        self.objects.get_mut(&object).expect("found above").place =
            Place::Writing { segment, writer: client, deleted: false, file: None };
        self.clients.entry(client).or_default().writing.insert(object);
        self.tell_created(Event::Created { ticket, client, object, segment, size });
    }

    /// Refuses everybody behind a request that the queue no longer holds.
    fn refuse_request(&mut self, request: &Request) {
        let object = request.store_request.object();
        let error = self.no_room(self.objects[&object].size, request.need);
        match request.store_request {
            StoreRequest::Create(_) => self.refuse_create(object, error),
            StoreRequest::Restore(_) => self.refuse_waiters(object, &error),
        }
    }

    pub(super) fn refuse_create(&mut self, object: ObjectId, error: StoreError) {
        let Place::Queued(ticket) = self.objects[&object].place else {
            unreachable!("creates wait for queued objects");
        };
        let client = self.answered(ticket).client;
        if self.copies.has(object) {
            self.refuse_waiters(object, &error);
        }
        self.refuse(ticket, client, error);
        self.remove(object, "no room was found for it");
    }

    /// Why `need` bytes for an object of `asked` bytes are not to be had now.
    fn no_room(&self, asked: u64, need: u64) -> StoreError {
        let capacity = self.limits.capacity;
        if need > capacity {
            return self.too_large(asked);
        }
        let short = need.saturating_sub(self.segments.room() + self.coming());
        if self.disk.is_refused() || matches!(self.remedy(short), Remedy::DiskFull) {
            return self.out_of_disk(asked);
        }
        let used = self.segments.used();
        let held = used - self.idle_bytes - self.moving();
        StoreError::ObjectStoreFull { asked, capacity, used, held, spilling: !self.disk.is_off() }
    }

    pub(super) fn out_of_disk(&self, asked: u64) -> StoreError {
        StoreError::OutOfDisk {
            asked,
            capacity: self.limits.capacity,
            spilled: self.disk.used(),
            limit: self.limits.disk,
            place: self.limits.spill_place.clone(),
            reason: self.disk.refusal(),
        }
    }

    /// The ticket's time has run out.
    pub(crate) fn expire(&mut self, ticket: Ticket) -> Expired {
        let Some(&Waiting { client, object }) = self.waiting.get(&ticket) else { return Expired::Gone };
        let known = &self.objects[&object];
        let error = match known.place {
            Place::Making { ticket: create, .. } if create == ticket => return Expired::Busy,
            Place::Queued(create) if create == ticket => {
                if self.limits.is_storage && known.capacity <= self.segments.room() + self.coming() {
                    // Storage takes what it takes: the room comes, or the copies fail, and the disk is next.
                    return Expired::Busy;
                }
                if self.start_file(object) {
                    self.queue.retain(|request| request.store_request.object() != object);
                    return Expired::Busy;
                }
                let known = &self.objects[&object];
                let error = self.no_room(known.size, known.capacity);
                self.refuse_create(object, error);
                self.pump();
                return Expired::Refused;
            }
            Place::Spilled { .. } if self.limits.is_storage && self.coming() > 0 => StoreError::Away {
                object,
                reason: format!(
                    "it waits for room, and what is to make it has not got to `{}` yet: look whether its endpoint answers \
                     (AWS_ENDPOINT_URL)",
                    self.limits.spill_place
                ),
            },
            Place::Spilled { .. } => self.no_room(known.size, known.capacity),
            Place::Restoring { .. } | Place::Checking { .. } => {
                StoreError::NotReady { object, reason: "it is being read back from disk or storage" }
            }
            _ if self.copies.has(object) => StoreError::NotReady { object, reason: "its job's copy is being made" },
            _ => StoreError::NotReady { object, reason: "its writer has not sealed it" },
        };
        self.answer_late(ticket, client, error);
        Expired::Refused
    }

    fn answer_late(&mut self, ticket: Ticket, client: ClientId, error: StoreError) {
        self.stop_waiting(ticket, "its time ran out");
        self.refuse(ticket, client, error);
        self.pump();
    }
}
