//! Following what an actor, a task, a worker or a job prints, in whichever files, until it has ended.
//!
//! - FOLLOW-1: a follow ends when what is followed has: the actor is dead for good, the task or the attempt that is named has
//!   finished or failed for good, the worker has ended, the job has. All that it had printed by then is printed first.
//! - FOLLOW-2: nodes tell of new files (`LogAction::Watch`) and of more in those that there are. How what is followed stands is
//!   asked each [`STANDING_PERIOD`], and when a file is over.
//! - FOLLOW-3: a node that goes ends nothing: what is followed may go on elsewhere.

use super::decoding::Decoder;
use super::{Found, LogsOptions, Source, Subject, head, nodes, nothing, parts, print_one, write_decoded};
use crate::visit;
use anyhow::bail;
use oxiray_ids::NodeId;
use oxiray_logs::FailedName;
use oxiray_visitor::{Visitor, json};
use oxiray_wire::message::{
    DaemonToVisitor, Failure, FailureCode, LogAction, LogAnswer, LogQuery, LogSelector, StateFilter, StateQuery,
};
use oxiray_wire::state::StateKind;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::time::{Duration, Instant};

/// The most files that are followed at once.
const FOLLOWED_MAX: usize = 32;
/// How long nodes may keep silent about what is followed.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// FOLLOW-2.
const STANDING_PERIOD: Duration = Duration::from_secs(1);
/// How often it is looked whether there are new nodes.
const NODES_PERIOD: Duration = Duration::from_secs(5);
/// How long files may stay open without a word when what is followed has ended.
const ENDING_LIMIT: Duration = Duration::from_secs(5);
/// The numbers of questions that stay open; those of a visitor's own count from 1.
const FIRST_OPEN: u64 = 1 << 32;

/// How what is followed stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    GoesOn(Option<NodeId>),
    Over,
    Unknown,
}

/// What is followed, as a list has it.
#[derive(Debug)]
struct Followed {
    kind: StateKind,
    filter: StateFilter,
    attempt: Option<u32>,
}

impl Followed {
    /// Nothing for files by their names: these are followed as they are.
    fn of(subject: &Subject) -> Option<Self> {
        let wanted = match subject {
            Subject::Files(_) => return None,
            Subject::Of(wanted) => wanted,
            Subject::Submitted(id) => return Some(Self::named(StateKind::Jobs, "submission_id", id.clone())),
        };
        let LogSelector { job, actor, task, attempt, pid, worker, .. } = &**wanted;
        let named = task
            .map(|task| Self::named(StateKind::Tasks, "task_id", task.hex()))
            .or_else(|| actor.map(|actor| Self::named(StateKind::Actors, "actor_id", actor.hex())))
            .or_else(|| worker.map(|worker| Self::named(StateKind::Workers, "worker_id", worker.hex())))
            .or_else(|| pid.map(|pid| Self::named(StateKind::Workers, "pid", pid.to_string())))
            .or_else(|| job.map(|job| Self::named(StateKind::Jobs, "job_id", job.hex())))?;
        Some(Self { attempt: *attempt, ..named })
    }

    fn named(kind: StateKind, column: &str, value: String) -> Self {
        Self { kind, filter: json::filter(column.into(), false, value), attempt: None }
    }

    fn standing(&self, address: Option<&str>) -> anyhow::Result<Standing> {
        let filters = vec![self.filter.clone()];
        let asked = StateQuery { kind: self.kind, filters, limit: 1000, ..StateQuery::default() };
        Ok(self.read(&visit::rows(address, &asked, visit::LIST_LIMIT)?.0))
    }

