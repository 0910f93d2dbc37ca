//! Copies to and from disk: what is under way, what came of it, and how full the disk is.

use super::{Book, Effect, Event, FileId, ObjectId, Place, SegmentId, StoreError, job_of};

/// Names one copy to or from disk; a copy to disk names its file too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CopyId(pub(crate) u64);

/// What came of a job.
pub(crate) type JobResult = Result<(), Failure>;

/// Why a copy failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// What was to be read is gone, or is not what was written; or what was to be written cannot be.
    #[error("{0}")]
    Gone(String),
    /// Where it lies, or is to lie, does not answer for now.
    #[error("{0}")]
    Away(String),
}

#[derive(Debug)]
pub(super) enum Job {
    /// The object is struck out where it was pinned or deleted meanwhile: the file is dropped when it is done.
    Spill { object: Option<ObjectId>, size: u64, capacity: u64 },
    /// The object is struck out where it was deleted meanwhile: the segment is released when it is done.
    Restore { object: Option<ObjectId>, segment: SegmentId },
    /// The object is struck out where it was deleted meanwhile.
    Check { object: Option<ObjectId> },
    /// The object is another job's copy, which nothing but this job writes.
    Duplicate { object: ObjectId },
    /// The object is struck out where nobody is to write it any more: the file is dropped when it is made.
    File { object: Option<ObjectId>, size: u64 },
}

impl Job {
    pub(super) fn cancel(&mut self) {
        match self {
            Self::Spill { object, .. }
            | Self::Restore { object, .. }
            | Self::Check { object }
            | Self::File { object, .. } => *object = None,
            Self::Duplicate { .. } => unreachable!("a copy that is being written stays until it is"),
        }
    }

    /// Bytes of memory that will be free when the job is done.
    pub(super) fn coming(&self) -> u64 {
        match self {
            Self::Spill { object: Some(_), capacity, .. } => *capacity,
            _ => 0,
        }
    }
}

/// How full the disk is, and the storage where there is one.
#[derive(Debug)]
pub(super) struct Disk {
    limit: u64,
    /// Files and those being written.
    used: u64,
    /// What it said when it last refused a spilled object, until there is a reason to ask it again.
    spills_refused: Option<String>,
    /// The same of files that clients write.
    files_refused: Option<String>,
    /// Spilled objects lie elsewhere than such files: one may take more when the other does not.
    is_apart: bool,
    /// How many objects were written, and how many were read back into memory.
    pub(super) spills: u64,
    pub(super) restores: u64,
}

impl Disk {
    pub(super) fn new(limit: u64, is_apart: bool) -> Self {
        Self { limit, used: 0, spills_refused: None, files_refused: None, is_apart, spills: 0, restores: 0 }
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of spilled objects that there is room for.
    pub(super) fn room(&self) -> u64 {
        if self.spills_refused.is_some() { 0 } else { self.limit - self.used }
    }

    /// Bytes of files that there is room for.
    pub(super) fn room_for_files(&self) -> u64 {
        if self.files_refused.is_some() { 0 } else { self.limit - self.used }
    }

    pub(super) fn is_off(&self) -> bool {
        self.limit == 0
    }

    pub(super) fn is_refused(&self) -> bool {
        self.spills_refused.is_some()
    }

    pub(super) fn refusal(&self) -> Option<String> {
        match (&self.spills_refused, &self.files_refused) {
            (Some(spills), Some(files)) if self.is_apart => Some(format!("{spills}; {files}")),
            (Some(refused), _) | (None, Some(refused)) => Some(refused.clone()),
            (None, None) => None,
        }
    }

    pub(super) fn take(&mut self, bytes: u64) {
        self.used += bytes;
    }

    pub(super) fn give_back(&mut self, bytes: u64) {
        self.used -= bytes;
    }

    /// These bytes of a spilled object were not taken.
    pub(super) fn refuse_spill(&mut self, bytes: u64, reason: String) {
        self.used -= bytes;
        if !self.is_apart {
            self.files_refused = Some(reason.clone());
        }
        self.spills_refused = Some(reason);
    }

    /// These bytes of a file were not taken.
    pub(super) fn refuse_file(&mut self, bytes: u64, reason: String) {
        self.used -= bytes;
        if !self.is_apart {
            self.spills_refused = Some(reason.clone());
        }
        self.files_refused = Some(reason);
    }

    pub(super) fn try_again(&mut self) {
        (self.spills_refused, self.files_refused) = (None, None);
    }
}

impl Book {
    /// Lets the memory of an idle object go that the storage still has; `false` where it has not.
    pub(super) fn drop_kept(&mut self, object: ObjectId) -> bool {
        let known = self.objects.get_mut(&object).expect("idle objects are known");
        let (Place::Idle { segment, since }, Some(file)) = (&known.place, known.kept) else { return false };
        let (segment, since, capacity) = (*segment, *since, known.capacity);
        known.place = Place::Spilled { file };
        known.kept = None;
        self.no_longer_idle(since, capacity);
        self.segments.release(segment, &mut self.out);
        true
    }

