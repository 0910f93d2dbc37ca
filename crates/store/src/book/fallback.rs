//! Objects that memory has no room for, and that are written to disk at once.
//!
//! The file is made by the disk's thread, which may take a while; its create waits for that as it would for memory. It is
//! written through a segment that is only the file's name, and from its seal on the object is one on disk like others.

use super::jobs::{CopyId, Job, JobResult};
use super::queue::{Request, StoreRequest};
use super::{Book, Effect, Event, ObjectId, Place, SegmentId, StoreError, Ticket};

impl Book {
    /// The create has waited for memory long enough: it goes to disk, where that has room.
    pub(crate) fn hurry(&mut self, ticket: Ticket) {
        let Some(object) = self.waiting.get(&ticket).map(|waiting| waiting.object) else { return };
        let known = &self.objects[&object];
        if !matches!(known.place, Place::Queued(create) if create == ticket) || !self.is_held(known.capacity) {
            return;
        }
        self.is_crowded = true;
        self.pump();
    }

    /// Whether only those who hold memory can make room for `need` bytes.
    pub(super) fn is_held(&self, need: u64) -> bool {
        let short = need.saturating_sub(self.segments.room() + self.coming());
        short > 0 && matches!(self.remedy(short), super::queue::Remedy::Held)
    }

    pub(super) fn has_disk_for(&self, size: u64) -> bool {
        !self.disk.is_off() && self.disk.room_for_files() >= size
    }

    /// Why an object larger than the store is refused.
    pub(super) fn too_large(&self, asked: u64) -> StoreError {
        let capacity = self.limits.capacity;
        if self.disk.is_off() {
            return StoreError::TooLarge { asked, capacity };
        }
        self.out_of_disk(asked)
    }

    /// Has a file made for a queued object; `false` where the disk has no room, or too much is under way.
    pub(super) fn start_file(&mut self, object: ObjectId) -> bool {
        let known = &self.objects[&object];
        let (size, Place::Queued(ticket)) = (known.size, &known.place) else {
            unreachable!("files are made for creates");
        };
        let ticket = *ticket;
        if !self.has_disk_for(size) || self.jobs.len() >= self.limits.jobs {
            return false;
        }
        let job = CopyId(self.tick());
        self.objects.get_mut(&object).expect("found above").place = Place::Making { ticket, job };
        self.disk.take(size);
        self.jobs.insert(job, Job::File { object: Some(object), size });
        self.out.push_back(Effect::File { job, size });
        true
    }

    /// The file is there, or is not to be had: then its create stands in the queue again.
    pub(super) fn file_done(&mut self, job: CopyId, object: Option<ObjectId>, size: u64, result: JobResult) {
        match (object, result) {
            (Some(object), Ok(())) => self.grant_file(object, job),
            (Some(object), Err(reason)) => {
                self.disk.refuse_file(size, reason.to_string());
                let known = self.objects.get_mut(&object).expect("a job that is not struck out has an object");
                let Place::Making { ticket, .. } = known.place else {
                    unreachable!("a job that is not struck out is its object's");
                };
                known.place = Place::Queued(ticket);
                if known.capacity > self.limits.capacity {
                    let error = self.too_large(size);
                    return self.refuse_create(object, error);
                }
                let request = Request { need: known.capacity, store_request: StoreRequest::Create(object) };
                self.queue.push_front(request);
            }
            (None, Ok(())) => self.forget(job, size),
            (None, Err(_)) => self.disk.give_back(size),
        }
    }

    fn grant_file(&mut self, object: ObjectId, file: CopyId) {
        let known = self.objects.get_mut(&object).expect("a job that is not struck out has an object");
        let Place::Making { ticket, .. } = known.place else {
            unreachable!("a job that is not struck out is its object's");
        };
        let size = known.size;
        let segment = self.segments.name();
        self.out.push_back(Effect::Map { name: segment.file, file });
        let client = self.answered(ticket).client;
        let place = Place::Writing { segment, writer: client, deleted: false, file: Some(file) };
        self.objects.get_mut(&object).expect("found above").place = place;
        self.clients.entry(client).or_default().writing.insert(object);
        self.tell_created(Event::Created { ticket, client, object, segment, size });
    }

    /// An object is written to disk: its readers get a name of their own for the file, which cannot be written by.
    pub(super) fn sealed_on_disk(&mut self, object: ObjectId, segment: SegmentId, file: CopyId, deleted: bool) {
        if deleted {
            self.drop_file(object, segment, file);
            self.strike(object);
            return;
        }
        self.segments.unname(segment, &mut self.out);
        self.readable_on_disk(object, file);
    }

    /// What was written to a file is not wanted.
    pub(super) fn drop_file(&mut self, object: ObjectId, segment: SegmentId, file: CopyId) {
        let size = self.objects[&object].size;
        self.segments.unname(segment, &mut self.out);
        self.forget(file, size);
    }
}
