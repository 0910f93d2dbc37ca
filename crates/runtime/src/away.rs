//! A driver whose daemon is gone and comes back: it waits at the same socket, and goes on.

use crate::lead::Shared;
use crate::links::DAEMON;
use crate::objects::Effects;
use crate::state::{News, State};
use bytes::Bytes;
use oxiray_store::SegmentCache;
use oxiray_wire::frame::HELLO_BYTES_LIMIT;
use oxiray_wire::message::{Driver, Failure, Hello, Returning, Welcome};
use oxiray_wire::{Connection, Message, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a driver waits for its daemon to come back.
const AWAY_LIMIT: Duration = Duration::from_secs(30);
/// How often it looks whether it is there.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// How long a daemon may take to answer a greeting.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// The session's socket, in its directory.
const SOCKET: &str = "socket";

/// How a driver is let in again.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The session's secret.
    pub token: String,
    /// What it told of itself when it came.
    pub driver: Driver,
}

/// How a driver finds its daemon again.
#[derive(Debug)]
pub(crate) struct Away {
    entry: Entry,
    shared: Weak<Shared>,
    /// Since when the daemon is gone. With the sender goes the thread that looks for it.
    since: Option<(Instant, Sender<()>)>,
}

/// Why a daemon did not let the driver in.
enum NotIn {
    /// It may do so later.
    Yet(io::Error),
    /// It never will.
    Refused(String),
}

impl Away {
    pub(crate) fn new(entry: Entry, shared: &Arc<Shared>) -> Self {
        Self { entry, shared: Arc::downgrade(shared), since: None }
    }
}

impl State {
    /// The stream to the daemon is over. Where that comes back, everything else goes on meanwhile.
    ///
    /// A worker dies with its daemon, and what its calls make of that is nobody's result: whoever called hears no more.
    pub(crate) fn daemon_silent(&mut self) {
        self.forget_room();
        let (is_kept, is_leaving) = (self.resuming.is_needed(), self.tasks.leaving || self.lost.is_some());
        let Some(away) = self.away.as_mut().filter(|_| is_kept && !is_leaving) else {
            self.links.leave_clients();
            return self.daemon_gone();
        };
        self.links.remove(DAEMON);
        let (sender, given_up) = channel();
        away.since = Some((Instant::now(), sender));
        let (entry, shared) = (away.entry.clone(), away.shared.clone());
        let began = std::thread::Builder::new()
            .name("oxiray-return".into())
            .spawn(move || look_for(&entry, &shared, &given_up));
        if began.is_err() {
            return self.daemon_gone();
        }
        self.notice(
            "the head of this cluster is away: what runs on other nodes goes on, and what is new waits for it".into(),
        );
    }

    /// The daemon is gone for good.
    pub(crate) fn daemon_gone(&mut self) {
        self.lose_daemon(&Failure {
            code: "daemon_died".into(),
            text: "the daemon of this machine is gone, and with it every worker: it was stopped or killed. \
                   Call shutdown(), then init() to start anew; its last words are in daemon.log of the session"
                .into(),
            cause: Bytes::new(),
        });
    }

    pub(crate) fn lose_daemon(&mut self, failure: &Failure) {
        if self.lost.is_some() {
            return;
        }
        self.links.remove(DAEMON);
        self.away = None;
        self.lost = Some(failure.clone());
        self.forget_room();
        self.tasks.forget_all();
        self.lineage.clear();
        self.fail_streams(failure);
        self.creations.clear();
        self.awaited_groups.clear();
        self.fresh_groups.clear();
        self.actors.fail_all(failure);
        let mut effects = Effects::default();
        self.objects.fail_all(failure, &mut effects);
        self.apply(effects);
        self.questions.fail_all(failure);
        self.inbox.close();
        self.tell_what_was_dropped();
        self.headlines.push_back(News::Over);
        self.news = true;
    }

    /// Whether the daemon is gone and may come back.
    pub(crate) fn is_away(&self) -> bool {
        self.away.as_ref().is_some_and(|away| away.since.is_some())
    }

