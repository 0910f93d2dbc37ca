//! The runtime against a worker that begins a frame and does not end it, played by the test over real sockets.

use super::*;
use crate::runtime::Runtime;
use crate::shell::State;
use crate::{ActorWork, Arguments, Class, Identity, Routine, Work};
use bytes::{Bytes, BytesMut};
use oxiray_ids::{JobId, LeaseNumber, NodeId, ObjectId, TaskId, WorkerId};
use oxiray_wire::message::{
    ActorCreate, ActorPlaced, Call, Content, Environment, Failure, FailureCode, LeaseEnded, LeaseGranted, Message,
    Reply, Value,
};
use oxiray_wire::{Connection, Received, frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd as _;
use std::sync::Arc;

const LIMIT: Duration = Duration::from_secs(60);

/// Long enough for a test to look in between, and short enough to wait for.
const SHORT: Duration = Duration::from_millis(50);

/// One end of a stream that the test plays.
struct Peer {
    connection: Connection,
    inbox: Vec<Received>,
}

impl Peer {
    fn new(connection: Connection) -> Self {
        Self { connection, inbox: Vec::new() }
    }

    /// The next message for which there is something to return; nothing where the stream ends.
    fn next<T>(&mut self, wanted: impl Fn(Message) -> Option<T>) -> Option<T> {
        loop {
            while !self.inbox.is_empty() {
                if let Some(found) = wanted(self.inbox.remove(0).message) {
                    return Some(found);
                }
            }
            let limit = Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(&self.connection, PollFlags::IN)], Some(&limit));
            assert_eq!(ready, Ok(1), "the runtime says nothing and keeps the stream open");
            if self.connection.receive(&mut self.inbox).is_err() && self.inbox.is_empty() {
                return None;
            }
        }
    }

    fn say(&mut self, message: impl Into<Message>) {
        self.connection.send(&message.into());
        while !self.connection.flush().expect("the runtime keeps the stream open") {}
    }

    fn join(&mut self, message: impl Into<Message>) -> Self {
        let (near, far) = Connection::pair().expect("a pair");
        self.connection.send_with(&message.into(), vec![far]);
        while !self.connection.flush().expect("the runtime keeps the stream open") {}
        Self::new(near)
    }

    fn grant(&mut self, lease: u64) -> Self {
        let lease = LeaseNumber(lease);
        let request = self.next(|message| match message {
            Message::LeaseRequest(asked) => Some(asked.request),
            _ => None,
        });
        let worker = WorkerId::generate();
        let request = request.expect("the stream is open");
        self.join(LeaseGranted { request, lease, worker, is_alone: true, is_near: false })
    }

    fn call(&mut self) -> Call {
        let call = self.next(|message| match message {
            Message::Call(call) => Some(*call),
            _ => None,
        });
        call.expect("the stream is open")
    }

    fn bytes(&self, bytes: &[u8]) {
        let sent = rustix::net::send(self.connection.as_fd(), bytes, rustix::net::SendFlags::NOSIGNAL);
        assert_eq!(sent, Ok(bytes.len()));
    }

    /// The header of a frame that does not come, and a little of it.
    fn begin_frame(&self) {
        let (whole, _) = reply_bytes(TaskId::new([1; 24]), 1000);
        self.bytes(&whole[..100]);
    }
}

fn reply_bytes(task: TaskId, length: usize) -> (BytesMut, Value) {
    let value = Value { content: Some(Content::Inline(Bytes::from(vec![7; length]))), contained: Vec::new() };
    let reply = Reply { task, results: vec![value.clone()], ..Reply::default() };
    let mut whole = BytesMut::new();
    frame::append(&Message::from(reply), 0, &mut whole).expect("it fits");
    (whole, value)
}

fn started(period: Duration) -> (Runtime, Peer) {
    let (near, far) = Connection::pair().expect("a pair");
    let identity = Identity {
        node: NodeId::generate(),
        worker: WorkerId::generate(),
        job: JobId::from_number(1),
        namespace: String::new(),
        session: String::new(),
        address: String::new(),
        epoch: 0,
    };
    let far = Connection::new(far).expect("a socket");
    let runtime = Runtime::start(identity, far, Vec::new(), None, None).expect("it starts");
    runtime.shared.with(|state| state.io.unfinished.period = period);
    (runtime, Peer::new(near))
}

fn work(retries: i32) -> Work {
    let (function, code) = (Bytes::from_static(b"hash"), Bytes::from_static(b"code"));
    let routine = Routine { function, code, name: "f".into(), results: 1, ..Routine::default() };
    Work { routine: Arc::new(routine), retries, ..Work::default() }
}

fn submit(runtime: &Runtime, retries: i32) -> ObjectId {
    let demand = vec![("CPU".into(), 10_000)];
    let class = Class {
        demand,
        environment: Environment::default(),
        fresh: false,
        strategy: None,
        near: Vec::new(),
        priority: 0,
        preemptible: false,
    };
    runtime.submit(runtime.class(class), work(retries)).object(1)
}

