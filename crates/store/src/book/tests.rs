//! The book against a simulated memory and disk: what is told, and what must hold after every event.

mod fallback;
mod orders;

use super::*;
use crate::terms::Expired;

const MIB: u64 = 1 << 20;
/// Content of a segment that means no object.
const NOTHING: u64 = u64::MAX;

fn object(number: u64) -> ObjectId {
    let mut bytes = [0; 28];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    ObjectId::new(bytes)
}

fn number(object: ObjectId) -> u64 {
    u64::from_le_bytes(object.as_bytes()[..8].try_into().unwrap())
}

const MIB4: u64 = 4 * MIB;

/// Memory and disk that hold, in place of bytes, the number of the object whose bytes they would hold.
struct World {
    book: Book,
    memory: HashMap<SegmentId, u64>,
    files: HashMap<JobId, u64>,
    jobs: VecDeque<Effect>,
    events: Vec<Event>,
    make_fails: bool,
}

impl World {
    fn new(capacity: u64, disk: u64) -> Self {
        let directory = PathBuf::from("/spill");
        let book = Book::new(Limits { capacity, pool: capacity / 2, disk, directory, jobs: 2, waiting: 8 });
        Self {
            book,
            memory: HashMap::new(),
            files: HashMap::new(),
            jobs: VecDeque::new(),
            events: Vec::new(),
            make_fails: false,
        }
    }