    /// Whether this process has another daemon than it had under the head of that number.
    pub(crate) fn away_since(&self, epoch: u64) -> bool {
        self.away.is_some() && self.resuming.epoch != epoch
    }

    fn let_in(&mut self, connection: Connection, welcome: &Welcome, early: Vec<Received>) {
        let Some((since, _)) = self.away.as_mut().and_then(|away| away.since.take()) else { return };
        if self.links.reopen_daemon(connection).is_err() {
            return self.daemon_gone();
        }
        // What of its store was mapped for reading stays so; nothing of it is given back to this one.
        self.pinned.clear();
        self.questions.segments = SegmentCache::default();
        self.resume(welcome.epoch, true);
        for Received { message, descriptors } in early {
            self.daemon_said(message, descriptors);
        }
        self.notice(format!("the head of this cluster is back after {:.1} s", since.elapsed().as_secs_f64()));
    }

    fn stays_away(&mut self, why: &str) {
        let text = format!(
            "the head of this cluster went away, and this program is not part of it any more: {why}. Call shutdown(), \
             then init() to start anew"
        );
        self.lose_daemon(&Failure { code: "daemon_died".into(), text, cause: Bytes::new() });
    }
}

fn look_for(entry: &Entry, shared: &Weak<Shared>, given_up: &Receiver<()>) {
    let until = Instant::now() + AWAY_LIMIT;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        match enter(entry, &shared) {
            Ok((connection, welcome, early)) => return shared.with(|state| state.let_in(connection, &welcome, early)),
            Err(NotIn::Refused(why)) => return shared.with(|state| state.stays_away(&why)),
            Err(NotIn::Yet(error)) if Instant::now() >= until => {
                let seconds = AWAY_LIMIT.as_secs();
                let why = format!("it did not come back within {seconds} s ({error})");
                return shared.with(|state| state.stays_away(&why));
            }
            Err(NotIn::Yet(_)) => {}
        }
        drop(shared);
        if given_up.recv_timeout(LOOK_PERIOD) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn enter(entry: &Entry, shared: &Shared) -> Result<(Connection, Welcome, Vec<Received>), NotIn> {
    let yet = |error: io::Error| NotIn::Yet(error);
    let identity = &shared.identity;
    let directory =
        rustix::fs::open(&identity.session, OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| yet(error.into()))?;
    // A socket's address is short, and a session's directory may be deep.
    let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
    let socket = UnixStream::connect(path).map_err(yet)?;
    let mut connection = Connection::new(socket.into()).map_err(|error| yet(error.into()))?;
    let copy = crate::objects::copy;
    let returning = Returning {
        worker: copy(identity.worker.as_bytes()),
        job: copy(identity.job.as_bytes()),
        epoch: identity.epoch,
    };
    let hello = Hello {
        token: entry.token.clone(),
        driver: Some(entry.driver.clone()),
        node: None,
        returning: Some(returning),
    };
    assert!(entry.driver.setup.len() < HELLO_BYTES_LIMIT, "it was let in with this before");
    connection.send(&hello);
    let until = Instant::now() + GREETING_LIMIT;
    let mut inbox = Vec::new();
    while inbox.is_empty() {
        let unsent = connection.flush().map_err(|error| yet(io::Error::other(error)))?;
        let over = connection.receive(&mut inbox).err();
        if !inbox.is_empty() {
            break;
        }
        if let Some(error) = over {
            return Err(yet(io::Error::other(error)));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(yet(io::ErrorKind::TimedOut.into()));
        }
        let interest = if unsent { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(&connection, interest)], Some(&limit));
    }
    let first = inbox.remove(0);
    match first.message {
        Message::Welcome(welcome) => Ok((connection, *welcome, inbox)),
        Message::Refused(refused) => Err(NotIn::Refused(refused.text)),
        _ => Err(NotIn::Refused("it is of another build".into())),
    }
}
