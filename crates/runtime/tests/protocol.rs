//! The runtime against a daemon and a worker that the test plays itself, over real sockets.

#![expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]

mod common;

use bytes::Bytes;
use oxiray_ids::{ActorId, JobId, LeaseNumber, LeaseRequestNumber, ObjectId, TaskId, Unique, WorkerId};
use oxiray_runtime::{
    ActorWork, Arguments, Class, ClientEvent, Duty, Outcome, Place, Routine, Runtime, RuntimeError, Unmet, Work,
};
use oxiray_wire::message::{
    self, ActorCreate, ActorDied, ActorPlaced, ActorRestarting, Call, Content, Environment, Failure, FailureCode,
    HeadBack, LeaseEnded, LeaseGranted, LeaseRefused, LeaseRetire, LostArgument, Notice, Published, Reply, Returned,
    Value,
};
use oxiray_wire::{Connection, Message, Received};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One end of a stream that the test plays, read message by message.
struct Peer {
    connection: Connection,
    inbox: VecDeque<Message>,
}

impl Peer {
    fn new(connection: Connection) -> Self {
        Self { connection, inbox: VecDeque::new() }
    }

    fn next(&mut self) -> Message {
        let mut received: Vec<Received> = Vec::new();
        while self.inbox.is_empty() {
            let ready = poll(
                &mut [PollFd::new(&self.connection, PollFlags::IN)],
                Some(&rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 }),
            );
            assert_eq!(ready, Ok(1), "the runtime said nothing for 60 s");
            self.connection.receive(&mut received).expect("the runtime keeps the stream open");
            self.inbox.extend(received.drain(..).map(|received| received.message));
        }
        self.inbox.pop_front().expect("it is not empty")
    }

    /// What is still said before the runtime closes the stream.
    fn all_until_the_end(&mut self) -> Vec<Message> {
        let mut received: Vec<Received> = Vec::new();
        loop {
            let ready = poll(
                &mut [PollFd::new(&self.connection, PollFlags::IN)],
                Some(&rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 }),
            );
            assert_eq!(ready, Ok(1), "the stream was not closed for 60 s");
            if self.connection.receive(&mut received).is_err() {
                return received.drain(..).map(|received| received.message).collect();
            }
        }
    }

    fn say(&mut self, message: impl Into<Message>) {
        self.connection.send(&message.into());
        while !self.connection.flush().expect("the runtime keeps the stream open") {}
    }

    /// Sends a message with one end of a new stream; plays the other.
    fn join(&mut self, message: impl Into<Message>) -> Peer {
        let (near, far) = Connection::pair().expect("a pair");
        self.connection.send_with(&message.into(), vec![far]);
        while !self.connection.flush().expect("the runtime keeps the stream open") {}
        Peer::new(near)
    }

    fn call(&mut self) -> Call {
        loop {
            match self.next() {
                Message::Call(call) => return *call,
                Message::Function(_) => {}
                other => panic!("a call was expected, not {other:?}"),
            }
        }
    }

    fn lease_request(&mut self) -> LeaseRequestNumber {
        loop {
            match self.next() {
                Message::LeaseRequest(request) => return request.request,
                Message::LeaseCancel(_) | Message::LeaseReturn(_) | Message::LeaseKill(_) | Message::Confirm(_) => {}
                other => panic!("a lease request was expected, not {other:?}"),
            }
        }
    }

    fn grant(&mut self, request: LeaseRequestNumber, lease: u64) -> Peer {
        let lease = LeaseNumber(lease);
        let worker = WorkerId::generate();
        self.join(LeaseGranted { request, lease, worker, is_alone: true, is_near: false })
    }

    fn reply(&mut self, call: &Call, text: &'static str) {
        self.say(Reply { task: call.task, results: vec![inline(text)], ..Reply::default() });
    }
}

fn inline(text: &'static str) -> Value {
    Value { content: Some(Content::Inline(Bytes::from_static(text.as_bytes()))), contained: Vec::new() }
}

fn started() -> (Runtime, Peer) {
    let (runtime, near) = common::started();
    (runtime, Peer::new(near))
}

fn work(name: &str) -> Work {
    let (function, code) = (Bytes::from_static(b"hash"), Bytes::from_static(b"code"));
    let routine = Routine { function, code, name: name.into(), results: 1, ..Routine::default() };
    Work { routine: Arc::new(routine), retries: 3, ..Work::default() }
}

