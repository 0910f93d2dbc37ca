//! Visiting a running daemon: finding it, asking it, stopping it.

use anyhow::{Context as _, anyhow, bail};
use oxiray_visitor::session::{self, heads_first};
use oxiray_visitor::{FoundSession, Question, Visitor, json};
use oxiray_wire::message::{ClusterQuery, StateQuery, StateReport, Stop};
use oxiray_wire::plain;
use serde_json::Value as Json;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// How long a daemon may take to answer.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The same for a list, where nothing else is said.
pub(crate) const LIST_LIMIT: Duration = Duration::from_secs(30);

/// All sessions of this user whose daemons live, the current one first.
pub(crate) fn all() -> anyhow::Result<Vec<FoundSession>> {
    Ok(session::living(&session::root()?))
}

/// The session at `address`, or the current one.
pub(crate) fn find(address: Option<&str>) -> anyhow::Result<FoundSession> {
    let all = heads_first(all()?);
    let Some(address) = address.filter(|address| !matches!(*address, "" | "auto")) else {
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

/// Connects to the daemon of a session.
pub(crate) fn begin(found: &FoundSession) -> anyhow::Result<Visitor> {
    let stream = session::connect(&found.directory)
        .with_context(|| format!("the daemon of {} does not answer", found.description.address))?;
    Ok(Visitor::greet(stream.into(), found.description.token.clone())?)
}

/// The same for who only reads.
pub(crate) fn begin_reading(found: &FoundSession) -> anyhow::Result<Visitor> {
    let stream = session::connect(&found.directory)
        .with_context(|| format!("the daemon of {} does not answer", found.description.address))?;
    Ok(Visitor::greet_reading(stream.into(), found.description.token.clone())?)
}

/// Asks the session at `address`, or the current one.
pub(crate) fn ask<Q: Question>(address: Option<&str>, question: Q) -> anyhow::Result<Q::Answer> {
    Ok(begin(&find(address)?)?.ask(question, ANSWER_LIMIT)?)
}

/// Whether the head of the session at `address`, or of the current one, answers.
pub(crate) fn health_check(address: Option<&str>) -> anyhow::Result<()> {
    ask(address, ClusterQuery::default()).map(drop)
}

/// Asks for a list, or for what is answered in the same way, and says what is missing in it.
pub(crate) fn state<Q>(visitor: &mut Visitor, question: Q, limit: Duration) -> anyhow::Result<StateReport>
where
    Q: Question<Answer = StateReport>,
{
    let report = visitor.ask(question, limit)?;
    if !report.missing.is_empty() {
        let _ = writeln!(std::io::stderr(), "note: {}", plain(&report.missing));
    }
    Ok(report)
}

/// The answer as JSON, and how many rows there are before the limit.
pub(crate) fn list(address: Option<&str>, asked: &StateQuery, limit: Duration) -> anyhow::Result<(Json, u64)> {
    let report = state(&mut begin(&find(address)?)?, asked.clone(), limit)?;
    Ok((json::answer(asked, &report)?, report.total))
}

/// The same where rows are asked for.
pub(crate) fn rows(address: Option<&str>, asked: &StateQuery, limit: Duration) -> anyhow::Result<(Vec<Json>, u64)> {
    match list(address, asked, limit)? {
        (Json::Array(rows), total) => Ok((rows, total)),
        (other, _) => bail!("rows of {} were asked for, and the answer is {other}", asked.kind),
    }
}

/// Asks the session to end, and waits until it has; `false` where it did not in time.
pub(crate) fn stop(visitor: &mut Visitor, limit: Duration) -> anyhow::Result<bool> {
    visitor.send(Stop {})?;
    let until = Instant::now() + limit;
    loop {
        match visitor.next(until) {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(false),
            Err(_) => return Ok(true),
        }
    }
}
