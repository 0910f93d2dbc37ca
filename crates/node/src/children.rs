//! The processes that the daemon starts itself: templates, the makers of environments, the drivers of submitted jobs, and
//! what answers over HTTP. Workers are their templates' children.

pub(crate) mod dashboard;
pub(crate) mod environments;
pub(crate) mod packages;
pub(crate) mod storage;
pub(crate) mod submissions;
pub(crate) mod templates;

use crate::descriptors::with_reserve;
use crate::line_log::LineLog;
use dashboard::HttpProgram;
use environments::Environments;
use oxiray_accelerators::{Offer, take_left_running};
use oxiray_machine::Origin;
use oxiray_processes::ChildReaper;
use oxiray_wire::state::MetricsPlace;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use submissions::Submissions;
use templates::{TemplateProcess, Templates};

/// How long the end of the daemon waits for processes that do not die, such as those stuck in a driver.
const ENDING_LIMIT: Duration = Duration::from_secs(10);

/// The variable by which whatever a session started is known when its daemon was killed: its directory.
pub(crate) const SESSION_VARIABLE: &str = "OXIRAY_SESSION";

/// All children, by what they are for.
#[derive(Debug)]
pub(crate) struct Children {
    /// Everything that descends from the daemon, whatever it is for.
    pub(crate) reaper: ChildReaper,
    pub(crate) templates: Templates,
    pub(crate) environments: Environments,
    pub(crate) submissions: Submissions,
    /// What answers over HTTP, where that was asked for.
    pub(crate) http: Vec<HttpProgram>,
}

/// Vendors' commands that could not be killed hold nothing up.
pub(crate) fn leave_commands(reaper: &ChildReaper) {
    for pid in take_left_running() {
        reaper.companions().adopt(pid);
    }
}

impl Children {
    /// `early`: a template that was started before there was anything else.
    pub(crate) fn new(
        reaper: ChildReaper,
        early: Option<TemplateProcess>,
        http: Vec<HttpProgram>,
        offer: &Offer,
    ) -> Self {
        let (environments, submissions) = (Environments::default(), Submissions::default());
        Self { reaper, templates: Templates::new(early, offer), environments, submissions, http }
    }

    /// Where metrics are exported, where they are.
    pub(crate) fn metrics_place(&self) -> Option<MetricsPlace> {
        self.http.iter().find_map(HttpProgram::metrics_place)
    }

    /// Starts a template, where it was not started before there was anything else.
    pub(crate) fn start_template(
        &mut self,
        origin: &Origin,
        session: &Path,
        log: &LineLog,
    ) -> io::Result<TemplateProcess> {
        if let Some(early) = self.templates.take_early(origin) {
            return Ok(early);
        }
        let started = TemplateProcess::start(origin, session, log.handle()?)?;
        self.reaper.register(started.pid);
        Ok(started)
    }

    /// Kills every process that descends from the daemon, and waits for it. Returns those that do not die.
    pub(crate) fn end(&mut self) -> Vec<u32> {
        let until = Instant::now() + ENDING_LIMIT;
        loop {
            with_reserve(|| {
                self.reaper.kill_all();
                self.reaper.reap()
            });
            let left = until.saturating_duration_since(Instant::now());
            if self.reaper.is_empty() || left.is_zero() {
                return self.reaper.living().collect();
            }
            let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let _ = poll(&mut [PollFd::from_borrowed_fd(self.reaper.watch_fd(), PollFlags::IN)], Some(&limit));
        }
    }
}
