//! A member whose head came back: its work went on, and it says what there is of it.

use super::NodeCore;
use super::assign::device_numbers;
use crate::served_head::Link;
use crate::worker::{Duty, Progress};
use crate::{Key, amounts};
use oxiray_ids::{ObjectId, WorkerNumber};
use oxiray_resources::Grant;
use oxiray_wire::message::{HeadBack, NodeResume, NodeState, PreemptibleWorker, WorkerHeld};

impl NodeCore {
    /// Counts the heads of this cluster; 0 where the end of this one is final.
    pub fn epoch(&self) -> u64 {
        self.about.epoch
    }

    /// The head of that number is served.
    pub fn begin_epoch(&mut self, epoch: u64) {
        self.about.epoch = epoch;
    }

    /// From here on this node serves the next head, at the other end of a stream. `stored` is what lies in its store.
    /// Returns the workers, each of which tells the head of itself before anything else that it says is for the head.
    pub fn serve_next_head(&mut self, key: Key, epoch: u64, listens: String, stored: Vec<ObjectId>) -> Vec<Key> {
        self.forget_held();
        let order = self.head.as_ref().map_or(0, |head| head.order);
        let node = self.described(order, listens);
        if let Some(head) = &mut self.head {
            head.link = Link::Stream { key, is_far: head.link.is_far() };
            head.told = NodeState { holdings: Vec::new(), ..node.state.clone().unwrap_or_default() };
        }
        self.told_all_holdings();
        self.begin_epoch(epoch);
        let workers = self.workers.iter().filter_map(|(key, worker)| held(*key, worker)).collect();
        let jobs = self.jobs.keys().copied().collect();
        let preemptible = self.workers.iter().filter(|(_, worker)| worker.memory.caller.preemptible);
        let preemptible = preemptible.map(|(key, worker)| PreemptibleWorker {
            number: WorkerNumber(*key),
            devices: worker.grant.as_ref().map(device_numbers).unwrap_or_default(),
        });
        let preemptible = preemptible.collect();
        self.send(key, NodeResume { node: Some(node), workers, stored, jobs, preemptible });
        let assigned = self.workers.iter().filter(|(_, worker)| worker.job.is_some());
        let clients: Vec<Key> = assigned.map(|(key, _)| *key).collect();
        for client in &clients {
            self.send(*client, HeadBack { epoch });
        }
        clients
    }
}

fn held(number: Key, worker: &super::Worker) -> Option<WorkerHeld> {
    let job = worker.job?;
    let serves = !worker.is_doomed;
    let actor = match worker.duty {
        Duty::Actor(id) if serves => Some(id),
        _ => None,
    };
    Some(WorkerHeld {
        number: WorkerNumber(number),
        id: worker.id,
        pid: worker.pid.unwrap_or(0),
        job,
        is_leased: serves && matches!(worker.duty, Duty::Leased(_)),
        actor,
        is_ready: worker.progress == Progress::Ready,
        once: worker.once,
        outlives_job: worker.outlives_job,
        label: worker.label.clone(),
        group: worker.home.map(|home| home.group),
        captures: worker.home.is_some_and(|home| home.captures),
        holds: worker.grant.as_ref().map(|grant| amounts(grant.demand().iter())).unwrap_or_default(),
        priority: worker.memory.caller.priority,
        lends_cpu: worker.grant.as_ref().is_some_and(Grant::cpu_is_lent),
    })
}
