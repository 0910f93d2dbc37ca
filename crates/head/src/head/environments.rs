//! Who waits at the head for an environment: they stand in the queue when it is made.

use super::{Alarm, Effect, HeadCore, JobDetail, Need, PendingKind, PendingRequest};
use bytes::Bytes;
use oxiray_ids::JobId;
use oxiray_machine::environments::{self, Asked, Command, Due, Readiness, Wait, merged};
use oxiray_wire::message::{Environment, EnvironmentMade, Failure, LeaseRefused, Notice};

impl HeadCore {
    /// Gives the need back where nothing has to be made for it first; otherwise the ticket waits, and is
    /// put into the queue when all is made.
    pub(super) fn await_environment(&mut self, ticket: u64, wanted: &PendingRequest, need: Need) -> Option<Need> {
        let own = match &wanted.want {
            PendingKind::Lease { environment, .. } => environment,
            PendingKind::Group { .. } => return Some(need),
            PendingKind::Actor(id) => match self.actors.making.get(id).and_then(super::actors::Making::environment) {
                Some(environment) => environment,
                None => return Some(need),
            },
        };
        let detail = self.jobs.details.get(&wanted.job);
        let of_job = detail.and_then(|detail| detail.told.environment.as_ref());
        if own.preparation.is_empty() && of_job.is_none_or(|of_job| of_job.preparation.is_empty()) {
            return Some(need);
        }
        let environment = merged(of_job, own);
        let Some(detail) = detail.filter(|_| !environment.preparation.is_empty()) else { return Some(need) };
        let asked = Asked { job: wanted.job, interpreter: &detail.told.interpreter, environment: &environment };
        let wait = self.pending.environments.wait(asked, (ticket, need), self.clock.now, self.own.numbers());
        self.see_to_environments();
        match wait {
            Wait::Over(need) => return Some(need),
            Wait::Begins => {}
            Wait::Vain(text) => self.pending.unprepared.push((ticket, text)),
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
            return self.pending.unprepared.extend(ended.waiting.into_keys().map(|ticket| (ticket, text.clone())));
        }
        for (ticket, need) in ended.waiting {
            // Whoever no longer wants it was forgotten meanwhile.
            if let Some(wanted) = self.pending.wanted.get(&ticket).cloned()
                && let Err(error) = self.push(ticket, &wanted, need)
            {
                self.pending.unprepared.push((ticket, error.to_string()));
            }
        }
        self.pending.is_due = true;
        self.pending.fairness.reclaim.someone_came = true;
        for job in ended.jobs {
            self.prepare_for_job(job);
        }
    }

    /// A member could not make the environment that somebody waits for.
    pub(super) fn unprepared_there(&mut self, ticket: u64, wanted: PendingRequest, text: String) {
        self.pending.wanted.insert(ticket, wanted);
        self.pending.unprepared.push((ticket, text));
    }

    pub(super) fn environment_alarm(&mut self, alarm: environments::Alarm) {
        match self.pending.environments.due(alarm, self.clock.now) {
            Some(Due::Tell { jobs, text }) => {
                let drivers = jobs.iter().filter_map(|job| self.jobs.details.get(job).filter(|detail| !detail.is_over));
                for driver in drivers.map(|JobDetail { driver, .. }| *driver).collect::<Vec<_>>() {
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

    /// Tells those who wait for an environment that there will be none.
    pub(super) fn refuse_unprepared(&mut self) {
        for (ticket, text) in std::mem::take(&mut self.pending.unprepared) {
            let Some(wanted) = self.pending.wanted.remove(&ticket) else { continue };
            let text = format!("[Node {}] {text}", self.own.plan().ip);
            let failure = Failure { code: "runtime_env".into(), text, cause: Bytes::new() };
            match wanted.want {
                PendingKind::Actor(id) => self.actor_died(id, &failure),
                // BundlePlacement needs no environment.
                PendingKind::Group { .. } => {}
                PendingKind::Lease { client, request, .. } => {
                    if let Some(client) = self.clients.by_key.get_mut(&client) {
                        client.waiting.remove(&request);
                    }
                    self.send(client, LeaseRefused { request, failure: Some(failure) });
                }
            }
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
                Command::AlarmAt(at, alarm) => self.alarm_at(at, Alarm::Environment(alarm)),
                Command::End { number } => self.out.push(Effect::EndPreparation { number }),
                Command::Prepare { number, interpreter, specification, cached } => {
                    self.out.push(Effect::Prepare { number, interpreter, specification, cached });
                }
            }
        }
    }
}