    fn read(&self, rows: &[Json]) -> Standing {
        let is_over = |row: &Json| match self.kind {
            StateKind::Actors => row["state"] == "DEAD",
            StateKind::Tasks => row["state"] == "FINISHED" || row["state"] == "FAILED",
            StateKind::Workers => row["is_alive"] == false,
            _ => row["status"] != "PENDING" && row["status"] != "RUNNING",
        };
        let attempt_of = |row: &Json| row["attempt_number"].as_u64();
        // The last attempt says how a task stands.
        let meant: Option<u64> = self.attempt.map(u64::from).or_else(|| rows.iter().filter_map(attempt_of).max());
        let is_meant = |row: &&Json| self.kind != StateKind::Tasks || attempt_of(row) == meant;
        let Some(going_on) = rows.iter().filter(is_meant).find(|row| !is_over(row)) else {
            return match rows.iter().filter(is_meant).count() {
                // That attempt may still come, unless the task has ended before it.
                0 if !rows.iter().all(is_over) => Standing::GoesOn(None),
                0 if rows.is_empty() => Standing::Unknown,
                _ => Standing::Over,
            };
        };
        Standing::GoesOn(going_on["node_id"].as_str().and_then(|node| NodeId::from_hex(node).ok()))
    }
}

/// A file or a part of one that is followed.
struct Open {
    found: Found,
    offset: u64,
    decoder: Option<Decoder>,
    /// When more of it is asked for; nothing while that is being awaited.
    due: Option<Instant>,
}

/// By what a file or a part of one is known again.
type Known = (Option<NodeId>, String, Option<(u32, u64)>);

fn known(one: &Found) -> Known {
    (one.node, one.file.name.clone(), one.part.as_ref().map(|part| (part.attempt, part.from)))
}

struct Follow<'a> {
    options: &'a LogsOptions,
    wanted: &'a LogSelector,
    source: &'a mut Source,
    /// On which nodes tell of what is new.
    visitor: Visitor,
    open: BTreeMap<u64, Open>,
    /// The question by which each node is watched.
    watched: BTreeMap<u64, Option<NodeId>>,
    known: BTreeSet<Known>,
    /// Which was printed last.
    last: Option<Known>,
    last_number: u64,
    heard: Instant,
    is_told_of_many: bool,
    /// Nothing more comes: what is left is asked for at once.
    is_ending: bool,
}

/// Prints what there is and what comes, until what is followed has ended.
pub(super) fn run(
    options: &LogsOptions,
    source: &mut Source,
    (subject, wanted): (&Subject, &LogSelector),
    on: &[Option<NodeId>],
) -> anyhow::Result<()> {
    let followed = Followed::of(subject);
    let address = options.address.as_deref();
    let mut standing = followed.as_ref().map(|followed| followed.standing(address)).transpose()?;
    let visitor = visit::begin_reading(&visit::find(address)?)?;
    let mut follow = Follow {
        options,
        wanted,
        source,
        visitor,
        open: BTreeMap::new(),
        watched: BTreeMap::new(),
        known: BTreeSet::new(),
        last: None,
        last_number: FIRST_OPEN,
        heard: Instant::now(),
        is_told_of_many: false,
        is_ending: false,
    };
    let is_watched = matches!(standing, Some(Standing::GoesOn(_)));
    follow.begin(on, is_watched)?;
    if follow.known.is_empty() && !is_watched {
        return nothing(options, wanted);
    }
    let (mut asked, mut listed) = (Instant::now(), Instant::now());
    while let Some(Standing::GoesOn(node)) = standing {
        let has_ended = follow.hear((asked + STANDING_PERIOD).min(listed + NODES_PERIOD))?;
        if has_ended || asked.elapsed() >= STANDING_PERIOD {
            standing = followed.as_ref().map(|followed| followed.standing(address)).transpose()?;
            asked = Instant::now();
        }
        if listed.elapsed() >= NODES_PERIOD || node.is_some_and(|node| !follow.watches(node)) {
            follow.look_for_nodes(node)?;
            listed = Instant::now();
        }
    }
    if followed.is_some() {
        follow.look_for_the_last_time(on)?;
    }
    follow.finish(followed.is_some())
}

