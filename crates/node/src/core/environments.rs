//! Environments that must be made before a worker can start in them: made once, waited for by many.
//!
//! - ENVIRONMENT-1: for one specification at most one preparation runs, however many wait for it.
//! - ENVIRONMENT-2: whoever waits for an environment is in `wanted` and not in the queue, so that nobody
//!   else waits behind it; what ends its wait is what ends that of anybody in the queue.
//! - ENVIRONMENT-3: a preparation is used from the first who asks for it until the last job that did is over.

use super::{Alarm, Core, Effect, Want, Wanted};
use crate::core::assign::merged;
use crate::core::groups::Need;
use bytes::Bytes;
use oxiray_ids::JobId;
use oxiray_wire::message::{Environment, Failure, LeaseRefused};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// How long a preparation that failed is not tried again.
const FAILURE_KEPT: Duration = Duration::from_secs(10);
/// How many preparations run at once; the others wait for their turn.
const RUNNING_MAX: usize = 8;
/// How long a preparation runs before those who wait are told of it.
const NOTICE_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug)]
enum Progress {
    UnderWay {
        since: Instant,
        limit_s: u32,
        /// By their tickets, and so in the order in which they came.
        waiting: BTreeMap<u64, Need>,
    },
    /// Workers are started with this command; with the driver's interpreter where it is empty.
    Ready {
        command: Vec<String>,
    },
    Failed {
        text: String,
        until: Instant,
    },
}

/// How far an environment is, for somebody who is not in the queue.
#[derive(Debug)]
pub(crate) enum Made {
    Yes,
    NotYet,
    Never(String),
}

#[derive(Debug)]
struct Preparation {
    number: u64,
    progress: Progress,
    /// Those that asked for it.
    jobs: BTreeSet<JobId>,
}

/// A preparation whose process is to be started.
#[derive(Debug)]
struct Due {
    number: u64,
    interpreter: String,
    specification: String,
    cached: String,
    limit_s: u32,
}

/// An interpreter, and what is made for it.
type Specification = (String, String);

#[derive(Debug, Default)]
pub(crate) struct Environments {
    by_specification: BTreeMap<Specification, Preparation>,
    due: VecDeque<Due>,
    running: BTreeSet<u64>,
    /// Who is to be told that there is no environment for them, and why.
    refused: Vec<(u64, String)>,
}

impl Environments {
    /// The command that starts interpreters in a prepared environment, where it has one of its own.
    pub(crate) fn command(&self, interpreter: &str, specification: &str) -> Option<Vec<String>> {
        let found = self.by_specification.get(&(interpreter.to_owned(), specification.to_owned()))?;
        match &found.progress {
            Progress::Ready { command } if !command.is_empty() => Some(command.clone()),
            _ => None,
        }
    }

    /// Takes over what the head has made.
    pub(crate) fn learn(&mut self, job: JobId, interpreter: &str, specification: &str, command: Vec<String>) {
        let specification = (interpreter.to_owned(), specification.to_owned());
        let progress = Progress::Ready { command };
        let known = Preparation { number: 0, progress: Progress::Ready { command: Vec::new() }, jobs: BTreeSet::new() };
        let preparation = self.by_specification.entry(specification).or_insert(known);
        preparation.progress = progress;
        preparation.jobs.insert(job);
    }

    /// Somebody does not wait any more.
    pub(crate) fn withdraw(&mut self, ticket: u64) {
        for preparation in self.by_specification.values_mut() {
            if let Progress::UnderWay { waiting, .. } = &mut preparation.progress {
                waiting.remove(&ticket);
            }
        }
    }

    /// Those that wait for what is being made, or are about to be told that it cannot be, the cancelled included.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u64> + '_ {
        let of = |preparation: &Preparation| match &preparation.progress {
            Progress::UnderWay { waiting, .. } => waiting.keys().copied().collect(),
            Progress::Ready { .. } | Progress::Failed { .. } => Vec::new(),
        };
        self.by_specification.values().flat_map(of).chain(self.refused.iter().map(|(ticket, _)| *ticket))
    }

    fn numbered(&mut self, number: u64) -> Option<&mut Preparation> {
        self.by_specification.values_mut().find(|preparation| preparation.number == number)
    }
}

