//! A book with a simulated memory and disk, and what must hold after every event.

use super::super::*;
use crate::class::SMALLEST;
use crate::terms::Expired;
use std::collections::HashSet;

pub(super) const MIB: u64 = 1 << 20;
/// Content of a segment that means no object.
pub(super) const NOTHING: u64 = u64::MAX;

pub(super) fn object(number: u64) -> ObjectId {
    let mut bytes = [0; 28];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    ObjectId::new(bytes)
}

pub(super) fn number(object: ObjectId) -> u64 {
    u64::from_le_bytes(object.as_bytes()[..8].try_into().unwrap())
}

/// The job of [`object`]s has number 0.
pub(super) fn job_number(number: u32) -> JobId {
    JobId::from_number(number)
}

pub(super) const MIB4: u64 = 4 * MIB;

/// Memory and disk that hold, in place of bytes, the number of the object whose bytes they would hold.
pub(super) struct World {
    pub(super) book: Book,
    pub(super) memory: HashMap<SegmentId, u64>,
    pub(super) files: HashMap<CopyId, u64>,
    pub(super) jobs: VecDeque<Effect>,
    pub(super) events: Vec<Event>,
    /// Files that are gone, and who had each mapped.
    pub(super) retired: Vec<(FileId, Vec<ClientId>)>,
    /// What lies on disk, or did, in the order in which it was written.
    pub(super) spilled: Vec<ObjectId>,
    pub(super) make_fails: bool,
    /// Memory files, and names of files on disk.
    pub(super) made: HashSet<FileId>,
}

/// What the places of all objects add up to.
#[derive(Default)]
struct Counts {
    held: Vec<(SegmentId, JobId)>,
    idle: u64,
    spilled: u64,
    unanswered: usize,
}

impl World {
    pub(super) fn new(capacity: u64, disk: u64) -> Self {
        Self::with(capacity, disk, false)
    }

    /// Spills to storage, if so: what is read back is kept there, and 2 MiB go there at once.
    pub(super) fn with(capacity: u64, disk: u64, is_storage: bool) -> Self {
        let book = Book::new(Limits {
            capacity,
            pool: capacity / 2,
            disk,
            spill_place: "/spill".into(),
            is_storage,
            batch: if is_storage { 2 * MIB } else { 0 },
            jobs: 2,
            waiting: 8,
            smallest: SMALLEST,
            slab: MIB,
        });
        Self {
            book,
            memory: HashMap::new(),
            files: HashMap::new(),
            jobs: VecDeque::new(),
            events: Vec::new(),
            retired: Vec::new(),
            spilled: Vec::new(),
            make_fails: false,
            made: HashSet::new(),
        }
    }

    /// Carries out effects as the store does; jobs wait for `finish_job`.
    pub(super) fn apply(&mut self) {
        while let Some(effect) = self.book.next_effect() {
            match effect {
                Effect::Make { file, .. } if self.make_fails => {
                    self.book.make_failed(file, "too many open files".into());
                }
                Effect::Make { file, .. } => assert!(self.made.insert(file)),
                Effect::Discard { segment, .. } => drop(self.memory.remove(&segment).unwrap()),
                Effect::Drop { file } => {
                    assert!(self.made.remove(&file));
                    self.memory.retain(|segment, _| segment.file != file);
                }
                Effect::Forget { file } => drop(self.files.remove(&file).unwrap()),
                Effect::File { .. }
                | Effect::Spill { .. }
                | Effect::Restore { .. }
                | Effect::Check { .. }
                | Effect::Duplicate { .. } => self.jobs.push_back(effect),
                Effect::Map { name, file } => {
                    assert!(self.made.insert(name));
                    self.memory.insert(SegmentId { file: name, offset: 0 }, self.files[&file]);
                }
                Effect::Tell(Event::Retired { file, clients }) => self.retired.push((file, clients)),
                Effect::Tell(Event::Spilled { object }) => self.spilled.push(object),
                Effect::Tell(event) => {
                    if let Event::Created { client, object, .. } | Event::Pinned { client, object, .. } = event {
                        let job = self.book.clients.get(&client).and_then(|client| client.job);
                        assert!(job.is_none_or(|job| job == job_of(object)), "STORE-6");
                    }
                    match event {
                        Event::Created { object, segment, client, .. } => {
                            assert!(self.made.contains(&segment.file));
                            self.memory.insert(segment, number(object));
                            self.book.give(segment.file, client, Access::ReadWrite);
                            if let Place::Writing { file: Some(file), .. } = self.book.objects[&object].place {
                                self.files.insert(file, number(object));
                            }
                        }
                        Event::Pinned { object, segment, .. } => assert_eq!(self.memory[&segment], number(object)),
                        _ => {}
                    }
                    self.events.push(event);
                }
            }
        }
        self.check();
    }

