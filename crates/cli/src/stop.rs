//! `oxiray stop`.

use crate::arguments::StopOptions;
use crate::visit;
use crate::{called, say};
use anyhow::bail;
use oxiray_node::forget_all;
use oxiray_processes::{descendants_of, kill_by_pidfd, pidfd_of};
use oxiray_visitor::{FoundSession, session};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

/// How long a killed process may take to be gone.
const KILLING_LIMIT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

pub(crate) fn run(options: &StopOptions) -> anyhow::Result<()> {
    let found = visit::all()?;
    let mut processes = 0;
    let mut elsewhere = Vec::new();
    for one in &found {
        match one.description.process() {
            Some(pid) => {
                if options.verbose {
                    say(&format!("Stopping the daemon of {} (pid {pid}).", one.description.address));
                }
                processes += 1 + descendants_of(pid).len();
                end(one, pid, options)?;
            }
            None => elsewhere.push(one.description.address.as_str()),
        }
    }
    let forgotten = forget_all(&session::root()?);
    if !elsewhere.is_empty() {
        bail!(
            "the daemon of {} runs in another PID namespace, such as another container, from which it has to be stopped",
            elsewhere.join(", ")
        );
    }
    match processes {
        0 if forgotten == 1 => say("Forgot what a killed head had written down."),
        0 if forgotten > 0 => say(&format!("Forgot what {forgotten} killed heads had written down.")),
        0 => say(&format!("Did not find any active {} processes.", called::product())),
        count => say(&format!("Stopped all {count} {} processes.", called::product())),
    }
    Ok(())
}

fn end(found: &FoundSession, pid: u32, options: &StopOptions) -> anyhow::Result<()> {
    // The number may name another process by the time it is used, so it is turned into a descriptor first.
    let Ok(daemon) = pidfd_of(pid) else { return Ok(()) };
    let supervisor = found.description.supervisor().and_then(|pid| pidfd_of(pid).ok());
    let asked = !options.force
        && visit::begin(found)
            .and_then(|mut visitor| visit::stop(&mut visitor, Duration::from_secs(options.grace_period)))
            .unwrap_or(false);
    if !asked {
        let below: Vec<_> = descendants_of(pid).into_iter().filter_map(|pid| pidfd_of(pid).ok()).collect();
        // The supervisor is first, so that it starts no other daemon.
        for process in supervisor.iter().chain(&below).chain([&daemon]) {
            kill_by_pidfd(process)?;
        }
    }
    for process in [Some(&daemon), supervisor.as_ref()].into_iter().flatten() {
        poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&KILLING_LIMIT))?;
    }
    Ok(())
}
