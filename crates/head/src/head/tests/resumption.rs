//! A head that was killed and comes back, with a member whose work went on: what was granted, held and waited for is as
//! it was, in whatever order it is told.

use super::fairness::recalled;
use super::groups::{group, within};
use super::{CPU, World, request};
use crate::actors::{Actor, ActorState, Description, Making};
use crate::head::Key;
use crate::jobs::JobDetail;
use crate::workers::Duty;
use oxiray_ids::{ActorId, JobId, LeaseNumber, NodeId, ObjectId, WorkerId, WorkerNumber};
use oxiray_machine::Whereabouts;
use oxiray_wire::Message;
use oxiray_wire::message::{
    ClientResume, ClientSettled, Content, Driver, Hold, LeaseHeld, LeaseKill, LeaseRequest, LeaseReturn, NodeResume,
    Promise, Publish, Reference, Returning, Sought, Subscribe, Unhold, Value, WorkerHeld,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The head's stream, at the member.
const HEAD: Key = 1 << 50;
const LIMIT: Duration = Duration::from_secs(13);

/// What a client counts for itself.
#[derive(Debug, Clone, Default)]
struct Counts {
    promised: Vec<ObjectId>,
    held: Vec<ObjectId>,
    leases: Vec<LeaseHeld>,
}

/// A head, a member, a driver at the head, and what the driver and its workers know.
struct Away {
    head: World,
    member: World,
    stream: Key,
    up: VecDeque<Message>,
    down: VecDeque<Message>,
    driver: Key,
    identity: (WorkerId, JobId),
    counts: Counts,
    epoch: u64,
}

fn object(number: u8) -> ObjectId {
    ObjectId::new([number; 28])
}

fn bytes(id: &[u8]) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(id)
}

fn value() -> Value {
    Value { content: Some(Content::Inline("v".into())), contained: Vec::new() }
}

impl Away {
    /// With so many CPUs on the member, and none at the head.
    fn new(cpus: u32) -> Self {
        let mut head = World::new(0, 0);
        head.core.begin_epoch(1);
        let mut member = World::member(cpus, NodeId::new([7; 28]));
        member.core.serve_head(HEAD, String::new());
        member.core.begin_epoch(1);
        member.settle();
        let stream = head.core.new_key();
        let (up, down, counts) = (VecDeque::new(), VecDeque::new(), Counts::default());
        let identity = (WorkerId::NIL, JobId::from_number(1));
        let mut away = Self { head, member, stream, up, down, driver: 0, identity, counts, epoch: 1 };
        away.carry();
        away.driver = away.head.driver();
        away.identity.0 = away.head.core.as_head().clients.by_key[&away.driver].id;
        away
    }

    /// Everything that was said arrives, and those that were killed are gone.
    fn carry(&mut self) {
        loop {
            self.bury();
            let (down, left) = std::mem::take(&mut self.head.sent).into_iter().partition(|(to, _)| *to == self.stream);
            self.head.sent = left;
            let down: Vec<(Key, Message)> = down;
            self.down.extend(down.into_iter().map(|(_, message)| message));
            let said = std::mem::take(&mut self.member.sent).into_iter().filter(|(to, _)| *to == HEAD);
            self.up.extend(said.map(|(_, message)| message));
            if let Some(message) = self.up.pop_front() {
                self.head.hear_member(self.stream, message);
                self.head.settle();
            } else if let Some(message) = self.down.pop_front() {
                match message {
                    Message::Relay(_) | Message::ObjectDelete(_) => {}
                    Message::Seek(asked) => self.up.push_back(Sought { search: asked.search, is_here: false }.into()),
                    message => self.member.hear_head(message),
                }
                self.member.settle();
            } else {
                break;
            }
            self.head.core.audit();
            self.member.core.audit();
        }
    }

    fn bury(&mut self) {
        for worker in self.head.ending() {
            let there = self.head.core.route(worker).map(|(_, number)| number.0);
            if let Some(number) = there.filter(|number| self.member.running.contains(number)) {
                self.member.bury(number, "killed by signal 9 (SIGKILL)");
            }
        }
        for worker in self.member.ending() {
            self.member.bury(worker, "killed by signal 9 (SIGKILL)");
        }
    }

    fn lease(&mut self, number: u64) -> Key {
        self.head.say(self.driver, request(number, &[CPU]));
        self.carry();
        let (lease, worker) = self.head.granted(self.driver, number);
        let worker_id = self.head.core.as_head().workers.by_key[&worker].id;
        self.counts.leases.push(LeaseHeld { lease, worker: worker_id });
        worker
    }

