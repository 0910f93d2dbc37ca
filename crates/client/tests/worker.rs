//! The loop of a worker in a language that is made up, against a daemon and an owner that the test plays over real sockets.

#![expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]

use bytes::Bytes;
use oxiray_client::worker::{self, Newborn};
use oxiray_client::{Attempt, Functions, Language, UnderWay, assigned, attend, complete};
use oxiray_ids::{ActorId, JobId, NodeId, TaskId, Unique, WorkerId};
use oxiray_runtime::{Duty, Outcome, Runtime, RuntimeError, Unmet};
use oxiray_wire::message::{
    ActorCreate, Assign, Call, Cancel, Content, FailureCode, Peer, Reply, StreamTerms, Value, Welcome,
};
use oxiray_wire::{Connection, Message};
use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// How long anything may take on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(60);

/// One end of a stream that the test plays.
struct End {
    connection: Connection,
    inbox: VecDeque<Message>,
}

impl End {
    fn new(connection: Connection) -> Self {
        Self { connection, inbox: VecDeque::new() }
    }

    fn say(&mut self, message: impl Into<Message>) {
        self.connection.send(&message.into());
        assert!(self.connection.flush().expect("the worker keeps the stream open"));
    }

    fn next(&mut self) -> Message {
        if let Some(message) = self.inbox.pop_front() {
            return message;
        }
        let until = Some(Instant::now() + LIMIT);
        let (first, others) =
            self.connection.first_message(until).expect("the stream lives").expect("something is said");
        self.inbox.extend(others.into_iter().map(|received| received.message));
        first.message
    }

    fn reply(&mut self) -> Reply {
        match self.next() {
            Message::Reply(reply) => *reply,
            other => panic!("a reply was expected, not {other:?}"),
        }
    }

    /// Asks for a call; its task.
    fn call(&mut self, call: Call) -> TaskId {
        let task = TaskId::generate(ActorId::nil_of(JobId::from_number(1)), &mut Unique::new());
        let function = if call.function.is_empty() && call.retries == 0 {
            Bytes::copy_from_slice(call.name.as_bytes())
        } else {
            call.function.clone()
        };
        self.say(Call { task, function, results: call.results.max(1), ..call });
        task
    }
}

fn an_actor() -> ActorCreate {
    let actor = ActorId::generate(JobId::from_number(1), &mut Unique::new());
    ActorCreate { actor, owner: WorkerId::generate(), ..ActorCreate::default() }
}

/// A worker, its daemon, and an owner that calls it.
fn born(actor: Option<ActorCreate>) -> (Toy, End, End) {
    let (mut daemon, stream) = Connection::pair().expect("a pair");
    let welcome = Welcome {
        node: NodeId::generate(),
        worker: WorkerId::generate(),
        job: JobId::from_number(1),
        session: "/sessions/1".into(),
        ..Welcome::default()
    };
    daemon.send(&Message::from(Assign {
        worker: welcome.worker,
        driver: WorkerId::generate(),
        welcome: Some(welcome),
        actor,
        captures: true,
        ..Assign::default()
    }));
    assert!(daemon.flush().expect("sent"));
    let newborn = Newborn::await_assignment(stream).expect("it makes sense").expect("the daemon is there");
    assert_eq!(newborn.session(), "/sessions/1");
    let (runtime, _) = newborn.begin().expect("it begins");
    let (owner, far) = Connection::pair().expect("a pair");
    let client = WorkerId::generate();
    daemon.send_with(&Peer { client }.into(), vec![far]);
    assert!(daemon.flush().expect("sent"));
    let toy = Toy {
        runtime,
        functions: Functions::default(),
        attempts: 0,
        flaw: None,
        is_unfit: false,
        handed_on: None,
        began: None,
        done: Vec::new(),
    };
    (toy, End::new(daemon), End::new(owner))
}

fn inline(text: &str) -> Value {
    Value { content: Some(Content::Inline(Bytes::copy_from_slice(text.as_bytes()))), contained: Vec::new() }
}

fn raised(text: &str) -> Value {
    let failure = FailureCode::System.because(text);
    Value { content: Some(Content::Failed(failure)), contained: Vec::new() }
}

