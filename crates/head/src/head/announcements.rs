//! What machines and processes are told when they come to know a job or the cluster.

use super::HeadCore;
use oxiray_ids::{JobId, WorkerId};
use oxiray_machine::{Key, amounts};
use oxiray_wire::message::{FailureCode, JobAnnounced, JobOver, StateReport, Welcome};

impl HeadCore {
    /// Answers a question about the state, or an order that is answered in the same way.
    pub(super) fn answer_state(
        &mut self,
        asker: Key,
        request: u64,
        answer: Result<StateReport, String>,
        missing: String,
    ) {
        match answer {
            Ok(report) => self.send(asker, StateReport { missing, ..report }),
            Err(text) => self.refuse_state(asker, request, text),
        }
    }

    pub(super) fn refuse_state(&mut self, asker: Key, request: u64, text: String) {
        let failure = FailureCode::State.because(text);
        self.send(asker, StateReport { request, failure: Some(failure), ..StateReport::default() });
    }

    /// Has a member know a job.
    pub(super) fn tell_job(&mut self, member: Key, job: JobId) {
        let Some(detail) = self.jobs.details.get(&job) else { return };
        let Some(found) = self.members.by_key.get_mut(&member) else { return };
        if !found.jobs.insert(job) {
            return;
        }
        let mut driver = detail.told.clone();
        driver.namespace = self.jobs.known.namespace_of(job);
        let driver_id = detail.driver_id;
        self.order_member(member, JobAnnounced { job, driver_id, driver: Some(driver) });
    }

    /// The job is forgotten here, and so it is there.
    pub(super) fn tell_job_over(&mut self, job: JobId) {
        for member in self.members.forget_job(job) {
            self.order_member(member, JobOver { job });
        }
    }

    fn welcome(&self, id: WorkerId, job: JobId) -> Welcome {
        let namespace = self.jobs.known.namespace_of(job);
        Welcome {
            node: self.own.plan().node,
            worker: id,
            job,
            namespace,
            session: self.own.session().to_owned(),
            address: self.own.address().to_owned(),
            totals: amounts(self.own.plan().inventory.totals()),
            epoch: self.own.epoch(),
            comes_back: self.own.epoch() > 0,
        }
    }

    /// What a driver is told that is let in: the facts of the node that it is on.
    pub(super) fn welcome_driver(&mut self, key: Key, id: WorkerId, job: JobId) -> Welcome {
        let mut welcome = self.welcome(id, job);
        if let Some((member, _)) = self.members.route(key) {
            self.tell_job(member, job);
            welcome.comes_back = false;
            if let Some(member) = self.members.by_key.get(&member) {
                welcome.node = member.told.node;
                welcome.session.clone_from(&member.told.session);
                welcome.totals.clone_from(&member.told.totals);
            }
        }
        welcome
    }
}