impl Follow<'_> {
    /// Prints the last lines of what there is, and follows what is not over.
    fn begin(&mut self, on: &[Option<NodeId>], is_watched: bool) -> anyhow::Result<()> {
        let mut found = Vec::new();
        for node in on {
            let (files, mark) = self.source.list(*node, self.wanted)?;
            found.extend(files.into_iter().flat_map(|file| parts(*node, file)));
            if is_watched {
                self.watch(*node, mark)?;
            }
        }
        found.sort_by_key(|found| (found.part.as_ref().map(|part| (part.attempt, part.from)), found.file.began_ms));
        let open = found.iter().filter(|one| !is_over(one)).count();
        if open > FOLLOWED_MAX {
            bail!("{open} files are meant, and at most {FOLLOWED_MAX} can be followed at once: say more exactly which");
        }
        let are_named = found.len() > 1;
        for one in found {
            if are_named && !self.options.printing.quiet {
                head(&one, self.last.is_some())?;
            }
            let mut decoder = self.options.decoder();
            let offset = print_one(self.source, &one, self.options.printing.tail, &mut decoder)?;
            self.last = Some(known(&one));
            self.known.insert(known(&one));
            if is_over(&one) {
                write_decoded(&mut decoder, &[], true)?;
            } else {
                self.follow(one, offset, decoder)?;
            }
        }
        Ok(())
    }

    fn follow(&mut self, found: Found, offset: u64, decoder: Option<Decoder>) -> anyhow::Result<()> {
        self.last_number += 1;
        let number = self.last_number;
        self.open.insert(number, Open { found, offset, decoder, due: None });
        self.ask_for_more(number)
    }

    fn ask_for_more(&mut self, number: u64) -> anyhow::Result<()> {
        let Some(open) = self.open.get_mut(&number) else { return Ok(()) };
        open.due = None;
        let part = open.found.part.as_ref();
        let query = LogQuery {
            request: number,
            action: LogAction::Follow,
            node: open.found.node,
            file: open.found.file.name.clone(),
            offset: open.offset,
            limit: part.and_then(|part| part.to),
            wanted: part.map(|part| LogSelector {
                task: Some(part.task),
                attempt: Some(part.attempt),
                ..LogSelector::default()
            }),
            ..LogQuery::default()
        };
        Ok(self.visitor.send(query)?)
    }

    /// Has a node tell when its list is another one than the one with that mark.
    fn watch(&mut self, node: Option<NodeId>, mark: u64) -> anyhow::Result<()> {
        self.watched.retain(|_, watched| *watched != node);
        self.last_number += 1;
        self.watched.insert(self.last_number, node);
        let wanted = Some(self.wanted.clone());
        let request = self.last_number;
        let query = LogQuery { request, action: LogAction::Watch, node, wanted, mark, ..LogQuery::default() };
        Ok(self.visitor.send(query)?)
    }

    fn watches(&self, node: NodeId) -> bool {
        // Whoever follows on named nodes, or at the head alone, watches no other.
        let is_confined = self.options.names_node() || self.watched.values().any(Option::is_none);
        is_confined || self.watched.values().any(|watched| *watched == Some(node))
    }

    /// Takes in what is said until then. Returns whether a file is over.
    fn hear(&mut self, until: Instant) -> anyhow::Result<bool> {
        let now = Instant::now();
        let due: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, open)| open.due.is_some_and(|due| due <= now))
            .map(|(number, _)| *number)
            .collect();
        for number in due {
            self.ask_for_more(number)?;
        }
        let next_due = self.open.values().filter_map(|open| open.due).min();
        let told = match self.visitor.next(next_due.map_or(until, |due| due.min(until)))? {
            Some(DaemonToVisitor::LogAnswer(told)) => told,
            Some(DaemonToVisitor::Refused(said)) => bail!("{}", said.text),
            Some(_) => return Ok(false),
            None if self.heard.elapsed() < SILENCE_LIMIT || self.is_idle() => return Ok(false),
            None => bail!("no node has answered for {} s what is new in its logs", SILENCE_LIMIT.as_secs()),
        };
        self.heard = Instant::now();
        match self.watched.get(&told.request).copied() {
            Some(node) => self.list_changed(node, *told).map(|()| false),
            None => self.more_came(*told),
        }
    }

    /// Whether nothing is awaited of any node.
    fn is_idle(&self) -> bool {
        self.watched.is_empty() && self.open.values().all(|open| open.due.is_some())
    }

    fn list_changed(&mut self, node: Option<NodeId>, told: LogAnswer) -> anyhow::Result<()> {
        match told.failure {
            None => self.look(node),
            Some(failure) => {
                self.watched.remove(&told.request);
                without(failure)
            }
        }
    }

    fn more_came(&mut self, told: LogAnswer) -> anyhow::Result<bool> {
        let number = told.request;
        let Some(open) = self.open.get_mut(&number) else { return Ok(false) };
        if let Some(failure) = told.failure {
            self.open.remove(&number);
            return without(failure).map(|()| true);
        }
        open.offset = told.offset.max(open.offset) + told.bytes.len() as u64;
        if !told.bytes.is_empty() {
            let one = known(&open.found);
            if self.known.len() > 1 && !self.options.printing.quiet && self.last.as_ref() != Some(&one) {
                head(&open.found, self.last.is_some())?;
            }
            self.last = Some(one);
        }
        write_decoded(&mut open.decoder, &told.bytes, told.is_over)?;
        if told.is_over {
            self.open.remove(&number);
            return Ok(true);
        }
        match self.options.printing.interval.filter(|seconds| *seconds > 0.0 && !self.is_ending) {
            // It was looked at whether that is a time.
            Some(seconds) => open.due = Some(Instant::now() + Duration::try_from_secs_f64(seconds)?),
            None => self.ask_for_more(number)?,
        }
        Ok(false)
    }

    /// Follows what a node has that is not followed yet, and goes on watching it.
    fn look(&mut self, node: Option<NodeId>) -> anyhow::Result<()> {
        let mark = self.take_new(node)?;
        self.watch(node, mark)
    }

    fn take_new(&mut self, node: Option<NodeId>) -> anyhow::Result<u64> {
        let (files, mark) = self.source.list(node, self.wanted)?;
        for one in files.into_iter().flat_map(|file| parts(node, file)) {
            let attempt = one.part.as_ref().map(|part| part.attempt);
            let is_copy = FailedName::read(&one.file.name).is_some()
                && self.known.iter().any(|(.., part)| part.map(|(attempt, _)| attempt) == attempt);
            if is_copy || self.known.contains(&known(&one)) {
                continue;
            }
            if self.open.len() >= FOLLOWED_MAX {
                if !std::mem::replace(&mut self.is_told_of_many, true) {
                    note(&format!(
                        "{FOLLOWED_MAX} files are followed, and further ones are left out until one of them is over: say more \
                         exactly which are meant"
                    ));
                }
                break;
            }
            self.known.insert(known(&one));
            let offset = one.part.as_ref().map_or(0, |part| part.from);
            let decoder = self.options.decoder();
            self.follow(one, offset, decoder)?;
        }
        Ok(mark)
    }

    /// Looks for nodes that came since, and on the one where what is followed is now.
    fn look_for_nodes(&mut self, on: Option<NodeId>) -> anyhow::Result<()> {
        if self.options.names_node() || self.watched.values().any(Option::is_none) {
            return Ok(());
        }
        let alive = nodes(self.options, None)?;
        let new: Vec<NodeId> = alive.into_iter().flatten().chain(on).filter(|node| !self.watches(*node)).collect();
        for node in BTreeSet::from_iter(new) {
            if let Err(error) = self.look(Some(node)) {
                note(&error.to_string());
            }
        }
        Ok(())
    }

    /// What is followed has ended: what there is of it by now is all.
    fn look_for_the_last_time(&mut self, on: &[Option<NodeId>]) -> anyhow::Result<()> {
        let is_confined = self.options.names_node() || on.iter().any(Option::is_none);
        let all = if is_confined { on.to_vec() } else { nodes(self.options, None)? };
        self.watched.clear();
        for node in all {
            if let Err(error) = self.take_new(node) {
                note(&error.to_string());
            }
        }
        // Whoever writes a file that is no worker's has ended without a word of that.
        let others: Vec<u64> =
            self.open.iter().filter(|(_, open)| open.found.file.worker.is_none()).map(|(number, _)| *number).collect();
        for number in others {
            let Some(mut open) = self.open.remove(&number) else { continue };
            open.found.part = None;
            open.found.file.begin = open.offset;
            open.found.file.end = u64::MAX;
            print_one(self.source, &open.found, -1, &mut open.decoder)?;
            write_decoded(&mut open.decoder, &[], true)?;
        }
        Ok(())
    }

    /// Hears what is left of the files that are open. Those of what has ended are so for a moment only.
    fn finish(&mut self, has_ended: bool) -> anyhow::Result<()> {
        self.heard = Instant::now();
        self.is_ending = has_ended;
        let waiting = self.open.iter().filter(|(_, open)| has_ended && open.due.is_some());
        for number in waiting.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.ask_for_more(number)?;
        }
        while !self.open.is_empty() {
            let limit = if has_ended { self.heard + ENDING_LIMIT } else { Instant::now() + SILENCE_LIMIT };
            if has_ended && Instant::now() >= limit {
                break;
            }
            self.hear(limit)?;
        }
        for mut open in std::mem::take(&mut self.open).into_values() {
            write_decoded(&mut open.decoder, &[], true)?;
        }
        Ok(())
    }
}

