//! `oxiray symmetric-run`: the same command on every node of an allocation, such as `srun` runs it. One becomes the head,
//! the others join it; the program runs on the head's machine, and the cluster ends with it.
//!
//! ```text
//! head    starts a head, hands its address and token to the others, waits for them, runs the program, stops the head
//! member  takes address and token, joins, and ends when its daemon does
//! ```
//!
//! - SYMMETRIC-1: whoever ends, and however, leaves no daemon: daemons are children that end with this process.
//! - SYMMETRIC-2: an address and a token are taken only from a file that this user wrote and nobody else may read.

mod allocation;
mod handover;

use crate::arguments::{StartOptions, SymmetricRunOptions};
use crate::{start, visit};
use allocation::{Place, Role};
use anyhow::{Context as _, anyhow, bail};
use handover::Given;
use oxiray_node::Ready;
use oxiray_processes::{pidfd_of, reset_signals_after_fork, stop_signals};
use oxiray_visitor::{FoundSession, session};
use oxiray_wire::message::ClusterQuery;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// For how long nodes wait for each other, in seconds, unless the variable says otherwise.
const PATIENCE_S: u64 = 120;
const PATIENCE_VARIABLE: &str = "RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT";
/// How long what is to end may take before it is killed.
const GRACE: Duration = Duration::from_secs(10);
/// How long to wait between two looks at whether the others are there.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Runs this node's part; returns the status to end with.
pub(crate) fn run(options: &SymmetricRunOptions) -> anyhow::Result<i32> {
    refuse_what_it_chooses(&options.start)?;
    let patience = patience()?;
    let place = allocation::find(|name| std::env::var(name).ok(), options)?;
    let stopped = stop_signals().context("signals cannot be watched")?;
    match place.role {
        Role::Head => lead(options, &place, patience, &stopped),
        Role::Member => follow(options, &place, patience, &stopped),
    }
}

fn refuse_what_it_chooses(start: &StartOptions) -> anyhow::Result<()> {
    let chosen = [
        ("--head", start.head),
        ("--block", start.block),
        ("--port", start.port.is_some()),
        ("--join-wait", start.join_wait.is_some()),
        ("--autoscale", start.autoscale.is_some()),
        ("--store", start.store.store.is_some()),
        ("--standby", start.store.standby),
        ("--keep-cluster", start.keep_cluster),
    ];
    match chosen.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => {
            bail!("{option} cannot be given to symmetric-run, which starts the nodes itself: leave it out")
        }
        None => Ok(()),
    }
}

fn patience() -> anyhow::Result<Duration> {
    let Ok(text) = std::env::var(PATIENCE_VARIABLE) else { return Ok(Duration::from_secs(PATIENCE_S)) };
    let seconds = text
        .parse()
        .with_context(|| format!("the variable {PATIENCE_VARIABLE} is a number of seconds, and `{text}` is none"))?;
    Ok(Duration::from_secs(seconds))
}

/// What people read goes to standard error: standard output is the program's.
fn tell(text: &str) {
    // Where stderr is gone there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "symmetric-run: {text}");
}

/// The head's part.
fn lead(options: &SymmetricRunOptions, place: &Place, patience: Duration, stopped: &OwnedFd) -> anyhow::Result<i32> {
    let daemon = Daemon::start(&place.head_options(&options.start))?;
    let found = session_of(&daemon.ready)?;
    let _handover = match (&daemon.ready.listens, &daemon.ready.token_file) {
        (Some(address), Some(token_file)) if place.nodes > 1 => {
            let token = std::fs::read_to_string(token_file).with_context(|| format!("{token_file} cannot be read"))?;
            Some(place.handover.give(address, token.trim())?)
        }
        _ => None,
    };
    if !all_are_there(&found, place.nodes, patience, stopped)? {
        return Ok(128 + Signal::TERM.as_raw());
    }
    tell(&format!("{} nodes are there; the program begins", place.nodes));
    let status = run_program(options, &found, stopped)?;
    daemon.stop(&found);
    Ok(status)
}

/// Whether as many nodes are there as are waited for; `false` where this process is to stop before.
fn all_are_there(found: &FoundSession, wanted: usize, patience: Duration, stopped: &OwnedFd) -> anyhow::Result<bool> {
    let until = Instant::now() + patience;
    let mut visitor = visit::begin(found)?;
    loop {
        let report = visitor.ask(ClusterQuery::default(), visit::ANSWER_LIMIT)?;
        let there = report.state.unwrap_or_default().nodes.iter().filter(|node| node.alive).count();
        if there >= wanted {
            return Ok(true);
        }
        if Instant::now() > until {
            bail!(
                "{there} of {wanted} nodes are there after {} s: look at the output of the others; {PATIENCE_VARIABLE} \
                 gives them more time, and --min-nodes says how many are enough",
                patience.as_secs()
            );
        }
        if is_readable(stopped, PAUSE) {
            return Ok(false);
        }
    }
}

