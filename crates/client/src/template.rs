//! The process that forks workers: it has one thread and has prepared what workers need, whatever its language.
//!
//! - TEMPLATE-1: it outlives nobody: when the daemon goes, its workers and whatever they left behind go first.
//! - TEMPLATE-2: each worker that is asked for is told of once, with its process or with the reason why there is none.
//! - TEMPLATE-3: the daemon is told where this process has a device open, before it forks the next worker.

use crate::worker::rule;
use oxiray_fence::{DenyList, own_strays};
use oxiray_processes::{ChildReaper, WorkingSet};
use oxiray_wire::message::{
    DaemonToTemplate, DeviceNumber, Direction as _, Fork, Forked, Gone, TemplateHolds, TemplateReady,
};
use oxiray_wire::{Connection, Received};
use rustix::event::{PollFd, PollFlags};
use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A worker that the daemon wants.
#[derive(Debug)]
pub struct WorkerWanted {
    /// The daemon's number for it.
    pub request: u64,
    /// The files by which it enters its control groups.
    pub groups: Vec<String>,
    /// Those without which it is not to begin.
    pub fences: Vec<String>,
    /// Its stream to the daemon, its standard output and its standard error.
    pub descriptors: [OwnedFd; 3],
}

/// A template, as its daemon knows it.
#[derive(Debug)]
pub struct TemplateService {
    daemon: Connection,
    children: ChildReaper,
    asked: VecDeque<Received>,
    pid: u32,
    /// Whether the daemon was told that a device is open here.
    has_told: bool,
    /// What the workers write to of the memory that they have from here; nothing where there is no memory for it.
    working_set: Option<WorkingSet>,
}

/// What the process could not do, and why.
fn failed(step: &str, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("the template process failed to {step}: {error}"))
}

