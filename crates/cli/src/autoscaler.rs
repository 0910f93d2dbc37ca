//! `oxiray autoscaler`: brings machines for what waits; or says what it would do.

use crate::arguments::{AutoscalerOptions, AutoscalerOrder, PlanOptions, RunOptions};
use crate::say;
use crate::visit;
use anyhow::{Context as _, bail};
use oxiray_autoscaler::{
    Contact, GroupsFile, Head, JoinedCluster, Limits, Local, Options, Provider, Slurm, Waker, entry_of, in_words,
    read_file, read_record, record_of, situation,
};
use oxiray_scheduler::{Plan, plan};
use oxiray_visitor::{FoundSession, json, session};
use oxiray_wire::message::GrowthQuery;
use oxiray_wire::session::logs_of;
use oxiray_wire::state::PlanRecord;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value as Json, json};
use std::fs;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a killed head may take to come back before its machines are ended.
const AWAY_LIMIT: Duration = Duration::from_secs(600);
/// Where the machines of the local provider are written down, in the session's directory.
const FOLDER: &str = "machines";
/// The commands that bring machines of Slurm.
const SLURM_COMMANDS: [&str; 3] = ["sbatch", "squeue", "scancel"];
/// The file with the join token, in the session's directory.
const TOKEN_FILE: &str = "join-token";
/// The pause before an autoscaler that was killed is started again; it doubles where that is killed soon too.
const KILLED_PAUSE: Duration = Duration::from_millis(100);
/// The longest.
const KILLED_PAUSE_MAX: Duration = Duration::from_secs(30);

pub(crate) fn run(options: &AutoscalerOptions) -> anyhow::Result<()> {
    match &options.order {
        AutoscalerOrder::Run(options) if options.detached => keep(options),
        AutoscalerOrder::Run(options) => work(options),
        AutoscalerOrder::Plan(options) => tell_plan(options),
    }
}

/// The groups that a file names, and where their machines come from.
pub(crate) fn groups(path: &Path) -> anyhow::Result<GroupsFile> {
    let text = fs::read_to_string(path).with_context(|| format!("the groups in {} cannot be read", path.display()))?;
    read_file(&text).with_context(|| format!("{} names no groups", path.display()))
}

/// The groups that a file names, where this machine can bring theirs.
pub(crate) fn startable_groups(path: &Path) -> anyhow::Result<GroupsFile> {
    let file = groups(path)?;
    for command in SLURM_COMMANDS.iter().filter(|_| file.jobs.is_some()) {
        oxiray_processes::program(command)
            .with_context(|| format!("the groups in {} are of Slurm, whose commands are not here", path.display()))?;
    }
    Ok(file)
}

/// Starts an autoscaler of its own process for a cluster that serves.
pub(crate) fn start_detached(path: &Path, address: &str, session: &Path) -> anyhow::Result<PathBuf> {
    let log = logs_of(session).join("autoscaler.log");
    let output = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&log)?;
    Command::new(std::env::current_exe()?)
        .args(["autoscaler", "run", "--detached", "--address", address, "--groups"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .context("the autoscaler cannot be started")?;
    Ok(log)
}

/// Has an autoscaler run in a process of its own, and another one whenever that is killed.
fn keep(options: &RunOptions) -> anyhow::Result<()> {
    // It fails where this process leads a session already, which is as good.
    let _ = rustix::process::setsid();
    let stop = oxiray_processes::stop_signals()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["autoscaler", "run", "--groups"]).arg(&options.groups);
    command.args(options.address.iter().flat_map(|address| ["--address", address]));
    let mut pause = KILLED_PAUSE;
    loop {
        let begun = Instant::now();
        let mut child = command.spawn().context("the autoscaler cannot be started")?;
        let ended = oxiray_processes::pidfd_of(child.id())?;
        if is_told(&stop, Some(&ended), None)? {
            if let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
                // It fails where the autoscaler has ended meanwhile.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            child.wait()?;
            return Ok(());
        }
        let status = child.wait()?;
        if status.signal().is_none() {
            // The cluster has ended, or it said itself what is wrong.
            return Ok(());
        }
        pause = if begun.elapsed() > KILLED_PAUSE_MAX { KILLED_PAUSE } else { (pause * 2).min(KILLED_PAUSE_MAX) };
        say(&format!("the autoscaler was killed ({status}): another one is started"));
        if is_told(&stop, None, Some(pause))? {
            return Ok(());
        }
    }
}

/// Waits until it is told to end, or the other has ended, or time is over; whether it is told to end.
fn is_told(stop: &OwnedFd, other: Option<&OwnedFd>, limit: Option<Duration>) -> anyhow::Result<bool> {
    let limit = limit.map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() });
    let mut watched = vec![PollFd::new(stop, PollFlags::IN)];
    watched.extend(other.map(|other| PollFd::new(other, PollFlags::IN)));
    poll(&mut watched, limit.as_ref())?;
    Ok(!watched[0].revents().is_empty())
}