fn class(runtime: &Runtime) -> oxiray_runtime::ClassIndex {
    let demand = vec![("CPU".into(), 10_000)];
    runtime.class(Class {
        demand,
        environment: Environment::default(),
        fresh: false,
        strategy: None,
        near: Vec::new(),
        priority: 0,
        preemptible: false,
    })
}

fn submit(runtime: &Runtime, work: Work) -> ObjectId {
    runtime.submit(class(runtime), work).object(1)
}

fn value_of(runtime: &Runtime, id: ObjectId) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    let seen = runtime.get_one(id, Some(deadline)).expect("the value comes");
    Value { content: seen.content, contained: Vec::new() }
}

fn failure_of(runtime: &Runtime, id: ObjectId) -> Failure {
    match value_of(runtime, id).content {
        Some(Content::Failed(failure)) => failure,
        other => panic!("a failure was expected, not {other:?}"),
    }
}

#[test]
fn a_task_is_leased_called_and_answered() {
    let (runtime, mut daemon) = started();
    let id = submit(&runtime, work("f"));
    let request = daemon.lease_request();
    let mut worker = daemon.grant(request, 1);
    let call = worker.call();
    assert_eq!((call.name.as_str(), call.results), ("f", 1));
    worker.reply(&call, "done");
    assert_eq!(value_of(&runtime, id), inline("done"));
    runtime.release(id);
    assert_eq!(runtime.objects_known(), 0);
}

#[test]
fn an_argument_is_waited_for_and_travels_with_the_call() {
    let (runtime, mut daemon) = started();
    let first = submit(&runtime, work("f"));
    let mut second = work("g");
    second.arguments.references = vec![(Place::Position(0), first)];
    let second = submit(&runtime, second);
    let request = daemon.lease_request();
    let mut worker = daemon.grant(request, 1);
    let call = worker.call();
    assert_eq!(call.name, "f");
    worker.reply(&call, "value of f");
    let call = worker.call();
    assert_eq!((call.name.as_str(), call.references[0].value.clone()), ("g", Some(inline("value of f"))));
    worker.reply(&call, "value of g");
    assert_eq!(value_of(&runtime, second), inline("value of g"));
}

#[test]
fn what_is_refused_fails_with_the_reason() {
    let (runtime, mut daemon) = started();
    let id = submit(&runtime, work("f"));
    let request = daemon.lease_request();
    let failure = FailureCode::TaskUnschedulable.because("too much");
    daemon.say(LeaseRefused { request, failure: Some(failure.clone()) });
    assert_eq!(failure_of(&runtime, id), failure);
}

#[test]
fn a_task_is_run_again_until_its_retries_are_used_up() {
    let (runtime, mut daemon) = started();
    let id = submit(&runtime, Work { retries: 1, ..work("f") });
    for attempt in 0..2 {
        let request = daemon.lease_request();
        let mut worker = daemon.grant(request, u64::from(attempt));
        assert_eq!(worker.call().attempt, attempt);
        drop(worker);
        daemon.say(LeaseEnded {
            lease: LeaseNumber(attempt.into()),
            text: "killed by signal 9 (SIGKILL)".into(),
            ..LeaseEnded::default()
        });
    }
    let failure = failure_of(&runtime, id);
    assert_eq!(failure.code, FailureCode::WorkerCrashed);
    assert!(failure.text.contains("killed by signal 9 (SIGKILL)"), "{}", failure.text);
}

#[test]
fn tasks_that_were_not_started_go_to_another_worker() {
    let (runtime, mut daemon) = started();
    let first = submit(&runtime, work("f"));
    let request = daemon.lease_request();
    let mut slow = daemon.grant(request, 1);
    let call = slow.call();
    // They wait for the first, so that the worker is not without work between it and them.
    let after = |name: &str| {
        let arguments = Arguments { references: vec![(Place::Position(0), first)], ..Arguments::default() };
        submit(&runtime, Work { arguments, ..work(name) })
    };
    let _running = after("slow");
    let behind = after("behind");
    slow.reply(&call, "quick");
    assert_eq!(value_of(&runtime, first), inline("quick"));
    // A short task was seen, so two are sent ahead; the worker gives the second one back.
    let (_, given) = (slow.call(), slow.call());
    slow.say(Returned { tasks: vec![given.task], lost: Vec::new() });
    let request = daemon.lease_request();
    let mut other = daemon.grant(request, 2);
    let call = other.call();
    assert_eq!(call.task, given.task);
    other.reply(&call, "done elsewhere");
    assert_eq!(value_of(&runtime, behind), inline("done elsewhere"));
}

