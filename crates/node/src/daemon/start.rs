//! How a daemon comes to life.

use super::Daemon;
use super::preparing::{DEFAULT_PORT, Prepared, prepare};
use crate::arrival::Return;
use crate::children::dashboard::{HttpProgram, HttpPurpose};
use crate::children::templates::TemplateProcess;
use crate::children::{Children, SESSION_VARIABLE, leave_commands};
use crate::config::Config;
use crate::control_groups::{self, ControlGroups};
use crate::descriptors::raise_limit;
use crate::device_record;
use crate::fences::Fences;
use crate::join::Joined;
use crate::journal::JournalClient;
use crate::lease::patience;
use crate::lifetime::{Ended, Lifetime, Predecessor};
use crate::line_log::LineLog;
use crate::listener::Listener;
use crate::log_client::LogClient;
use crate::membership::Membership;
use crate::network::Network;
use crate::objects::Objects;
use crate::poller::{Poller, Token};
use crate::session::{self, Session};
use crate::start_error::{LEFTOVERS_LIMIT, StartError, Step as _};
use crate::streams::{Role, Stream, Streams};
use crate::succession;
use crate::token_file;
use crate::turn::Turn;
use crate::workers::Workers;
use crate::workers::memory::MemoryWatch;
use oxiray_head::Core;
use oxiray_journal::Store;
use oxiray_machine::Origin;
use oxiray_processes::{ChildReaper, kill_by_pidfd, pidfd_of, started_with, stop_signals};
use oxiray_wire::Connection;
use oxiray_wire::message::Refused;
use oxiray_wire::state::MemoryTier;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Whom the daemon lives for.
#[derive(Debug)]
pub enum Mode {
    /// The driver at the other end of this stream.
    Private(OwnedFd),
    /// Whoever comes, until it is stopped.
    Shared {
        /// Whether it stays in its terminal's session, and what it prints stays where it is. Otherwise
        /// that goes to daemon.log once `ready` was called.
        keeps_output: bool,
    },
}

/// A daemon that serves.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ready {
    /// Address that `init(address=…)` takes.
    pub address: String,
    /// The session's directory.
    pub session: String,
    /// What its user should know.
    pub warnings: Vec<String>,
    /// Where it listens for nodes of other machines, as `IP:PORT`; nothing where it does not.
    #[serde(default)]
    pub listens: Option<String>,
    /// Whether it waits to be the head of the cluster in the store that `address` names.
    #[serde(default)]
    pub standby: bool,
    /// On a head that goes on with what another wrote down: what that is, in words.
    #[serde(default)]
    pub resumed: Option<String>,
    /// On a head that listens: the file that nodes of other machines need a copy of.
    #[serde(default)]
    pub token_file: Option<String>,
}

impl Ready {
    fn standby(store: &str, session: &Session) -> Self {
        Self {
            address: store.to_owned(),
            session: session.directory().display().to_string(),
            warnings: Vec::new(),
            standby: true,
            resumed: None,
            listens: None,
            token_file: None,
        }
    }
}

/// Runs a daemon until it is to end. `ready` is called once it serves. The process must have one thread.
pub fn run(config: &Config, mode: Mode, ready: impl FnOnce(&Ready)) -> Result<(), StartError> {
    oxiray_fence::keep_capabilities_to_oneself();
    let driver = match mode {
        Mode::Private(driver) => Some(driver),
        Mode::Shared { keeps_output } => return share(config, keeps_output, ready),
    };
    let mut driver = Connection::new(driver.expect("a private daemon has a driver")).step("use its driver's stream")?;
    let built = Foundation::lay(config, false).and_then(|foundation| {
        let only = rustix::io::fcntl_dupfd_cloexec(&driver, 0).step("keep its driver's stream")?;
        foundation.build(config, Some(only), ready)
    });
    match built {
        Ok(daemon) => {
            drop(driver);
            daemon.serve().step("wait for events").map(drop)
        }
        Err(error) => {
            driver.send(&Refused { text: error.to_string() });
            // A driver that is gone needs no reason.
            let _ = driver.flush();
            Err(error)
        }
    }
}

