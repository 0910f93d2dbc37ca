//! What is done where memory gets short: the object store is bounded, a worker is ended.

use super::Daemon;
use crate::workers::memory::{is_relieved, store_bound};
use oxiray_machine::{Key, Level, Measured};

impl Daemon {
    /// Looks at memory where it is time to.
    pub(super) fn look_at_memory(&mut self) {
        let now = self.turn.now;
        if self.workers.memory.deadline(now).is_none_or(|at| at > now) {
            return;
        }
        let levels = self.workers.memory.look(now);
        self.workers.memory.count_kills(now);
        self.look_at_groups();
        let figures = self.objects.store.figures();
        self.objects.store.set_bound(store_bound(&levels, figures.used + figures.pooled));
        if let Some((level, threshold)) = self.workers.memory.short(&levels) {
            self.relieve(level, threshold);
        }
    }

    /// MEMORY-2.
    fn relieve(&mut self, level: &Level, threshold: u32) {
        let now = self.turn.now;
        let is_awaited = self.workers.memory.awaited(now).is_some_and(|key| self.workers.has(key));
        if is_awaited || is_relieved(level, self.objects.store.leaving_bytes(), threshold) {
            return;
        }
        let store = self.objects.store.figures();
        let store = level.shared.min(store.used + store.pooled);
        let measured = Measured { level: level.clone(), threshold, workers: self.workers.own_bytes(), store };
        let ended = self.core.end_for_memory(&measured);
        if self.workers.memory.has_ended(ended, now) {
            let (used, limit) = (level.used >> 20, level.limit >> 20);
            self.log.line(&format!(
                "memory is short, and no worker's end would help: {used} of {limit} MiB are in use ({})",
                level.source
            ));
        }
    }

    /// A worker was killed by somebody: by the kernel, for want of memory, where that did so just now.
    pub(super) fn worker_was_killed(&mut self, worker: Key) {
        let now = self.turn.now;
        self.workers.memory.count_kills(now);
        if self.look_for_kills(worker) {
            // Where its own limit was met, the core knows that already.
            self.workers.memory.has_killed(now);
        }
        if self.workers.memory.has_killed_lately(now) {
            self.core.killed_for_memory(worker, self.workers.memory.measure_nearest().as_ref());
        }
    }
}