/// Runs the program in the cluster; returns the status that it ended with, as shells count it.
fn run_program(options: &SymmetricRunOptions, found: &FoundSession, stopped: &OwnedFd) -> anyhow::Result<i32> {
    let Some((program, arguments)) = options.command.split_first() else { return Ok(0) };
    let mut command = Command::new(program);
    command.args(arguments).env("RAY_ADDRESS", &found.description.address);
    // SAFETY: what runs between fork and exec is calls of the kernel.
    unsafe {
        command.pre_exec(|| {
            reset_signals_after_fork();
            Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?)
        });
    }
    let mut child =
        command.spawn().with_context(|| format!("the program {} cannot be started", Path::new(program).display()))?;
    Ok(status_of(end_of(&mut child, stopped)?))
}

/// Waits for the end of a child. Where this process is to stop, the child is asked to, and killed after a while.
fn end_of(child: &mut Child, stopped: &OwnedFd) -> anyhow::Result<ExitStatus> {
    let ended = pidfd_of(child.id()).context("the process cannot be watched")?;
    let mut both = [PollFd::new(&ended, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
    while poll(&mut both, None).is_err() {}
    if let Some(status) = child.try_wait()? {
        return Ok(status);
    }
    ask_to_end(child);
    if !is_readable(&ended, Timespec::try_from(GRACE).unwrap_or(PAUSE)) {
        child.kill()?;
    }
    Ok(child.wait()?)
}

/// The member's part.
fn follow(options: &SymmetricRunOptions, place: &Place, patience: Duration, stopped: &OwnedFd) -> anyhow::Result<i32> {
    let until = Instant::now() + patience;
    let mut refused: Option<(Given, anyhow::Error)> = None;
    loop {
        match (place.handover.take(place.address)?, &refused) {
            // What an earlier run left is of no use; the head of this one puts another in its place.
            (Some(given), None) => match join(options, &given, patience) {
                Ok(mut daemon) => return end_of(&mut daemon.child, stopped).map(|_| 0),
                Err(error) => refused = Some((given, error)),
            },
            (Some(given), Some((last, _))) if given != *last => refused = None,
            _ => {}
        }
        if Instant::now() > until {
            return Err(refused.map_or_else(|| nothing_came(place, patience), |(_, error)| error));
        }
        if is_readable(stopped, PAUSE) {
            return Ok(128 + Signal::TERM.as_raw());
        }
    }
}

fn join(options: &SymmetricRunOptions, given: &Given, patience: Duration) -> anyhow::Result<Daemon> {
    let token = handover::private_file(&given.token)?;
    Daemon::start(&allocation::member_options(&options.start, &given.address, token.path(), patience))
}

fn nothing_came(place: &Place, patience: Duration) -> anyhow::Error {
    anyhow!(
        "the head has not handed over its address within {} s ({}): look at the output of the first node; \
         {PATIENCE_VARIABLE} gives it more time",
        patience.as_secs(),
        place.handover
    )
}

/// A node that ends with this process (SYMMETRIC-1).
struct Daemon {
    child: Child,
    ready: Ready,
}

impl Daemon {
    fn start(options: &StartOptions) -> anyhow::Result<Self> {
        let (child, ready) = start::begin(options, start::Bond::EndsWithParent)?;
        Ok(Self { child, ready })
    }

    /// Stops the cluster, and waits until this node is gone.
    fn stop(mut self, found: &FoundSession) {
        let asked = visit::begin(found).and_then(|mut visitor| visit::stop(&mut visitor, GRACE)).unwrap_or(false);
        if asked
            && pidfd_of(self.child.id())
                .is_ok_and(|ended| is_readable(&ended, Timespec::try_from(GRACE).unwrap_or(PAUSE)))
        {
            let _ = self.child.wait();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            ask_to_end(&self.child);
            let ended = pidfd_of(self.child.id());
            if !ended.is_ok_and(|ended| is_readable(&ended, Timespec::try_from(GRACE).unwrap_or(PAUSE))) {
                let _ = self.child.kill();
            }
            let _ = self.child.wait();
        }
    }
}

fn ask_to_end(child: &Child) {
    // It is a child of ours that nobody has waited for: the number is its own.
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
}

fn session_of(ready: &Ready) -> anyhow::Result<FoundSession> {
    let directory = Path::new(&ready.session);
    let root = directory.parent().context("the session has no folder")?;
    let found = session::living(root)
        .into_iter()
        .find(|found| found.description.address == ready.address && !found.description.member);
    found.with_context(|| format!("the head that was started in {} is gone: its log says why", ready.session))
}

fn is_readable(descriptor: &OwnedFd, patience: Timespec) -> bool {
    poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&patience)).is_ok_and(|ready| ready > 0)
}

/// As shells count it: 128 and the signal where it was killed by one.
fn status_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
