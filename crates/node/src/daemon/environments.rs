//! Environments: made where they are asked for, once their packages are on this machine.

use super::Daemon;
use crate::children::packages::{Packages, Wanted};

impl Daemon {
    pub(super) fn start_preparation(&mut self, number: u64, wanted: Wanted) {
        if let Some(wanted) = self.await_packages(number, wanted) {
            self.begin_preparation(number, &wanted);
        }
    }

    /// Starts it: all that it needs is on this machine, or will not be.
    pub(super) fn begin_preparation(&mut self, number: u64, wanted: &Wanted) {
        let environments = &mut self.children.environments;
        if let Some(program) = Packages::program(&wanted.specification, &self.session) {
            let command = environments.take_program(number, &wanted.specification, program);
            let result = command.map_err(|error| format!("the program of its workers: {error}"));
            return self.core.prepared(number, result);
        }
        match environments.start(number, wanted, &self.session, &self.log) {
            Ok(pid) => self.children.reaper.register(pid),
            Err(error) => {
                let interpreter = &wanted.interpreter;
                let text = format!("the process that installs it cannot be started with {interpreter}: {error}");
                self.core.prepared(number, Err(text));
            }
        }
    }

    /// A child of the daemon died; `false` where it made no environment.
    pub(super) fn preparation_ended(&mut self, pid: u32, status: i32) -> bool {
        let ended = self.children.environments.ended(pid, status, &self.session.logs());
        let Some((number, result)) = ended else { return false };
        self.core.prepared(number, result);
        true
    }

    /// Lets go of what was prepared, and ends the process where it still runs.
    pub(super) fn end_preparation(&mut self, number: u64) {
        if let Some(pid) = self.children.environments.end(number) {
            self.children.reaper.kill(pid);
        }
    }
}