    /// The head is killed, and another begins with what was written down: the jobs, and who is awaited.
    fn restart(&mut self) {
        self.restart_with(&[self.identity.1]);
    }

    /// The same, where only those of its jobs are not over.
    fn restart_with(&mut self, under_way: &[JobId]) {
        self.epoch += 1;
        let mut head = World::new(0, 0);
        head.core.begin_epoch(self.epoch);
        let (driver, job) = self.identity;
        head.core.as_head_mut().jobs.known.learn(job, driver, 1, "space");
        let driver_key = head.core.new_key();
        let told = Driver { interpreter: "python".into(), ..Driver::default() };
        let is_over = !under_way.contains(&job);
        let mut detail = JobDetail::new(driver_key, driver, told);
        detail.is_over = is_over;
        head.core.as_head_mut().jobs.details.insert(job, detail);
        let node = self.member.core.node().plan().node;
        let until = head.now + LIMIT;
        head.core.as_head_mut().begin_resumption(BTreeMap::from([(node, until)]));
        self.head = head;
        self.up.clear();
        self.down.clear();
        self.stream = self.head.core.new_key();
        self.driver = self.head.core.new_key();
        self.head.settle();
    }

    fn member_returns(&mut self) {
        let stored = vec![object(9)];
        self.member.core.serve_next_head(HEAD, self.epoch, String::new(), stored);
        self.member.settle();
        self.carry();
    }

    /// The member's workers say that they have nothing of others.
    fn workers_return(&mut self) {
        let workers: Vec<Key> = self.head.core.as_head().workers.by_key.keys().copied().collect();
        for worker in workers {
            self.head.say(worker, ClientResume { epoch: self.epoch, ..ClientResume::default() });
            self.head.say(worker, ClientSettled { epoch: self.epoch });
        }
        self.carry();
    }

    fn driver_returns(&mut self) {
        let (worker, job) = self.identity;
        let who = Returning { worker, job, epoch: self.epoch - 1 };
        let told = Driver { interpreter: "python".into(), ..Driver::default() };
        self.head.core.resume_driver(self.driver, told, &who).expect("it is awaited");
        self.head.settle();
        let leases = self.counts.leases.clone();
        self.head.say(self.driver, ClientResume { epoch: self.epoch, leases, ..ClientResume::default() });
        let wire = |ids: &[ObjectId]| ids.to_vec();
        self.head.say(self.driver, Promise { objects: wire(&self.counts.promised) });
        let hold = Hold { objects: wire(&self.counts.held), holder: worker, until_confirmed: false };
        self.head.say(self.driver, hold);
        for id in self.counts.promised.clone() {
            self.head.say(self.driver, Publish { object: id, value: Some(value()) });
        }
        self.carry();
    }

    fn driver_settles(&mut self) {
        self.head.say(self.driver, ClientSettled { epoch: self.epoch });
        self.carry();
    }

    fn is_everybody_back(&self) -> bool {
        !self.head.core.as_head().durable.resumption.is_under_way()
    }

    /// The driver lets go of everything and leaves: nothing is left anywhere.
    fn end(&mut self) {
        self.head.core.driver_left(self.driver);
        self.head.settle();
        self.carry();
        let passed = Duration::from_secs(60);
        self.head.pass(passed);
        self.member.pass(passed);
        self.carry();
        assert_eq!(self.head.core.leftovers(), []);
        assert_eq!(self.member.core.leftovers(), []);
        assert!(self.member.core.granted().is_empty(), "every CPU is back");
    }
}

#[test]
fn leases_go_on_whoever_comes_first() {
    for member_first in [true, false] {
        let mut away = Away::new(2);
        let first = away.lease(1);
        let (number, id) =
            (away.head.core.route(first).expect("it is there").1, away.head.core.as_head().workers.by_key[&first].id);
        away.restart();
        if member_first {
            away.member_returns();
            away.driver_returns();
        } else {
            away.driver_returns();
            away.member_returns();
        }
        let lease = away.counts.leases[0].lease;
        let worker = away.head.core.as_head().clients.keys[&id];
        assert_eq!(away.head.core.as_head().workers.by_key[&worker].duty, Duty::Leased(lease.0));
        assert_eq!(away.head.core.route(worker).map(|(_, number)| number), Some(number), "it is the same process");
        away.workers_return();
        assert!(!away.is_everybody_back(), "the driver has not told everything");
        away.driver_settles();
        assert!(away.is_everybody_back());
        assert!(away.head.ended(away.driver).is_empty());
        let second = away.lease(2);
        assert_ne!(second, worker, "the first CPU is still in use");
        for held in std::mem::take(&mut away.counts.leases) {
            away.head.say(away.driver, LeaseReturn { lease: held.lease, retiring: false });
        }
        away.carry();
        assert_eq!(away.member.free("CPU"), 20_000);
        away.end();
    }
}

