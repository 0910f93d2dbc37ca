//! The processes that answer over HTTP: their starts and their ends.

use super::Daemon;
use crate::children::dashboard::HttpProgram;
use oxiray_processes::describe_status;

impl Daemon {
    /// Starts those that it is time to.
    pub(super) fn start_http_programs(&mut self) {
        for program in &mut self.children.http {
            let name = program.name();
            match program.start_due(&self.session, self.turn.now) {
                None => {}
                Some(Ok(pid)) => {
                    self.children.reaper.register(pid);
                    self.log.line(&format!("oxiray-dashboard is started for {name}, pid {pid}; {name}.log says more"));
                }
                Some(Err(error)) => self.log.line(&format!("oxiray-dashboard cannot be started for {name}: {error}")),
            }
        }
    }

    /// A child of the daemon died; `false` where it was none of these.
    pub(super) fn http_program_ended(&mut self, pid: u32, status: i32) -> bool {
        let now = self.turn.now;
        let ended = |program: &mut HttpProgram| Some((program.name(), program.ended(pid, now)?));
        let Some((name, delay)) = self.children.http.iter_mut().find_map(ended) else { return false };
        let how = describe_status(status);
        self.log.line(&format!("oxiray-dashboard for {name} {how}; it is started again in {} s", delay.as_secs()));
        true
    }
}