    /// Ends the job begun first, as the disk's thread does.
    pub(super) fn finish_job(&mut self, outcome: Result<(), &str>) -> bool {
        self.end_job(outcome.map_err(|reason| Failure::Gone(reason.to_owned())))
    }

    /// Ends the job begun first; it may have been the storage that did not answer.
    pub(super) fn end_job(&mut self, outcome: JobResult) -> bool {
        let Some(effect) = self.jobs.pop_front() else { return false };
        let job = match effect {
            Effect::Spill { job, segment, .. } => {
                if outcome.is_ok() {
                    // A job that was struck out may find its segment discarded or in other hands; its file is dropped.
                    self.files.insert(job, self.memory.get(&segment).copied().unwrap_or(NOTHING));
                }
                job
            }
            Effect::Restore { job, segment, file } => {
                if outcome.is_ok() {
                    // A forgotten file can still be read by who has it open.
                    let content = self.files.get(&file).copied().unwrap_or(NOTHING);
                    assert!(self.made.contains(&segment.file), "a restore keeps its segment");
                    self.memory.insert(segment, content);
                }
                job
            }
            Effect::Duplicate { job, from, to, .. } => {
                if outcome.is_ok() {
                    let content = self.memory[&from];
                    self.memory.insert(to, content);
                    for (id, copy) in &self.book.objects {
                        if let Place::Writing { segment, file: Some(file), .. } = copy.place
                            && segment == to
                        {
                            self.files.insert(file, number(*id));
                        }
                    }
                }
                job
            }
            Effect::Check { job, .. } => job,
            Effect::File { job, .. } => {
                if outcome.is_ok() {
                    self.files.insert(job, NOTHING);
                }
                job
            }
            _ => unreachable!(),
        };
        self.book.job_done(job, outcome);
        self.apply();
        true
    }

    pub(super) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn create(&mut self, ticket: u64, client: u64, number: u64, size: u64) -> Vec<Event> {
        self.book.create(Ticket(ticket), ClientId(client), object(number), size);
        self.apply();
        self.take()
    }

    pub(super) fn create_ahead(&mut self, ticket: u64, client: u64, number: u64, size: u64) -> Vec<Event> {
        self.book.create_ahead(Ticket(ticket), ClientId(client), object(number), size);
        self.apply();
        self.take()
    }

    pub(super) fn pin(&mut self, ticket: u64, client: u64, number: u64) -> Vec<Event> {
        self.book.pin(Ticket(ticket), ClientId(client), object(number));
        self.apply();
        self.take()
    }

    pub(super) fn seal(&mut self, client: u64, number: u64) {
        self.book.seal(ClientId(client), object(number)).unwrap();
        self.apply();
    }

    pub(super) fn unpin(&mut self, client: u64, number: u64) {
        self.book.unpin(ClientId(client), object(number)).unwrap();
        self.apply();
    }

    pub(super) fn delete(&mut self, number: u64) {
        self.book.delete(object(number));
        self.apply();
    }

    /// The client is a process of this job.
    pub(super) fn client_of(&mut self, client: u64, job: u32) {
        self.book.client_of(ClientId(client), job_number(job));
    }

    pub(super) fn gone(&mut self, client: u64) {
        self.book.client_gone(ClientId(client));
        self.apply();
    }

    pub(super) fn expire(&mut self, ticket: u64) -> Vec<Event> {
        assert_eq!(self.book.expire(Ticket(ticket)), Expired::Refused);
        self.apply();
        self.take()
    }

