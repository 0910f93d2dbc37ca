//! A driver: it speaks to the head what the runtime of a program speaks, and calls nobody.

use crate::head::Head;
use oxiray_ids::{ActorId, LeaseNumber, LeaseRequestNumber, PlacementGroupId, WorkerId};
use oxiray_wire::message::{
    ActorCreate, ActorLookup, Amount, AnswerToClient, DaemonToClient, DaemonToNewcomer, Direction as _,
    Driver as Greeting, EventToClient, FailureCode, GroupBundle, GroupCreate, Hello, LeaseRequest, LeaseReturn,
    Welcome,
};
use oxiray_wire::{Connection, Message, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// How long the head may be silent where something is awaited.
const SILENCE_LIMIT: Duration = Duration::from_secs(120);
/// How many bytes may wait to be sent before more are queued.
const UNSENT_MAX: usize = 1 << 20;

/// What a driver waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// An actor was taken on.
    Actor,
    /// There is no actor of that name.
    NoActor,
    /// A placement group is there.
    Group,
    /// A worker: the lease.
    Lease(LeaseNumber),
}

/// A driver that is let in.
#[derive(Debug)]
pub(crate) struct Driver {
    connection: Connection,
    words: VecDeque<Word>,
    worker: WorkerId,
    last: u64,
}

impl Driver {
    /// Greets the head.
    pub(crate) fn greet(head: &Head) -> io::Result<Self> {
        let mut connection = Connection::new(head.connect()?.into())?;
        let driver = Greeting { pid: std::process::id(), interpreter: "/played".into(), ..Greeting::default() };
        connection.send(&Hello { token: head.token().to_owned(), driver: Some(driver), ..Hello::default() });
        connection.flush().map_err(io::Error::other)?;
        let first = connection.first_message(Some(Instant::now() + SILENCE_LIMIT)).map_err(io::Error::other)?;
        let (received, rest) = first.ok_or(io::ErrorKind::TimedOut)?;
        let welcome: Welcome = match DaemonToNewcomer::of(received.message).map_err(io::Error::other)? {
            DaemonToNewcomer::Welcome(welcome) => *welcome,
            DaemonToNewcomer::Refused(refused) => return Err(io::Error::other(refused.text)),
        };
        let mut driver = Self { connection, words: VecDeque::new(), worker: welcome.worker, last: 0 };
        for received in rest {
            driver.note(received)?;
        }
        Ok(driver)
    }

    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Asks for an actor that holds a CPU for life.
    pub(crate) fn create_actor(&mut self) -> io::Result<()> {
        let number = self.next_number();
        let mut bytes = [0; ActorId::BYTES];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        let actor = ActorId::new(bytes);
        let create = ActorCreate {
            request: number,
            actor,
            placement: cpu(),
            running: cpu(),
            class_name: "Played".into(),
            owner: self.worker,
            max_concurrency: 1,
            ..ActorCreate::default()
        };
        self.send(create)
    }

    /// Asks for a placement group of one bundle of a CPU, and to be told when it is there.
    pub(crate) fn create_group(&mut self) -> io::Result<()> {
        let request = self.next_number();
        let mut bytes = [0; PlacementGroupId::BYTES];
        bytes[..8].copy_from_slice(&request.to_be_bytes());
        let bundles = vec![GroupBundle { demand: cpu(), ..GroupBundle::default() }];
        let group = PlacementGroupId::new(bytes);
        self.send(GroupCreate { request, group, bundles, tells_when_created: true, ..GroupCreate::default() })
    }

    /// Asks for a worker with a CPU.
    pub(crate) fn request_lease(&mut self) -> io::Result<()> {
        let request = self.next_number();
        self.send(LeaseRequest {
            request: LeaseRequestNumber(request),
            demand: cpu(),
            label: "played".into(),
            ..LeaseRequest::default()
        })
    }

    /// Asks for an actor of a name that nobody has.
    pub(crate) fn look_up_nobody(&mut self) -> io::Result<()> {
        let request = self.next_number();
        self.send(ActorLookup { request, name: "nobody".into(), ..ActorLookup::default() })
    }

    /// Gives a worker back.
    pub(crate) fn return_lease(&mut self, lease: LeaseNumber) -> io::Result<()> {
        self.send(LeaseReturn { lease, retiring: false })
    }

    fn send(&mut self, message: impl Into<Message>) -> io::Result<()> {
        self.connection.send(&message.into());
        while self.connection.unsent_bytes() > UNSENT_MAX {
            self.serve(Duration::from_millis(100))?;
        }
        Ok(())
    }

    /// Hears what comes within the limit, and sends what is queued.
    pub(crate) fn serve(&mut self, limit: Duration) -> io::Result<()> {
        self.connection.flush().map_err(io::Error::other)?;
        let out = if self.connection.unsent_bytes() > 0 { PollFlags::OUT } else { PollFlags::empty() };
        let timeout = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
        let mut watched = [PollFd::new(&self.connection, PollFlags::IN | out)];
        if poll(&mut watched, Some(&timeout))? == 0 {
            return Ok(());
        }
        let mut inbox = Vec::new();
        self.connection.receive(&mut inbox).map_err(io::Error::other)?;
        inbox.into_iter().try_for_each(|received| self.note(received))
    }

    fn note(&mut self, received: Received) -> io::Result<()> {
        let failed = |what: &str, text: String| Err(io::Error::other(format!("{what}: {text}")));
        let word = match DaemonToClient::of(received.message).map_err(io::Error::other)? {
            DaemonToClient::Answer(AnswerToClient::ActorAnswer(answer)) => match answer.failure {
                Some(failure) if failure.code == FailureCode::ActorNotFound => Word::NoActor,
                Some(failure) => return failed("an actor", failure.text),
                None => Word::Actor,
            },
            DaemonToClient::Event(EventToClient::GroupAnswer(answer)) => match answer.failure {
                Some(failure) => return failed("a group", failure.text),
                None => Word::Group,
            },
            DaemonToClient::Event(EventToClient::LeaseGranted(granted)) => Word::Lease(granted.lease),
            DaemonToClient::Event(EventToClient::LeaseRefused(refused)) => {
                return failed("a request", refused.failure.unwrap_or_default().text);
            }
            DaemonToClient::Event(EventToClient::ActorDied(died)) => {
                return failed("an actor died", format!("{died:?}"));
            }
            // Its workers are not called, so that nothing else matters here. A granted worker's stream is closed.
            _ => return Ok(()),
        };
        self.words.push_back(word);
        Ok(())
    }

    /// The next word of the head.
    pub(crate) fn next(&mut self) -> io::Result<Word> {
        let until = Instant::now() + SILENCE_LIMIT;
        loop {
            if let Some(word) = self.words.pop_front() {
                return Ok(word);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the head says nothing"));
            }
            self.serve(left)?;
        }
    }

    /// Waits for so many words, and returns the leases among them.
    pub(crate) fn await_all(&mut self, count: u64) -> io::Result<Vec<LeaseNumber>> {
        let mut leases = Vec::new();
        for _ in 0..count {
            if let Word::Lease(lease) = self.next()? {
                leases.push(lease);
            }
        }
        Ok(leases)
    }

    /// Everything queued is sent.
    pub(crate) fn send_all(&mut self) -> io::Result<()> {
        while !self.connection.flush().map_err(io::Error::other)? {
            self.serve(Duration::from_millis(100))?;
        }
        Ok(())
    }
}

fn cpu() -> Vec<Amount> {
    vec![Amount { resource: "CPU".into(), units: 10_000 }]
}