#[test]
fn a_lease_stays_its_owners_when_another_claims_one_of_that_number() {
    let mut away = Away::new(2);
    let (kept, liar) = (away.lease(1), away.lease(2));
    let [kept_id, liar_id] = [kept, liar].map(|worker| away.head.core.as_head().workers.by_key[&worker].id);
    let [kept_lease, lied_lease] = [0, 1].map(|place: usize| away.counts.leases[place].lease);
    away.restart();
    away.member_returns();
    // One of the workers says that it is its own owner, by the number under which the driver has the other one.
    let (liar, future) = (away.head.core.as_head().clients.keys[&liar_id], LeaseNumber(2 << 40));
    for lease in [future, kept_lease, kept_lease] {
        let leases = vec![LeaseHeld { lease, worker: liar_id }];
        away.head.say(liar, ClientResume { epoch: 2, leases, ..ClientResume::default() });
    }
    away.driver_returns();
    away.workers_return();
    away.driver_settles();
    away.head.core.audit();
    away.head.core.kill_worker(liar);
    away.head.settle();
    away.carry();
    let ended: Vec<LeaseNumber> = away.head.ended(away.driver).into_iter().map(|(lease, _)| lease).collect();
    assert_eq!(ended, [lied_lease], "DOOR-2: the other lease has not ended");
    assert!(away.head.core.as_head().clients.keys.contains_key(&kept_id));
    away.head.say(away.driver, LeaseReturn { lease: kept_lease, retiring: false });
    away.carry();
    assert_eq!(away.member.free("CPU"), 20_000, "it was the driver's to return");
    away.end();
}

#[test]
fn an_actor_is_resumed_by_the_node_that_it_was_on_and_by_no_other() {
    for post in [NodeId::new([7; 28]), NodeId::new([8; 28])] {
        let mut away = Away::new(1);
        away.restart();
        let ((creator, job), id, worker) = (away.identity, ActorId::new([3; 16]), WorkerId::new([4; 28]));
        let description = Description {
            id,
            job,
            creator,
            name: String::new(),
            namespace: String::new(),
            class_name: String::new(),
            detached: false,
            max_restarts: 0,
            preemptible: false,
        };
        away.head.core.as_head_mut().actors.known.restore(Actor::new(description, ActorState::Waiting, 0, false));
        let mut making = Making::unfinished(job, bytes(&[]));
        making.post = Some(post);
        away.head.core.as_head_mut().actors.making.insert(id, making);
        let node = Some(away.member.core.node().described(0, String::new()));
        let (job, actor) = (job, id);
        let held = WorkerHeld {
            number: WorkerNumber(1),
            id: worker,
            pid: 9,
            job,
            actor: Some(actor),
            ..WorkerHeld::default()
        };
        let told = NodeResume { node, workers: vec![held], ..NodeResume::default() };
        away.head.core.member_said(away.stream, told.into());
        away.head.settle();
        let is_its = post == away.member.core.node().plan().node;
        assert_eq!(
            away.head.core.as_head().actors.known.get(id).and_then(Actor::worker),
            is_its.then_some(worker),
            "DOOR-2"
        );
        let key = away.head.core.as_head().clients.keys[&worker];
        assert_eq!(away.head.core.as_head().durable.resumption.is_killed_when_it_has_told(key), !is_its, "RESUME-3");
    }
}

#[test]
fn a_worker_that_nobody_claims_is_killed_and_a_claim_without_worker_ends() {
    let mut away = Away::new(2);
    away.lease(1);
    let unclaimed = away.counts.leases.pop().expect("it was granted");
    let gone = LeaseHeld { lease: LeaseNumber(unclaimed.lease.0 + 1), worker: WorkerId::new([5; 28]) };
    away.counts.leases.push(gone.clone());
    away.restart();
    away.driver_returns();
    assert!(away.head.ended(away.driver).is_empty(), "its node may still come");
    away.member_returns();
    away.workers_return();
    away.driver_settles();
    let ended: Vec<LeaseNumber> = away.head.ended(away.driver).into_iter().map(|(lease, _)| lease).collect();
    assert_eq!(ended, [gone.lease], "CORE-2");
    away.carry();
    assert_eq!(away.member.free("CPU"), 20_000, "what nobody claims is free again");
    away.end();
}

