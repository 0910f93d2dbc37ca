//! Who asks waits for an environment first, and only then in the queue.

use super::HeadCore;
use crate::clock::Alarm;
use crate::demands::{Need, Refusal};
use crate::queue::{PendingKind, PendingRequest};
use oxiray_ids::JobId;
use oxiray_machine::environments::{Asked, Command, Due, Readiness, Wait, merged};
use oxiray_machine::{Effect, Key, environments};
use oxiray_scheduler::Claimant;
use oxiray_wire::message::{Environment, EnvironmentMade, Failure, FailureCode, Notice};

impl HeadCore {
    /// Has somebody wait, under the ticket that is returned.
    pub(super) fn enqueue(
        &mut self,
        want: PendingKind,
        claimant: Claimant<JobId>,
        label: String,
        need: Need,
    ) -> Result<u64, Refusal> {
        let ticket = self.new_key();
        let wanted = PendingRequest { want, claimant, label, since: self.clock.now, is_brought: false };
        // It waits for its environment first, and only then for resources.
        if let Some(need) = self.await_environment(ticket, &wanted, need) {
            self.push(ticket, &wanted, need).map_err(|error| error.to_string())?;
        }
        self.pending.wanted.insert(ticket, wanted);
        self.pending.someone_came();
        Ok(ticket)
    }

    /// Gives the need back where nothing has to be made for it first; otherwise the ticket waits, and is
    /// put into the queue when all is made.
    fn await_environment(&mut self, ticket: u64, wanted: &PendingRequest, need: Need) -> Option<Need> {
        let Some(own) = self.own_environment(&wanted.want) else { return Some(need) };
        let detail = self.jobs.details.get(&wanted.claimant.job);
        let of_job = detail.and_then(|detail| detail.told.environment.as_ref());
        if own.preparation.is_empty() && of_job.is_none_or(|of_job| of_job.preparation.is_empty()) {
            return Some(need);
        }
        let environment = merged(of_job, own);
        let Some(detail) = detail.filter(|_| !environment.preparation.is_empty()) else { return Some(need) };
        let asked =
            Asked { job: wanted.claimant.job, interpreter: &detail.told.interpreter, environment: &environment };
        let wait = self.pending.environments.wait(asked, (ticket, need), self.clock.now, self.own.numbers());
        self.see_to_environments();
        match wait {
            Wait::Over(need) => return Some(need),
            Wait::Begins => {}
            Wait::Vain(text) => self.pending.unprepared.push((ticket, self.unprepared_here(&text))),
        }
        None
    }

    /// What starts interpreters in an environment that was made here, which members on this machine use too.
    pub(super) fn command_of(&self, job: JobId, own: Option<&Environment>) -> Vec<String> {
        let Some(detail) = self.jobs.details.get(&job) else { return Vec::new() };
        let environment = merged(detail.told.environment.as_ref(), own.unwrap_or(&Environment::default()));
        self.pending.environments.command(&detail.told.interpreter, &environment.preparation).unwrap_or_default()
    }

    /// A job begins: what its tasks will need is made at once, and their template started, unless it wants
    /// that later.
    pub(super) fn prepare_for_job(&mut self, job: JobId) {
        let Some(detail) = self.jobs.details.get(&job) else { return };
        let Some(environment) = detail.told.environment.clone().filter(|environment| environment.eager) else { return };
        let asked = Asked { job, interpreter: &detail.told.interpreter, environment: &environment };
        let is_made = environment.preparation.is_empty()
            || matches!(self.pending.environments.is_made(asked, self.clock.now, self.own.numbers()), Readiness::Yes);
        self.see_to_environments();
        if is_made {
            self.tell_environment(job, &environment);
        }
    }

    /// The members on this machine that know the job start the template of an environment.
    fn tell_environment(&mut self, job: JobId, environment: &Environment) {
        let command = self.command_of(job, None);
        for member in self.members.near_with(job) {
            let (job, environment) = (job, Some(environment.clone()));
            self.order_member(member, EnvironmentMade { job, environment, command: command.clone() });
        }
    }

    /// A preparation is done, with the command that starts interpreters in it, or with the reason why not.
    pub(crate) fn prepared(&mut self, number: u64, result: Result<Vec<String>, String>) {
        let ended = self.pending.environments.prepared(number, result, self.clock.now);
        self.see_to_environments();
        let Some(ended) = ended else { return };
        if let Err(text) = ended.result {
            self.log(format!("preparation {number} of an environment failed"));
            let why = self.unprepared_here(&text);
            return self.pending.unprepared.extend(ended.waiting.into_keys().map(|ticket| (ticket, why.clone())));
        }
        for (ticket, need) in ended.waiting {
            // Whoever no longer wants it was forgotten meanwhile.
            if let Some(wanted) = self.pending.wanted.get(&ticket).cloned()
                && let Err(error) = self.push(ticket, &wanted, need)
            {
                let why = self.unprepared_here(&error.to_string());
                self.pending.unprepared.push((ticket, why));
            }
        }
        self.pending.someone_came();
        for job in ended.jobs {
            self.prepare_for_job(job);
        }
    }

    /// Why an environment could not be made on this machine.
    fn unprepared_here(&self, text: &str) -> Failure {
        FailureCode::RuntimeEnv.because(format!("[Node {}] {text}", self.own.plan().ip))
    }

    /// What somebody waits for cannot run on the machine that was chosen: its environment could not be made there, or it could
    /// not be fenced.
    pub(super) fn cannot_run_there(&mut self, ticket: u64, wanted: PendingRequest, why: Failure) {
        self.pending.wanted.insert(ticket, wanted);
        self.pending.unprepared.push((ticket, why));
    }

    pub(super) fn environment_alarm(&mut self, alarm: environments::Alarm) {
        match self.pending.environments.due(alarm, self.clock.now) {
            Some(Due::Tell { jobs, text }) => {
                let drivers: Vec<Key> = jobs.into_iter().filter_map(|job| self.jobs.driver_of(job)).collect();
                for driver in drivers {
                    self.send(driver, Notice { text: text.clone(), ..Notice::default() });
                }
            }
            Some(Due::TooLate { number, text }) => {
                self.out.push(Effect::EndPreparation { number });
                self.prepared(number, Err(text));
            }
            None => {}
        }
    }

    /// A job is over, and nothing of it is left.
    pub(super) fn release_environments(&mut self, job: JobId) {
        self.pending.environments.release(job, self.clock.now);
        self.see_to_environments();
    }

    fn see_to_environments(&mut self) {
        for command in self.pending.environments.commands() {
            match command {
                Command::AlarmAt(at, alarm) => self.clock.alarm_at(at, Alarm::Environment(alarm)),
                Command::End { number } => self.out.push(Effect::EndPreparation { number }),
                Command::Prepare { number, interpreter, specification, cached } => {
                    self.out.push(Effect::Prepare { number, interpreter, specification, cached });
                }
            }
        }
    }
}
