//! Leases that are recalled while somebody of another job waits.

use super::groups::{answers, group, lease};
use super::members::Pair;
use super::*;
use oxiray_wire::message::GroupCreate;
use std::collections::VecDeque;

/// Longer than a lease with devices is left alone.
const LONG: Duration = Duration::from_secs(60);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// The leases that a client was asked to give back, in order.
pub(super) fn recalled(world: &World, client: Key) -> Vec<LeaseNumber> {
    let asked = world.to(client).filter_map(|message| match message {
        Message::LeaseRetire(said) => Some(said.lease),
        _ => None,
    });
    asked.collect()
}

fn give_back(world: &mut World, client: Key, lease: LeaseNumber) {
    world.say(client, LeaseReturn { lease, retiring: false });
}

/// A driver that holds all CPUs of a world, each by a lease, and asks for one more.
fn busy(cpus: u32) -> (World, Key, Vec<LeaseNumber>) {
    let mut world = World::new(cpus, 0);
    let driver = world.driver();
    (0..=u64::from(cpus)).for_each(|number| world.say(driver, request(number, &[CPU])));
    let leases = (0..u64::from(cpus)).map(|number| world.granted(driver, number).0).collect();
    (world, driver, leases)
}

#[test]
fn a_lease_is_recalled_after_its_term_and_goes_to_who_has_nothing() {
    let (mut world, first, leases) = busy(1);
    let second = world.driver();
    world.say(second, request(1, &[CPU]));
    world.pass(ms(490));
    assert!(recalled(&world, first).is_empty(), "FAIR-2: its term is not over");
    world.pass(ms(20));
    assert_eq!(recalled(&world, first), leases);
    world.pass(ms(400));
    assert_eq!(recalled(&world, first).len(), 1, "FAIR-2: once");
    give_back(&mut world, first, leases[0]);
    let (lease, _) = world.granted(second, 1);
    assert_eq!(world.grants_of(first).len(), 1, "the first waits, though it asked before");
    // Now it is the second that has everything.
    world.pass(ms(510));
    assert_eq!(recalled(&world, second), [lease]);
}

#[test]
fn who_comes_when_the_term_is_over_does_not_wait_for_another() {
    let (mut world, first, leases) = busy(1);
    world.pass(LONG);
    assert!(recalled(&world, first).is_empty(), "who is alone keeps what it has");
    let second = world.driver();
    world.say(second, request(1, &[CPU]));
    assert_eq!(recalled(&world, first), leases);
}

#[test]
fn no_more_is_recalled_than_is_needed_and_none_of_two_that_have_the_same() {
    let (mut world, first, leases) = busy(4);
    world.pass(LONG);
    let second = world.driver();
    world.say(second, request(1, &[CPU]));
    assert_eq!(recalled(&world, first), leases[..1], "the oldest");
    world.say(second, request(2, &[CPU]));
    world.say(second, request(3, &[CPU]));
    world.pass(ms(60));
    assert_eq!(recalled(&world, first), leases[..2], "half of all");
    for lease in &leases[..2] {
        give_back(&mut world, first, *lease);
    }
    world.pass(LONG);
    assert_eq!(world.grants_of(second).len(), 2);
    assert_eq!((recalled(&world, first).len(), recalled(&world, second).len()), (2, 0), "both have the same");
}

#[test]
fn where_a_recalled_lease_does_not_come_back_another_is_recalled() {
    let (mut world, first, leases) = busy(3);
    world.pass(LONG);
    let second = world.driver();
    world.say(second, request(1, &[CPU]));
    world.pass(ms(490));
    assert_eq!(recalled(&world, first), leases[..1]);
    world.pass(ms(20));
    assert_eq!(recalled(&world, first), leases[..2], "FAIR-3");
    give_back(&mut world, first, leases[1]);
    world.granted(second, 1);
    give_back(&mut world, first, leases[0]);
    assert_eq!(world.grants_of(first).len(), 4, "nobody else waits: it is its own again");
}

