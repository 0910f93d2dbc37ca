//! Orders that wait on a node of another machine until their environment is made there.
//!
//! - HELD-1: what an order is to be granted is granted before its environment is made, so that the head's view of this
//!   node holds; where the environment fails, or the job is over, it is given back and the order refused.

use super::NodeCore;
use crate::Effect;
use crate::alarm::Alarm;
use crate::environments::{Asked, Command, Due, Readiness, merged};
use crate::served_head::Held;
use oxiray_ids::JobId;
use oxiray_resources::Grant;
use oxiray_wire::message::{Environment, EnvironmentMade, Failure, FailureCode, Place, PlaceRefused};

impl NodeCore {
    /// Has a worker for an order that is granted, or holds it until that can be.
    pub(super) fn begin_order(&mut self, order: Place, grant: Grant) {
        match self.environment_for(&order) {
            Readiness::Yes => self.carry_out_order(order, grant),
            Readiness::NotYet => {
                let Some(head) = &mut self.head else { return };
                head.held.insert(order.order, Held { order, grant });
            }
            Readiness::Never(text) => {
                let text = format!("[Node {}] {text} (the identifier of the node is {})", self.plan.ip, self.plan.node);
                self.refuse_order(Held { order, grant }, Some(FailureCode::RuntimeEnv.because(text)));
            }
        }
    }

    fn environment_for(&mut self, order: &Place) -> Readiness {
        let id = order.job;
        let Some(job) = self.jobs.get(&id) else { return Readiness::Yes };
        let own = order.environment.as_ref();
        let environment = merged(job.told.environment.as_ref(), own.unwrap_or(&Environment::default()));
        if environment.preparation.is_empty() {
            return Readiness::Yes;
        }
        let interpreter = job.told.interpreter.as_str();
        if !self.head.as_ref().is_some_and(|head| head.link.is_far()) {
            // The head made it, on this machine.
            if !order.command.is_empty() {
                self.environments.learn(id, interpreter, &environment.preparation, order.command.clone());
            }
            return Readiness::Yes;
        }
        let asked = Asked { job: id, interpreter, environment: &environment };
        let made = self.environments.is_made(asked, self.now, &self.names.numbers);
        self.see_to_environments();
        made
    }

    /// The head made an environment on this machine that tasks of the job will need: their template starts.
    pub(super) fn environment_made(&mut self, said: EnvironmentMade) {
        let (id, Some(environment)) = (said.job, said.environment) else { return };
        let Some(job) = self.jobs.get(&id) else { return };
        if !said.command.is_empty() {
            self.environments.learn(id, &job.told.interpreter, &environment.preparation, said.command);
        }
        let origin = self.origin_of(id, &environment);
        self.ensure_template(&origin, Some(id));
    }

    /// A preparation is done, or failed: looks at the orders that wait.
    pub fn prepared(&mut self, number: u64, result: Result<Vec<String>, String>) {
        let ended = self.environments.prepared(number, result, self.now);
        self.see_to_environments();
        if ended.is_some_and(|ended| ended.result.is_err()) {
            self.log(format!("preparation {number} of an environment failed"));
        }
        let Some(head) = &mut self.head else { return };
        for (_, Held { order, grant }) in std::mem::take(&mut head.held) {
            self.begin_order(order, grant);
        }
    }

    pub(super) fn environment_alarm(&mut self, alarm: crate::environments::Alarm) {
        match self.environments.due(alarm, self.now) {
            Some(Due::Tell { jobs, text }) => jobs.into_iter().for_each(|job| self.notify(job, &text)),
            Some(Due::TooLate { number, text }) => {
                self.out.push(Effect::EndPreparation { number });
                self.prepared(number, Err(text));
            }
            None => {}
        }
    }

    pub(super) fn see_to_environments(&mut self) {
        for command in self.environments.commands() {
            match command {
                Command::AlarmAt(at, alarm) => self.alarm_at(at, Alarm::Environment(alarm)),
                Command::End { number } => self.out.push(Effect::EndPreparation { number }),
                Command::Prepare { number, interpreter, specification, cached } => {
                    self.out.push(Effect::Prepare { number, interpreter, specification, cached });
                }
            }
        }
    }

    /// Nothing of the job is to begin any more.
    pub(super) fn refuse_held_of(&mut self, job: JobId) {
        let Some(head) = &mut self.head else { return };
        let is_of_job = |held: &Held| held.order.job == job;
        let over: Vec<u64> = head.held.iter().filter(|(_, held)| is_of_job(held)).map(|(number, _)| *number).collect();
        for number in over {
            let held = self.head.as_mut().and_then(|head| head.held.remove(&number));
            self.refuse_order(held.expect("it was just found"), None);
        }
    }

    /// The head that gave these orders is gone.
    pub(super) fn forget_held(&mut self) {
        let Some(head) = &mut self.head else { return };
        for Held { grant, .. } in std::mem::take(&mut head.held).into_values() {
            self.ledger.release(grant);
        }
    }

    pub(super) fn refuse_order(&mut self, Held { order, grant }: Held, failure: Option<Failure>) {
        self.ledger.release(grant);
        let last = self.head.as_ref().map_or(0, |head| head.order);
        let state = Some(self.news(last));
        self.report(PlaceRefused { order: order.order, state, failure });
    }
}