#[test]
fn an_actor_gets_its_calls_in_order_and_its_death_fails_them() {
    let (runtime, mut daemon) = started();
    let made = runtime.create_actor(ActorWork {
        create: ActorCreate::default(),
        named: false,
        arguments: Arguments::default(),
        parent: TaskId::NIL,
    });
    let actor = made.expect("an unnamed actor needs no answer").0;
    let results: Vec<ObjectId> =
        (0..3).map(|_| runtime.call_actor(actor, work("m")).expect("there is no limit").object(1)).collect();
    let Message::ActorCreate(create) = daemon.next() else { panic!("an actor was to be made") };
    let mut process = daemon.join(ActorPlaced { actor: create.actor, worker: WorkerId::generate(), is_near: false });
    let calls: Vec<Call> = (0..3).map(|_| process.call()).collect();
    let sent: Vec<ObjectId> = calls.iter().map(|call| call.task.object(1)).collect();
    assert_eq!(sent, results);
    process.reply(&calls[0], "one");
    assert_eq!(value_of(&runtime, results[0]), inline("one"));
    drop(process);
    let failure = FailureCode::ActorDied.because("it was killed");
    daemon.say(ActorDied { actor: create.actor, failure: Some(failure.clone()) });
    assert_eq!(failure_of(&runtime, results[2]), failure);
    assert_eq!(
        failure_of(&runtime, runtime.call_actor(actor, work("m")).expect("there is no limit").object(1)),
        failure
    );
}

#[test]
fn a_deadline_ends_a_wait_and_the_daemons_death_ends_everything() {
    let (runtime, daemon) = started();
    let id = submit(&runtime, work("f"));
    let soon = Some(Instant::now() + Duration::from_millis(20));
    assert!(matches!(runtime.get(&[id], soon), Err(RuntimeError::Unmet(Unmet::TimedOut))));
    drop(daemon);
    assert_eq!(failure_of(&runtime, id).code, FailureCode::DaemonDied);
    assert_eq!(failure_of(&runtime, submit(&runtime, work("f"))).code, FailureCode::DaemonDied);
    assert!(matches!(runtime.cluster(), Err(RuntimeError::Failed(failure)) if failure.code == FailureCode::DaemonDied));
}

#[test]
fn a_call_that_the_daemons_death_interrupts_has_no_result() {
    let (runtime, mut daemon) = started();
    let mut client = daemon.join(message::Peer { client: WorkerId::generate() });
    let task = TaskId::generate(ActorId::nil_of(JobId::from_number(1)), &mut Unique::new());
    client.say(Call { task, results: 1, ..Call::default() });
    let Ok(Duty::Run(ticket, _)) = runtime.next_duty(None) else { panic!("the call is to be run") };
    let inner = submit(&runtime, work("f"));
    drop(daemon);
    assert_eq!(failure_of(&runtime, inner).code, FailureCode::DaemonDied);
    runtime.reply(ticket, Outcome { results: vec![inline("made of the failure")], ..Outcome::default() });
    assert_eq!(client.all_until_the_end(), []);
}

#[test]
fn a_task_lends_no_processor_while_the_daemon_says_what_it_has() {
    let (runtime, mut daemon) = started();
    let mut client = daemon.join(message::Peer { client: WorkerId::generate() });
    let task = TaskId::generate(ActorId::nil_of(JobId::from_number(1)), &mut Unique::new());
    client.say(Call { task, results: 1, ..Call::default() });
    let Ok(Duty::Run(ticket, _)) = runtime.next_duty(None) else { panic!("the call is to be run") };
    let foreign = task.object(7);
    runtime.borrow(foreign, WorkerId::generate());
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(value_of(&runtime, foreign), inline("v")));
        let Message::Subscribe(_) = daemon.next() else { panic!("the value is asked for first") };
        let Message::Blocked(_) = daemon.next() else { panic!("nobody else has anything to say") };
        assert!(began.elapsed() >= Duration::from_millis(20), "{:?}", began.elapsed());
        daemon.say(Published { object: foreign, value: Some(inline("v")) });
    });
    let Message::Unblocked(_) = daemon.next() else { panic!("it goes on") };
    runtime.reply(ticket, Outcome { results: vec![inline("done")], ..Outcome::default() });
}