/// Runs for whoever comes. A node that loses its head, or that its switch has ended, begins anew as another node.
fn share(config: &Config, keeps_output: bool, ready: impl FnOnce(&Ready)) -> Result<(), StartError> {
    if !keeps_output {
        // It fails where this process leads a session already, which is as good.
        let _ = rustix::process::setsid();
    }
    token_file::take_given(config.member.token_file.as_deref());
    let (is_successor, mut before) = succession::begin(config, keeps_output)?;
    let mut ready = (!is_successor).then_some(ready);
    loop {
        let mut foundation = Foundation::lay(config, !is_successor || keeps_output)?;
        foundation.before = before;
        let log = foundation.log.handle().step("open daemon.log")?;
        if let Some(store) = config.head.store.as_ref().filter(|_| config.head.standby)
            && let Some(ready) = ready.take()
        {
            ready(&Ready::standby(&store.address, &foundation.session));
            if !keeps_output {
                redirect(&log).step("redirect its output to daemon.log")?;
            }
        }
        let daemon = foundation.build(config, None, |told| {
            if let Some(ready) = ready.take() {
                ready(told);
            }
        })?;
        if !keeps_output {
            redirect(&log).step("redirect its output to daemon.log")?;
        }
        match daemon.serve().step("wait for events")? {
            Ended::Stopped | Ended::LostTurn | Ended::Left => return Ok(()),
            Ended::LostHead(predecessor) => before = Some(predecessor),
        }
    }
}

/// What comes before the machine is looked at: the sooner the template starts, the sooner the first task runs.
struct Foundation {
    /// Where the sessions of the user are, and links to those that lie elsewhere.
    home: PathBuf,
    session: Session,
    log: LineLog,
    reaper: ChildReaper,
    stop_signals: OwnedFd,
    template: Option<TemplateProcess>,
    /// Who this node was before it lost its head.
    before: Option<Predecessor>,
}

impl Foundation {
    fn lay(config: &Config, keeps_output: bool) -> Result<Self, StartError> {
        let home = oxiray_visitor::session::root().step("make the directory of its user's sessions")?;
        let root = root(config).step("make the directory of its session")?;
        let resumed = resumable(config, &home);
        if let Some(session) = &resumed {
            end_leftovers(session.directory())?;
            control_groups::remove_left(session.directory());
        }
        let mut session = resumed.map_or_else(|| Session::make(&root), Ok).step("make the directory of its session")?;
        if root != home
            && !session.is_resumed()
            && let Err(source) = session.show_in(&home)
        {
            session.remove();
            return Err(StartError::System { step: "show its session among its user's", source });
        }
        let built = Self::lay_in(config, keeps_output, &session);
        match built {
            Ok((log, reaper, stop_signals, template)) => {
                Ok(Self { home, session, log, reaper, stop_signals, template, before: None })
            }
            Err(error) => {
                session.leave();
                Err(error)
            }
        }
    }

    fn lay_in(
        config: &Config,
        keeps_output: bool,
        session: &Session,
    ) -> Result<(LineLog, ChildReaper, OwnedFd, Option<TemplateProcess>), StartError> {
        let log = LineLog::open(&session.logs().join("daemon.log")).step("open daemon.log")?;
        let mut reaper = ChildReaper::new()?;
        let stop_signals = stop_signals().step("listen to signals")?;
        raise_limit();
        let mut template = None;
        if let Some(interpreter) = &config.interpreter {
            let output = log.handle().step("open daemon.log")?;
            // Where it fails, the driver's own request for it fails again, and is told.
            template = TemplateProcess::start(&Origin::plain(interpreter), session.directory(), output).ok();
            if let Some(template) = &template {
                reaper.register(template.pid);
            }
        }
        if !keeps_output {
            redirect(&log.handle().step("open daemon.log")?).step("redirect its output to daemon.log")?;
        }
        Ok((log, reaper, stop_signals, template))
    }