/// SCAN-1.
#[test]
fn hundreds_of_kinds_of_requests_that_nothing_has_room_for_keep_nobody_from_what_is_free() {
    for kinds in [100, 700] {
        let mut world = World::new(2, 1);
        let driver = world.driver();
        world.say(driver, request(0, &[GPU]));
        world.granted(driver, 0);
        for number in 1..=kinds {
            world.say(driver, request(number, &[GPU, ("CPU", number)]));
        }
        world.say(driver, request(kinds + 1, &[CPU]));
        world.pass(ms(200));
        world.granted(driver, kinds + 1);
        assert_eq!(world.grants_of(driver).len(), 2, "the GPU is held");
    }
}

#[test]
fn leases_with_devices_have_a_longer_term() {
    let mut world = World::new(1, 1);
    let first = world.driver();
    world.say(first, request(1, &[GPU]));
    let (lease, worker) = world.granted(first, 1);
    let second = world.driver();
    world.say(second, request(1, &[GPU]));
    world.pass(ms(4_900));
    assert!(recalled(&world, first).is_empty());
    world.pass(ms(200));
    assert_eq!(recalled(&world, first), [lease]);
    give_back(&mut world, first, lease);
    world.bury(worker, "exited with status 0");
    world.granted(second, 1);
}

#[test]
fn actors_and_what_runs_within_groups_are_never_recalled_and_count() {
    let mut world = World::new(4, 0);
    let first = world.driver();
    world.say(first, actor(7, &[CPU], &[CPU]));
    world.say(first, GroupCreate { request: 5, ..group(5, &[&[CPU, ("CPU", 0)][..1]]) });
    assert!(!answers(&world, first, 5).is_empty());
    world.say(first, lease(1, 5, 1, &[CPU]));
    world.say(first, request(2, &[("CPU", 20_000)]));
    let (plain, _) = world.granted(first, 2);
    world.pass(LONG);
    let second = world.driver();
    world.say(second, request(1, &[("CPU", 30_000)]));
    world.pass(LONG);
    assert!(recalled(&world, first).is_empty(), "what may be recalled is not enough");
    world.say(second, LeaseCancel { request: LeaseRequestNumber(1) });
    world.say(second, request(2, &[CPU]));
    world.pass(LONG);
    assert_eq!(recalled(&world, first), [plain]);
    give_back(&mut world, first, plain);
    let (lease, _) = world.granted(second, 2);
    world.say(first, request(3, &[("CPU", 20_000)]));
    world.pass(LONG);
    assert!(recalled(&world, second).is_empty(), "the first has more, by its actor and its group");
    assert!(!world.ended(second).iter().any(|(ended, _)| *ended == lease));
}

#[test]
fn a_worker_that_waits_for_what_it_called_is_not_recalled_and_its_processor_does_not_count() {
    let mut world = World::new(2, 0);
    let first = world.driver();
    world.say(first, request(1, &[CPU]));
    world.say(first, request(2, &[CPU]));
    let workers = [1, 2].map(|number| world.granted(first, number).1);
    world.say(workers[0], Blocked {});
    world.say(first, request(3, &[CPU]));
    world.pass(LONG);
    let second = world.driver();
    world.say(second, request(1, &[CPU]));
    world.pass(ms(60));
    let (second_lease, _) = world.granted(first, 2);
    assert_eq!(recalled(&world, first), [second_lease], "the first of them has nothing to give");
    let (third, _) = world.granted(first, 3);
    give_back(&mut world, first, second_lease);
    world.granted(second, 1);
    world.say(first, request(4, &[CPU]));
    world.say(second, request(2, &[CPU]));
    world.pass(LONG);
    assert_eq!(recalled(&world, first).len() + recalled(&world, second).len(), 1, "each has one, the third is lent");
    assert!(!recalled(&world, first).contains(&third));
    world.say(workers[0], Unblocked {});
    world.core.audit();
}

