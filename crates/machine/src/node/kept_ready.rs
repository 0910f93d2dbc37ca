//! How many processes are kept ready: what was wanted lately ([`crate::templates`]) against what the machine has.

use super::NodeCore;
use crate::alarm::Alarm;
use crate::templates::{Bursts, HALF_LIFE};
use crate::worker::{Duty, Worker};
use std::time::Duration;

/// For so long an idle worker is kept in any case: the next task of its environment finds what it has loaded.
const IDLE_KEPT: Duration = Duration::from_secs(1);
/// The most idle workers that are kept for that reason alone.
const IDLE_SURPLUS_MAX: usize = 16;
/// The most spare workers of one template for each processor.
const SPARES_PER_CPU: u64 = 8;
/// How much of the machine's memory there is for each spare worker, at least.
const BYTES_PER_SPARE: u64 = 512 << 20;

impl NodeCore {
    /// How many spare workers a template is to have after what was taken of it.
    pub(super) fn spares_wanted(&self, bursts: &Bursts) -> usize {
        let always = self.plan.spare_workers;
        if always == 0 {
            return 0;
        }
        let total = |name| self.plan.inventory.total(name).wholes();
        let room = (total("memory") / BYTES_PER_SPARE).min(total("CPU") * SPARES_PER_CPU);
        bursts.peak.at(self.now).min(room as usize).max(always)
    }

    /// How many idle workers are kept.
    fn idle_wanted(&self) -> usize {
        self.plan.idle_workers_kept().max(self.templates.recent.serving.at(self.now))
    }

    /// A worker is idle now that was not before.
    pub(super) fn note_idle(&mut self) {
        let serves = |worker: &&Worker| matches!(worker.duty, Duty::Leased(_)) && !worker.once;
        let serving = self.workers.values().filter(serves).count() + 1;
        self.templates.recent.serving.note(serving, self.now);
        self.trim_idle(IDLE_SURPLUS_MAX);
    }

    /// Ends those that were idle longest, but for so many more than are wanted.
    fn trim_idle(&mut self, surplus: usize) {
        while self.idle.len() > self.idle_wanted() + surplus {
            let longest_idle = self.idle[0];
            if let Some(worker) = self.workers.get_mut(&longest_idle) {
                worker.duty = Duty::Surplus;
            }
            self.kill_worker(longest_idle);
        }
        if self.idle.len() > self.idle_wanted() {
            self.adjust_later(IDLE_KEPT);
        } else if self.idle.len() > self.plan.idle_workers_kept() {
            self.adjust_later(HALF_LIFE);
        }
    }

    /// Makes the processes that are kept ready as many as are wanted.
    pub(super) fn adjust(&mut self) {
        if !self.templates.recent.take_due(self.now) {
            return;
        }
        self.trim_idle(0);
        self.adjust_spares();
    }

    /// Adjusts after that time at the latest.
    pub(super) fn adjust_later(&mut self, after: Duration) {
        let at = self.now + after;
        if self.templates.recent.look_at(at) {
            self.alarm_at(at, Alarm::Adjust);
        }
    }
}