/// Whether nothing more will be in it than there was when it was listed.
fn is_over(one: &Found) -> bool {
    one.part.as_ref().map_or(one.file.ended_ms.is_some(), |part| part.to.is_some())
}

/// FOLLOW-3; whatever else keeps a node from answering ends the command.
fn without(failure: Failure) -> anyhow::Result<()> {
    if !matches!(failure.code, FailureCode::NodeDied | FailureCode::NotFound) {
        bail!(failure.text);
    }
    note(&failure.text);
    Ok(())
}

fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "note: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_followed_ends_when_its_last_row_says_so() {
        let node = NodeId::new([7; 28]);
        let standing = |kind, attempt, rows: &[Json]| {
            Followed { attempt, ..Followed::named(kind, "task_id", String::new()) }.read(rows)
        };
        let task =
            |attempt: u32, state: &str| json!({"attempt_number": attempt, "state": state, "node_id": node.hex()});
        let (failed, running) = (task(0, "FAILED"), task(1, "RUNNING"));
        let both = [failed.clone(), running];
        assert_eq!(standing(StateKind::Tasks, None, &both), Standing::GoesOn(Some(node)));
        assert_eq!(standing(StateKind::Tasks, Some(0), &both), Standing::Over);
        assert_eq!(standing(StateKind::Tasks, Some(2), &both), Standing::GoesOn(None));
        assert_eq!(standing(StateKind::Tasks, Some(2), std::slice::from_ref(&failed)), Standing::Over);
        assert_eq!(standing(StateKind::Tasks, None, &[failed, task(1, "FINISHED")]), Standing::Over);
        assert_eq!(standing(StateKind::Tasks, None, &[]), Standing::Unknown);
        let actor = |state: &str| [json!({"state": state})];
        assert_eq!(standing(StateKind::Actors, None, &actor("RESTARTING")), Standing::GoesOn(None));
        assert_eq!(standing(StateKind::Actors, None, &actor("DEAD")), Standing::Over);
        let workers = [json!({"is_alive": false}), json!({"is_alive": true})];
        assert_eq!(standing(StateKind::Workers, None, &workers), Standing::GoesOn(None));
        assert_eq!(standing(StateKind::Workers, None, &workers[..1]), Standing::Over);
        for (status, expected) in [("RUNNING", Standing::GoesOn(None)), ("SUCCEEDED", Standing::Over)] {
            assert_eq!(standing(StateKind::Jobs, None, &[json!({"status": status})]), expected);
        }
    }
}