impl Core {
    /// Gives the need back where nothing has to be made for it first; otherwise the ticket waits, and is
    /// put into the queue when all is made.
    pub(crate) fn await_environment(&mut self, ticket: u64, wanted: &Wanted, need: Need) -> Option<Need> {
        let own = match &wanted.want {
            Want::Lease { environment, .. } => environment,
            Want::Group { .. } => return Some(need),
            Want::Actor(id) => match self.making.get(id).and_then(super::actors::Making::environment) {
                Some(environment) => environment,
                None => return Some(need),
            },
        };
        let of_job = self.details.get(&wanted.job).and_then(|detail| detail.told.environment.as_ref());
        if own.preparation.is_empty() && of_job.is_none_or(|of_job| of_job.preparation.is_empty()) {
            return Some(need);
        }
        let environment = merged(of_job, own);
        if environment.preparation.is_empty() {
            return Some(need);
        }
        let progress = self.preparation(wanted.job, &environment)?;
        match progress {
            Progress::Ready { .. } => return Some(need),
            Progress::UnderWay { waiting, .. } => drop(waiting.insert(ticket, need)),
            Progress::Failed { text, .. } => {
                let text = text.clone();
                self.environments.refused.push((ticket, text));
            }
        }
        None
    }

    /// How far an environment is; it is begun where nobody asked before, or it failed long ago.
    fn preparation(&mut self, job: JobId, environment: &Environment) -> Option<&mut Progress> {
        let interpreter = self.details.get(&job)?.told.interpreter.clone();
        let specification = (interpreter.clone(), environment.preparation.clone());
        let is_over = |preparation: &Preparation| matches!(preparation.progress, Progress::Failed { until, .. } if until <= self.now);
        if self.environments.by_specification.get(&specification).is_none_or(is_over) {
            let number = self.new_key();
            let limit_s = environment.setup_timeout_s;
            let progress = Progress::UnderWay { since: self.now, limit_s, waiting: BTreeMap::new() };
            let jobs = BTreeSet::new();
            let begun = Preparation { number, progress, jobs };
            if let Some(failed) = self.environments.by_specification.insert(specification.clone(), begun) {
                self.out.push(Effect::EndPreparation { number: failed.number });
            }
            let (specification, cached) = (environment.preparation.clone(), environment.cached.clone());
            self.environments.due.push_back(Due { number, interpreter, specification, cached, limit_s });
            self.start_preparations();
        }
        let found = self.environments.by_specification.get_mut(&specification)?;
        found.jobs.insert(job);
        Some(&mut found.progress)
    }

    /// What starts interpreters in an environment that was made here, which members on this machine use too.
    pub(crate) fn command_of(&self, job: JobId, own: Option<&Environment>) -> Vec<String> {
        let Some(detail) = self.details.get(&job) else { return Vec::new() };
        let environment = merged(detail.told.environment.as_ref(), own.unwrap_or(&Environment::default()));
        let interpreter = &detail.told.interpreter;
        self.environments.command(interpreter, &environment.preparation).unwrap_or_default()
    }

    /// Whether an environment is made; it is begun where it is not.
    pub(crate) fn is_made(&mut self, job: JobId, environment: &Environment) -> Made {
        match self.preparation(job, environment) {
            None | Some(Progress::Ready { .. }) => Made::Yes,
            Some(Progress::UnderWay { .. }) => Made::NotYet,
            Some(Progress::Failed { text, .. }) => Made::Never(text.clone()),
        }
    }

    fn start_preparations(&mut self) {
        while self.environments.running.len() < RUNNING_MAX
            && let Some(Due { number, interpreter, specification, cached, limit_s }) = self.environments.due.pop_front()
        {
            self.environments.running.insert(number);
            if limit_s > 0 {
                self.alarm_at(self.now + Duration::from_secs(limit_s.into()), Alarm::Unprepared(number));
            }
            self.alarm_at(self.now + NOTICE_AFTER, Alarm::Preparing(number));
            self.out.push(Effect::Prepare { number, interpreter, specification, cached });
        }
    }

    /// A job begins: what its tasks will need is made at once, and their template started, unless it wants
    /// that later.
    pub(crate) fn prepare_for_job(&mut self, job: JobId) {
        let environment = self.details.get(&job).and_then(|detail| detail.told.environment.clone());
        let Some(environment) = environment.filter(|environment| environment.eager) else { return };
        let is_made = environment.preparation.is_empty()
            || matches!(self.preparation(job, &environment), Some(Progress::Ready { .. }));
        if is_made {
            let origin = self.origin_of(job, &environment);
            self.ensure_template(&origin, Some(job));
        }
    }

