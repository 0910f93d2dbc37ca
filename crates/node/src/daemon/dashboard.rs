//! The dashboard's process: its starts and its ends.

use super::Daemon;
use oxiray_processes::describe_status;

impl Daemon {
    /// Starts it where it is time to.
    pub(super) fn start_dashboard(&mut self) {
        let Some(dashboard) = &mut self.children.dashboard else { return };
        match dashboard.start_due(&self.session, self.turn.now) {
            None => {}
            Some(Ok(pid)) => {
                self.children.reaper.register(pid);
                self.log.line(&format!("the dashboard is started, pid {pid}; dashboard.log tells more"));
            }
            Some(Err(error)) => self.log.line(&format!("the dashboard cannot be started: {error}")),
        }
    }

    /// A child of the daemon died; `false` where it was not the dashboard.
    pub(super) fn dashboard_ended(&mut self, pid: u32, status: i32) -> bool {
        let ended = self.children.dashboard.as_mut().and_then(|dashboard| dashboard.ended(pid, self.turn.now));
        let Some(delay) = ended else { return false };
        let how = describe_status(status);
        self.log.line(&format!("the dashboard {how}; it is started again in {} s", delay.as_secs()));
        true
    }
}
