//! The process that forks workers: single-threaded Python that has imported what tasks need.

use crate::python;
use oxiray_client::template::{TemplateService, WorkerWanted};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

struct Service {
    template: TemplateService,
    /// The fork under way.
    wanted: Option<WorkerWanted>,
}

/// Serves the daemon's requests for forks, and reaps what was forked. Python forks, since it has something to do before and
/// after.
#[pyclass(frozen, module = "oxiray._core")]
pub(crate) struct Template {
    service: Mutex<Option<Service>>,
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
    fn new(py: Python<'_>, descriptor: i32, started_us: u64, notice: String) -> PyResult<Self> {
        // SAFETY: the daemon passed this descriptor to this process alone, for this.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        python::look_up_for_workers(py)?;
        oxiray_runtime::before_forks();
        let template = TemplateService::begin(socket, Duration::from_micros(started_us), notice)?;
        Ok(Self { service: Mutex::new(Some(Service { template, wanted: None })) })
    }

    /// Waits for the next request; `False` when the daemon is gone and so are all children.
    fn next(&self) -> bool {
        let mut service = self.service();
        let Some(Service { template, wanted }) = service.as_mut() else { return false };
        *wanted = template.next_wanted();
        wanted.is_some()
    }

    /// In the parent, after the fork: `pid` is the child's, 0 where the fork failed, for the reason in `text`.
    fn forked(&self, pid: u32, text: String) {
        let mut service = self.service();
        let Some(Service { template, wanted }) = service.as_mut() else { return };
        let Some(WorkerWanted { request, .. }) = wanted.take() else { return };
        template.tell(request, if pid == 0 { Err(io::Error::other(text)) } else { Ok(pid) });
    }

    /// In the child, after the fork: leaves the template behind, takes its own output, and returns the
    /// descriptor of its control stream.
    fn become_child(&self) -> PyResult<i32> {
        let Some(Service { template, wanted: Some(wanted) }) = self.service().take() else {
            return Err(PyOSError::new_err("the template process forked, and there was no wish for it"));
        };
        let control = template.become_worker(wanted)?;
        oxiray_runtime::begin_output()?;
        oxiray_runtime::show_title(crate::worker::IDLE);
        Ok(control.into_raw_fd())
    }
}