#[test]
fn a_lease_of_a_node_that_does_not_come_back_ends_when_it_is_given_up() {
    let mut away = Away::new(1);
    away.lease(1);
    away.restart();
    away.driver_returns();
    away.driver_settles();
    assert!(!away.is_everybody_back() && away.head.ended(away.driver).is_empty());
    away.head.pass(LIMIT + Duration::from_secs(1));
    assert!(away.is_everybody_back());
    assert_eq!(away.head.ended(away.driver).len(), 1);
    let late = NodeResume { node: Some(away.member.core.node().described(0, String::new())), ..NodeResume::default() };
    away.head.core.member_said(away.stream, late.into());
    away.head.settle();
    let refused = away.head.sent.iter().any(|(to, said)| *to == away.stream && matches!(said, Message::Refused(_)));
    assert!(refused && away.head.core.as_head().members.is_alone(), "RESUME-2");
}

#[test]
fn holds_are_counted_again_and_nothing_is_deleted_before_everybody_has_told() {
    let mut away = Away::new(1);
    away.lease(1);
    let wire = |id: ObjectId| vec![id];
    away.head.say(away.driver, Promise { objects: wire(object(1)) });
    away.head.say(away.driver, Publish { object: object(1), value: Some(value()) });
    (away.counts.promised, away.counts.held) = (vec![object(1)], vec![object(9)]);
    away.restart();
    away.member_returns();
    let worker = *away.head.core.as_head().workers.by_key.keys().next().expect("it is back");
    let reference = Reference { object: object(1), owner: Some(away.identity.0) };
    // The word of the worker comes before that of the owner, which may still come.
    away.head.say(worker, ClientResume { epoch: 2, ..ClientResume::default() });
    away.head.say(worker, Subscribe { reference: Some(reference) });
    // What was on its way is held before it is known; what is let go of meanwhile is not deleted yet.
    away.head.say(worker, Unhold { objects: wire(object(9)) });
    away.head.say(worker, ClientSettled { epoch: 2 });
    assert!(away.head.published(worker, 1).is_none() && away.head.deleted.is_empty(), "RESUME-1");
    away.driver_returns();
    assert_eq!(away.head.published(worker, 1), Some(value()));
    away.head.say(away.driver, Unhold { objects: wire(object(1)) });
    assert!(away.head.core.as_head().objects.known.is_gathering());
    away.driver_settles();
    assert!(away.is_everybody_back());
    assert!(away.head.core.as_head().objects.known.len() == 1, "the stored one is held by the driver");
    away.head.say(away.driver, Unhold { objects: wire(object(9)) });
    away.carry();
    assert_eq!(away.head.deleted, [object(9)]);
    // The worker gave up one hold of it that nobody counted: it goes with the worker.
    away.end();
}

#[test]
fn an_object_is_not_called_lost_before_every_node_is_back_or_given_up() {
    for comes_back in [true, false] {
        let mut away = Away::new(1);
        away.lease(1);
        away.restart();
        for number in [8, 9] {
            away.head.core.locate(None, object(number), None, false);
        }
        away.head.settle();
        assert!(away.head.core.has_members() && away.head.found.is_empty(), "LOCATION-3");
        let found = |number, node| Whereabouts { asker: None, object: object(number), node };
        if comes_back {
            away.member_returns();
            let node = away.member.core.node().plan().node;
            assert_eq!(
                away.head.found,
                [found(9, Some(node)), found(8, None)],
                "it was asked for what it did not name"
            );
        } else {
            away.head.pass(LIMIT + Duration::from_secs(1));
            assert_eq!(away.head.found, [found(8, None), found(9, None)]);
        }
    }
}

#[test]
fn a_driver_that_does_not_come_back_takes_its_job_along() {
    let mut away = Away::new(1);
    away.lease(1);
    away.restart();
    away.member_returns();
    away.workers_return();
    away.head.pass(LIMIT + Duration::from_secs(1));
    away.carry();
    assert!(away.is_everybody_back());
    assert_eq!(away.member.free("CPU"), 10_000);
    assert_eq!(away.head.core.leftovers(), []);
    assert_eq!(away.member.core.leftovers(), []);
    let who = Returning { worker: away.identity.0, job: away.identity.1, epoch: 1 };
    let refused = away.head.core.resume_driver(away.driver, Driver::default(), &who).expect_err("it is too late");
    assert!(refused.contains("its job is over"), "{refused}");
}

