//! The jobs of a cluster: what was asked for, what Slurm says of it, and what follows. No clock, no input, no output.
//!
//! - BOOK-1: a job is known by its name, which has the cluster, the request and its number in it. Whoever looks finds those
//!   that another autoscaler of the cluster asked for.
//! - BOOK-2: what `sbatch` did not answer for is neither there nor lost until Slurm was asked.
//! - BOOK-3: a job that ended by itself is listed once more, with what it ended of: whether its node had joined by then is not
//!   known here.

use super::queue::{Row, Stage};
use super::script::instance;
use crate::provider::{Failed, Instance, InstanceState};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// What the names of jobs begin with.
const PREFIX: &str = "oxiray";
/// A node is emptied before its job's time is over: so long before, and no earlier than when a tenth of it is left.
const LEAD_S: u64 = 300;

/// A job that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    pub(super) request: String,
    /// Which of its request.
    pub(super) number: u32,
    pub(super) group: String,
}

/// What became of asking for a job.
#[derive(Debug)]
pub(super) enum Asked {
    /// Slurm gave it this number.
    Taken(u64),
    /// It refused.
    Refused(String),
    /// It may have the job (BOOK-2).
    Unknown(String),
}

/// All jobs of a cluster.
#[derive(Debug)]
pub(super) struct Book {
    cluster: String,
    /// For how long jobs may be queued, by group.
    queue_limits: BTreeMap<String, Duration>,
    jobs: BTreeMap<u64, Job>,
    /// How many jobs each request has brought (PROVIDER-2).
    brought: BTreeMap<String, u32>,
    /// What `sbatch` did not answer for, and what it said (BOOK-2).
    doubtful: BTreeMap<Ticket, String>,
    failed: Vec<Failed>,
}

#[derive(Debug)]
struct Job {
    ticket: Ticket,
    stage: Stage,
    /// In Slurm's words.
    detail: String,
    since: Duration,
    /// Whether its time is nearly over.
    is_expiring: bool,
    is_cancelled: bool,
    /// Whether it was told of that it is queued for too long.
    is_told: bool,
    /// Why `scancel` failed, until that is told.
    refusal: Option<String>,
    /// What it ended of (BOOK-3).
    ended: Option<String>,
}

impl fmt::Display for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.request, self.number, self.group)
    }
}

impl Ticket {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (request, number, group) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
        Some(Self { request: request.to_owned(), number, group: group.to_owned() })
    }
}

impl Book {
    pub(super) fn new(cluster: &str, queue_limits: BTreeMap<String, Duration>) -> Self {
        Self {
            cluster: cluster.to_owned(),
            queue_limits,
            jobs: BTreeMap::new(),
            brought: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            failed: Vec::new(),
        }
    }

    /// The name of the job of a ticket (BOOK-1).
    pub(super) fn name(&self, ticket: &Ticket) -> String {
        format!("{PREFIX}.{}.{ticket}", self.cluster)
    }

    /// What is to be asked for, for so many replicas of a request: what was never asked for of it.
    pub(super) fn missing(&mut self, group: &str, replicas: u32, request: &str) -> Vec<Ticket> {
        let brought = self.brought.entry(request.to_owned()).or_default();
        let missing = *brought..replicas.max(*brought);
        *brought = missing.end;
        missing.map(|number| Ticket { request: request.to_owned(), number, group: group.to_owned() }).collect()
    }

    pub(super) fn asked(&mut self, now: Duration, ticket: Ticket, asked: Asked) {
        match asked {
            Asked::Taken(number) => {
                self.jobs.entry(number).or_insert_with(|| Job::new(ticket, now));
            }
            Asked::Refused(text) => self.refuse(ticket, text),
            Asked::Unknown(text) => drop(self.doubtful.insert(ticket, text)),
        }
    }

    fn refuse(&mut self, Ticket { request, group, .. }: Ticket, text: String) {
        self.failed.push(Failed::Launch { group, request, replicas: 1, text });
    }

    /// Takes what Slurm says of the jobs of this user. Returns those of this cluster that have just ended by themselves.
    pub(super) fn look(&mut self, now: Duration, rows: &[Row]) -> Vec<u64> {
        let mut listed = BTreeSet::new();
        let mut ended = Vec::new();
        for row in rows {
            let Some(ticket) = self.ticket(&row.name) else { continue };
            self.doubtful.remove(&ticket);
            if row.stage == Stage::Ended && !self.jobs.contains_key(&row.job) {
                continue;
            }
            listed.insert(row.job);
            let job = self.jobs.entry(row.job).or_insert_with(|| Job::new(ticket, now));
            if job.note(now, row) {
                ended.push(row.job);
            }
        }
        for (number, job) in &mut self.jobs {
            if !listed.contains(number) && job.end("Slurm does not list it any more") {
                ended.push(*number);
            }
        }
        for (ticket, text) in std::mem::take(&mut self.doubtful) {
            self.refuse(ticket, text);
        }
        self.jobs.retain(|_, job| !(job.is_cancelled && job.ended.is_some()));
        self.tell_of_trouble(now);
        ended.retain(|number| self.jobs.contains_key(number));
        ended
    }

    fn ticket(&self, name: &str) -> Option<Ticket> {
        let rest = name.strip_prefix(PREFIX)?.strip_prefix('.')?;
        Ticket::read(rest.strip_prefix(&self.cluster)?.strip_prefix('.')?)
    }