    /// Carries out effects as the store does; jobs wait for `finish_job`.
    fn apply(&mut self) {
        while let Some(effect) = self.book.next_effect() {
            match effect {
                Effect::Make { segment, .. } if self.make_fails => {
                    self.book.make_failed(segment, "too many open files".into());
                }
                Effect::Make { segment, .. } => assert!(self.memory.insert(segment, NOTHING).is_none()),
                Effect::Discard { segment } => drop(self.memory.remove(&segment).unwrap()),
                Effect::Forget { file } => drop(self.files.remove(&file).unwrap()),
                Effect::File { .. } | Effect::Spill { .. } | Effect::Restore { .. } | Effect::Check { .. } => {
                    self.jobs.push_back(effect);
                }
                Effect::Map { segment, file } => drop(self.memory.insert(segment, self.files[&file])),
                Effect::Tell(event) => {
                    match event {
                        Event::Created { object, segment, .. } => {
                            *self.memory.get_mut(&segment).unwrap() = number(object);
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
    fn finish_job(&mut self, outcome: Result<(), &str>) -> bool {
        let Some(effect) = self.jobs.pop_front() else { return false };
        let outcome = outcome.map_err(str::to_owned);
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
                    *self.memory.get_mut(&segment).expect("a restore keeps its segment") = content;
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

    fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn create(&mut self, ticket: u64, client: u64, number: u64, size: u64) -> Vec<Event> {
        self.book.create(Ticket(ticket), ClientId(client), object(number), size);
        self.apply();
        self.take()
    }

    fn pin(&mut self, ticket: u64, client: u64, number: u64) -> Vec<Event> {
        self.book.pin(Ticket(ticket), ClientId(client), object(number));
        self.apply();
        self.take()
    }

    fn seal(&mut self, client: u64, number: u64) {
        self.book.seal(ClientId(client), object(number)).unwrap();
        self.apply();
    }

    fn unpin(&mut self, client: u64, number: u64) {
        self.book.unpin(ClientId(client), object(number)).unwrap();
        self.apply();
    }

    fn delete(&mut self, number: u64) {
        self.book.delete(object(number));
        self.apply();
    }

    fn gone(&mut self, client: u64) {
        self.book.client_gone(ClientId(client));
        self.apply();
    }

    fn expire(&mut self, ticket: u64) -> Vec<Event> {
        assert_eq!(self.book.expire(Ticket(ticket)), Expired::Refused);
        self.apply();
        self.take()
    }

    /// An object written and sealed by client 1, its segment told.
    fn put(&mut self, number: u64, size: u64) -> SegmentId {
        let [Event::Created { segment, .. }] = self.create(1000 + number, 1, number, size)[..] else {
            panic!("there is room for object {number}");
        };
        self.seal(1, number);
        segment
    }

    fn check(&self) {
        let book = &self.book;
        let mut held = Vec::new();
        let (mut idle, mut spilled, mut unanswered) = (0, 0, 0);
        for (id, object) in &book.objects {
            unanswered += object.waiters.len();
            match object.place {
                Place::Queued(_) => unanswered += 1,
                Place::Making { job, .. } => {
                    assert!(matches!(book.jobs[&job], Job::File { object: Some(made), .. } if made == *id));
                    unanswered += 1;
                }
                Place::Writing { segment, writer, file, .. } => {
                    assert!(book.clients[&writer].writing.contains(id));
                    spilled += file.map_or(0, |_| object.size);
                    held.push(segment);
                }
                Place::Idle { segment, since } => {
                    assert_eq!(book.idle[&since], *id);
                    idle += object.capacity;
                    held.push(segment);
                }
                Place::Pinned { segment, pins, .. } => {
                    let counted = book.clients.values().filter_map(|client| client.pins.get(id)).sum::<u32>();
                    assert_eq!(counted, pins, "STORE-3");
                    assert!(pins > 0);
                    held.push(segment);
                }
                Place::Spilling { segment, .. } => held.push(segment),
                Place::OnDisk { segment, file, pins, .. } => {
                    let counted = book.clients.values().filter_map(|client| client.pins.get(id)).sum::<u32>();
                    assert!(counted == pins && pins > 0, "STORE-3");
                    assert_eq!((self.files[&file], self.memory[&segment]), (number(*id), number(*id)));
                    spilled += object.size;
                    held.push(segment);
                }
                Place::Spilled { file } | Place::Checking { file, .. } => {
                    assert_eq!(self.files[&file], number(*id), "the file holds the object's own bytes");
                    spilled += object.size;
                }
                Place::Restoring { .. } => spilled += object.size,
                Place::Lost { .. } => assert!(object.waiters.is_empty()),
            }
            if let Place::Idle { segment, .. } | Place::Pinned { segment, .. } | Place::Spilling { segment, .. } =
                object.place
            {
                assert_eq!(self.memory[&segment], number(*id), "STORE-3: sealed bytes stay");
            }
        }
        for job in book.jobs.values() {
            match job {
                Job::Restore { segment, .. } => held.push(*segment),
                Job::Spill { size, .. } | Job::File { size, .. } => spilled += size,
                Job::Check { .. } => {}
            }
        }
        assert_eq!(idle, book.idle_bytes);
        assert_eq!(spilled, book.disk.used());
        assert!(book.disk.used() <= book.limits.disk && book.jobs.len() <= book.limits.jobs);
        assert_eq!(unanswered, book.waiting.len(), "STORE-4");
        assert!(book.waiting.len() <= book.limits.waiting);
        book.segments.check(&held);
        if book.jobs.is_empty() {
            let room = book.segments.room();
            for Request { need, .. } in &book.queue {
                assert!(*need > room && matches!(book.remedy(need - room), queue::Remedy::Held), "who waits must wait");
            }
        }
        assert_eq!(self.memory.len(), book.segments.len());
    }
}

fn refusal(events: &[Event]) -> &StoreError {
    match events {
        [Event::Refused { error, .. }] => error,
        other => panic!("one refusal is wanted, not {other:?}"),
    }
}

#[test]
fn a_segment_goes_back_to_the_client_that_has_it_mapped() {
    let mut world = World::new(8 * MIB, 0);
    let (first, second) = (world.put(1, MIB), world.put(2, MIB));
    world.book.give(first, ClientId(7), Access::ReadWrite);
    world.book.give(second, ClientId(7), Access::ReadOnly);
    world.delete(1);
    world.delete(2);
    let events = world.create(1, 7, 3, MIB);
    assert!(matches!(events[..], [Event::Created { segment, .. }] if segment == first), "{events:?}");
    let events = world.create(2, 8, 4, MIB);
    assert!(matches!(events[..], [Event::Created { segment, .. }] if segment == second), "{events:?}");
}

#[test]
fn pooled_segments_make_room_and_their_holders_hear_of_it() {
    let mut world = World::new(4 * MIB, 0);
    let segment = world.put(1, 2 * MIB);
    assert_eq!(world.book.give(segment, ClientId(7), Access::ReadWrite), Some(true));
    assert_eq!(world.book.give(segment, ClientId(7), Access::ReadWrite), Some(false));
    world.delete(1);
    assert_eq!(world.book.stats().pooled, 2 * MIB);
    let events = world.create(1, 1, 2, 3 * MIB);
    assert!(events.contains(&Event::Retired { segment, clients: vec![ClientId(7)] }), "{events:?}");
    assert_eq!(world.book.give(segment, ClientId(7), Access::ReadOnly), None);
}

#[test]
fn full_memory_spills_what_was_unused_for_longest() {
    let mut world = World::new(4 * MIB, 100 * MIB);
    world.put(1, 2 * MIB);
    world.put(2, 2 * MIB);
    world.pin(1, 5, 1);
    world.unpin(5, 1);
    assert!(world.create(2, 1, 3, MIB).is_empty());
    assert!(world.finish_job(Ok(())));
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
    assert_eq!(world.book.state_of(object(2)), Some(ObjectState::Spilled));
    assert_eq!(world.book.state_of(object(1)), Some(ObjectState::InMemory));
    // And it comes back when it is asked for: object 1 makes room.
    assert!(world.pin(3, 5, 2).is_empty());
    while world.finish_job(Ok(())) {}
    assert!(matches!(world.take()[..], [Event::Pinned { .. }]));
}

#[test]
fn a_pin_stops_the_spill_of_its_object() {
    let mut world = World::new(4 * MIB, 100 * MIB);
    world.put(1, 4 * MIB);
    assert!(world.create(1, 1, 2, MIB).is_empty());
    assert!(matches!(world.pin(2, 5, 1)[..], [Event::Pinned { .. }]));
    world.finish_job(Ok(()));
    assert!(world.files.is_empty() && world.take().is_empty());
    world.unpin(5, 1);
    world.finish_job(Ok(()));
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
}

#[test]
fn pinned_memory_makes_creates_wait_until_they_expire_while_smaller_ones_pass() {
    let mut world = World::new(4 * MIB, 0);
    world.put(1, 3 * MIB);
    world.pin(1, 5, 1);
    assert!(world.create(2, 6, 2, 2 * MIB).is_empty());
    assert!(matches!(world.create(3, 7, 3, MIB)[..], [Event::Created { .. }]));
    assert_eq!(
        *refusal(&world.expire(2)),
        StoreError::ObjectStoreFull {
            asked: 2 * MIB,
            capacity: 4 * MIB,
            used: 4 * MIB,
            held: 4 * MIB,
            spilling: false
        }
    );
    assert_eq!(world.book.expire(Ticket(2)), Expired::Gone);
    assert!(world.create(4, 6, 2, 2 * MIB).is_empty(), "its identifier is free again");
    world.delete(1);
    world.unpin(5, 1);
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
}

#[test]
fn a_request_that_spilling_will_satisfy_is_not_overtaken() {
    let mut world = World::new(4 * MIB, 100 * MIB);
    for number in 0..3 {
        world.put(number, MIB);
    }
    assert!(world.create(1, 1, 10, 4 * MIB).is_empty());
    assert!(world.create(2, 1, 11, MIB).is_empty(), "the free MiB is promised to the older request");
    let mut tickets = Vec::new();
    while world.finish_job(Ok(())) {
        for event in world.take() {
            let Event::Created { ticket, object, .. } = event else { panic!("{event:?}") };
            world.book.seal(ClientId(1), object).unwrap();
            world.apply();
            tickets.push(ticket);
        }
    }
    assert_eq!(tickets, [Ticket(1), Ticket(2)]);
}

#[test]
fn a_full_disk_is_told_apart_from_a_full_store() {
    let mut world = World::new(2 * MIB, MIB);
    world.put(1, MIB);
    world.put(2, MIB);
    assert!(world.create(1, 1, 3, MIB).is_empty());
    world.finish_job(Ok(()));
    world.take();
    world.seal(1, 3);
    let events = world.create(2, 1, 4, MIB);
    let StoreError::OutOfDisk { asked, spilled, limit, reason: None, .. } = *refusal(&events) else {
        panic!("{events:?}");
    };
    assert_eq!((asked, spilled, limit), (MIB, MIB, MIB));
    world.delete(1);
    assert!(world.create(3, 1, 4, MIB).is_empty(), "the deleted file made room on disk");
}

#[test]
fn what_the_disk_says_is_passed_on_and_it_is_asked_again() {
    let mut world = World::new(2 * MIB, 100 * MIB);
    world.put(1, 2 * MIB);
    assert!(world.create(1, 1, 2, MIB).is_empty());
    world.finish_job(Err("no space left on device"));
    let events = world.take();
    let StoreError::OutOfDisk { reason: Some(reason), .. } = refusal(&events) else { panic!("{events:?}") };
    assert_eq!(reason, "no space left on device");
    assert!(matches!(world.pin(2, 5, 1)[..], [Event::Pinned { .. }]), "the object is still there");
    world.unpin(5, 1);
    assert!(world.create(3, 1, 2, MIB).is_empty());
    world.finish_job(Ok(()));
    assert!(matches!(world.take()[..], [Event::Created { .. }]));
}

#[test]
fn an_object_that_does_not_come_back_is_lost_and_can_be_made_again() {
    let mut world = World::new(2 * MIB, 100 * MIB);
    world.put(1, 2 * MIB);
    world.create(1, 1, 2, MIB);
    world.finish_job(Ok(()));
    world.gone(1);
    world.take();
    assert!(world.pin(2, 5, 1).is_empty());
    world.finish_job(Err("its spilled bytes changed on disk"));
    let lost = StoreError::Lost { object: object(1), reason: "its spilled bytes changed on disk".into() };
    assert_eq!(*refusal(&world.take()), lost);
    assert_eq!(*refusal(&world.pin(3, 5, 1)), lost);
    world.put(1, MIB);
    assert!(matches!(world.pin(4, 5, 1)[..], [Event::Pinned { .. }]));
}

#[test]
fn a_writer_that_dies_leaves_nothing_and_its_segment_is_never_used_again() {
    let mut world = World::new(4 * MIB, 0);
    let [Event::Created { segment, .. }] = world.create(1, 1, 1, 2 * MIB)[..] else { panic!() };
    assert!(world.pin(2, 5, 1).is_empty(), "an unsealed object is waited for");
    assert!(world.create(3, 1, 2, 3 * MIB).is_empty());
    world.gone(1);
    assert!(matches!(refusal(&world.take()), StoreError::Lost { .. }));
    assert!(!world.memory.contains_key(&segment));
    let stats = world.book.stats();
    assert_eq!((stats.used, stats.pooled, stats.objects, stats.waiting), (0, 0, 0, 0));
}

#[test]
fn what_memory_has_no_room_for_is_read_from_disk() {
    let mut world = World::new(4 * MIB, 100 * MIB);
    world.put(1, 4 * MIB);
    assert!(world.create(1, 1, 2, 4 * MIB).is_empty());
    assert!(world.finish_job(Ok(())));
    world.seal(1, 2);
    world.take();
    world.pin(2, 5, 2);
    assert!(world.pin(3, 5, 1).is_empty(), "it is compared with what was written first");
    assert!(world.pin(4, 6, 1).is_empty());
    assert!(world.finish_job(Ok(())));
    let granted = world.take();
    assert!(matches!(granted[..], [Event::Pinned { capacity: MIB4, .. }, Event::Pinned { .. }]), "{granted:?}");
    assert_eq!((world.book.stats().used, world.book.stats().spilled), (4 * MIB, 1), "it takes no memory");
    assert!(matches!(world.pin(5, 6, 1)[..], [Event::Pinned { .. }]));
    world.unpin(6, 1);
    world.unpin(6, 1);
    world.delete(1);
    assert!(matches!(refusal(&world.pin(6, 6, 1)), StoreError::Unknown { .. }));
    world.unpin(5, 1);
    assert_eq!((world.book.stats().spilled_bytes, world.book.stats().objects), (0, 1));
}

#[test]
fn what_changed_on_disk_is_lost_where_it_is_read_too() {
    let mut world = World::new(4 * MIB, 100 * MIB);
    world.put(1, 4 * MIB);
    world.create(1, 1, 2, 4 * MIB);
    world.finish_job(Ok(()));
    world.seal(1, 2);
    world.pin(2, 5, 2);
    world.take();
    world.pin(3, 5, 1);
    world.finish_job(Err("its spilled bytes changed on disk"));
    assert!(matches!(refusal(&world.take()), StoreError::Lost { .. }));
    assert_eq!(world.book.state_of(object(1)), Some(ObjectState::Lost));
}

#[test]
fn a_second_attempt_finds_what_the_first_wrote_even_where_only_readers_keep_it() {
    let mut world = World::new(4 * MIB, 0);
    world.put(1, 2 * MIB);
    assert!(matches!(refusal(&world.create(1, 1, 1, MIB)), StoreError::Sealed { .. }));
    world.pin(2, 5, 1);
    world.delete(1);
    assert!(matches!(refusal(&world.create(3, 1, 1, MIB)), StoreError::Sealed { .. }));
    world.unpin(5, 1);
    assert_eq!(world.book.stats().objects, 1, "it was wanted again before its last reader left");
}

#[test]
fn pins_outlive_deletion_and_end_with_their_client() {
    let mut world = World::new(4 * MIB, 0);
    world.put(1, 2 * MIB);
    world.pin(1, 5, 1);
    world.pin(2, 5, 1);
    world.pin(3, 6, 1);
    world.delete(1);
    assert!(matches!(refusal(&world.pin(4, 6, 1)), StoreError::Unknown { .. }));
    world.unpin(5, 1);
    world.unpin(6, 1);
    assert_eq!(world.book.stats().used, 2 * MIB);
    world.gone(5);
    assert_eq!((world.book.stats().used, world.book.stats().objects), (0, 0));
}

#[test]
fn only_the_writer_seals_and_only_holders_unpin() {
    let mut world = World::new(4 * MIB, 0);
    let (id, client) = (object(1), ClientId(2));
    assert_eq!(world.book.seal(client, id), Err(StoreError::Unknown { object: id }));
    world.create(1, 1, 1, MIB);
    assert_eq!(world.book.seal(client, id), Err(StoreError::NotWriter { object: id, client }));
    assert_eq!(world.book.unpin(client, id), Err(StoreError::NotPinned { object: id, client }));
    world.seal(1, 1);
    assert_eq!(world.book.abort(ClientId(1), id), Err(StoreError::NotWriter { object: id, client: ClientId(1) }));
    assert!(matches!(refusal(&world.create(2, 2, 2, 5 * MIB)), StoreError::TooLarge { .. }));
}

#[test]
fn waiting_requests_are_bounded() {
    let mut world = World::new(MIB, 0);
    world.create(0, 1, 0, MIB);
    for ticket in 1..=8 {
        assert!(world.create(ticket, 1, ticket, MIB).is_empty());
    }
    assert_eq!(*refusal(&world.create(9, 1, 9, MIB)), StoreError::TooManyWaiting { limit: 8 });
    assert_eq!(*refusal(&world.pin(10, 1, 0)), StoreError::TooManyWaiting { limit: 8 });
}

#[test]
fn a_memory_file_that_cannot_be_made_refuses_its_request_only() {
    let mut world = World::new(2 * MIB, 100 * MIB);
    world.put(1, 2 * MIB);
    world.create(1, 1, 2, MIB);
    world.make_fails = true;
    world.finish_job(Ok(()));
    assert!(matches!(refusal(&world.take()), StoreError::NoMemoryFile { asked: MIB, .. }));
    world.book.trim(0);
    assert!(matches!(refusal(&world.pin(2, 5, 1)), StoreError::NoMemoryFile { .. }));
    world.make_fails = false;
    world.pin(3, 5, 1);
    world.finish_job(Ok(()));
    assert!(matches!(world.take()[..], [Event::Pinned { .. }]));
}
