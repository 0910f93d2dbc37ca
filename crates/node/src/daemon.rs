//! The daemon's shell: one thread, one epoll, all the descriptors.
//!
//! - DAEMON-1: nothing that a peer, a worker or a template sends can end the daemon; what breaks the
//!   format ends its own connection, with a line in daemon.log.
//! - DAEMON-2: when the daemon ends, every process that descends from it is dead first, and its session's
//!   directory is gone.

mod admission;
mod effects;
mod environments;
mod join;
mod journal;
mod members;
mod output;
mod poller;
mod processes;
mod start;
mod store_desk;
mod streams;
mod transfer;

use crate::config::Plan;
use crate::core::{Core, Key, Origin, TemplateKey};
use crate::session::Session;
use journal::Journal;
use output::Pipe;
use oxiray_processes::Brood;
use poller::{Poller, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::Instant;
use store_desk::StoreDesk;
use streams::Stream;
use transfer::Transfer;

pub use start::{Mode, Ready, StartError, root, run};

/// A worker's process, from the order to fork it until its tree is gone.
#[derive(Debug)]
pub(crate) struct Process {
    template: TemplateKey,
    pid: u32,
    pidfd: Option<OwnedFd>,
    /// To be killed as soon as it can be.
    is_doomed: bool,
    output: Pipe,
    errors: Pipe,
}

/// A template's process.
#[derive(Debug)]
pub(crate) struct TemplateProcess {
    pid: u32,
    origin: Origin,
    connection: oxiray_wire::Connection,
}

/// Everything that the daemon has open.
#[derive(Debug)]
pub(crate) struct Daemon {
    core: Core,
    poller: Poller,
    brood: Brood,
    stop_signals: OwnedFd,
    listener: UnixListener,
    token: String,
    /// Address that `init(address=…)` takes.
    address: String,
    transfer: Transfer,
    /// How many nodes were ever let in.
    members_admitted: u32,
    /// Whoever started this daemon, where it is to end with that process.
    starter: Option<OwnedFd>,
    streams: BTreeMap<Key, Stream>,
    /// Streams with something to send.
    dirty: BTreeSet<Key>,
    templates: BTreeMap<TemplateKey, TemplateProcess>,
    /// Started before there was anything else, and not yet asked for.
    early_template: Option<TemplateProcess>,
    preparations: BTreeMap<u64, environments::Preparation>,
    processes: BTreeMap<Key, Process>,
    by_pid: BTreeMap<u32, Key>,
    store: StoreDesk,
    log: Journal,
    worker_log: Journal,
    session: Session,
    /// The driver that a private daemon lives for.
    only_driver: Option<Key>,
    is_stopping: bool,
    /// What pipes are read into.
    scratch: Box<[u8]>,
    now: Instant,
}

impl Daemon {
    /// Serves until it is to stop, then ends everything.
    pub(crate) fn serve(mut self) -> Result<(), rustix::io::Errno> {
        self.carry_out();
        while !self.is_stopping {
            let deadlines = [self.core.next_alarm(), self.store.next_deadline(), self.admission_deadline()];
            let limit = deadlines.into_iter().flatten().min().map(|at| at.saturating_duration_since(Instant::now()));
            let ready = self.poller.wait(limit)?;
            self.now = Instant::now();
            self.core.set_now(self.now);
            for token in ready {
                self.serve_one(token);
            }
            self.store.expire(self.now);
            self.end_slow_newcomers();
            self.carry_out();
        }
        self.end();
        Ok(())
    }

    fn serve_one(&mut self, token: Token) {
        match token {
            Token::Listener => self.admit(),
            Token::Stop => {
                self.log.line("a signal asks to stop");
                self.is_stopping = true;
            }
            Token::Children => self.reap_templates(),
            Token::Store => self.store.progress(),
            Token::Stream(key) => self.serve_stream(key),
            Token::Worker(key) => self.worker_process_died(key),
            Token::Driver(key) => self.driver_process_died(key),
            Token::Output(key) => self.read_output(key, false),
            Token::Errors(key) => self.read_output(key, true),
            Token::Template(key) => self.serve_template(key),
            Token::Starter => {
                self.log.line("the process that started this daemon is gone");
                self.is_stopping = true;
            }
        }
    }

    /// DAEMON-2.
    fn end(mut self) {
        self.flush_all();
        self.streams.clear();
        self.templates.clear();
        self.early_template = None;
        self.end_brood();
        self.log.line("the daemon ends");
        self.session.remove();
    }
}
