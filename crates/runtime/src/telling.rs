//! Telling the daemon what this process counts and measures.

use crate::core::DAEMON;
use crate::metrics::{Telling, begin_table, take_samples};
use crate::runtime::Runtime;
use crate::shell::State;
use oxiray_wire::message::Metrics;
use std::time::Instant;

/// Samples in one message.
const BATCH_MAX: usize = 1000;

/// A connection begins: gauges are told once more, and what was recorded without one now.
pub fn begin_metrics(runtime: &Runtime) {
    if begin_table() {
        runtime.tell_metrics_soon();
    }
}

impl Runtime {
    /// Something was recorded: it is told in a while.
    pub fn tell_metrics_soon(&self) {
        self.shared.with(|state| {
            state.io.metrics.arm(Instant::now());
            state.signals.timer_moved = true;
        });
    }
}

impl State {
    /// Tells the daemon of what was recorded since it was told last.
    pub(crate) fn tell_of_metrics(&mut self) {
        self.io.metrics = Telling::told(Instant::now());
        if self.daemon.lost.is_some() {
            return;
        }
        let mut samples = take_samples().into_iter().peekable();
        while samples.peek().is_some() {
            let samples = samples.by_ref().take(BATCH_MAX).collect();
            self.io.links.post_now(DAEMON, &Metrics { samples });
        }
    }
}
