//! The daemon's shell: one thread, one epoll, all the descriptors.
//!
//! - DAEMON-1: nothing that a peer, a worker or a template sends can end the daemon; what breaks the
//!   format ends its own connection, with a line in daemon.log.
//! - DAEMON-2: when the daemon ends, every process that descends from it is dead first, and its session's
//!   directory is gone.
//! - DAEMON-3: nothing that a peer says keeps the others waiting for longer than a turn of the loop: each is heard for a
//!   moment at a time (`turns.rs`), also when it is dead and much that it said is unread.

mod admission;
mod arrival;
mod confining;
mod descriptors;
mod effects;
mod entry;
mod environments;
mod freight;
mod guests;
mod heartbeats;
mod interpreters;
mod join;
mod journal;
mod line_log;
mod members;
mod memory;
mod network;
mod output;
mod packages;
mod poller;
mod preparing;
mod processes;
mod returning;
mod standby;
mod start;
mod store_desk;
mod streams;
mod submissions;
mod succession;
mod transfer;
mod turn_times;
mod turns;
mod worker_logs;

use crate::device_desk::{DeviceAnswer, DeviceDesk};
use crate::session::Session;
use admission::Door;
use heartbeats::Ended;
use line_log::LineLog;
use network::Network;
use output::Pipe;
use oxiray_head::Core;
use oxiray_machine::{Key, Origin, TemplateKey};
use oxiray_processes::Brood;
use poller::{Event, Poller, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use store_desk::StoreDesk;
use streams::Stream;
use transfer::Transfer;
use turn_times::TurnTimes;
use turns::Turns;
use worker_logs::WorkerLogs;

pub use memory::MonitorOptions;
pub use start::{Mode, Ready, StartError, run};

/// For how long peers are heard before the core settles, answers are sent, and it is looked for what else there is.
const TURN_LIMIT: Duration = Duration::from_millis(4);
/// For how long one peer is heard before it is the next one's turn.
const MOMENT: Duration = Duration::from_micros(500);
/// How much may wait for the journal before nobody is heard until it is written.
const HELD_BACK_MAX: usize = 10_000;

/// A worker's process, from the order to fork it until its tree is gone.
#[derive(Debug)]
pub(crate) struct Process {
    template: TemplateKey,
    pid: u32,
    pidfd: Option<OwnedFd>,
    /// To be killed as soon as it can be.
    is_doomed: bool,
    /// How it ended, once all that descends from it is gone; what it said last is yet to be heard.
    end: Option<String>,
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
    door: Door,
    /// Address that `init(address=…)` takes.
    address: String,
    transfer: Transfer,
    /// How many nodes were ever let in.
    members_admitted: u32,
    /// Where this daemon has to do with other machines.
    network: Option<Network>,
    /// Where this member finds its head again.
    way: Option<join::Way>,
    /// The drivers that this member let in.
    guests: BTreeMap<Key, guests::Guest>,
    /// The head that this member waits for.
    away: Option<returning::Away>,
    /// How it will have ended.
    ended: Ended,
    /// Whoever started this daemon, where it is to end with that process.
    starter: Option<OwnedFd>,
    streams: BTreeMap<Key, Stream>,
    /// Streams with something to send.
    dirty: BTreeSet<Key>,
    /// Streams and pipes with something to be read.
    turns: Turns<Token>,
    turn_times: TurnTimes,
    /// Who asked how things are, and under which number: all are answered from one report.
    askers: Vec<(Key, u64)>,
    templates: BTreeMap<TemplateKey, TemplateProcess>,
    /// Started before there was anything else, and not yet asked for.
    early_template: Option<TemplateProcess>,
    preparations: BTreeMap<u64, environments::Preparation>,
    packages: packages::Packages,
    /// The processes of submitted jobs.
    submitted: BTreeMap<Key, submissions::Submitted>,
    /// Why the template of that name could not be started.
    unstarted: BTreeMap<TemplateKey, String>,
    processes: BTreeMap<Key, Process>,
    by_pid: BTreeMap<u32, Key>,
    store: StoreDesk,
    devices: DeviceDesk,
    memory: memory::MemoryWatch,
    control_groups: crate::control_groups::ControlGroups,
    /// Where a head writes down what must outlive it.
    journal: Option<journal::JournalDesk>,
    log: LineLog,
    worker_logs: WorkerLogs,
    session: Session,
    /// The driver that a private daemon lives for.
    only_driver: Option<Key>,
    is_stopping: bool,
    /// Whether a signal ends the head and not its cluster.
    keeps_cluster: bool,
    /// What pipes are read into.
    scratch: Box<[u8]>,
    now: Instant,
}

impl Daemon {
    /// Serves until it is to stop, then ends everything.
    pub(crate) fn serve(mut self) -> Result<Ended, rustix::io::Errno> {
        self.look_at_memory();
        self.carry_out();
        self.open_door();
        while !self.is_stopping {
            let own = [self.core.next_alarm(), self.store.next_deadline(), self.admission_deadline()];
            let turns = [self.network_deadline(), self.return_deadline(), self.turn_deadline()];
            let others = [self.submission_deadline(), self.progress_deadline(), self.memory_deadline()];
            let deadlines = own.into_iter().chain(turns).chain(others);
            let limit = deadlines.flatten().min().map(|at| at.saturating_duration_since(Instant::now()));
            // What was read and not handled is told of by nobody else.
            let limit = if self.turns.is_empty() { limit } else { Some(Duration::ZERO) };
            let ready = self.poller.wait(limit)?;
            self.now = Instant::now();
            self.core.set_now(self.now);
            self.core.set_wall_clock(entry::now_ms());
            if !self.may_go_on() || !self.is_its_turn() {
                break;
            }
            for event in ready {
                self.notice(event);
            }
            self.hear_in_turn();
            self.look_at_memory();
            self.store.expire(self.now);
            self.end_slow_newcomers();
            self.end_stalled();
            self.end_overdue_submissions();
            self.keep_leases();
            self.look_for_head();
            self.carry_out();
            if self.core.held_back() > HELD_BACK_MAX {
                self.await_journal();
            }
            self.open_door();
            self.tell_turned_away();
            self.turn_ends();
        }
        Ok(self.end())
    }

    fn turn_ends(&mut self) {
        let now = Instant::now();
        if self.turn_times.ended(now - self.now, now) {
            self.log.line(&self.turn_times.line());
        }
    }

    /// DAEMON-3: what peers and workers say and print waits for its turn, which is in this turn of the loop for whoever had
    /// little of late. All else is the daemon's own.
    fn notice(&mut self, event: Event) {
        match event.token {
            Token::Listener => self.admit(),
            Token::Stop => {
                self.log.line("a signal asks to stop");
                if self.keeps_cluster && self.journal.is_some() {
                    self.ended = Ended::Left;
                }
                self.is_stopping = true;
            }
            Token::Children => self.reap_templates(),
            Token::Store => self.store.progress(),
            Token::Devices => self.devices_answered(),
            Token::Journal => self.journal_answered(),
            Token::Stream(key) => self.stream_ready(key, event.is_hung_up),
            Token::Output(_) | Token::Errors(_) => self.turns.add(event.token),
            Token::Worker(key) => self.worker_process_died(key),
            Token::Driver(key) => self.driver_process_died(key),
            Token::Template(key) => self.serve_template(key),
            Token::Network => self.network_told(),
            Token::Submission(key) => self.submission_says(key),
            Token::ProcessLimits => self.processes_met_limits(false),
            Token::Starter => {
                self.log.line("the process that started this daemon is gone");
                self.is_stopping = true;
            }
        }
    }

    fn devices_answered(&mut self) {
        for answer in self.devices.answers() {
            match answer {
                DeviceAnswer::Residue(question, residue) => self.core.device_answered(&question, residue),
                DeviceAnswer::Uses(uses) => self.core.devices_measured(uses),
            }
        }
    }

    /// DAEMON-3.
    fn hear_in_turn(&mut self) {
        let mut began = Instant::now();
        let until = began + TURN_LIMIT;
        while began < until
            && !self.has_enough_askers()
            && let Some(token) = self.turns.next()
        {
            let has_more = match token {
                Token::Stream(key) => self.hear(key, until.min(began + MOMENT)),
                // One read at a time; there is a sign of more.
                Token::Output(key) | Token::Errors(key) => {
                    self.read_output(key, matches!(token, Token::Errors(_)));
                    false
                }
                _ => false,
            };
            let now = Instant::now();
            self.turns.heard(now - began, has_more);
            began = now;
        }
    }

    /// DAEMON-2.
    fn end(mut self) -> Ended {
        self.finish_writing();
        self.dismiss_all();
        self.flush_all();
        let head = self.core.head_key().and_then(|head| self.streams.remove(&head));
        let head = head.filter(|head| !head.is_over && matches!(self.ended, Ended::Stopped));
        self.streams.clear();
        self.templates.clear();
        self.early_template = None;
        self.end_brood();
        if let (Some(network), Ended::Stopped) = (self.network, &self.ended) {
            if let Some(head) = head {
                Self::say_farewell(head.connection);
            }
            network.finish();
        }
        if let (Some(journal), Ended::Stopped) = (self.journal, &self.ended) {
            journal.finish();
        }
        self.log.line(&self.turn_times.line());
        self.log.line("the daemon ends");
        self.control_groups.remove();
        if !matches!(self.ended, Ended::Left) {
            self.session.remove();
        }
        self.ended
    }
}