#[test]
fn threads_that_wait_at_once_all_get_their_values() {
    let (runtime, mut daemon) = started();
    let ids: Vec<ObjectId> = (0..4).map(|_| submit(&runtime, work("f"))).collect();
    let request = daemon.lease_request();
    let mut worker = daemon.grant(request, 1);
    std::thread::scope(|scope| {
        for id in &ids {
            let runtime = runtime.clone();
            scope.spawn(move || assert_eq!(value_of(&runtime, *id), inline("v")));
        }
        for _ in &ids {
            let call = worker.call();
            worker.reply(&call, "v");
        }
    });
}

#[test]
fn an_actor_id_belongs_to_its_job() {
    let (runtime, _daemon) = started();
    let work = ActorWork {
        create: ActorCreate::default(),
        named: false,
        arguments: Arguments::default(),
        parent: TaskId::NIL,
    };
    let (actor, _): (ActorId, _) = runtime.create_actor(work).expect("made");
    assert_eq!(actor.job(), runtime.identity().job);
}

#[test]
fn a_stream_that_breaks_while_its_worker_lives_gets_a_verdict() {
    let (runtime, mut daemon) = started();
    let id = submit(&runtime, Work { retries: 0, ..work("f") });
    let request = daemon.lease_request();
    let mut worker = daemon.grant(request, 7);
    worker.call();
    drop(worker);
    loop {
        match daemon.next() {
            Message::LeaseKill(asked) => break assert_eq!(asked.lease, LeaseNumber(7)),
            Message::LeaseCancel(_) | Message::LeaseRequest(_) => {}
            other => panic!("the worker's end is to be asked for, not {other:?}"),
        }
    }
    daemon.say(LeaseEnded {
        lease: LeaseNumber(7),
        text: "killed by signal 9 (SIGKILL)".into(),
        ..LeaseEnded::default()
    });
    assert_eq!(failure_of(&runtime, id).code, FailureCode::WorkerCrashed);
}

/// A lease that is asked back while its task runs may lose its worker like any other, also while the head is away.
#[test]
fn a_retiring_lease_whose_stream_breaks_is_not_claimed_of_the_next_head() {
    let (runtime, mut daemon) = started();
    let id = submit(&runtime, Work { retries: 0, ..work("f") });
    let request = daemon.lease_request();
    let mut worker = daemon.grant(request, 7);
    worker.call();
    daemon.say(LeaseRetire { lease: LeaseNumber(7) });
    drop(worker);
    while !matches!(daemon.next(), Message::LeaseKill(_)) {}
    daemon.say(HeadBack { epoch: 2 });
    let claimed = loop {
        if let Message::ClientResume(told) = daemon.next() {
            break told.leases;
        }
    };
    assert_eq!(claimed, []);
    assert_eq!(failure_of(&runtime, id).code, FailureCode::NodeDied);
}

/// Nothing has gone through such a stream, so that its worker lives and no retry is spent.
#[test]
fn a_stream_that_the_network_did_not_make_is_no_death_of_its_worker() {
    let (runtime, mut daemon) = started();
    let id = submit(&runtime, Work { retries: 0, ..work("f") });
    for lease in (1..=6).map(LeaseNumber) {
        let request = daemon.lease_request();
        let worker = WorkerId::generate();
        let granted = LeaseGranted { request, lease, worker, is_alone: false, is_near: false };
        let (promised, kept) = oxiray_wire::connection::promise_pair().expect("a pair");
        daemon.connection.send_with(&granted.into(), vec![promised]);
        while !daemon.connection.flush().expect("the runtime keeps the stream open") {}
        drop(kept);
        loop {
            match daemon.next() {
                Message::LeaseReturn(returned) => {
                    break assert_eq!((returned.lease, returned.retiring), (lease, false));
                }
                Message::LeaseCancel(_) => {}
                other => panic!("the lease is to be given back, not {other:?}"),
            }
        }
    }
    let request = daemon.lease_request();
    let mut worker = daemon.grant(request, 7);
    let call = worker.call();
    worker.reply(&call, "v");
    assert_eq!(value_of(&runtime, id), inline("v"));
}