/// A language whose functions are known by what they are called; it says what is asked of it.
struct Toy {
    runtime: Runtime,
    functions: Functions<String>,
    attempts: u32,
    flaw: Option<Value>,
    is_unfit: bool,
    handed_on: Option<UnderWay<String>>,
    /// Is told when a call has begun that only its cancelling ends.
    began: Option<Sender<()>>,
    done: Vec<String>,
}

impl Language for Toy {
    type Own = String;
    type Returned = String;
    type Error = String;
    type Stop = RuntimeError;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn wait(&mut self, mut next: impl FnMut() -> Result<Duty, RuntimeError> + Send) -> Result<Duty, RuntimeError> {
        loop {
            match next() {
                Err(RuntimeError::Unmet(Unmet::Interrupted)) => {}
                result => return result,
            }
        }
    }

    fn become_assigned(&mut self, assign: &Assign) -> Result<(), RuntimeError> {
        assigned::assign(assign);
        self.done.push("become".into());
        Ok(())
    }

    fn flaw(&self) -> Option<Value> {
        self.flaw.clone()
    }

    fn is_unfit(&self) -> bool {
        self.is_unfit
    }

    fn begin(&mut self, call: &Call) -> String {
        self.attempts = 0;
        call.name.clone()
    }

    fn shares_output(&self) -> bool {
        false
    }

    fn flush_output(&mut self) {}

    fn attempt(&mut self, mut call: UnderWay<String>) -> Attempt<Self> {
        self.attempts += 1;
        let (name, function) = (call.own.clone(), call.call.function.clone());
        if self.functions.called(&function).is_none() {
            assert!(self.functions.learn(&function, name.clone()).is_empty());
        }
        let returned = match name.as_str() {
            "hands on" => {
                self.handed_on = Some(call);
                return Attempt::HandedOn;
            }
            "fails" | "exits" => Err(name),
            "fails twice" if self.attempts < 3 => Err(name),
            "yields and fails" => {
                call.yielded = 2;
                Err(name)
            }
            "ends with its cancelling" => {
                let until = Instant::now() + LIMIT;
                self.began.take().expect("there is one such call").send(()).expect("the test waits");
                while !self.runtime.is_cancelled(call.task()) {
                    assert!(Instant::now() < until, "it was not cancelled");
                    std::thread::yield_now();
                }
                Ok(name)
            }
            _ => Ok(name),
        };
        Attempt::Over(call, returned)
    }

    fn end(&mut self, retires: bool) {
        self.done.push(format!("end after {}{}", self.attempts, if retires { ", retires" } else { "" }));
    }

    fn cancelled(&self, _call: &UnderWay<String>, returned: Result<String, String>) -> Result<String, String> {
        returned.and_then(|returned| Err(format!("{returned} was cancelled")))
    }

    fn keep(&self, call: &UnderWay<String>, returned: String, outcome: &mut Outcome) -> Result<(), String> {
        outcome.results.push(inline(&returned));
        if returned == "cannot be kept" {
            return Err(returned);
        }
        outcome.results.resize(call.call.results as usize, inline(&returned));
        Ok(())
    }

    fn leave_on(&mut self, call: UnderWay<String>, error: String) -> Result<(), (UnderWay<String>, String)> {
        if error != "exits" {
            return Err((call, error));
        }
        self.runtime.abandon_call(&call.ticket);
        Ok(())
    }

    fn asks_retry(&self, wanted: &Bytes, error: &String) -> bool {
        error.as_bytes().starts_with(wanted)
    }

    fn raised(&self, _call: &UnderWay<String>, error: String) -> Value {
        raised(&error)
    }

    fn nothing(&self) -> Value {
        inline("nothing")
    }

    fn calls(&self, function: &Bytes) -> u32 {
        self.functions.calls(function)
    }
}

fn here() -> TaskId {
    TaskId::NIL
}

fn call(name: &str) -> Call {
    Call { name: name.into(), ..Call::default() }
}