fn content_of(runtime: &Runtime, id: ObjectId) -> Option<Content> {
    runtime.get_one(id, Some(Instant::now() + LIMIT)).expect("the value comes").content
}

fn failure_of(runtime: &Runtime, id: ObjectId) -> Failure {
    match content_of(runtime, id) {
        Some(Content::Failed(failure)) => failure,
        other => panic!("a failure was expected, not {other:?}"),
    }
}

/// Waits until it holds, by turns of the runtime's own.
fn until(runtime: &Runtime, holds: impl Fn(&State) -> bool) {
    let deadline = Some(Instant::now() + LIMIT);
    while runtime.shared.wait(deadline, |state| holds(state).then_some(())).is_err() {
        assert!(deadline.is_some_and(|at| Instant::now() < at), "it did not come to be in time");
    }
}

#[test]
fn a_worker_that_announces_more_than_comes_is_ended_and_its_task_is_run_again() {
    let (runtime, mut daemon) = started(SHORT);
    let id = submit(&runtime, 1);
    let mut worker = daemon.grant(1);
    worker.call();
    worker.begin_frame();
    let killed = |message| match message {
        Message::LeaseKill(kill) => Some(kill.lease.0),
        _ => None,
    };
    assert_eq!(daemon.next(killed), Some(1));
    assert!(worker.next(|_| None::<()>).is_none(), "its stream is closed");
    daemon.say(LeaseEnded { lease: LeaseNumber(1), text: "killed by signal 9".into(), ..LeaseEnded::default() });
    let mut other = daemon.grant(2);
    let call = other.call();
    other.begin_frame();
    assert_eq!(daemon.next(killed), Some(2));
    daemon.say(LeaseEnded { lease: LeaseNumber(2), text: "killed by signal 9".into(), ..LeaseEnded::default() });
    assert_eq!(call.name, "f");
    let failure = failure_of(&runtime, id);
    assert_eq!(failure.code, FailureCode::WorkerCrashed);
    assert!(failure.text.contains("nothing more of it came for 0.2 s"), "{}", failure.text);
}

/// Nobody looks but the test.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// One look that finds what there is, whatever the time is.
fn look(runtime: &Runtime) {
    runtime.shared.with(|state| {
        let now = state.io.unfinished.looks_at.expect("a frame is unfinished");
        state.look_at_unfinished(now);
    });
}

fn progress(state: &State) -> Option<Instant> {
    state.io.unfinished.streams.first().and_then(|begun| state.io.links.stalled_since(begun.token))
}

#[test]
fn a_peer_that_sends_little_by_little_is_waited_for() {
    let (runtime, mut daemon) = started(NEVER);
    let id = submit(&runtime, 0);
    let mut worker = daemon.grant(1);
    let (whole, value) = reply_bytes(worker.call().task, 20);
    let mut before = None;
    for byte in &whole[..whole.len() - 1] {
        worker.bytes(&[*byte]);
        until(&runtime, |state| progress(state) != before);
        before = runtime.shared.with(|state| progress(state));
        (1..LOOKS).for_each(|_| look(&runtime));
    }
    worker.bytes(&whole[whole.len() - 1..]);
    assert_eq!(content_of(&runtime, id), value.content);
    look(&runtime);
    assert!(
        runtime.shared.with(|state| state.io.unfinished.looks_at.is_none()),
        "nothing is unfinished (UNFINISHED-3)"
    );
}

#[test]
fn the_time_in_which_nobody_looked_counts_as_one_look() {
    let (runtime, mut daemon) = started(SHORT);
    let id = submit(&runtime, 0);
    let mut worker = daemon.grant(1);
    let (whole, value) = reply_bytes(worker.call().task, 1000);
    runtime.shared.with(|state| state.io.unfinished.period = NEVER);
    worker.bytes(&whole[..100]);
    until(&runtime, |state| state.io.unfinished.looks_at.is_some());
    // This process was stopped for a week, again and again.
    for week in 1..LOOKS {
        let now = Instant::now() + week * 7 * NEVER;
        runtime.shared.with(|state| state.look_at_unfinished(now));
    }
    worker.bytes(&whole[100..]);
    assert_eq!(content_of(&runtime, id), value.content);
}

#[test]
fn calls_of_an_actor_that_announces_more_than_comes_fail() {
    let (runtime, mut daemon) = started(SHORT);
    let create = ActorCreate::default();
    let made =
        runtime.create_actor(ActorWork { create, named: false, arguments: Arguments::default(), parent: TaskId::NIL });
    let actor = made.expect("an unnamed actor needs no answer").0;
    let id = runtime.call_actor(actor, work(0)).expect("there is no limit").object(1);
    let worker = WorkerId::generate();
    let placed = ActorPlaced { actor, worker, is_near: false };
    let mut process = daemon.join(placed.clone());
    process.call();
    process.begin_frame();
    let lost = daemon.next(|message| match message {
        Message::ActorConnect(asked) if asked.lost.is_some() => asked.lost,
        _ => None,
    });
    assert_eq!(lost, Some(placed.worker));
    drop(daemon.join(placed));
    assert_eq!(failure_of(&runtime, id).code, FailureCode::ActorUnavailable);
}