    fn tell_of_trouble(&mut self, now: Duration) {
        for (number, job) in &mut self.jobs {
            let replica = || instance(&job.ticket.group, number);
            if let Some(text) = job.refusal.take().filter(|_| job.ended.is_none()) {
                self.failed.push(Failed::Terminate { replica: replica(), text });
            }
            let limit = self.queue_limits.get(&job.ticket.group).copied().unwrap_or(Duration::MAX);
            if job.stage == Stage::Queued && !job.is_told && now.saturating_sub(job.since) >= limit {
                job.is_told = true;
                let text = format!("job {number} was queued for {} s ({})", limit.as_secs_f64(), job.detail);
                self.failed.push(Failed::Stuck { group: job.ticket.group.clone(), replica: replica(), text });
            }
        }
    }

    /// Adds what a job printed to what it ended of.
    pub(super) fn add_output(&mut self, number: u64, output: &str) {
        if let Some(text) = self.jobs.get_mut(&number).and_then(|job| job.ended.as_mut()) {
            *text = format!("{text}: {output}");
        }
    }

    /// The jobs of these replicas, which are to be cancelled.
    pub(super) fn cancel(&mut self, replicas: &[String]) -> Vec<u64> {
        let mut numbers = Vec::new();
        for (number, job) in &mut self.jobs {
            if replicas.contains(&instance(&job.ticket.group, number)) {
                job.is_cancelled = true;
                numbers.push(*number);
            }
        }
        numbers
    }

    /// Notes that these jobs could not be cancelled; it is told where they are still there at the next look.
    pub(super) fn not_cancelled(&mut self, numbers: &[u64], text: &str) {
        for number in numbers {
            if let Some(job) = self.jobs.get_mut(number) {
                job.refusal = Some(text.to_owned());
            }
        }
    }

    /// The jobs that Slurm would go on with.
    pub(super) fn active(&self) -> Vec<u64> {
        let active = self.jobs.iter().filter(|(_, job)| !matches!(job.stage, Stage::Completing | Stage::Ended));
        active.map(|(number, _)| *number).collect()
    }

    /// Whether Slurm is to be asked again.
    pub(super) fn is_moving(&self) -> bool {
        !self.jobs.is_empty() || !self.doubtful.is_empty()
    }

    pub(super) fn instances(&self) -> Vec<Instance> {
        self.jobs.iter().map(|(number, job)| job.instance(*number)).collect()
    }

    /// The same, for whoever decides on it: what has ended is told, and is not listed again (BOOK-3).
    pub(super) fn take_instances(&mut self) -> Vec<Instance> {
        let instances = self.instances();
        let ended: Vec<u64> =
            self.jobs.iter().filter(|(_, job)| job.ended.is_some()).map(|(number, _)| *number).collect();
        for number in ended {
            let Some(job) = self.jobs.remove(&number).filter(|job| !job.is_cancelled) else { continue };
            self.failed.push(Failed::Stuck {
                replica: instance(&job.ticket.group, number),
                group: job.ticket.group,
                text: format!("job {number} ended by itself ({})", job.ended.unwrap_or_default()),
            });
        }
        instances
    }

    /// Whether something failed that nobody was told of.
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    pub(super) fn take_failed(&mut self) -> Vec<Failed> {
        std::mem::take(&mut self.failed)
    }
}

impl Job {
    fn new(ticket: Ticket, now: Duration) -> Self {
        Self {
            ticket,
            stage: Stage::Queued,
            detail: String::new(),
            since: now,
            is_expiring: false,
            is_cancelled: false,
            is_told: false,
            refusal: None,
            ended: None,
        }
    }

    /// Takes what Slurm says of it; whether it has just ended.
    fn note(&mut self, now: Duration, row: &Row) -> bool {
        if row.stage != self.stage {
            (self.stage, self.since) = (row.stage, now);
        }
        let is_reason = !matches!(row.reason.as_str(), "" | "None");
        self.detail = if is_reason { row.reason.clone() } else { String::new() };
        self.is_expiring = match (row.stage, row.limit_s, row.left_s) {
            (Stage::Running, Some(limit), Some(left)) => left <= LEAD_S.min(limit / 10),
            _ => false,
        };
        if self.is_expiring {
            self.detail = format!("its job's time is over in {} s", row.left_s.unwrap_or_default());
        }
        let reason = if is_reason { format!("{}, {}", row.state, row.reason) } else { row.state.clone() };
        row.stage == Stage::Ended && self.end(&reason)
    }

    /// It has ended; whether it had not before.
    fn end(&mut self, why: &str) -> bool {
        self.stage = Stage::Ended;
        let is_new = self.ended.is_none();
        self.ended.get_or_insert_with(|| why.to_owned());
        is_new
    }

    fn instance(&self, number: u64) -> Instance {
        let id = instance(&self.ticket.group, number);
        let state = match self.stage {
            _ if self.is_cancelled => InstanceState::Terminating,
            Stage::Queued => InstanceState::Queued,
            Stage::Starting => InstanceState::Pending,
            Stage::Running if self.is_expiring => InstanceState::Expiring,
            Stage::Running | Stage::Completing | Stage::Ended => InstanceState::Running,
        };
        Instance {
            replica: id.clone(),
            id,
            group: self.ticket.group.clone(),
            host: 0,
            request: Some(self.ticket.request.clone()),
            state,
            detail: self.detail.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