/// Has the worker serve in a thread of its own while `act` plays the others; the worker afterwards. `act` ends it.
fn serving(mut toy: Toy, act: impl FnOnce()) -> Toy {
    let serving = std::thread::spawn(move || {
        let result = attend(&mut toy, None);
        assert!(result.is_ok(), "{result:?}");
        toy
    });
    act();
    serving.join().expect("it serves to its end")
}

#[test]
fn calls_are_answered_in_order_with_what_they_returned_or_raised() {
    let (toy, _daemon, mut owner) = born(None);
    let runtime = toy.runtime.clone();
    let toy = serving(toy, || {
        let tasks = [
            owner.call(call("returns")),
            owner.call(Call { results: 3, ..call("fails") }),
            owner.call(Call { results: 2, ..call("cannot be kept") }),
            owner.call(Call { stream: Some(StreamTerms::default()), ..call("yields and fails") }),
            owner.call(call("returns again")),
        ];
        let replies: Vec<Reply> = tasks.iter().map(|_| owner.reply()).collect();
        assert_eq!(replies.iter().map(|reply| reply.task).collect::<Vec<_>>(), tasks);
        assert_eq!(replies[0].results, [inline("returns")]);
        // An error that several results are is sent once.
        assert_eq!((&replies[1].raised, replies[1].results.len()), (&Some(raised("fails")), 0));
        assert_eq!(replies[2].raised, Some(raised("cannot be kept")));
        assert_eq!((&replies[3].results[..], replies[3].items), (&[inline("nothing")][..], 2));
        assert_eq!(replies[3].raised, Some(raised("yields and fails")));
        // Nothing of one call is left in the answer of another.
        assert_eq!(
            (&replies[4].results[..], replies[4].items, &replies[4].raised),
            (&[inline("returns again")][..], 0, &None)
        );
        assert!(replies.iter().all(|reply| !reply.retry && !reply.retiring));
        runtime.stop_serving();
    });
    assert_eq!(toy.done, ["end after 1"; 5]);
}

#[test]
fn a_method_is_run_again_in_its_place_and_a_task_goes_back_to_its_owner() {
    let (toy, _daemon, mut owner) = born(Some(an_actor()));
    let runtime = toy.runtime.clone();
    let toy = serving(toy, || {
        let retried = |name: &str, retries| Call { retry_exceptions: "fails".into(), retries, ..call(name) };
        let method = owner.call(retried("fails twice", 5));
        owner.call(call("behind"));
        for _ in 0..2 {
            assert!(matches!(owner.next(), Message::Retried(said) if said.task == method));
        }
        let reply = owner.reply();
        assert_eq!((reply.task, reply.retry, &reply.results[..]), (method, false, &[inline("fails twice")][..]));
        assert_eq!(owner.reply().results, [inline("behind")]);
        // As often as its retries allow, and no more.
        let spent = owner.call(retried("fails", 1));
        assert!(matches!(owner.next(), Message::Retried(said) if said.task == spent));
        let reply = owner.reply();
        assert_eq!((reply.task, reply.retry, &reply.results[..]), (spent, true, &[raised("fails")][..]));
        let task = owner.call(Call { function: "hash".into(), ..retried("fails", 5) });
        let reply = owner.reply();
        assert_eq!((reply.task, reply.retry), (task, true));
        // One that is not asked for.
        owner.call(Call { retry_exceptions: "else".into(), retries: 5, ..call("fails") });
        assert!(!owner.reply().retry);
        runtime.stop_serving();
    });
    assert_eq!(toy.done, ["end after 3", "end after 1", "end after 2", "end after 1", "end after 1"]);
}

#[test]
fn a_cancelled_call_is_not_tried_again() {
    let (mut toy, _daemon, mut owner) = born(Some(an_actor()));
    let runtime = toy.runtime.clone();
    runtime.end_waits_of(here);
    let (began, begun) = channel();
    toy.began = Some(began);
    serving(toy, || {
        let name = "ends with its cancelling";
        let task = owner.call(Call { retry_exceptions: "ends".into(), retries: 5, ..call(name) });
        begun.recv_timeout(LIMIT).expect("it begins");
        owner.say(Cancel { task, ..Cancel::default() });
        let reply = owner.reply();
        assert_eq!((reply.task, reply.retry), (task, false));
        assert_eq!(reply.results, [raised("ends with its cancelling was cancelled")]);
        runtime.stop_serving();
    });
}