impl TemplateService {
    /// Says to the daemon at the other end that workers are forked here, how long it took to get ready, and what the users of
    /// this template should know, mostly nothing.
    ///
    /// # Errors
    /// Where this process cannot watch over its children, or the descriptor is no socket.
    pub fn begin(socket: OwnedFd, started: Duration, notice: String) -> io::Result<Self> {
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| failed("keep its socket", error))?;
        let children = ChildReaper::new().map_err(|error| failed("watch its children", error))?;
        let mut daemon = Connection::new(socket).map_err(|error| failed("use its socket", error))?;
        daemon.send(&TemplateReady { started_us: started.as_micros() as u64, notice });
        let (asked, pid, working_set) = (VecDeque::new(), std::process::id(), WorkingSet::new().ok());
        Ok(Self { daemon, children, asked, pid, has_told: false, working_set })
    }

    /// Waits for the next worker that is wanted, and meanwhile tells of those that are gone; `None` when the daemon is gone
    /// and so are all children.
    pub fn next_wanted(&mut self) -> Option<WorkerWanted> {
        'served: loop {
            for departed in self.children.reap() {
                let gone = Gone { pid: departed.pid, status: departed.status, stragglers: departed.stragglers };
                self.daemon.send(&gone);
            }
            if self.daemon.flush().is_err() {
                break;
            }
            while let Some(Received { message, descriptors }) = self.asked.pop_front() {
                let Ok(DaemonToTemplate::Fork(Fork { request, groups, fences, devices, even_with_devices })) =
                    DaemonToTemplate::of(message)
                else {
                    break 'served;
                };
                // A machine with more than any fence could hold is not looked at.
                let devices = DenyList::new(devices.iter().copied().map(rule)).unwrap_or_default();
                let holds_some = !(even_with_devices && self.has_told) && self.holds_some(&devices);
                match <[OwnedFd; 3]>::try_from(descriptors) {
                    Ok(descriptors) if holds_some && !even_with_devices => {
                        let text = "its template has a device open".to_owned();
                        let given_back = Forked { request, pid: 0, text, is_given_back: true };
                        self.daemon.send_with(&given_back.into(), descriptors.into());
                    }
                    Ok(descriptors) => return Some(WorkerWanted { request, groups, fences, descriptors }),
                    Err(_) => self.tell(request, Err(failed("fork", "three descriptors belong to what is wanted"))),
                }
            }
            wait_readable(&[self.daemon.as_fd(), self.children.watch_fd()], self.daemon.unsent_bytes() > 0);
            let mut came = Vec::new();
            let is_over = self.daemon.receive(&mut came).is_err();
            if is_over {
                break;
            }
            self.asked.extend(came);
        }
        self.end();
        None
    }

    /// TEMPLATE-3: whether this process has a device open, of which the daemon is told once.
    fn holds_some(&mut self, devices: &DenyList) -> bool {
        if devices.rules().is_empty() {
            return false;
        }
        let strays = own_strays(devices).unwrap_or_default();
        let Some(stray) = strays.first() else { return false };
        if !std::mem::replace(&mut self.has_told, true) {
            let number = Some(DeviceNumber { major: stray.node.major, minor: stray.node.minor });
            self.daemon.send(&TemplateHolds { path: stray.path.display().to_string(), number });
        }
        true
    }

    /// TEMPLATE-2: the process that was made for a request, or why there is none.
    pub fn tell(&mut self, request: u64, made: io::Result<u32>) {
        let (pid, text, descriptors) = match made {
            Ok(pid) => {
                self.children.register(pid);
                (pid, String::new(), oxiray_processes::pidfd_of(pid).into_iter().collect())
            }
            Err(error) => (0, error.to_string(), Vec::new()),
        };
        self.daemon.send_with(&Forked { request, pid, text, is_given_back: false }.into(), descriptors);
    }

    /// In a forked child: leaves the template's descriptors behind, takes its own output, and is born as a worker. Its stream
    /// to the daemon.
    ///
    /// # Errors
    /// Where its output cannot be taken, or the template is gone.
    pub fn become_worker(self, wanted: WorkerWanted) -> io::Result<OwnedFd> {
        let Self { daemon, children, asked, pid, working_set, .. } = self;
        drop((daemon, children, asked));
        let WorkerWanted { groups, fences, descriptors: [control, output, errors], .. } = wanted;
        rustix::stdio::dup2_stdout(&output)?;
        rustix::stdio::dup2_stderr(&errors)?;
        be_born(pid, &groups, &fences)?;
        if let Some(working_set) = working_set {
            working_set.begin();
        }
        Ok(control)
    }

    /// TEMPLATE-1.
    fn end(&mut self) {
        self.children.kill_all();
        while !self.children.is_empty() {
            wait_readable(&[self.children.watch_fd()], false);
            self.children.reap();
        }
    }
}

/// In a new worker, whose output is its own by now: it has its limits, dies with its template, and keeps its descendants.
///
/// # Errors
/// Where the template is gone, or the worker cannot be kept from devices that it is not granted.
pub fn be_born(template: u32, groups: &[String], fences: &[String]) -> io::Result<()> {
    oxiray_processes::reset_signals_after_fork();
    oxiray_processes::go_first_where_memory_is_short();
    oxiray_processes::die_with_parent(template)?;
    oxiray_processes::become_subreaper()?;
    if let Err(error) = oxiray_processes::enter_control_groups(groups) {
        // Where nobody reads it, nobody needs it.
        let _ = writeln!(io::stderr(), "no limit of memory and processes holds for this worker: {error}");
    }
    oxiray_processes::enter_control_groups(fences)
        .map_err(|error| failed("keep a worker from devices that it is not granted", error))
}

/// Waits until one of the descriptors can be read, or the first written where that is wanted.
fn wait_readable(descriptors: &[BorrowedFd<'_>], or_first_writable: bool) {
    let mut watched: Vec<PollFd<'_>> =
        descriptors.iter().map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN)).collect();
    if or_first_writable && let Some(first) = watched.first_mut() {
        *first = PollFd::from_borrowed_fd(descriptors[0], PollFlags::IN | PollFlags::OUT);
    }
    // A signal ends the wait early; the caller looks again.
    let _ = rustix::event::poll(&mut watched, None);
}
