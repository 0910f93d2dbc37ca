//! Environments that must be made before a worker can start in them: made once, waited for by many.
//!
//! A head has its waiters wait here before they stand in its queue; a node of another machine has orders wait until what
//! they need is made there. Either carries out the [`Command`]s that come of it.
//!
//! - ENVIRONMENT-1: for one specification at most one preparation runs, however many wait for it.
//! - ENVIRONMENT-2: whoever waits at the head for an environment is in `wanted` and not in the queue, so that nobody
//!   else waits behind it; what ends its wait is what ends that of anybody in the queue.
//! - ENVIRONMENT-3: a preparation is used from the first who asks for it until the last job that did is over.

use super::Numbers;
use oxiray_ids::JobId;
use oxiray_wire::message::{AskedIsolation, Environment, Variable};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// How long a preparation that failed is not tried again.
const FAILURE_KEPT: Duration = Duration::from_secs(10);
/// How many preparations run at once; the others wait for their turn.
const RUNNING_MAX: usize = 8;
/// How long a preparation runs before those who wait are told of it.
const NOTICE_AFTER: Duration = Duration::from_secs(10);

/// What is to be done.
#[derive(Debug)]
pub enum Command {
    /// Start the process that makes what an environment needs.
    Prepare {
        /// Names the preparation.
        number: u64,
        /// The interpreter that it runs on.
        interpreter: String,
        /// What to make, for that process.
        specification: String,
        /// The folder of the cache that it uses; empty for none.
        cached: String,
    },
    /// End that process where there still is one.
    End {
        /// Its name.
        number: u64,
    },
    /// Call [`Environments::due`] at that time.
    AlarmAt(Instant, Alarm),
}

/// What is due at a certain time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// Those who wait for a preparation are told that it takes long.
    Notice(u64),
    /// It takes too long.
    Overdue(u64),
}

/// What became due.
#[derive(Debug)]
pub enum Due {
    /// The jobs whose drivers are told something.
    Tell {
        /// Those that asked for what takes long.
        jobs: Vec<JobId>,
        /// What they are told.
        text: String,
    },
    /// A preparation has failed, since it took too long: see [`Environments::prepared`].
    TooLate {
        /// Its name.
        number: u64,
        /// How long it may take, in words.
        text: String,
    },
}

/// What is asked for, and for whom.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The job that asks.
    pub job: JobId,
    /// The interpreter that its driver runs on.
    pub interpreter: &'a str,
    /// What is asked for.
    pub environment: &'a Environment,
}

/// How far an environment is.
#[derive(Debug)]
pub enum Readiness {
    /// Workers can start in it.
    Yes,
    /// Its preparation runs, or waits for its turn.
    NotYet,
    /// It cannot be made, for this reason.
    Never(String),
}

/// What became of somebody who waits for an environment.
#[derive(Debug)]
pub enum Wait<W> {
    /// There is nothing to wait for.
    Over(W),
    /// It comes back when the preparation ends.
    Begins,
    /// It cannot be made.
    Vain(String),
}

/// A preparation that ended.
#[derive(Debug)]
pub struct Ended<W> {
    /// Why it failed, where it did.
    pub result: Result<(), String>,
    /// By their tickets, and so in the order in which they came. Some may no longer want it.
    pub waiting: BTreeMap<u64, W>,
    /// Those that asked for it.
    pub jobs: BTreeSet<JobId>,
}