#[test]
fn a_worker_leaves_after_the_last_of_its_calls_or_where_it_is_flawed() {
    let (toy, _daemon, mut owner) = born(None);
    let toy = serving(toy, || {
        for retires in [false, true] {
            owner.call(Call { max_calls: 2, ..call("limited") });
            assert_eq!(owner.reply().retiring, retires);
        }
    });
    assert_eq!(toy.done, ["end after 1", "end after 1, retires"]);

    let (mut toy, _daemon, mut owner) = born(None);
    toy.is_unfit = true;
    let toy = serving(toy, || {
        owner.call(call("returns"));
        let reply = owner.reply();
        assert!(reply.retiring && reply.results != [inline("its environment is not there")], "{reply:?}");
    });
    assert_eq!(toy.done, ["end after 1, retires"]);

    let (mut toy, _daemon, mut owner) = born(None);
    toy.flaw = Some(inline("its environment is not there"));
    let toy = serving(toy, || {
        owner.call(call("returns"));
        let reply = owner.reply();
        assert_eq!((reply.retiring, &reply.results[..]), (true, &[inline("its environment is not there")][..]));
    });
    assert!(toy.done.is_empty(), "{:?}", toy.done);
}

#[test]
fn a_call_that_ends_its_worker_is_the_languages_to_answer() {
    let (toy, _daemon, mut owner) = born(None);
    let toy = serving(toy, || {
        owner.call(call("exits"));
    });
    assert_eq!(toy.done, ["end after 1, retires"]);
    assert!(matches!(owner.connection.first_message(Some(Instant::now())), Ok(None)), "nobody answered");
}

#[test]
fn a_call_that_is_handed_on_is_completed_from_elsewhere() {
    let (toy, _daemon, mut owner) = born(Some(an_actor()));
    let runtime = toy.runtime.clone();
    let mut task = TaskId::NIL;
    let mut toy = serving(toy, || {
        task = owner.call(Call { retry_exceptions: "fails".into(), retries: 1, ..call("hands on") });
        owner.call(call("behind"));
        assert_eq!(owner.reply().results, [inline("behind")]);
        runtime.stop_serving();
    });
    // It is run again where it fails as its owner said, and handed on again.
    let handed_on = toy.handed_on.take().expect("it was handed on");
    assert!(!complete(&mut toy, handed_on, Err("fails".into()), Vec::new()));
    assert!(matches!(owner.next(), Message::Retried(said) if said.task == task));
    let handed_on = toy.handed_on.take().expect("it was handed on");
    assert_eq!((handed_on.call.retries, handed_on.call.attempt), (0, 1));
    assert!(!complete(&mut toy, handed_on, Ok("in the end".into()), Vec::new()));
    let reply = owner.reply();
    assert_eq!((reply.task, &reply.results[..]), (task, &[inline("in the end")][..]));
}

#[test]
fn an_actor_that_ends_says_so_and_every_thread_leaves() {
    let (toy, daemon, _owner) = born(Some(an_actor()));
    let mut daemon = daemon;
    worker::end(&toy.runtime, true);
    let said = std::iter::from_fn(|| Some(daemon.next())).find(|message| matches!(message, Message::ActorLeaving(_)));
    assert!(matches!(said, Some(Message::ActorLeaving(said)) if !said.unintended));
    let mut toy = toy;
    assert!(attend(&mut toy, None).is_ok());
    assert!(toy.done.is_empty());
}

#[test]
fn a_group_that_the_actor_lacks_is_told_with_those_it_has() {
    let groups = ["io".to_owned(), "compute".to_owned()];
    assert_eq!((worker::group_flaw("", &groups), worker::group_flaw("io", &groups)), (None, None));
    let told = worker::group_flaw("other", &groups).expect("there is none");
    assert_eq!(told, "the actor has no concurrency group `other`; it has: io, compute");
}
