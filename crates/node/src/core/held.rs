//! Orders that wait on a member of another machine until their environment is made there.
//!
//! - HELD-1: what an order is to be granted is granted before its environment is made, so that the head's view of this
//!   node holds; where the environment fails, or the job is over, it is given back and the order refused.

use super::assign::merged;
use super::environments::Made;
use super::{Core, identifier};
use oxiray_ids::JobId;
use oxiray_resources::Grant;
use oxiray_wire::message::{Environment, Failure, Place, PlaceRefused};

/// An order, and what was granted for it.
#[derive(Debug)]
pub(crate) struct Held {
    order: Place,
    grant: Grant,
}

impl Core {
    /// Has a worker for an order that is granted, or holds it until that can be.
    pub(crate) fn begin_order(&mut self, order: Place, grant: Grant) {
        match self.environment_for(&order) {
            Made::Yes => self.carry_out_order(order, grant),
            Made::NotYet => {
                let Some(head) = &mut self.head else { return };
                head.held.insert(order.order, Held { order, grant });
            }
            Made::Never(text) => self.refuse_order(Held { order, grant }, Some(text)),
        }
    }

    fn environment_for(&mut self, order: &Place) -> Made {
        let job = identifier!(JobId, &order.job);
        let Some(detail) = self.details.get(&job) else { return Made::Yes };
        let own = order.environment.as_ref();
        let environment = merged(detail.told.environment.as_ref(), own.unwrap_or(&Environment::default()));
        if environment.preparation.is_empty() {
            return Made::Yes;
        }
        if !self.head.as_ref().is_some_and(|head| head.is_far) {
            // The head made it, on this machine.
            if !order.command.is_empty() {
                let interpreter = detail.told.interpreter.clone();
                self.environments.learn(job, &interpreter, &environment.preparation, order.command.clone());
            }
            return Made::Yes;
        }
        self.is_made(job, &environment)
    }

    /// An environment is made, or cannot be: looks at the orders that wait.
    pub(crate) fn look_at_held(&mut self) {
        let Some(head) = &mut self.head else { return };
        for (_, Held { order, grant }) in std::mem::take(&mut head.held) {
            self.begin_order(order, grant);
        }
    }

    /// Nothing of the job is to begin any more.
    pub(crate) fn refuse_held_of(&mut self, job: JobId) {
        let Some(head) = &mut self.head else { return };
        let is_of_job = |held: &Held| held.order.job[..] == job.as_bytes()[..];
        let over: Vec<u64> = head.held.iter().filter(|(_, held)| is_of_job(held)).map(|(number, _)| *number).collect();
        for number in over {
            let held = self.head.as_mut().and_then(|head| head.held.remove(&number));
            self.refuse_order(held.expect("it was just found"), None);
        }
    }

    /// The head that gave these orders is gone.
    pub(crate) fn forget_held(&mut self) {
        let Some(head) = &mut self.head else { return };
        for Held { grant, .. } in std::mem::take(&mut head.held).into_values() {
            self.ledger.release(grant);
        }
    }

    fn refuse_order(&mut self, Held { order, grant }: Held, why: Option<String>) {
        self.ledger.release(grant);
        let Some(to) = self.head_key() else { return };
        let failure = why.map(|text| {
            let text = format!("on node {} ({}): {text}", self.plan.node, self.plan.ip);
            Failure { code: "runtime_env".into(), text, cause: bytes::Bytes::new() }
        });
        let state = Some(self.node_state(self.head.as_ref().map_or(0, |head| head.order)));
        self.send(to, PlaceRefused { order: order.order, state, failure });
    }
}