    #[expect(clippy::too_many_lines, reason = "all parts of the daemon are made here, one after the other")]
    fn build(self, config: &Config, driver: Option<OwnedFd>, ready: impl FnOnce(&Ready)) -> Result<Daemon, StartError> {
        let Self { home, session, mut log, mut reaper, stop_signals, template, before } = self;
        let starter = || config.starter.and_then(|pid| oxiray_processes::pidfd_of(pid).ok());
        let back = Return::of(before, config, &stop_signals, starter());
        let prepared =
            prepare(config, &home, &session, driver.is_some(), back.as_ref(), (&stop_signals, reaper.companions()));
        leave_commands(&reaper);
        let Prepared { plan, bounds, devices, address, store, description, listener, joined, network, journal } =
            match prepared {
                Ok(prepared) => prepared,
                Err(error) => {
                    drop(template);
                    while !reaper.is_empty() {
                        reaper.kill_all();
                        let _ = rustix::event::poll(
                            &mut [rustix::event::PollFd::from_borrowed_fd(
                                reaper.watch_fd(),
                                rustix::event::PollFlags::IN,
                            )],
                            None,
                        );
                        reaper.reap();
                    }
                    session.leave();
                    return Err(error);
                }
            };
        plan.warnings.iter().chain(&plan.isolation.notes).for_each(|line| log.line(line));
        let (control_groups, told) = {
            let by_kernel = plan.isolation.memory.tiers.contains(&MemoryTier::Dmem);
            ControlGroups::begin(bounds.limits.as_ref(), (&plan.variables, by_kernel), session.directory())
        };
        let (fences, refused) = Fences::begin(&plan.isolation, &plan.offer.device_nodes);
        for line in told.iter().chain(&refused) {
            log.line(line);
        }
        let logs = LogClient::start(&session.logs(), session.is_resumed()).step("start the thread that writes logs")?;
        let warnings = plan.warnings.clone();
        let text = session.directory().display().to_string();
        let now = Instant::now();
        let begin = if joined.is_some() { Core::member } else { Core::new };
        let mut core = begin(plan, text.clone(), address.clone(), devices.monitored(), now);
        let resumed = go_on(&mut core, journal.as_deref(), config, &session)?;
        if let Some(told) = &resumed {
            log.line(told);
        }
        match device_record::read(session.directory()) {
            Ok(records) => core.recall_health(&records),
            Err(error) => log.line(&format!("which devices were ill before is not known: {error}")),
        }
        let told = Ready {
            address: address.clone(),
            session: text,
            warnings,
            standby: false,
            resumed,
            listens: network.as_ref().map(|network| network.address().to_string()),
            token_file: network.as_ref().and_then(Network::token_file),
        };
        let http = HttpPurpose::all(config).map(|purpose| HttpProgram::new(purpose, now)).collect();
        let children = Children::new(reaper, template, http, &core.plan().offer);
        let mut daemon = Daemon {
            core,
            poller: Poller::new().step("make an epoll")?,
            turn: Turn::new(now),
            listener: Listener::new(listener, description.token),
            streams: Streams::new(),
            children,
            workers: Workers::new((control_groups, fences), MemoryWatch::new(bounds.limits, bounds.monitor), logs),
            objects: Objects::new(store),
            devices,
            membership: Membership::new(
                address,
                joined.as_ref().map(|joined| joined.way.clone()),
                config.head.keeps_logs,
            ),
            network,
            journal: journal.map(JournalClient::start).transpose().step("start the thread of its journal")?,
            session,
            log,
            lifetime: Lifetime::new(stop_signals, starter(), config.head.keeps_cluster),
        };
        daemon.watch_all().step("watch its descriptors")?;
        if driver.is_none() {
            let found = daemon.devices.look(&daemon.core.devices());
            daemon.core.doubt_devices(found);
        }
        if let Some(interpreter) = &config.interpreter {
            daemon.core.prepare(interpreter);
        }
        if let Some(Joined { connection, admitted, .. }) = joined {
            let key = daemon.core.new_key();
            daemon.add_stream(key, Stream::new(connection, Role::Head, 0));
            let listens = daemon.network.as_ref().map(|network| network.address().to_string());
            daemon.core.serve_head(key, listens.unwrap_or_default());
            daemon.core.begin_epoch(admitted.epoch);
            daemon.workers.logs.tell_failed(admitted.keeps_logs);
            daemon.leave_note();
        }
        if let Some(driver) = driver {
            let key = daemon.core.new_key();
            let connection = Connection::new(driver).step("use its driver's stream")?;
            daemon.add_stream(key, Stream::new(connection, Role::Expected, 0));
            daemon.lifetime.live_for(key);
        }
        ready(&told);
        Ok(daemon)
    }
}