    /// Starts to move an idle object to disk.
    pub(super) fn start_spill(&mut self, object: ObjectId) {
        let job = CopyId(self.tick());
        let known = self.objects.get_mut(&object).expect("idle objects are known");
        let Place::Idle { segment, since } = known.place else {
            unreachable!("only idle objects are spilled");
        };
        let (size, capacity) = (known.size, known.capacity);
        known.place = Place::Spilling { segment, job };
        self.no_longer_idle(since, capacity);
        self.disk.used += size;
        self.jobs.insert(job, Job::Spill { object: Some(object), size, capacity });
        self.out.push_back(Effect::Spill { job, segment, size, owner: job_of(object) });
    }

    /// Starts to bring a spilled object back; its memory is there.
    pub(super) fn start_restore(&mut self, object: ObjectId) {
        let job = CopyId(self.tick());
        let known = self.objects.get_mut(&object).expect("restored objects are known");
        let Place::Spilled { file } = known.place else {
            unreachable!("only spilled objects are restored");
        };
        let segment = self.segments.take(known.capacity, job_of(object), None, &mut self.out);
        known.place = Place::Restoring { segment, job, file };
        self.jobs.insert(job, Job::Restore { object: Some(object), segment });
        self.out.push_back(Effect::Restore { job, segment, file });
    }

    pub(crate) fn job_done(&mut self, job: CopyId, result: JobResult) {
        match self.jobs.remove(&job).expect("jobs end once") {
            Job::Spill { object, size, .. } => self.spill_done(job, object, size, result),
            Job::Restore { object: Some(object), .. } => self.restore_done(object, result),
            Job::Restore { object: None, segment } => self.segments.release(segment, &mut self.out),
            Job::Check { object: Some(object) } => self.check_done(object, result),
            Job::Check { object: None } => {}
            Job::Duplicate { object } => self.duplicate_done(object, result),
            Job::File { object, size } => self.file_done(job, object, size, result),
        }
        self.shrink();
        self.pump();
    }

    fn spill_done(&mut self, job: CopyId, object: Option<ObjectId>, size: u64, result: JobResult) {
        let segment = object.map(|object| match self.objects[&object].place {
            Place::Spilling { segment, job: own } if own == job => (object, segment),
            _ => unreachable!("a job that is not struck out is its object's"),
        });
        match (segment, result) {
            (Some((object, segment)), Ok(())) => {
                self.objects.get_mut(&object).expect("found above").place = Place::Spilled { file: job };
                self.disk.spills += 1;
                self.segments.release(segment, &mut self.out);
                self.out.push_back(Effect::Tell(Event::Spilled { object }));
            }
            (Some((object, segment)), Err(reason)) => {
                self.disk.refuse_spill(size, reason.to_string());
                self.lie_idle(object, segment);
            }
            (None, Ok(())) => self.forget(job, size),
            (None, Err(_)) => self.disk.used -= size,
        }
    }

    fn restore_done(&mut self, object: ObjectId, result: JobResult) {
        let known = self.objects.get_mut(&object).expect("a job that is not struck out has an object");
        let Place::Restoring { segment, file, .. } = known.place else {
            unreachable!("a job that is not struck out is its object's");
        };
        let size = known.size;
        match result {
            Ok(()) => {
                self.disk.restores += 1;
                known.kept = self.limits.is_storage.then_some(file);
                self.arrive(object, segment);
                if self.limits.is_storage {
                    return;
                }
            }
            Err(failure) => {
                self.segments.release(segment, &mut self.out);
                if self.not_read(object, file, failure) {
                    return;
                }
            }
        }
        self.forget(file, size);
    }

