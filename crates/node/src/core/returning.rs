//! A member whose head came back: its work went on, and it says what there is of it.

use super::groups::home_bytes;
use super::{Core, Duty, Key, bytes_of};
use bytes::Bytes;
use oxiray_wire::message::{HeadBack, NodeResume, WorkerHeld};

/// The first number that a head of that epoch names anything by.
pub(crate) const fn first_number(epoch: u64) -> u64 {
    epoch << 40
}

impl Core {
    /// Counts the heads of this cluster; 0 where the end of this one is final.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// This daemon is, or serves, the head of that number. What a head names is never named again by the next.
    pub fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
        if self.head.is_none() && epoch > 0 {
            let first = first_number(epoch);
            self.last_number = self.last_number.max(first);
            self.members.last_order = self.members.last_order.max(first);
            self.objects.have_owners_keep();
        }
    }

    /// From here on this node serves the next head, at the other end of a stream. `stored` is what lies in its store.
    /// Returns the workers, each of which tells the head of itself before anything else that it says is for the head.
    pub fn serve_next_head(&mut self, key: Key, epoch: u64, listens: String, stored: Vec<Bytes>) -> Vec<Key> {
        self.forget_held();
        let order = self.head.as_ref().map_or(0, |head| head.order);
        let node = self.described(order, listens);
        if let Some(head) = &mut self.head {
            head.key = key;
            head.told = node.state.clone().unwrap_or_default();
        }
        for detail in self.details.values_mut() {
            detail.driver = key;
        }
        self.begin_epoch(epoch);
        let workers = self.workers.iter().filter_map(|(key, worker)| held(*key, worker)).collect();
        let jobs = self.details.keys().map(|job| bytes_of(job.as_bytes())).collect();
        self.send(key, NodeResume { node: Some(node), workers, stored, jobs });
        let clients: Vec<Key> = self.clients.keys().copied().collect();
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
        Duty::Actor(id) if serves => bytes_of(id.as_bytes()),
        _ => Bytes::new(),
    };
    Some(WorkerHeld {
        number,
        id: bytes_of(worker.id.as_bytes()),
        pid: worker.pid.unwrap_or(0),
        job: bytes_of(job.as_bytes()),
        is_leased: serves && matches!(worker.duty, Duty::Leased(_)),
        actor,
        is_ready: worker.is_ready,
        once: worker.once,
        outlives_job: worker.outlives_job,
        label: worker.label.clone(),
        group: home_bytes(worker.home),
        captures: worker.home.is_some_and(|home| home.captures),
    })
}