fn work(options: &RunOptions) -> anyhow::Result<()> {
    let GroupsFile { groups, jobs } = startable_groups(&options.groups)?;
    let found = visit::find(options.address.as_deref())?;
    // Before there is another thread, which would be ended by them.
    let stop = oxiray_processes::stop_signals()?;
    let (program, wake) = (std::env::current_exe()?, Waker::new()?);
    match jobs {
        None => {
            let folder = found.directory.join(FOLDER);
            let local = Local::new(program, &found.description.address, folder, groups, wake.clone())?;
            serve(found, &stop, wake, local, Local::end_all)
        }
        Some(jobs) => {
            let address = found.description.listens.clone().context(
                "jobs of Slurm join over the network, and this head listens for no other machine: start it with --port and \
                 --node-ip-address",
            )?;
            let cluster = JoinedCluster { address, token_file: found.directory.join(TOKEN_FILE), program };
            let slurm = Slurm::new(cluster, groups, jobs, wake.clone())?;
            serve(found, &stop, wake, slurm, Slurm::end_all)
        }
    }
}

/// Works with that provider until the cluster ends, and ends its machines then.
fn serve<P: Provider>(
    found: FoundSession,
    stop: &OwnedFd,
    wake: Waker,
    mut provider: P,
    end_all: impl FnOnce(&mut P),
) -> anyhow::Result<()> {
    // Another autoscaler of this cluster may have had this number.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let salt = format!("request-{}-{since}", std::process::id());
    let work = Options { limits: Limits::default(), salt, wake, stop: stop.as_fd() };
    let mut head = LocalHead { found, away_since: None };
    let begun = Instant::now();
    let mut log = |line: &str| {
        // Where nobody reads it there is nobody to tell.
        let _ = writeln!(std::io::stdout(), "{:9.3} {line}", begun.elapsed().as_secs_f64());
    };
    let result = oxiray_autoscaler::run(&work, &mut head, &mut provider, &mut log);
    if result.is_ok() {
        // Nobody else would take its machines away. Where it was not let in, another works with them.
        end_all(&mut provider);
    }
    Ok(result?)
}

/// The head on this machine.
struct LocalHead {
    found: FoundSession,
    away_since: Option<Instant>,
}

impl Head for LocalHead {
    fn connect(&mut self) -> Contact {
        if let Ok(stream) = session::connect(&self.found.directory) {
            self.away_since = None;
            return Contact::There(stream.into(), self.found.description.token.clone());
        }
        let since = *self.away_since.get_or_insert_with(Instant::now);
        let may_come_back = self.found.directory.join("session.json").exists();
        if may_come_back && since.elapsed() < AWAY_LIMIT { Contact::Away } else { Contact::Over }
    }
}

fn tell_plan(options: &PlanOptions) -> anyhow::Result<()> {
    let record = match &options.demand {
        Some(path) => {
            let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
            read_record(&text)?
        }
        None => live(options)?,
    };
    let mut record = record;
    if let Some(path) = &options.groups {
        record.groups = groups(path)?.groups.iter().map(entry_of).collect();
    }
    if options.record {
        say(&serde_json::to_string_pretty(&record)?);
        return Ok(());
    }
    let plan = plan(&situation(&record)?);
    if options.printing.json {
        say(&serde_json::to_string_pretty(&as_json(&plan))?);
    } else {
        say(in_words(&plan).trim_end());
    }
    Ok(())
}

fn as_json(plan: &Plan) -> Json {
    let launches =
        plan.launches.iter().map(|one| json!({"group": one.group, "replicas": one.replicas, "why": one.why}));
    let removals = plan
        .removals
        .iter()
        .map(|one| json!({"replica": one.replica, "group": one.group, "is_in_use": one.is_in_use, "why": one.why}));
    let unmet = plan
        .unmet
        .iter()
        .map(|one| json!({"who": one.who, "count": one.count, "can_be_served": !one.is_hopeless, "why": one.why}));
    json!({
        "launches": launches.collect::<Vec<_>>(),
        "removals": removals.collect::<Vec<_>>(),
        "unmet": unmet.collect::<Vec<_>>(),
    })
}

/// What the running cluster's next plan would be made from.
fn live(options: &PlanOptions) -> anyhow::Result<PlanRecord> {
    let found = visit::find(options.address.as_deref())?;
    let answer = visit::begin(&found)?.ask(GrowthQuery::default(), visit::ANSWER_LIMIT)?;
    json::check(answer.version)?;
    if answer.state.is_none() && options.groups.is_none() {
        bail!(
            "the cluster at {} has no autoscaler: name the groups to plan with, with --groups=FILE",
            found.description.address
        );
    }
    Ok(record_of(&answer.state.unwrap_or_default(), &answer.view.unwrap_or_default()))
}