#[test]
fn room_is_kept_for_who_needs_several_leases_back_and_not_for_ever() {
    let (mut world, first, leases) = busy(3);
    (10..13).for_each(|number| world.say(first, request(number, &[CPU])));
    world.pass(LONG);
    let second = world.driver();
    world.say(second, request(1, &[("CPU", 30_000)]));
    assert_eq!(recalled(&world, first), leases);
    give_back(&mut world, first, leases[0]);
    give_back(&mut world, first, leases[1]);
    assert_eq!(world.grants_of(first).len(), 3, "FAIR-4");
    world.pass(ms(510));
    assert_eq!(world.grants_of(first).len(), 5, "FAIR-4: what is back does not lie idle for long");
    give_back(&mut world, first, leases[2]);
    assert_eq!(world.grants_of(first).len(), 6);
    world.pass(ms(3_000));
    assert_eq!(recalled(&world, first).len(), 3, "FAIR-4: and not again soon");
    world.pass(ms(2_000));
    let again = recalled(&world, first)[3..].to_vec();
    assert_eq!(again.len(), 3);
    for lease in again {
        give_back(&mut world, first, lease);
    }
    world.granted(second, 1);
    let (large, _) = world.granted(second, 1);
    give_back(&mut world, second, large);
    assert_eq!(world.grants_of(first).len(), 7, "room is kept no longer than for who it was meant");
}

#[test]
fn leases_on_members_are_recalled_as_those_here() {
    let mut pair = Pair::new(0, 1);
    let first = pair.head.driver();
    pair.head.say(first, request(1, &[CPU]));
    pair.exchange();
    let (lease, worker) = pair.head.granted(first, 1);
    assert!(pair.is_on_member(worker));
    pair.head.say(first, request(2, &[CPU]));
    let second = pair.head.driver();
    pair.head.say(second, request(1, &[CPU]));
    pair.exchange();
    pair.head.pass(ms(510));
    assert_eq!(recalled(&pair.head, first), [lease]);
    give_back(&mut pair.head, first, lease);
    pair.exchange();
    pair.head.granted(second, 1);
    assert_eq!(pair.head.grants_of(first).len(), 1);
    assert_eq!(pair.head.core.as_head().pending.fairness.holders().len(), 1, "FAIR-1");
    pair.head.core.member_gone(pair.stream);
    pair.head.settle();
    assert_eq!(pair.head.core.as_head().pending.fairness.holders().len(), 0, "FAIR-1");
}

#[test]
fn the_more_urgent_of_one_job_has_a_lease_back_after_its_term_and_goes_first() {
    let (mut world, driver, leases) = busy(1);
    world.say(driver, LeaseRequest { priority: 5, ..request(7, &[CPU]) });
    world.say(driver, LeaseRequest { priority: -5, ..request(8, &[CPU]) });
    world.pass(ms(490));
    assert!(recalled(&world, driver).is_empty(), "FAIR-2: its term is not over");
    world.pass(ms(20));
    assert_eq!(recalled(&world, driver), leases, "for its own job");
    give_back(&mut world, driver, leases[0]);
    let (lease, _) = world.granted(driver, 7);
    world.pass(LONG);
    assert_eq!(recalled(&world, driver), leases, "those that wait are less urgent");
    give_back(&mut world, driver, lease);
    let (lease, worker) = world.granted(driver, 1);
    assert_eq!(world.assignment(worker).priority, 0);
    give_back(&mut world, driver, lease);
    let (_, worker) = world.granted(driver, 8);
    assert_eq!(world.assignment(worker).priority, -5, "what it calls is as urgent");
}

/// The requests of this number and above are the large ones.
const LARGE: u64 = 900;

/// A job whose tasks with a processor each come one after the other, on processors of which none is free meanwhile.
struct Stream {
    world: World,
    driver: Key,
    /// The request and the lease of each that runs, the oldest first.
    runs: VecDeque<(u64, LeaseNumber)>,
    asked: u64,
}