#[derive(Debug)]
enum Progress<W> {
    UnderWay {
        since: Instant,
        limit_s: u32,
        waiting: BTreeMap<u64, W>,
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

#[derive(Debug)]
struct Preparation<W> {
    number: u64,
    progress: Progress<W>,
    /// Those that asked for it.
    jobs: BTreeSet<JobId>,
}

/// A preparation whose process is to be started.
#[derive(Debug)]
struct Unstarted {
    number: u64,
    interpreter: String,
    specification: String,
    cached: String,
    limit_s: u32,
}

/// An interpreter, and what is made for it.
type Specification = (String, String);

/// All environments that somebody asked for. `W` is what is kept of somebody who waits.
#[derive(Debug)]
pub struct Environments<W> {
    by_specification: BTreeMap<Specification, Preparation<W>>,
    unstarted: VecDeque<Unstarted>,
    running: BTreeSet<u64>,
    commands: Vec<Command>,
}

impl<W> Default for Environments<W> {
    fn default() -> Self {
        Self {
            by_specification: BTreeMap::new(),
            unstarted: VecDeque::new(),
            running: BTreeSet::new(),
            commands: Vec::new(),
        }
    }
}

impl<W> Environments<W> {
    /// What is to be done now.
    pub fn commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// The command that starts interpreters in a prepared environment, where it has one of its own.
    pub fn command(&self, interpreter: &str, specification: &str) -> Option<Vec<String>> {
        let found = self.by_specification.get(&(interpreter.to_owned(), specification.to_owned()))?;
        match &found.progress {
            Progress::Ready { command } if !command.is_empty() => Some(command.clone()),
            _ => None,
        }
    }

    /// Takes over what the head has made.
    pub fn learn(&mut self, job: JobId, interpreter: &str, specification: &str, command: Vec<String>) {
        let specification = (interpreter.to_owned(), specification.to_owned());
        let progress = Progress::Ready { command };
        let known = Preparation { number: 0, progress: Progress::Ready { command: Vec::new() }, jobs: BTreeSet::new() };
        let preparation = self.by_specification.entry(specification).or_insert(known);
        preparation.progress = progress;
        preparation.jobs.insert(job);
    }

    /// Has somebody wait for an environment, which is begun where nobody asked before, or it failed long ago.
    pub fn wait(&mut self, asked: Asked<'_>, (ticket, what): (u64, W), now: Instant, numbers: &Numbers) -> Wait<W> {
        match self.progress(asked, now, numbers) {
            Progress::Ready { .. } => Wait::Over(what),
            Progress::Failed { text, .. } => Wait::Vain(text.clone()),
            Progress::UnderWay { waiting, .. } => {
                waiting.insert(ticket, what);
                Wait::Begins
            }
        }
    }

    /// Whether an environment is made; it is begun where it is not.
    pub fn is_made(&mut self, asked: Asked<'_>, now: Instant, numbers: &Numbers) -> Readiness {
        match self.progress(asked, now, numbers) {
            Progress::Ready { .. } => Readiness::Yes,
            Progress::UnderWay { .. } => Readiness::NotYet,
            Progress::Failed { text, .. } => Readiness::Never(text.clone()),
        }
    }

    fn progress(&mut self, asked: Asked<'_>, now: Instant, numbers: &Numbers) -> &mut Progress<W> {
        let Asked { job, interpreter, environment } = asked;
        let specification = (interpreter.to_owned(), environment.preparation.clone());
        let is_over = |preparation: &Preparation<W>| matches!(preparation.progress, Progress::Failed { until, .. } if until <= now);
        if self.by_specification.get(&specification).is_none_or(is_over) {
            let (number, limit_s) = (numbers.next(), environment.setup_timeout_s);
            let progress = Progress::UnderWay { since: now, limit_s, waiting: BTreeMap::new() };
            let begun = Preparation { number, progress, jobs: BTreeSet::new() };
            if let Some(failed) = self.by_specification.insert(specification.clone(), begun) {
                self.commands.push(Command::End { number: failed.number });
            }
            let (interpreter, specification) = specification.clone();
            let cached = environment.cached.clone();
            self.unstarted.push_back(Unstarted { number, interpreter, specification, cached, limit_s });
            self.start(now);
        }
        let found = self.by_specification.get_mut(&specification).expect("it was just found or made");
        found.jobs.insert(job);
        &mut found.progress
    }

    fn start(&mut self, now: Instant) {
        while self.running.len() < RUNNING_MAX
            && let Some(Unstarted { number, interpreter, specification, cached, limit_s }) = self.unstarted.pop_front()
        {
            self.running.insert(number);
            if limit_s > 0 {
                let at = now + Duration::from_secs(limit_s.into());
                self.commands.push(Command::AlarmAt(at, Alarm::Overdue(number)));
            }
            self.commands.push(Command::AlarmAt(now + NOTICE_AFTER, Alarm::Notice(number)));
            self.commands.push(Command::Prepare { number, interpreter, specification, cached });
        }
    }

    /// A preparation is done, with the command that starts interpreters in it, or with the reason why not.
    pub fn prepared(&mut self, number: u64, result: Result<Vec<String>, String>, now: Instant) -> Option<Ended<W>> {
        self.running.remove(&number);
        self.start(now);
        let found = self.numbered_mut(number)?;
        let Progress::UnderWay { waiting, .. } = &mut found.progress else { return None };
        let waiting = std::mem::take(waiting);
        let jobs = found.jobs.clone();
        let (progress, result) = match result {
            Ok(command) => (Progress::Ready { command }, Ok(())),
            Err(text) => (Progress::Failed { text: text.clone(), until: now + FAILURE_KEPT }, Err(text)),
        };
        found.progress = progress;
        Some(Ended { result, waiting, jobs })
    }

    /// What is to be done about an alarm.
    pub fn due(&self, alarm: Alarm, now: Instant) -> Option<Due> {
        let (Alarm::Notice(number) | Alarm::Overdue(number)) = alarm;
        let found = self.by_specification.values().find(|preparation| preparation.number == number)?;
        let Progress::UnderWay { since, limit_s, waiting } = &found.progress else { return None };
        if matches!(alarm, Alarm::Overdue(_)) {
            let text = format!(
                "the environment was not ready within {limit_s} s, which is all that config.setup_timeout_seconds of its \
                 runtime_env allows: raise that, set it to -1 for no limit, or install what is needed beforehand"
            );
            return Some(Due::TooLate { number, text });
        }
        let waited = now.saturating_duration_since(*since).as_secs();
        let text = format!(
            "a runtime environment is being installed for {waited} s now; {} requests for workers wait for it",
            waiting.len()
        );
        Some(Due::Tell { jobs: found.jobs.iter().copied().collect(), text })
    }

    /// Somebody does not wait any more.
    pub fn withdraw(&mut self, ticket: u64) {
        for preparation in self.by_specification.values_mut() {
            if let Progress::UnderWay { waiting, .. } = &mut preparation.progress {
                waiting.remove(&ticket);
            }
        }
    }

    /// Those that wait for what is being made.
    pub fn waiting(&self) -> impl Iterator<Item = u64> + '_ {
        let of = |preparation: &Preparation<W>| match &preparation.progress {
            Progress::UnderWay { waiting, .. } => waiting.keys().copied().collect(),
            Progress::Ready { .. } | Progress::Failed { .. } => Vec::new(),
        };
        self.by_specification.values().flat_map(of)
    }

    /// A job is over, and nothing of it is left (ENVIRONMENT-3).
    pub fn release(&mut self, job: JobId, now: Instant) {
        let commands = &mut self.commands;
        self.by_specification.retain(|_, preparation| {
            preparation.jobs.remove(&job);
            let is_used = !preparation.jobs.is_empty();
            if !is_used {
                commands.push(Command::End { number: preparation.number });
            }
            is_used
        });
        let left: BTreeSet<u64> = self.by_specification.values().map(|preparation| preparation.number).collect();
        self.unstarted.retain(|unstarted| left.contains(&unstarted.number));
        self.running.retain(|number| left.contains(number));
        self.start(now);
    }

    fn numbered_mut(&mut self, number: u64) -> Option<&mut Preparation<W>> {
        self.by_specification.values_mut().find(|preparation| preparation.number == number)
    }
}

/// The task's variables on top of the job's, its isolation and what it preloads before the job's; the other fields come whole from the one or
/// the other. A program of the user's own takes nothing of a job's besides.
pub fn merged(job: Option<&Environment>, own: &Environment) -> Environment {
    let of_job = job.map_or(&[][..], |environment| &environment.variables);
    let mut by_name: BTreeMap<&str, &Variable> = BTreeMap::new();
    for variable in of_job.iter().chain(&own.variables) {
        by_name.insert(&variable.name, variable);
    }
    let variables = by_name.into_values().cloned().collect();
    let fields = job.filter(|_| own.fields.is_empty() && !own.native).unwrap_or(own);
    let isolation = if own.isolation == AskedIsolation::Unsaid { job.map(|job| job.isolation) } else { None };
    // What a library of Ray's has imported beforehand is no field of the environment that its tasks see.
    let preloading = if own.preload.is_empty() { fields } else { own };
    Environment {
        variables,
        isolation: isolation.unwrap_or(own.isolation),
        preload: preloading.preload.clone(),
        preload_path: preloading.preload_path.clone(),
        ..fields.clone()
    }
}