    /// An object could not be read back; returns whether it may be later. Who waits for it is told why.
    fn not_read(&mut self, object: ObjectId, file: CopyId, failure: Failure) -> bool {
        let known = self.objects.get_mut(&object).expect("the caller found the object");
        let is_there = matches!(failure, Failure::Away(_));
        let error = match failure {
            Failure::Away(reason) => {
                known.place = Place::Spilled { file };
                StoreError::Away { object, reason }
            }
            Failure::Gone(reason) => {
                known.place = Place::Lost { reason: reason.clone() };
                StoreError::Lost { object, reason }
            }
        };
        self.refuse_waiters(object, &error);
        is_there
    }

    /// Starts to make a spilled object readable where it is; `false` where too much is under way.
    pub(super) fn start_check(&mut self, object: ObjectId) -> bool {
        if self.jobs.len() >= self.limits.jobs {
            return false;
        }
        let job = CopyId(self.tick());
        let known = self.objects.get_mut(&object).expect("objects to be read are known");
        let Place::Spilled { file } = known.place else {
            unreachable!("only spilled objects are read from disk");
        };
        known.place = Place::Checking { file, job };
        self.jobs.insert(job, Job::Check { object: Some(object) });
        self.out.push_back(Effect::Check { job, file });
        true
    }

    fn check_done(&mut self, object: ObjectId, result: JobResult) {
        let known = self.objects.get_mut(&object).expect("a job that is not struck out has an object");
        let Place::Checking { file, .. } = known.place else {
            unreachable!("a job that is not struck out is its object's");
        };
        if let Err(failure) = result {
            let size = known.size;
            if !self.not_read(object, file, failure) {
                self.forget(file, size);
            }
            return;
        }
        self.readable_on_disk(object, file);
    }

    /// The file of an object that is written may be read: whoever waits gets pins.
    pub(super) fn readable_on_disk(&mut self, object: ObjectId, file: CopyId) {
        let known = self.objects.get_mut(&object).expect("the caller found the object");
        let waiters = std::mem::take(&mut known.waiters);
        if waiters.is_empty() {
            known.place = Place::Spilled { file };
            return;
        }
        let segment = self.segments.name();
        self.out.push_back(Effect::Map { name: segment.file, file });
        known.place = Place::OnDisk { segment, file, pins: 0, deleted: false };
        for ticket in waiters {
            let client = self.answered(ticket).client;
            self.grant_pin(ticket, client, object);
        }
    }

    /// The last reader of an object on disk is gone.
    pub(super) fn no_longer_on_disk(&mut self, object: ObjectId, segment: SegmentId, file: CopyId, deleted: bool) {
        self.segments.unname(segment, &mut self.out);
        let known = self.objects.get_mut(&object).expect("the caller found the object");
        if deleted {
            let size = known.size;
            self.forget(file, size);
            self.strike(object);
        } else {
            known.place = Place::Spilled { file };
        }
    }

    pub(super) fn forget(&mut self, file: CopyId, size: u64) {
        self.disk.used -= size;
        self.disk.try_again();
        self.out.push_back(Effect::Forget { file });
    }

    /// The memory file of the last [`Effect::Make`] could not be made: takes back what it was for.
    pub(crate) fn make_failed(&mut self, failed: FileId, reason: String) {
        let wanted = self.out.pop_front();
        let Some(
            Effect::Tell(Event::Created { segment, .. })
            | Effect::Restore { segment, .. }
            | Effect::Duplicate { to: segment, .. },
        ) = wanted
        else {
            unreachable!("a memory file is made for what follows, not for {wanted:?}");
        };
        let error = StoreError::NoMemoryFile { asked: self.segments.capacity_of(segment), reason };
        self.segments.discard(segment, &mut self.out);
        self.out.retain(|effect| *effect != Effect::Drop { file: failed });
        match wanted {
            Some(Effect::Tell(Event::Created { ticket, client, object, .. })) => {
                self.clients.entry(client).or_default().writing.remove(&object);
                self.remove(object, "no memory file could be made for it");
                self.refuse(ticket, client, error);
            }
            Some(Effect::Restore { job, file, .. }) => {
                let Some(Job::Restore { object: Some(object), .. }) = self.jobs.remove(&job) else {
                    unreachable!("a restore that was not begun is not struck out");
                };
                self.objects.get_mut(&object).expect("restored objects are known").place = Place::Spilled { file };
                self.refuse_waiters(object, &error);
            }
            Some(Effect::Duplicate { job, .. }) => self.duplicate_not_begun(job, &error),
            _ => {}
        }
        self.pump();
    }
}