impl Daemon {
    fn watch_all(&self) -> io::Result<()> {
        self.lifetime.watch(&self.poller)?;
        self.poller.watch(self.children.reaper.watch_fd(), Token::Children)?;
        self.poller.watch(&self.devices, Token::Devices)?;
        self.poller.watch(&self.workers.logs, Token::Logs)?;
        if let Some(journal) = &self.journal {
            self.poller.watch(journal, Token::Journal)?;
        }
        self.watch_network()?;
        if let Some(events) = self.workers.control_groups.watch_fd() {
            self.poller.watch(events, Token::ProcessLimits)?;
        }
        if let Some(wake) = self.objects.store.wake_fd() {
            self.poller.watch(wake, Token::Store)?;
        }
        Ok(())
    }
}

/// The session of a head that was killed, where the one to be started is to go on with it.
fn resumable(config: &Config, home: &Path) -> Option<Session> {
    let port = config.port.unwrap_or(DEFAULT_PORT);
    if !config.head.keeps || port == 0 {
        return None;
    }
    if config.head.fresh {
        session::forget(home, port);
    }
    Session::resume(home, port)
}

/// What a killed daemon started dies with it, and mostly is gone by now; no device is granted before it is.
fn end_leftovers(session: &Path) -> Result<(), StartError> {
    let until = Instant::now() + LEFTOVERS_LIMIT;
    loop {
        let pids = started_with(SESSION_VARIABLE, session.as_os_str().as_encoded_bytes());
        let living: Vec<OwnedFd> = pids.iter().filter_map(|pid| pidfd_of(*pid).ok()).collect();
        for process in &living {
            // It fails where it is dead already.
            let _ = kill_by_pidfd(process);
        }
        for process in &living {
            let left = until.saturating_duration_since(Instant::now());
            let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)).step("wait for processes to end")?;
        }
        if living.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(StartError::Leftovers { pids });
        }
    }
}

/// Has the head go on with what its journal holds. Returns what that is, in words, where another head wrote it.
fn go_on(
    core: &mut Core,
    journal: Option<&dyn Store>,
    config: &Config,
    session: &Session,
) -> Result<Option<String>, StartError> {
    let Some(journal) = journal else { return Ok(None) };
    let there = core.restore(journal.rows(), patience(config.lease()))?;
    let there = if there.is_empty() { "nothing yet".to_owned() } else { there.join(", ") };
    let epoch = core.plan().epoch;
    let which = match &config.head.store {
        Some(store) => format!("the cluster in {}, as head number {epoch}", store.address),
        None => format!("the cluster of {}, which was killed", session.directory().display()),
    };
    Ok((epoch > 1).then(|| format!("It goes on as {which}: {there}.")))
}

/// The directory that the session of this daemon is to lie in.
fn root(config: &Config) -> io::Result<PathBuf> {
    match config.temp_dir.as_ref().map(|directory| directory.display().to_string()) {
        Some(chosen) => oxiray_wire::session::root(|name| (name == "OXIRAY_TMPDIR").then(|| chosen.clone())),
        None => oxiray_visitor::session::root(),
    }
}

fn redirect(log: &std::fs::File) -> io::Result<()> {
    rustix::stdio::dup2_stdout(log)?;
    rustix::stdio::dup2_stderr(log)?;
    let nothing = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    Ok(())
}