    /// A preparation is done, with the command that starts interpreters in it, or with the reason why not.
    pub fn prepared(&mut self, number: u64, result: Result<Vec<String>, String>) {
        let until = self.now + FAILURE_KEPT;
        self.environments.running.remove(&number);
        self.start_preparations();
        let Some(found) = self.environments.numbered(number) else { return };
        let Progress::UnderWay { waiting, .. } = &mut found.progress else { return };
        let waiting = std::mem::take(waiting);
        let jobs = found.jobs.clone();
        match result {
            Ok(command) => {
                found.progress = Progress::Ready { command };
                for (ticket, need) in waiting {
                    // Whoever no longer wants it was forgotten meanwhile.
                    if let Some(wanted) = self.wanted.get(&ticket).cloned()
                        && let Err(error) = self.push(ticket, &wanted.want, need)
                    {
                        self.environments.refused.push((ticket, error.to_string()));
                    }
                }
                self.wants_pump = true;
                self.reclaim.someone_came = true;
                for job in jobs {
                    self.prepare_for_job(job);
                }
            }
            Err(text) => {
                found.progress = Progress::Failed { text: text.clone(), until };
                self.log(format!("preparation {number} of an environment failed"));
                self.environments.refused.extend(waiting.into_keys().map(|ticket| (ticket, text.clone())));
            }
        }
        self.look_at_held();
    }

    /// A member could not make the environment that somebody waits for.
    pub(crate) fn unprepared_there(&mut self, ticket: u64, wanted: Wanted, text: String) {
        self.wanted.insert(ticket, wanted);
        self.environments.refused.push((ticket, text));
    }

    pub(crate) fn preparation_overdue(&mut self, number: u64) {
        let Some(found) = self.environments.numbered(number) else { return };
        let Progress::UnderWay { limit_s, .. } = &found.progress else { return };
        let text = format!(
            "the environment was not ready within {limit_s} s, which is all that config.setup_timeout_seconds of its \
             runtime_env allows: raise that, set it to -1 for no limit, or install what is needed beforehand"
        );
        self.out.push(Effect::EndPreparation { number });
        self.prepared(number, Err(text));
    }

    pub(crate) fn say_it_prepares(&mut self, number: u64) {
        let now = self.now;
        let Some(found) = self.environments.numbered(number) else { return };
        let Progress::UnderWay { since, waiting, .. } = &found.progress else { return };
        let waited = now.saturating_duration_since(*since).as_secs();
        let text = format!(
            "a runtime environment is being installed for {waited} s now; {} requests for workers wait for it",
            waiting.len()
        );
        for job in found.jobs.clone() {
            self.notify(Some(job), &text);
        }
    }

    /// Tells those who wait for an environment that there will be none.
    pub(crate) fn refuse_unprepared(&mut self) {
        for (ticket, text) in std::mem::take(&mut self.environments.refused) {
            let Some(wanted) = self.wanted.remove(&ticket) else { continue };
            let failure = Failure { code: "runtime_env".into(), text, cause: Bytes::new() };
            match wanted.want {
                Want::Actor(id) => self.actor_died(id, &failure),
                // Room needs no environment.
                Want::Group { .. } => {}
                Want::Lease { client, request, .. } => {
                    if let Some(client) = self.clients.get_mut(&client) {
                        client.waiting.remove(&request);
                    }
                    self.send(client, LeaseRefused { request, failure: Some(failure) });
                }
            }
        }
    }

    /// A job is over, and nothing of it is left (ENVIRONMENT-3).
    pub(crate) fn release_environments(&mut self, job: JobId) {
        self.forget_in_templates(job);
        let out = &mut self.out;
        self.environments.by_specification.retain(|_, preparation| {
            preparation.jobs.remove(&job);
            let is_used = !preparation.jobs.is_empty();
            if !is_used {
                out.push(Effect::EndPreparation { number: preparation.number });
            }
            is_used
        });
        let left: BTreeSet<u64> =
            self.environments.by_specification.values().map(|preparation| preparation.number).collect();
        self.environments.due.retain(|due| left.contains(&due.number));
        self.environments.running.retain(|number| left.contains(number));
        self.start_preparations();
    }
}
