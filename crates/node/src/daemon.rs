//! The daemon's shell: one thread, one epoll, all the descriptors.
//!
//! - DAEMON-1: nothing that a peer, a worker or a template sends can end the daemon; what breaks the
//!   format ends its own connection, with a line in daemon.log.
//! - DAEMON-2: when the daemon ends, every process that descends from it is dead first, and its session's
//!   directory is gone.
//! - DAEMON-3: nothing that a peer says keeps the others waiting for longer than a turn of the loop: each is heard for a
//!   moment at a time (`crate::turns`), also when it is dead and much that it said is unread.

mod admission;
mod confining;
mod dashboard;
mod effects;
mod entry;
mod environments;
mod heartbeats;
mod journal;
mod logs;
mod members;
mod memory;
mod network;
mod output;
mod packages;
mod preparing;
mod processes;
mod proxied_clients;
mod returning;
mod start;
mod streams;
mod submissions;
mod transfer;
mod visitors;

use crate::children::Children;
use crate::children::dashboard::HttpProgram;
use crate::device_client::{DeviceAnswer, DeviceClient};
use crate::journal::JournalClient;
use crate::lifetime::{Ended, Lifetime};
use crate::line_log::LineLog;
use crate::listener::Listener;
use crate::membership::Membership;
use crate::network::Network;
use crate::objects::Objects;
use crate::poller::{Event, Poller, Token};
use crate::session::Session;
use crate::streams::Streams;
use crate::turn::{Turn, now_ms};
use crate::workers::Workers;
use oxiray_head::Core;
use oxiray_wire::state::{MemoryStatistics, NodeStatistics};
use std::time::{Duration, Instant};

pub use start::{Mode, Ready, run};

/// For how long peers are heard before the core settles, answers are sent, and it is looked for what else there is.
const TURN_LIMIT: Duration = Duration::from_millis(4);
/// For how long one peer is heard before it is the next one's turn.
const MOMENT: Duration = Duration::from_micros(500);
/// How much may wait for the journal before nobody is heard until it is written.
const HELD_BACK_MAX: usize = 10_000;

/// Everything that the daemon has open. Each part has its fields and what is done with them alone in a file of its own, beside
/// this folder; the files in it are about what several parts have to do with.
#[derive(Debug)]
pub(crate) struct Daemon {
    core: Core,
    poller: Poller,
    turn: Turn,
    listener: Listener,
    streams: Streams,
    children: Children,
    workers: Workers,
    objects: Objects,
    devices: DeviceClient,
    membership: Membership,
    /// Where this daemon has to do with other machines.
    network: Option<Network>,
    /// Where a head writes down what must outlive it.
    journal: Option<JournalClient>,
    session: Session,
    log: LineLog,
    lifetime: Lifetime,
}

impl Daemon {
    /// Serves until it is to stop, then ends everything.
    pub(crate) fn serve(mut self) -> Result<Ended, rustix::io::Errno> {
        oxiray_processes::go_first_where_processors_are_short();
        self.look_at_memory();
        self.carry_out();
        self.open_door();
        while !self.lifetime.is_stopping() {
            let limit = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
            // What was read and not handled is told of by nobody else.
            let limit = if self.streams.turns.is_empty() { limit } else { Some(Duration::ZERO) };
            let ready = self.poller.wait(limit)?;
            self.turn.begin();
            self.core.set_now(self.turn.now);
            self.core.set_wall_clock(now_ms());
            if !self.may_go_on() || !self.is_its_turn() {
                break;
            }
            for event in ready {
                self.notice(event);
            }
            self.hear_in_turn();
            self.look_at_memory();
            self.measure_machine();
            self.objects.store.expire(self.turn.now);
            self.end_slow_newcomers();
            self.end_stalled();
            self.end_overdue_submissions();
            self.start_http_programs();
            self.end_overdue_output();
            self.keep_leases();
            self.look_for_head();
            self.carry_out();
            self.tell_drivers_of_unshown();
            self.workers.logs.hand_over(self.turn.now);
            if self.core.held_back() > HELD_BACK_MAX {
                self.await_journal();
            }
            self.open_door();
            self.tell_turned_away();
            if let Some(line) = self.turn.end() {
                self.log.line(&line);
            }
        }
        Ok(self.end())
    }