impl Stream {
    fn new(cpus: u32) -> Self {
        let mut world = World::new(cpus, 0);
        let driver = world.driver();
        let mut stream = Self { world, driver, runs: VecDeque::new(), asked: 0 };
        (0..cpus).for_each(|_| stream.ask());
        stream
    }

    fn ask(&mut self) {
        self.asked += 1;
        self.world.say(self.driver, request(self.asked, &[CPU]));
        self.hear();
    }

    fn hear(&mut self) {
        self.world.pass(ms(20));
        let last = self.runs.back().map_or(0, |(request, _)| *request);
        let granted = self.world.grants_of(self.driver).into_iter();
        let new = granted.filter(|(request, ..)| (last + 1..LARGE).contains(request));
        self.runs.extend(new.map(|(request, lease, _)| (request, lease)).collect::<Vec<_>>());
    }

    /// The oldest that runs is done. Returns whether there was one.
    fn end_one(&mut self) -> bool {
        let Some((request, lease)) = self.runs.pop_front() else { return false };
        give_back(&mut self.world, self.driver, lease);
        if self.runs.is_empty() {
            // What was granted before is not found again.
            self.runs.push_back((request, lease));
            self.hear();
            self.runs.pop_front();
        } else {
            self.hear();
        }
        true
    }

    /// Small ones overtake whoever waits, so many times, as long as so many of them run at once.
    fn overtake(&mut self, times: usize, at_once: usize) {
        for _ in 0..times {
            self.ask();
            if self.runs.len() < at_once {
                break;
            }
            self.end_one();
        }
    }

    fn is_granted(&self, request: u64) -> bool {
        self.world.grants_of(self.driver).iter().any(|(granted, ..)| *granted == request)
    }
}

#[test]
fn room_is_kept_for_a_large_request_that_is_overtaken_again_and_again() {
    let mut stream = Stream::new(4);
    stream.world.say(stream.driver, request(LARGE, &[("CPU", 40_000)]));
    stream.overtake(60, 4);
    assert!(stream.runs.len() == 4 && !stream.is_granted(LARGE), "each that is done makes room for the next");
    stream.overtake(100, 4);
    assert!(stream.runs.len() == 3 && !stream.is_granted(LARGE), "what becomes free is kept");
    let worker = stream.world.granted(stream.driver, stream.runs[0].0).1;
    stream.world.say(worker, request(1, &[CPU]));
    let (lease, _) = stream.world.granted(worker, 1);
    stream.end_one();
    assert!(stream.runs.len() == 2, "LARGE-3: but not from what running tasks call");
    give_back(&mut stream.world, worker, lease);
    while !stream.is_granted(LARGE) {
        assert!(stream.end_one(), "all four are free at once");
    }
    let (lease, _) = stream.world.granted(stream.driver, LARGE);
    give_back(&mut stream.world, stream.driver, lease);
    stream.runs.clear();
    stream.hear();
    assert!(stream.is_granted(stream.asked), "whoever waited goes on");
}

#[test]
fn room_is_not_kept_for_ever_nor_where_actors_hold_it() {
    let mut stream = Stream::new(4);
    stream.end_one();
    stream.world.say(stream.driver, ActorCreate { detached: true, ..actor(1, &[CPU], &[CPU]) });
    stream.world.say(stream.driver, request(LARGE, &[("CPU", 40_000)]));
    stream.overtake(160, 3);
    assert_eq!(stream.runs.len(), 3, "LARGE-2: nothing is kept, since the fourth is an actor's");
    stream.world.say(stream.driver, request(LARGE + 1, &[("CPU", 30_000)]));
    stream.overtake(160, 3);
    assert!(stream.runs.len() == 2 && !stream.is_granted(LARGE + 1), "room is kept for three");
    stream.world.pass(Duration::from_secs(61));
    stream.hear();
    assert_eq!(stream.runs.len(), 3, "LARGE-1: and no longer than that, while those that run do not end");
}
