//! The children of one process, and the orphans that the dead among them leave.
//!
//! - CHILD_REAPER-1: a child is reported as departed once, and only when nothing that descended from it is left.
//! - CHILD_REAPER-2: while no registered child has died, nothing is killed: an unregistered child is then one
//!   that is about to be registered.
//! - CHILD_REAPER-3: a companion is reaped and otherwise left alone: nobody else is killed under its number.

use crate::call;
use crate::tree::{children_of, descendants_of};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The children of this process. One per process, made before it has a second thread, so that SIGCHLD
/// is blocked everywhere.
#[derive(Debug)]
pub struct ChildReaper {
    living: BTreeSet<u32>,
    /// Dead, with orphans possibly still about.
    mourned: BTreeMap<u32, Departed>,
    companions: Companions,
    signals: OwnedFd,
}

/// Children that other threads start and look after: programs that end by themselves when this process is gone, after they
/// have tidied up; and those that cannot be ended (CHILD_REAPER-3).
#[derive(Debug, Clone, Default)]
pub struct Companions(Arc<Mutex<BTreeSet<u32>>>);

impl Companions {
    /// Starts one, and returns its process.
    pub fn start(&self, command: &mut Command) -> io::Result<u32> {
        // Whoever looks for orphans meanwhile waits until this one is known.
        let mut known = self.known();
        let pid = command.spawn()?.id();
        known.insert(pid);
        Ok(pid)
    }

    /// A child of this process that nothing is to wait for, since it cannot be killed.
    pub fn adopt(&self, pid: u32) {
        self.known().insert(pid);
    }

    /// Kills one that is still there.
    pub fn kill(&self, pid: u32) {
        if self.known().contains(&pid) {
            send_kill(pid);
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registered child that is dead and reaped, and so is everything that descended from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departed {
    /// Its process id.
    pub pid: u32,
    /// Its wait status, as the kernel gave it; see [`describe_status`](crate::describe_status).
    pub status: i32,
    /// How many of its descendants had to be killed after it. Where several children died together, the
    /// orphans of all count for each.
    pub stragglers: u32,
}

/// This process cannot watch over its children.
#[derive(Debug, thiserror::Error)]
#[error("cannot watch over child processes: {step} failed")]
pub struct ReaperError {
    /// Which system call.
    pub step: &'static str,
    /// What it said.
    #[source]
    pub source: Errno,
}

impl ChildReaper {
    /// Makes this process a subreaper and has its thread hear of deaths through a descriptor.
    pub fn new() -> Result<Self, ReaperError> {
        call::become_subreaper().map_err(|source| ReaperError { step: "prctl(PR_SET_CHILD_SUBREAPER)", source })?;
        let signals = call::signals_as_descriptor(&[libc::SIGCHLD])
            .map_err(|source| ReaperError { step: "signalfd(SIGCHLD)", source })?;
        Ok(Self { living: BTreeSet::new(), mourned: BTreeMap::new(), companions: Companions::default(), signals })
    }

    /// Readable when [`ChildReaper::reap`] may have news.
    pub fn watch_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// What starts children that others look after.
    pub fn companions(&self) -> Companions {
        self.companions.clone()
    }

    /// Takes a child into care. Do it before the next [`ChildReaper::reap`].
    pub fn register(&mut self, pid: u32) {
        self.living.insert(pid);
    }

    /// The registered children that have not been seen dead.
    pub fn living(&self) -> impl Iterator<Item = u32> + '_ {
        self.living.iter().copied()
    }

    /// Whether no registered child is left, neither alive nor with orphans to be ended.
    pub fn is_empty(&self) -> bool {
        self.living.is_empty() && self.mourned.is_empty()
    }

    /// Kills a registered child; [`ChildReaper::reap`] reports it. Only children of ours are hit: one that is
    /// dead keeps its number until it is reaped here.
    pub fn kill(&self, pid: u32) {
        if self.living.contains(&pid) {
            send_kill(pid);
        }
    }

    /// Kills every child, registered or not, and what descends from it, but for companions.
    pub fn kill_all(&self) {
        let companions = self.companions.known();
        for pid in descendants_of(std::process::id()) {
            if !companions.contains(&pid) {
                send_kill(pid);
            }
        }
    }

    /// Reaps what has died, ends what the dead left behind, and tells which children are gone for good.
    pub fn reap(&mut self) -> Vec<Departed> {
        self.drain_signals();
        loop {
            let reaped = self.collect();
            if self.mourned.is_empty() {
                return Vec::new();
            }
            // The kernel's list can miss a process while others exit, so its word is taken only twice.
            let orphans = [self.orphans(), self.orphans()].concat();
            if orphans.is_empty() {
                return std::mem::take(&mut self.mourned).into_values().collect();
            }
            for orphan in orphans {
                descendants_of(orphan).into_iter().for_each(send_kill);
                send_kill(orphan);
            }
            // Those that were dead already can be collected at once; the others announce themselves.
            if reaped == 0 && self.collect() == 0 {
                return Vec::new();
            }
        }
    }

    fn orphans(&self) -> Vec<u32> {
        let companions = self.companions.known();
        let is_orphan = |pid: &u32| !self.living.contains(pid) && !companions.contains(pid);
        children_of(std::process::id()).into_iter().filter(is_orphan).collect()
    }

    fn collect(&mut self) -> u32 {
        let mut reaped = 0;
        let mut strays = 0;
        let mut companions = self.companions.known();
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get() as u32;
            reaped += 1;
            if self.living.remove(&pid) {
                self.mourned.insert(pid, Departed { pid, status: status.as_raw(), stragglers: 0 });
            } else if !companions.remove(&pid) {
                strays += 1;
            }
        }
        drop(companions);
        self.mourned.values_mut().for_each(|departed| departed.stragglers += strays);
        reaped
    }

    fn drain_signals(&self) {
        let mut buffer = [0; 1024];
        while rustix::io::read(&self.signals, &mut buffer).is_ok_and(|read| read > 0) {}
    }
}

fn send_kill(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        // It may have died meanwhile, which is what was wanted.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}
