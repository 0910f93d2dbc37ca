//! Visiting a running daemon: finding it, asking it, stopping it.

use anyhow::{Context as _, anyhow, bail};
use oxiray_node::session::{self, Description};
use oxiray_node::{Config, root};
use oxiray_wire::message::{
    ClusterQuery, ClusterReport, DrainAsked, GrowthQuery, GrowthTold, Hello, HoldingsQuery, MetricsQuery,
    MetricsReport, StateQuery, StateReport, Stop, SubmissionAsked, SubmissionTold, TokenAsked, TokenTold,
};
use oxiray_wire::{Connection, Message, Received, plain};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a daemon may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A session whose daemon lives.
pub(crate) struct Found {
    pub(crate) directory: PathBuf,
    pub(crate) description: Description,
}

/// Where the sessions of this user are.
pub(crate) fn sessions_root() -> anyhow::Result<PathBuf> {
    Ok(root(&Config::default())?)
}

/// All sessions of this user, the current one first.
pub(crate) fn all() -> anyhow::Result<Vec<Found>> {
    let living = session::living(&sessions_root()?);
    Ok(living.into_iter().map(|(directory, description)| Found { directory, description }).collect())
}

/// The session at `address`, or the current one.
pub(crate) fn find(address: Option<&str>) -> anyhow::Result<Found> {
    // A member passes on what it is asked; where the head runs on this machine, that is asked itself.
    let (members, heads): (Vec<Found>, Vec<Found>) = all()?.into_iter().partition(|found| found.description.member);
    let all: Vec<Found> = heads.into_iter().chain(members).collect();
    let Some(address) = address.filter(|address| *address != "auto") else {
        return all.into_iter().next().ok_or_else(|| {
            anyhow!(
                "no cluster of this user runs on this machine: start one with `oxiray start --head`, or run a program"
            )
        });
    };
    let running: Vec<String> = all.iter().map(|found| found.description.address.clone()).collect();
    let found = all.into_iter().find(|found| found.description.answers_to(address));
    found.with_context(|| match running.len() {
        0 => format!("no cluster answers at {address}: none of this user runs on this machine"),
        _ => format!("no cluster answers at {address}: on this machine run {}", running.join(", ")),
    })
}

/// A connection on which the daemon listens to us.
pub(crate) struct Visit {
    connection: Connection,
    inbox: Vec<Received>,
}

impl Visit {
    pub(crate) fn begin(found: &Found) -> anyhow::Result<Self> {
        let stream = session::connect(&found.directory)
            .with_context(|| format!("the daemon of {} does not answer", found.description.address))?;
        let mut visit = Self { connection: Connection::new(stream.into())?, inbox: Vec::new() };
        visit.send(Hello { token: found.description.token.clone(), ..Hello::default() })?;
        Ok(visit)
    }

    pub(crate) fn report(&mut self) -> anyhow::Result<ClusterReport> {
        self.send(ClusterQuery { request: 1 })?;
        match self.next(Instant::now() + ANSWER_LIMIT)? {
            Some(Message::ClusterReport(report)) => Ok(report),
            Some(Message::Refused(refused)) => bail!(refused.text),
            _ => bail!("the daemon did not answer within {} s", ANSWER_LIMIT.as_secs()),
        }
    }

    /// Everything that is counted and measured.
    pub(crate) fn metrics(&mut self) -> anyhow::Result<MetricsReport> {
        self.send(MetricsQuery { request: 1 })?;
        match self.next(Instant::now() + ANSWER_LIMIT)? {
            Some(Message::MetricsReport(report)) => Ok(report),
            Some(Message::Refused(refused)) => bail!(refused.text),
            _ => bail!("the daemon did not answer within {} s", ANSWER_LIMIT.as_secs()),
        }
    }

    /// Which objects the daemon knows and who holds them, as JSON.
    pub(crate) fn holdings(&mut self) -> anyhow::Result<String> {
        self.send(HoldingsQuery { request: 1 })?;
        match self.next(Instant::now() + ANSWER_LIMIT)? {
            Some(Message::Holdings(told)) => Ok(told.detail),
            Some(Message::Refused(refused)) => bail!(refused.text),
            _ => bail!("the daemon did not answer within {} s", ANSWER_LIMIT.as_secs()),
        }
    }