#[test]
fn a_cancelled_task_that_its_worker_gives_back_is_not_run_again() {
    let (runtime, mut daemon) = started();
    let ids = [submit(&runtime, work("f")), submit(&runtime, work("g"))];
    let request = daemon.lease_request();
    let mut worker = daemon.grant(request, 1);
    let first = worker.call();
    runtime.cancel(ids[0], false, true).expect("a task may be cancelled");
    // The two cross: the worker has given the task back before it hears that nobody wants it.
    worker.say(Returned { tasks: vec![first.task], lost: Vec::new() });
    assert_eq!(failure_of(&runtime, ids[0]).code, FailureCode::Cancelled);
    loop {
        match worker.next() {
            Message::Call(call) => {
                assert_eq!(call.name, "g");
                break worker.reply(&call, "done");
            }
            Message::Cancel(cancel) => assert_eq!(cancel.task, first.task),
            _ => {}
        }
    }
    assert_eq!(value_of(&runtime, ids[1]), inline("done"));
}

#[test]
fn a_cancelled_task_is_not_run_again_when_its_worker_dies() {
    let (runtime, mut daemon) = started();
    let id = submit(&runtime, Work { retries: -1, ..work("f") });
    let request = daemon.lease_request();
    let mut worker = daemon.grant(request, 1);
    worker.call();
    runtime.cancel(id, true, true).expect("a task may be cancelled");
    daemon.say(LeaseEnded {
        lease: LeaseNumber(1),
        text: "killed by signal 9 (SIGKILL)".into(),
        ..LeaseEnded::default()
    });
    assert_eq!(failure_of(&runtime, id).code, FailureCode::Cancelled);
}

/// A task that is given a stored result, and the worker that has it; the argument was made by the same worker.
fn with_stored_argument(runtime: &Runtime, daemon: &mut Peer) -> (ObjectId, ObjectId, Peer, Call) {
    let argument = submit(runtime, work("make"));
    let request = daemon.lease_request();
    let mut worker = daemon.grant(request, 1);
    let call = worker.call();
    let references = vec![(Place::Position(0), argument)];
    let arguments = Arguments { references, ..Arguments::default() };
    let used = submit(runtime, Work { arguments, retries: 0, ..work("use") });
    let stored = Value { content: Some(Content::Stored(1 << 20)), contained: Vec::new() };
    worker.say(Reply { task: call.task, results: vec![stored], ..Reply::default() });
    value_of(runtime, argument);
    let call = worker.call();
    (argument, used, worker, call)
}

#[test]
fn a_task_whose_argument_is_lost_waits_for_it_and_is_not_counted_as_begun() {
    let (runtime, mut daemon) = started();
    let (argument, used, mut worker, given) = with_stored_argument(&runtime, &mut daemon);
    let lost = LostArgument { object: argument, losses: 0 };
    worker.say(Returned { tasks: vec![given.task], lost: vec![lost.clone()] });
    let again = worker.call();
    assert_eq!((again.name.as_str(), again.attempt), ("make", 1), "the argument comes first");
    // What was said of the value that is gone is no news about the next.
    let stored = Value { content: Some(Content::Stored(1 << 20)), contained: Vec::new() };
    worker.say(Reply { task: again.task, results: vec![stored], ..Reply::default() });
    let used_call = worker.call();
    assert_eq!((used_call.task, used_call.references[0].losses), (given.task, 1));
    worker.say(Returned { tasks: vec![given.task], lost: vec![lost] });
    let at_once = worker.call();
    assert_eq!((at_once.task, at_once.attempt), (given.task, 0));
    worker.reply(&at_once, "done");
    assert_eq!(value_of(&runtime, used), inline("done"));
}