    /// When something is to be done, whatever happens until then.
    fn deadline(&mut self) -> Option<Instant> {
        let own = [self.core.next_alarm(), self.objects.store.next_deadline(), self.admission_deadline()];
        let network = self.network.as_ref().and_then(Network::deadline);
        let turns = [network, self.membership.return_deadline(), self.turn_deadline()];
        let memory = self.workers.memory.deadline(self.turn.now);
        let logs = &self.workers.logs;
        let output = [self.workers.leaving_deadline(), logs.behind_deadline(), logs.batch_deadline()];
        let measured = Some(self.devices.statistics_deadline(self.turn.now));
        let others = [self.children.submissions.deadline(), self.streams.progress_deadline(), memory, measured];
        let programs = self.children.http.iter().map(HttpProgram::deadline);
        own.into_iter().chain(turns).chain(others).chain(output).chain(programs).flatten().min()
    }

    /// Has the machine measured where it is time to.
    fn measure_machine(&mut self) {
        let now = self.turn.now;
        if self.devices.statistics_deadline(now) <= now {
            let workers = self.workers.pids();
            self.devices.measure_machine(workers, now);
        }
    }

    /// DAEMON-3: what peers and workers say and print waits for its turn, which is in this turn of the loop for whoever had
    /// little of late. All else is the daemon's own.
    fn notice(&mut self, event: Event) {
        match event.token {
            Token::Listener => self.admit(),
            Token::Stop => {
                self.log.line("a signal asks to stop");
                self.lifetime.signalled(self.journal.is_some());
            }
            Token::Children => self.reap_templates(),
            Token::Store => self.objects.store.progress(),
            Token::Devices => self.devices_answered(),
            Token::Journal => self.journal_answered(),
            Token::Logs => self.logs_told(),
            Token::Stream(key) => self.stream_ready(key, event.is_hung_up),
            Token::Output(_) | Token::Errors(_) => self.streams.turns.add(event.token),
            Token::Worker(key) => self.worker_process_died(key),
            Token::Driver(key) => self.driver_process_died(key),
            Token::Template(key) => self.serve_template(key),
            Token::Network => self.network_told(),
            Token::Submission(key) => self.submission_says(key),
            Token::ProcessLimits => self.processes_met_limits(false),
            Token::Starter => {
                self.log.line("the process that started this daemon is gone");
                self.lifetime.stop();
            }
        }
    }

    fn devices_answered(&mut self) {
        for answer in self.devices.answers() {
            match answer {
                DeviceAnswer::Residue(question, residue) => self.core.device_answered(&question, residue),
                DeviceAnswer::Uses(uses) => self.core.devices_measured(uses),
                DeviceAnswer::Opened(found) => self.core.nodes_opened(&found),
                DeviceAnswer::Failed(seen) => self.core.devices_failed(vec![seen]),
                DeviceAnswer::Tested(device, outcome) => self.core.device_tested(&device, outcome),
                DeviceAnswer::Measured(found) => {
                    let (metrics, spilled) = (self.children.metrics_place(), self.objects.store.figures().spilled);
                    let memory = found.memory.map(|memory| MemoryStatistics { spilled, ..memory });
                    self.core.machine_measured(NodeStatistics { metrics, memory, ..*found });
                    self.core.daemon_measured(self.objects.store.counted(self.turn.counted()));
                }
            }
        }
    }

    /// DAEMON-3.
    fn hear_in_turn(&mut self) {
        let mut began = Instant::now();
        let until = began + TURN_LIMIT;
        while began < until
            && !self.turn.has_enough_askers()
            && let Some(token) = self.streams.turns.next()
        {
            let has_more = match token {
                Token::Stream(key) => self.hear(key, until.min(began + MOMENT)),
                other => {
                    self.hear_printed(other);
                    false
                }
            };
            let now = Instant::now();
            self.streams.turns.heard(now - began, has_more);
            began = now;
        }
    }

    /// DAEMON-2.
    fn end(mut self) -> Ended {
        self.finish_writing();
        self.dismiss_all();
        self.flush_all();
        let head = self.streams.end_all_but(self.core.head_key());
        let head = head.filter(|head| !head.is_over && matches!(self.lifetime.ended(), Ended::Stopped));
        self.children.templates.clear();
        self.end_children();
        self.keep_last_output();
        if let (Some(network), Ended::Stopped) = (self.network, self.lifetime.ended()) {
            if let Some(head) = head {
                Self::say_farewell(head.connection);
            }
            network.finish();
        }
        if let (Some(journal), Ended::Stopped) = (self.journal, self.lifetime.ended()) {
            journal.finish();
        }
        self.log.line(&self.turn.line());
        if let Err(error) = self.workers.fences.remove() {
            self.log.line(&format!("a cgroup that kept workers from devices stays: {error}"));
        }
        self.workers.control_groups.remove();
        for line in self.workers.logs.finish() {
            self.log.line(&line);
        }
        self.log.line("the daemon ends");
        if !matches!(self.lifetime.ended(), Ended::Left) {
            self.session.remove();
        }
        self.lifetime.into_ended()
    }
}