    /// Lists or counts things of one kind.
    pub(crate) fn state(&mut self, asked: StateQuery, limit: Duration) -> anyhow::Result<StateReport> {
        self.send(asked)?;
        self.state_told(limit)
    }

    /// What the autoscaler would be told.
    pub(crate) fn growth(&mut self) -> anyhow::Result<GrowthTold> {
        self.send(GrowthQuery { request: 1 })?;
        match self.next(Instant::now() + ANSWER_LIMIT)? {
            Some(Message::GrowthTold(told)) => Ok(told),
            Some(Message::Refused(refused)) => bail!(refused.text),
            _ => bail!("the daemon did not answer within {} s", ANSWER_LIMIT.as_secs()),
        }
    }

    /// Has a node emptied, or not after all.
    pub(crate) fn drain(&mut self, asked: DrainAsked, limit: Duration) -> anyhow::Result<StateReport> {
        self.send(asked)?;
        self.state_told(limit)
    }

    /// Makes, lists or revokes what lets machines join.
    pub(crate) fn token(&mut self, asked: TokenAsked) -> anyhow::Result<TokenTold> {
        self.send(asked)?;
        match self.next(Instant::now() + ANSWER_LIMIT)? {
            Some(Message::TokenTold(told)) => match &told.failure {
                Some(failure) => bail!(failure.text.clone()),
                None => Ok(*told),
            },
            Some(Message::Refused(refused)) => bail!(refused.text),
            _ => bail!("the daemon did not answer within {} s", ANSWER_LIMIT.as_secs()),
        }
    }

    /// Submits, stops or tells of jobs.
    pub(crate) fn submission(&mut self, asked: SubmissionAsked) -> anyhow::Result<SubmissionTold> {
        self.send(asked)?;
        match self.next(Instant::now() + ANSWER_LIMIT)? {
            Some(Message::SubmissionTold(told)) => match &told.failure {
                Some(failure) => bail!(failure.text.clone()),
                None => Ok(*told),
            },
            Some(Message::Refused(refused)) => bail!(refused.text),
            _ => bail!("the daemon did not answer within {} s", ANSWER_LIMIT.as_secs()),
        }
    }

    fn state_told(&mut self, limit: Duration) -> anyhow::Result<StateReport> {
        match self.next(Instant::now() + limit)? {
            Some(Message::StateReport(report)) => {
                if let Some(failure) = report.failure {
                    bail!(failure.text);
                }
                if !report.missing.is_empty() {
                    let _ = writeln!(std::io::stderr(), "note: {}", plain(&report.missing));
                }
                Ok(*report)
            }
            Some(Message::Refused(refused)) => bail!(refused.text),
            _ => bail!("the daemon did not answer within {} s", limit.as_secs()),
        }
    }

    /// Lets time pass, as long as the daemon lives.
    pub(crate) fn stay(&mut self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while self.next(until)?.is_some() {}
        Ok(())
    }

    /// Asks the session to end, and waits until it has; `false` where it did not in time.
    pub(crate) fn stop(&mut self, limit: Duration) -> anyhow::Result<bool> {
        self.send(Stop {})?;
        let until = Instant::now() + limit;
        loop {
            match self.next(until) {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(false),
                Err(_) => return Ok(true),
            }
        }
    }

    fn send(&mut self, message: impl Into<Message>) -> anyhow::Result<()> {
        self.connection.send(&message.into());
        self.connection.flush()?;
        Ok(())
    }

    /// The next message; nothing where none comes in time, an error where the daemon is gone.
    fn next(&mut self, until: Instant) -> anyhow::Result<Option<Message>> {
        loop {
            if !self.inbox.is_empty() {
                return match self.inbox.remove(0).message {
                    Message::StoreRefused(said) => bail!(said.failure.unwrap_or_default().text),
                    message => Ok(Some(message)),
                };
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            poll(&mut [PollFd::new(&self.connection, PollFlags::IN)], Some(&limit))?;
            let result = self.connection.receive(&mut self.inbox);
            if self.inbox.is_empty() {
                result?;
            }
        }
    }
}