#[test]
fn a_reply_that_brings_stored_values_is_confirmed_and_the_death_of_its_worker_ends_that() {
    let (runtime, mut daemon) = started();
    let (argument, used, worker, _) = with_stored_argument(&runtime, &mut daemon);
    drop(worker);
    daemon.say(LeaseEnded {
        lease: LeaseNumber(1),
        text: "killed by signal 9 (SIGKILL)".into(),
        ..LeaseEnded::default()
    });
    assert_eq!(failure_of(&runtime, used).code, FailureCode::WorkerCrashed);
    let mut confirmed = Vec::new();
    loop {
        let Message::Confirm(said) = daemon.next() else { continue };
        confirmed.extend(said.objects);
        if said.is_over {
            break;
        }
    }
    assert_eq!(confirmed, [argument]);
}

/// An actor that was there, and is made anew after that.
fn restarting(runtime: &Runtime, daemon: &mut Peer, was_drained: bool) -> ActorId {
    let made = runtime.create_actor(ActorWork {
        create: ActorCreate::default(),
        named: false,
        arguments: Arguments::default(),
        parent: TaskId::NIL,
    });
    let actor = made.expect("an unnamed actor needs no answer").0;
    let first = runtime.call_actor(actor, work("m")).expect("there is no limit").object(1);
    let mut process = daemon.join(ActorPlaced { actor, worker: WorkerId::generate(), is_near: false });
    let call = process.call();
    process.reply(&call, "there");
    assert_eq!(value_of(runtime, first), inline("there"));
    let failure = FailureCode::ActorUnavailable.because("it died");
    daemon.say(ActorRestarting { actor, failure: Some(failure), was_drained, ..ActorRestarting::default() });
    // What comes after it is heard after it: what is called from here on is called while the actor restarts.
    daemon.say(Notice { text: "it restarts".into(), job: None });
    assert!(matches!(runtime.next_news(), ClientEvent::Notice(_)));
    actor
}

#[test]
fn a_call_to_an_actor_that_restarts_fails_after_a_while_unless_it_may_wait() {
    let (runtime, mut daemon) = started();
    let began = Instant::now();
    let actor = restarting(&runtime, &mut daemon, false);
    let call = |retries| {
        let work = Work { retries, ..work("m") };
        runtime.call_actor(actor, work).expect("there is no limit").object(1)
    };
    let (waits, fails, twice) = (call(-1), call(0), call(1));
    let failure = failure_of(&runtime, fails);
    assert_eq!(failure.code, FailureCode::ActorUnavailable);
    assert!(failure.text.contains("The actor is restarting."), "{}", failure.text);
    // Unless this thread was kept from looking until the second patience was over.
    assert!(runtime.peek(twice).is_none() || began.elapsed() > Duration::from_millis(3500), "it has a retry left");
    assert_eq!(failure_of(&runtime, twice).code, FailureCode::ActorUnavailable);
    assert!(began.elapsed() >= Duration::from_secs(3), "it waited twice");
    let placed = ActorPlaced { actor, worker: WorkerId::generate(), is_near: false };
    let mut process = daemon.join(placed);
    let sent = process.call();
    process.reply(&sent, "back");
    assert_eq!(value_of(&runtime, waits), inline("back"));
}

#[test]
fn waiting_for_an_actor_whose_machine_is_emptied_spends_no_retry() {
    let (runtime, mut daemon) = started();
    let actor = restarting(&runtime, &mut daemon, true);
    let call = |retries| {
        let work = Work { retries, ..work("m") };
        runtime.call_actor(actor, work).expect("there is no limit").object(1)
    };
    let (fails, waits) = (call(0), call(1));
    assert_eq!(failure_of(&runtime, fails).code, FailureCode::ActorUnavailable);
    // A second patience passes: by then a retry that were spent by waiting would be gone.
    let fails = call(0);
    assert_eq!(failure_of(&runtime, fails).code, FailureCode::ActorUnavailable);
    assert!(runtime.peek(waits).is_none());
    // Its one retry is still there, and is spent by a death that is no drain.
    let mut process = daemon.join(ActorPlaced { actor, worker: WorkerId::generate(), is_near: false });
    process.call();
    drop(process);
    let failure = FailureCode::ActorUnavailable.because("it died");
    daemon.say(ActorRestarting { actor, failure: Some(failure), ..ActorRestarting::default() });
    let mut process = daemon.join(ActorPlaced { actor, worker: WorkerId::generate(), is_near: false });
    let sent = process.call();
    process.reply(&sent, "back");
    assert_eq!(value_of(&runtime, waits), inline("back"));
}