    /// An object written and sealed by client 1, its segment told.
    pub(super) fn put(&mut self, number: u64, size: u64) -> SegmentId {
        let [Event::Created { segment, .. }] = self.create(1000 + number, 1, number, size)[..] else {
            panic!("there is room for object {number}");
        };
        self.seal(1, number);
        segment
    }

    pub(super) fn check(&self) {
        let book = &self.book;
        let mut counts = Counts::default();
        for (id, object) in &book.objects {
            self.check_object(*id, object, &mut counts);
        }
        for job in book.jobs.values() {
            match job {
                Job::Restore { segment, .. } => counts.held.push((*segment, book.segments.job_of(*segment))),
                Job::Spill { size, .. } | Job::File { size, .. } => counts.spilled += size,
                Job::Check { .. } => {}
                Job::Duplicate { object } => assert!(matches!(book.objects[object].place, Place::Writing { .. })),
            }
        }
        let lent = book.objects.values().filter(|object| object.is_lent);
        assert!(lent.clone().all(|object| matches!(object.place, Place::Writing { file: None, .. })), "LENT-1");
        assert_eq!(lent.map(|object| object.capacity).sum::<u64>(), book.lent, "LENT-1");
        assert_eq!(counts.idle, book.idle_bytes);
        assert_eq!(counts.spilled, book.disk.used());
        assert!(book.disk.used() <= book.limits.disk && book.jobs.len() <= book.limits.jobs);
        assert_eq!(counts.unanswered, book.waiting.len(), "STORE-4");
        assert!(book.waiting.len() <= book.limits.waiting);
        book.segments.check(&counts.held);
        if book.jobs.is_empty() {
            let room = book.segments.room();
            for Request { need, .. } in &book.queue {
                assert!(*need > room && matches!(book.remedy(need - room), queue::Remedy::Held), "who waits must wait");
            }
        }
        assert_eq!(self.made.len(), book.segments.len());
        book.check_copies();
    }

    /// What must hold of one object, which is added to the counts.
    fn check_object(&self, id: ObjectId, object: &Object, counts: &mut Counts) {
        let book = &self.book;
        counts.unanswered += object.waiters.len();
        assert!(object.kept.is_none_or(|file| self.files[&file] == number(id)), "what is kept is the object");
        counts.spilled += object.kept.map_or(0, |_| object.size);
        let job = job_of(id);
        match object.place {
            Place::Sought(_) => {}
            Place::Queued(_) => counts.unanswered += 1,
            Place::Making { job, .. } => {
                assert!(matches!(book.jobs[&job], Job::File { object: Some(made), .. } if made == id));
                counts.unanswered += 1;
            }
            Place::Writing { segment, writer, file, .. } => {
                assert!(book.clients[&writer].writing.contains(&id));
                counts.spilled += file.map_or(0, |_| object.size);
                counts.held.push((segment, job));
            }
            Place::Idle { segment, since } => {
                assert_eq!(book.idle[&since], id);
                counts.idle += object.capacity;
                counts.held.push((segment, job));
            }
            Place::Pinned { segment, pins, .. } => {
                let counted = book.clients.values().filter_map(|client| client.pins.get(&id)).sum::<u32>();
                assert_eq!(counted, pins, "STORE-3");
                assert!(pins > 0);
                counts.held.push((segment, job));
            }
            Place::Spilling { segment, .. } => counts.held.push((segment, job)),
            Place::OnDisk { segment, file, pins, .. } => {
                let counted = book.clients.values().filter_map(|client| client.pins.get(&id)).sum::<u32>();
                assert!(counted == pins && pins > 0, "STORE-3");
                assert_eq!((self.files[&file], self.memory[&segment]), (number(id), number(id)));
                counts.spilled += object.size;
                counts.held.push((segment, job));
            }
            Place::Spilled { file } | Place::Checking { file, .. } => {
                assert_eq!(self.files[&file], number(id), "the file holds the object's own bytes");
                counts.spilled += object.size;
            }
            Place::Restoring { .. } => counts.spilled += object.size,
            Place::Lost { .. } => assert!(object.waiters.is_empty()),
        }
        if let Place::Idle { segment, .. } | Place::Pinned { segment, .. } | Place::Spilling { segment, .. } =
            object.place
        {
            assert_eq!(self.memory[&segment], number(id), "STORE-3: sealed bytes stay");
        }
    }
}
