//! What workers are confined to: the memory that a lease asked for, and a number of processes.
//!
//! Here it is decided who has which limit, and what becomes of a worker that met one. The shell makes the control groups,
//! and tells what they count.
//!
//! - CONFINED-1: a worker whose lease asked for `memory=` takes no more than that for itself, until it is leased anew. One
//!   whose lease did not ask has no limit, and costs no word. Nor has one that asked for less than an interpreter takes by
//!   itself: such a request is about data, and not about a process.
//! - CONFINED-2: what takes more than it asked for would do so again: its task is not run again, and its actor is made anew
//!   only where it may be.
//! - CONFINED-3: a worker whose processes met their limit serves nobody after what it is on, and everything in its group
//!   ends with it.

use super::NodeCore;
use crate::confinement::{Confinement, Exceeded, INTERPRETER_BYTES};
use crate::memory::{Cause, shown};
use crate::worker::Duty;
use crate::{Effect, Key};
use oxiray_ids::WorkerNumber;
use oxiray_wire::message::{OutOfMemory, WorkerSpent};

impl NodeCore {
    /// CONFINED-1: the worker has a grant.
    pub(super) fn confine(&mut self, key: Key) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        let asked = worker.grant.as_ref().map(|grant| grant.demand().get("memory").wholes());
        let asked = asked.filter(|bytes| *bytes >= INTERPRETER_BYTES);
        let before = std::mem::replace(&mut worker.memory.asked, asked);
        if asked.is_some() || before.is_some() {
            self.out.push(Effect::Confine(Confinement { worker: key, memory: asked }));
        }
    }

    /// CONFINED-2: the kernel ended a process of the worker's, since its group met the limit of its memory.
    pub fn exceeded_memory(&mut self, key: Key, found: Exceeded) {
        let Some(worker) = self.workers.get(&key) else { return };
        if worker.memory.cause.is_some() {
            return;
        }
        let Exceeded { asked, limit, used } = found;
        let text = format!(
            "it took more memory than it asked for with memory={asked}, which is {}: it used {} of the {} that its control \
             group may have with what the interpreter takes, on node {} ({}), and the kernel ended it. Ask for more with \
             memory=, or have it use less; OXIRAY_MEMORY_LIMITS=0 in the node's environment leaves memory= to the scheduler \
             alone",
            shown(asked),
            shown(used),
            shown(limit),
            self.plan.node,
            self.plan.ip
        );
        let line = format!("worker {key} (`{}`, pid {}): {text}", worker.label, worker.pid.unwrap_or(0));
        self.log(line);
        self.short_of_memory(key, Cause { text, kind: OutOfMemory::Lasting });
        self.kill_worker(key);
    }

    /// CONFINED-3: forks of the worker fail, since its group has as many processes as it may have.
    pub fn met_process_limit(&mut self, key: Key, limit: u64) {
        let Some(worker) = self.workers.get_mut(&key).filter(|worker| !worker.is_doomed) else { return };
        worker.once = true;
        let (duty, label, pid) = (worker.duty, worker.label.clone(), worker.pid.unwrap_or(0));
        let (what, when) = match duty {
            Duty::Leased(_) => (format!("task `{label}`"), "when its task ends"),
            Duty::Actor(_) => (format!("actor `{label}`"), "with the actor"),
            Duty::Spare | Duty::Idle | Duty::Ending | Duty::Surplus => ("no task".to_owned(), "now"),
        };
        self.log(format!(
            "worker {key} (pid {pid}, {what}): forks fail there (EAGAIN), since its control group has met its limit of {limit} \
             processes and threads. It and all that it started end {when}. OXIRAY_WORKER_PIDS_MAX sets the limit of each worker"
        ));
        match duty {
            Duty::Leased(_) => self.report(WorkerSpent { worker: WorkerNumber(key) }),
            Duty::Actor(_) | Duty::Ending | Duty::Surplus => {}
            Duty::Spare | Duty::Idle => self.kill_worker(key),
        }
    }
}
