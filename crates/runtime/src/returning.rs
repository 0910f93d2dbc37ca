//! A driver whose daemon is gone and comes back: it waits at the same socket, and goes on.

use crate::away::{DaemonReconnect, Entry};
use crate::core::DAEMON;
use crate::lead::Shared;
use crate::shell::State;
use oxiray_wire::frame::HELLO_BYTES_LIMIT;
use oxiray_wire::message::{DaemonToNewcomer, Direction as _, Hello, Returning, Welcome};
use oxiray_wire::{Connection, Received, session};
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a driver waits for its daemon to come back.
const AWAY_LIMIT: Duration = Duration::from_secs(30);
/// How often it looks whether it is there.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// How long a daemon may take to answer a greeting.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// Why a daemon did not let the driver in.
enum NotIn {
    /// It may do so later.
    Yet(io::Error),
    /// It never will.
    Refused(String),
}

/// How the driver of this runtime finds its daemon again.
pub(crate) fn away(entry: Entry, shared: &Arc<Shared>) -> DaemonReconnect {
    let shared = Arc::downgrade(shared);
    DaemonReconnect::new(move |given_up| {
        let (entry, shared) = (entry.clone(), shared.clone());
        let looking = move || look_for(&entry, &shared, &given_up);
        oxiray_threads::spawn(oxiray_threads::RUNTIME_RETURN, looking).map(drop)
    })
}

impl State {
    fn let_in(&mut self, connection: Connection, welcome: &Welcome, early: Vec<Received>) {
        let is_awaited = self.io.away.as_mut().is_some_and(DaemonReconnect::found);
        if !is_awaited {
            return;
        }
        self.now = Instant::now();
        if self.io.links.reopen_daemon(connection).is_err() {
            return self.daemon_gone();
        }
        // What of its store was mapped for reading stays so; nothing of it is given back to this one.
        self.io.pinned.clear();
        self.io.segments.forget_all();
        self.daemon_back(welcome.epoch);
        for received in early {
            self.heard(DAEMON, received);
        }
    }
}

fn look_for(entry: &Entry, shared: &Weak<Shared>, given_up: &Receiver<()>) {
    let until = Instant::now() + AWAY_LIMIT;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        match enter(entry, &shared) {
            Ok((connection, welcome, early)) => return shared.with(|state| state.let_in(connection, &welcome, early)),
            Err(NotIn::Refused(why)) => return shared.with(|state| state.daemon_stays_away(&why)),
            Err(NotIn::Yet(error)) if Instant::now() >= until => {
                let seconds = AWAY_LIMIT.as_secs();
                let why = format!("it did not come back within {seconds} s ({error})");
                return shared.with(|state| state.daemon_stays_away(&why));
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
    let socket = session::connect(Path::new(&identity.session)).map_err(yet)?;
    let mut connection = Connection::new(socket.into()).map_err(|error| yet(error.into()))?;
    let returning = Returning { worker: identity.worker, job: identity.job, epoch: identity.epoch };
    let hello = Hello {
        token: entry.token.clone(),
        driver: Some(entry.driver.clone()),
        node: None,
        returning: Some(returning),
        reads_only: false,
    };
    assert!(entry.driver.setup.len() < HELLO_BYTES_LIMIT, "it was let in with this before");
    connection.send(&hello);
    let first = connection.first_message(Some(Instant::now() + GREETING_LIMIT));
    let first = first.map_err(|error| yet(io::Error::other(error)))?;
    let (first, early) = first.ok_or_else(|| yet(io::ErrorKind::TimedOut.into()))?;
    match DaemonToNewcomer::of(first.message) {
        Ok(DaemonToNewcomer::Welcome(welcome)) => Ok((connection, *welcome, early)),
        Ok(DaemonToNewcomer::Refused(refused)) => Err(NotIn::Refused(refused.text)),
        Err(_) => Err(NotIn::Refused("it is of another build".into())),
    }
}