/// Its driver ended just before the head did, which had written that down and not yet told the node.
#[test]
fn an_idle_worker_of_a_job_that_is_over_is_killed() {
    let mut away = Away::new(1);
    away.lease(1);
    let lease = away.counts.leases.pop().expect("it was just granted").lease;
    away.head.say(away.driver, LeaseReturn { lease, retiring: false });
    away.carry();
    away.restart_with(&[]);
    away.member_returns();
    away.workers_return();
    assert!(away.is_everybody_back());
    assert_eq!(away.head.core.leftovers(), []);
    assert_eq!(away.member.core.leftovers(), []);
}

#[test]
fn a_head_that_is_killed_twice_is_told_twice() {
    let mut away = Away::new(1);
    away.lease(1);
    for _ in 0..2 {
        away.restart();
        away.driver_returns();
    }
    away.member_returns();
    away.workers_return();
    away.driver_settles();
    assert!(away.is_everybody_back() && away.head.ended(away.driver).is_empty());
    away.end();
}

#[test]
fn a_lease_that_is_given_up_before_its_worker_is_back_is_not_claimed() {
    let mut away = Away::new(1);
    away.lease(1);
    let held = away.counts.leases[0].clone();
    away.restart();
    away.driver_returns();
    away.head.say(away.driver, LeaseReturn { lease: held.lease, retiring: false });
    away.member_returns();
    away.workers_return();
    away.driver_settles();
    assert!(away.is_everybody_back() && away.head.ended(away.driver).is_empty());
    away.carry();
    assert_eq!(away.member.free("CPU"), 10_000);
    away.end();
}

#[test]
fn a_worker_tells_what_it_owns_before_it_is_killed() {
    let mut away = Away::new(1);
    away.lease(1);
    let lease = away.counts.leases[0].lease;
    away.restart();
    away.member_returns();
    away.driver_returns();
    away.head.say(away.driver, LeaseKill { lease });
    assert!(away.head.ending().is_empty(), "nobody else may know yet what it owns");
    let worker = *away.head.core.as_head().workers.by_key.keys().next().expect("it is back");
    away.head.say(worker, ClientResume { epoch: 2, ..ClientResume::default() });
    away.head.say(worker, Promise { objects: vec![object(3)] });
    away.head.say(worker, Publish { object: object(3), value: Some(value()) });
    let hold = Hold { objects: vec![object(3)], holder: away.identity.0, until_confirmed: false };
    away.head.say(away.driver, hold);
    away.head.say(worker, ClientSettled { epoch: 2 });
    away.carry();
    assert_eq!(away.head.ended(away.driver).len(), 1, "it is dead");
    let reference = Reference { object: object(3), owner: None };
    away.head.say(away.driver, Subscribe { reference: Some(reference) });
    assert_eq!(away.head.published(away.driver, 3), Some(value()));
}

#[test]
fn who_runs_within_a_group_that_was_removed_meanwhile_is_killed() {
    let mut away = Away::new(1);
    away.head.say(away.driver, group(7, &[&[CPU]]));
    away.carry();
    away.head.say(away.driver, LeaseRequest { strategy: Some(within(7, 0)), ..request(1, &[CPU]) });
    away.carry();
    let (lease, worker) = away.head.granted(away.driver, 1);
    let worker = away.head.core.as_head().workers.by_key[&worker].id;
    away.counts.leases.push(LeaseHeld { lease, worker });
    // The next head finds no such group in its journal, and the word that it ends was lost with the last one.
    away.restart();
    away.member_returns();
    away.driver_returns();
    assert!(away.head.ended(away.driver).is_empty(), "nobody else may know yet what it owns");
    away.workers_return();
    away.driver_settles();
    assert_eq!(away.head.ended(away.driver).len(), 1, "RESUME-3");
    assert_eq!(away.member.free("CPU"), 10_000);
    away.end();
}

#[test]
fn leases_that_go_on_count_and_are_recalled_for_others() {
    for member_first in [true, false] {
        let mut away = Away::new(1);
        away.lease(1);
        away.restart();
        if member_first {
            away.member_returns();
            away.driver_returns();
        } else {
            away.driver_returns();
            away.member_returns();
        }
        away.workers_return();
        away.driver_settles();
        away.head.core.as_head_mut().jobs.known.set_last_number(1);
        let other = away.head.driver();
        away.head.say(other, request(1, &[CPU]));
        away.head.pass(Duration::from_secs(1));
        let lease = away.counts.leases[0].lease;
        assert_eq!(recalled(&away.head, away.driver), [lease], "by the number that its owner knows");
        away.head.say(away.driver, LeaseReturn { lease, retiring: false });
        away.carry();
        away.head.granted(other, 1);
        away.head.core.driver_left(other);
        away.head.settle();
        away.end();
    }
}
