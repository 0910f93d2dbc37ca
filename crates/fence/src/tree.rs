//! A cgroup with those in it: who is there, ending them, and removing the directories.

use crate::FenceError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long killed processes have to be gone.
const END_LIMIT: Duration = Duration::from_secs(5);
/// How often those in a cgroup are killed one by one until no new ones turn up.
const ROUNDS_MAX: usize = 16;
/// How many processes are killed at once: each takes a descriptor meanwhile.
const KILLED_AT_ONCE: usize = 64;
/// The levels of cgroups that are looked at below one: whoever is in it as root can make some.
const DEPTH_MAX: usize = 32;

/// The processes of one cgroup as seen from here, without those further down.
pub(crate) fn pids_in(cgroup: &Path) -> Vec<u32> {
    let list = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// The processes of a cgroup and of all further down.
pub(crate) fn pids_beneath(cgroup: &Path) -> Vec<u32> {
    cgroups_beneath(cgroup).iter().flat_map(|one| pids_in(one)).collect()
}

/// Whether a process lives in a cgroup or further down.
pub(crate) fn is_populated(cgroup: &Path) -> bool {
    // Version 1 does not say.
    match fs::read_to_string(cgroup.join("cgroup.events")) {
        Ok(events) => says_populated(&events),
        Err(_) => !pids_beneath(cgroup).is_empty(),
    }
}

fn says_populated(events: &str) -> bool {
    events.lines().any(|line| line == "populated 1")
}

/// A cgroup and all further down, lower ones first.
fn cgroups_beneath(cgroup: &Path) -> Vec<PathBuf> {
    let mut found = vec![cgroup.to_owned()];
    let mut level = 0..1;
    for _ in 0..DEPTH_MAX {
        let start = found.len();
        for index in level {
            if has_none_below(&found[index]) {
                continue;
            }
            let entries = fs::read_dir(&found[index]).into_iter().flatten().flatten();
            let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let directories: Vec<PathBuf> = directories.map(|entry| entry.path()).collect();
            found.extend(directories);
        }
        level = start..found.len();
    }
    found.reverse();
    found
}

/// Whether the kernel counts no directory in a cgroup's, where it counts them: listing its files takes much longer.
fn has_none_below(cgroup: &Path) -> bool {
    fs::metadata(cgroup).is_ok_and(|directory| directory.nlink() == 2)
}

/// Removes a cgroup and those further down, as far as nobody is in them.
pub(crate) fn remove(cgroup: &Path) -> Result<(), FenceError> {
    for directory in cgroups_beneath(cgroup) {
        match fs::remove_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                return Err(FenceError::Occupied { pids: pids_beneath(&directory), directory });
            }
            Err(error) => return Err(FenceError::of_cgroup(format!("remove {}", directory.display()), error)),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Kills whoever is in a cgroup or further down, and waits until they are gone.
pub(crate) fn end(cgroup: &Path) -> Result<(), FenceError> {
    let deadline = Instant::now() + END_LIMIT;
    // Never made: the kernel has it where there is one.
    let door = OpenOptions::new().write(true).open(cgroup.join("cgroup.kill"));
    let is_over = if door.is_ok_and(|mut door| door.write_all(b"1").is_ok()) {
        waited_for_emptiness(cgroup, deadline).unwrap_or(false)
    } else {
        killed_one_by_one(cgroup, deadline)
    };
    if is_over {
        return Ok(());
    }
    Err(FenceError::Occupied { directory: cgroup.to_owned(), pids: pids_beneath(cgroup) })
}

/// Whether nobody is left by the deadline, as the kernel tells of version 2.
fn waited_for_emptiness(cgroup: &Path, deadline: Instant) -> std::io::Result<bool> {
    let (mut events, mut text) = (File::open(cgroup.join("cgroup.events"))?, String::new());
    loop {
        text.clear();
        events.rewind()?;
        events.read_to_string(&mut text)?;
        if !says_populated(&text) {
            return Ok(true);
        }
        if !is_ready(&events, PollFlags::PRI, deadline) {
            return Ok(false);
        }
    }
}

fn killed_one_by_one(cgroup: &Path, deadline: Instant) -> bool {
    for _ in 0..ROUNDS_MAX {
        let pids = pids_beneath(cgroup);
        if pids.is_empty() {
            return true;
        }
        for some in pids.chunks(KILLED_AT_ONCE) {
            let mut named: Vec<(u32, OwnedFd)> =
                some.iter().filter_map(|pid| Some((*pid, descriptor_of(*pid)?))).collect();
            // A number may be another process's by now; where it is still listed, what the descriptor names is in the
            // cgroup, or dead.
            let still = pids_beneath(cgroup);
            named.retain(|(pid, _)| still.contains(pid));
            for (_, process) in &named {
                // One that is dead already is what was wanted.
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
            if !named.iter().all(|(_, process)| is_ready(process, PollFlags::IN, deadline)) {
                return false;
            }
        }
    }
    false
}

fn descriptor_of(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()
}

/// Waits until a descriptor has news; `false` where it has none by the deadline.
fn is_ready(descriptor: impl AsFd, news: PollFlags, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&descriptor, news)], Some(&left)) {
            Err(Errno::INTR) => {}
            result => return result.is_ok_and(|ready| ready > 0),
        }
    }
}
