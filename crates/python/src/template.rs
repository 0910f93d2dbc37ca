//! The process that forks workers: single-threaded Python that has imported what tasks need.

use oxiray_processes::Brood;
use oxiray_wire::message::{Fork, Forked, Gone, TemplateReady};
use oxiray_wire::{Connection, Message, Received};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags};
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Service {
    daemon: Connection,
    brood: Brood,
    asked: Vec<Received>,
    /// The fork under way, and the descriptors for the child.
    current: Option<(Fork, Vec<OwnedFd>)>,
    pid: u32,
}

/// Serves the daemon's wishes for forks, and reaps what was forked.
#[pyclass(frozen, module = "oxiray._core")]
pub(crate) struct Template {
    service: Mutex<Option<Service>>,
}

fn os_error(step: &str, error: impl std::fmt::Display) -> PyErr {
    PyOSError::new_err(format!("the template process failed to {step}: {error}"))
}

impl Template {
    fn service(&self) -> MutexGuard<'_, Option<Service>> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Template {
    /// Takes the daemon's end over and says that forks are served.
    #[new]
    fn new(descriptor: i32, started_us: u64, notice: String) -> PyResult<Self> {
        // SAFETY: the daemon passed this descriptor to this process alone, for this.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| os_error("keep its socket", error))?;
        let brood = Brood::new().map_err(|error| os_error("watch its children", error))?;
        let mut daemon = Connection::new(socket).map_err(|error| os_error("use its socket", error))?;
        daemon.send(&TemplateReady { started_us, notice });
        let service = Service { daemon, brood, asked: Vec::new(), current: None, pid: std::process::id() };
        Ok(Self { service: Mutex::new(Some(service)) })
    }

    /// Waits for the next wish; `False` when the daemon is gone and so are all children.
    fn next(&self) -> bool {
        let mut service = self.service();
        let Some(service) = service.as_mut() else { return false };
        let over = service.serve();
        if over {
            service.end();
        }
        !over
    }

    /// In the parent, after the fork: `pid` is the child's, 0 where the fork failed, for the reason in `text`.
    fn forked(&self, pid: u32, text: String) {
        let mut service = self.service();
        let Some(service) = service.as_mut() else { return };
        let Some((Fork { request, .. }, _)) = service.current.take() else { return };
        let mut descriptors = Vec::new();
        if pid != 0 {
            service.brood.register(pid);
            descriptors.extend(oxiray_processes::pidfd_of(pid).ok());
        }
        service.daemon.send_with(&Forked { request, pid, text }.into(), descriptors);
    }

    /// In the child, after the fork: leaves the template behind, takes its own output, and returns the
    /// descriptor of its control stream.
    fn become_child(&self) -> PyResult<i32> {
        let service = self.service().take();
        let Some(Service { mut current, pid, daemon, brood, .. }) = service else {
            return Err(os_error("fork", "there was no wish for it"));
        };
        drop(daemon);
        drop(brood);
        oxiray_processes::reset_signals_after_fork();
        oxiray_processes::go_first_where_memory_is_short();
        oxiray_processes::die_with_parent(pid).map_err(|error| os_error("tie the worker to itself", error))?;
        oxiray_processes::become_subreaper().map_err(|error| os_error("keep the worker's descendants", error))?;
        let (fork, descriptors) = current.take().unwrap_or_default();
        let bounded = oxiray_processes::enter_control_groups(&fork.groups);
        let [control, output, errors]: [OwnedFd; 3] =
            descriptors.try_into().map_err(|_| os_error("fork", "three descriptors belong to a wish"))?;
        rustix::stdio::dup2_stdout(&output).map_err(|error| os_error("redirect output", error))?;
        rustix::stdio::dup2_stderr(&errors).map_err(|error| os_error("redirect errors", error))?;
        if let Err(error) = bounded {
            // Its output is where the worker's is from here on.
            let _ = writeln!(std::io::stderr(), "no limit of memory and processes holds for this worker: {error}");
        }
        oxiray_runtime::begin_output().map_err(|error| os_error("label its output", error))?;
        oxiray_runtime::begin_titles();
        oxiray_runtime::show_title(crate::worker::IDLE);
        Ok(control.into_raw_fd())
    }
}

impl Service {
    /// Handles what comes until a fork is wanted (`false`) or the daemon is gone (`true`).
    fn serve(&mut self) -> bool {
        loop {
            for departed in self.brood.reap() {
                let gone = Gone { pid: departed.pid, status: departed.status, stragglers: departed.stragglers };
                self.daemon.send(&gone);
            }
            if self.daemon.flush().is_err() {
                return true;
            }
            while !self.asked.is_empty() {
                let Received { message, descriptors } = self.asked.remove(0);
                if let Message::Fork(fork) = message {
                    self.current = Some((fork, descriptors));
                    return false;
                }
            }
            wait_readable(&[self.daemon.as_fd(), self.brood.watch_fd()], self.daemon.unsent_bytes() > 0);
            let mut inbox = std::mem::take(&mut self.asked);
            let over = self.daemon.receive(&mut inbox).is_err();
            self.asked = inbox;
            if over {
                return true;
            }
        }
    }

    /// The daemon is gone: nothing forked here outlives it.
    fn end(&mut self) {
        self.brood.kill_all();
        while !self.brood.is_empty() {
            wait_readable(&[self.brood.watch_fd()], false);
            self.brood.reap();
        }
    }
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
