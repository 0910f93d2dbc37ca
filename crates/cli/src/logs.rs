//! `oxiray logs`: files of logs, of a cluster that runs or of a session that has ended.

use self::decoding::{Decoder, Encoding, OnError};
use crate::visit::{self, ANSWER_LIMIT};
use crate::{identifiers, say};
use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use oxiray_ids::{ActorId, JobId, NodeId, TaskId, WorkerId};
use oxiray_logs::Archive;
use oxiray_visitor::{Visitor, json, session};
use oxiray_wire::message::{Failure, ListedLog, LogAction, LogAnswer, LogPart, LogQuery, LogSelector, StateQuery};
use oxiray_wire::session::LOGS;
use oxiray_wire::state::StateKind;
use serde_json::{Value as Json, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

mod decoding;
mod follow;
mod last;

pub(crate) use last::last_lines;

/// How many of the last lines are printed where nothing is said: as in Ray.
const TAIL_LINES: i64 = 1000;

const HELP: &str = "What is printed:
  oxiray logs                 the names of all log files of this machine's node
  oxiray logs GLOB            the names that match the pattern, or the file with exactly that name
  oxiray logs actor ID        what the processes of an actor printed, on whichever node
  oxiray logs task ID         what a task printed: all its attempts, or the one that --attempt names
  oxiray logs worker PID|ID   what a worker printed
  oxiray logs job ID          what the workers of a job printed, or the program of a submitted job";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct LogsOptions {
    /// A pattern of file names; or `actor`, `task`, `worker` or `job`, and its identifier or the beginning of it.
    #[arg(num_args = 0..=2, value_name = "WHAT")]
    words: Vec<String>,
    /// The identifier, as an option.
    #[arg(long)]
    id: Option<String>,
    /// The process id of an actor or a worker.
    #[arg(long)]
    pid: Option<u32>,
    /// Which attempt of the task, counted from 0; the default is all of them.
    #[arg(long, short, visible_alias = "attempt-number")]
    attempt: Option<u32>,
    /// Keeps printing new lines, also those of later processes and attempts, until the actor, task, worker or job has ended.
    #[arg(long, short)]
    follow: bool,
    /// Prints standard error instead of standard output.
    #[arg(long)]
    err: bool,
    /// Only files of this node, named by its identifier or the beginning of it.
    #[arg(long, visible_alias = "node-id")]
    node: Option<String>,
    /// The address of that node.
    #[arg(long, conflicts_with = "node")]
    node_ip: Option<String>,
    /// Only files that were written to within this time, such as 10m, 2h or 1d, and files of processes that still run.
    #[arg(long, value_parser = duration)]
    since: Option<Duration>,
    /// A session that has ended, by its name or the beginning of it; the logs of the last ones are kept.
    #[arg(long, conflicts_with_all = ["node", "node_ip", "address"])]
    session: Option<String>,
    #[command(flatten)]
    printing: PrintingOptions,
    /// How many seconds a node may take to answer.
    #[arg(long, value_name = "SECONDS", default_value_t = ANSWER_LIMIT.as_secs_f64())]
    timeout: f64,
    /// Prints the list of files and everything that is known of them as JSON.
    #[arg(long)]
    json: bool,
    /// The cluster's address; the default is the current cluster.
    #[arg(long, env = "RAY_ADDRESS")]
    address: Option<String>,
}

/// How lines are printed.
#[derive(Debug, Args)]
struct PrintingOptions {
    /// How many of the last lines to print; -1 prints all.
    #[arg(long, default_value_t = TAIL_LINES, allow_negative_numbers = true)]
    tail: i64,
    /// With --follow: prints new lines of a file at most once in so many seconds; the default is at once.
    #[arg(long, value_name = "SECONDS", requires = "follow", value_parser = seconds)]
    interval: Option<f64>,
    /// The encoding of the files: utf-8, ascii or latin-1. Without it bytes are printed as they are.
    #[arg(long, value_name = "NAME", value_parser = Encoding::read)]
    encoding: Option<Encoding>,
    /// With --encoding: what happens with bytes that are not valid in it. The default is `strict`, with which the command fails.
    #[arg(long, value_name = "HOW", requires = "encoding")]
    encoding_errors: Option<OnError>,
    /// Does not print the names of files between their contents.
    #[arg(long, short)]
    quiet: bool,
}

impl LogsOptions {
    fn decoder(&self) -> Option<Decoder> {
        self.printing
            .encoding
            .map(|encoding| Decoder::new(encoding, self.printing.encoding_errors.unwrap_or(OnError::Strict)))
    }

    fn names_node(&self) -> bool {
        self.node.is_some() || self.node_ip.is_some()
    }
}

/// Whose logs are meant.
#[derive(Debug, PartialEq, Eq)]
enum Subject {
    Files(String),
    Of(Box<LogSelector>),
    Submitted(String),
}

impl Subject {
    /// Whether it may print into files that there are not yet.
    fn is_followed(&self) -> bool {
        !matches!(self, Self::Files(_))
    }
}

/// Where they are read.
enum Source {
    /// From nodes, each of which may take so long to answer.
    Cluster(Box<Visitor>, Duration),
    Ended(Box<Archive>),
}

/// A file, the node that has it, and the part of it that is meant.
#[derive(Debug, Clone)]
struct Found {
    node: Option<NodeId>,
    file: ListedLog,
    part: Option<LogPart>,
}

impl Source {
    fn ask(&mut self, query: LogQuery) -> anyhow::Result<LogAnswer> {
        match self {
            Self::Cluster(visitor, limit) => Ok(visitor.ask(query, *limit)?),
            Self::Ended(archive) => {
                let told =
                    archive.answer(&query).context("nothing is written to the logs of a session that has ended")?;
                told.failure.clone().map_or(Ok(told), |Failure { text, .. }| Err(anyhow!(text)))
            }
        }
    }

    /// All files on a node that fit, and the mark of that list as it was at first.
    fn list(&mut self, node: Option<NodeId>, wanted: &LogSelector) -> anyhow::Result<(Vec<ListedLog>, u64)> {
        let mut files: Vec<ListedLog> = Vec::new();
        let mut mark = None;
        loop {
            let file = files.last().map_or_else(String::new, |last| last.name.clone());
            let wanted = Some(wanted.clone());
            let told = self.ask(LogQuery { action: LogAction::List, node, wanted, file, ..LogQuery::default() })?;
            files.extend(told.files);
            let first = *mark.get_or_insert(told.mark);
            if !told.more {
                return Ok((files, first));
            }
        }
    }
}

pub(crate) fn run(options: &LogsOptions) -> anyhow::Result<()> {
    if let Some(name) = &options.session {
        let archive = Archive::of_ended(&ended_session(name)?);
        return show(options, &mut Source::Ended(Box::new(archive)), &[None]);
    }
    let found = visit::find(options.address.as_deref())?;
    let own = NodeId::from_hex(&found.description.node).ok();
    let nodes = nodes(options, own)?;
    let Ok(limit) = Duration::try_from_secs_f64(options.timeout) else {
        bail!("--timeout is {}; it is a number of seconds, such as 10", options.timeout);
    };
    show(options, &mut Source::Cluster(Box::new(visit::begin(&found)?), limit), &nodes)
}

fn show(options: &LogsOptions, source: &mut Source, nodes: &[Option<NodeId>]) -> anyhow::Result<()> {
    let subject = subject(options)?;
    let wanted = match &subject {
        Subject::Files(glob) => LogSelector { glob: glob.clone(), ..LogSelector::default() },
        Subject::Of(wanted) => LogSelector { error: Some(options.err), ..(**wanted).clone() },
        Subject::Submitted(id) => LogSelector { glob: format!("submitted-{id}.log"), ..LogSelector::default() },
    };
    let wanted = LogSelector { since_ms: since_ms(options.since), ..wanted };
    // The head's machine has the files of submitted jobs.
    let nodes = if matches!(subject, Subject::Submitted(_)) { &[None] } else { nodes };
    if options.follow && !options.json && options.session.is_none() && subject.is_followed() {
        return follow::run(options, source, (&subject, &wanted), nodes);
    }
    let mut found = Vec::new();
    for node in nodes {
        let files = source.list(*node, &wanted)?.0.into_iter();
        found.extend(files.flat_map(|file| parts(*node, file)));
    }
    found.sort_by_key(|found| found.part.as_ref().map(|part| (part.attempt, part.from)));
    if options.json {
        say(&serde_json::to_string_pretty(&found.iter().map(row).collect::<Vec<_>>())?);
        return Ok(());
    }
    match &subject {
        Subject::Files(glob) if !matches!(&found[..], [one] if one.file.name == *glob) => names(&found, glob),
        _ if found.is_empty() => nothing(options, &wanted),
        // Whose name is exactly that.
        Subject::Files(_) if options.follow && options.session.is_none() => {
            follow::run(options, source, (&subject, &wanted), nodes)
        }
        _ => print(options, source, &found),
    }
}

/// The parts of a file that are meant; the file itself where none are told.
fn parts(node: Option<NodeId>, file: ListedLog) -> Vec<Found> {
    if file.parts.is_empty() {
        return vec![Found { node, file, part: None }];
    }
    let parts = file.parts.clone();
    parts.into_iter().map(|part| Found { node, file: file.clone(), part: Some(part) }).collect()
}

fn names(found: &[Found], glob: &str) -> anyhow::Result<()> {
    if found.is_empty() {
        bail!("no file of logs fits `{glob}`");
    }
    for one in found {
        say(&one.file.name);
    }
    Ok(())
}

/// A task that is known and printed nothing is no error.
fn nothing(options: &LogsOptions, wanted: &LogSelector) -> anyhow::Result<()> {
    let stream = if options.err { "standard error" } else { "standard output" };
    let Some(task) = wanted.task.filter(|_| options.session.is_none()) else {
        bail!("nothing is kept of what it printed to {stream}: `oxiray logs` lists the files that there are");
    };
    let filters = vec![json::filter("task_id".into(), false, task.hex())];
    let asked = StateQuery { kind: StateKind::Tasks, filters, limit: 1, ..StateQuery::default() };
    let (rows, _) = visit::rows(options.address.as_deref(), &asked, visit::LIST_LIMIT)?;
    if rows.is_empty() {
        bail!("no task {task} is known, and nothing is kept of what it printed");
    }
    let _ = writeln!(std::io::stderr(), "note: nothing that task {task} printed to {stream} is kept as its own");
    Ok(())
}

fn print(options: &LogsOptions, source: &mut Source, found: &[Found]) -> anyhow::Result<()> {
    for (index, one) in found.iter().enumerate() {
        if found.len() > 1 && !options.printing.quiet {
            head(one, index > 0)?;
        }
        let mut decoder = options.decoder();
        print_one(source, one, options.printing.tail, &mut decoder)?;
        write_decoded(&mut decoder, &[], true)?;
    }
    Ok(())
}

/// Which file follows, as `tail` says it.
fn head(one: &Found, is_further: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}{}", if is_further { "\n" } else { "" }, title(one))?;
    Ok(())
}

fn title(one: &Found) -> String {
    let attempt = one.part.as_ref().map_or_else(String::new, |part| {
        let shared = if part.shared { ", with lines of others that ran meanwhile" } else { "" };
        format!(", attempt {}{shared}", part.attempt)
    });
    format!("==> {}{attempt} <==", one.file.name)
}

/// Prints the last lines; returns where they end.
fn print_one(source: &mut Source, one: &Found, tail: i64, decoder: &mut Option<Decoder>) -> anyhow::Result<u64> {
    read_one(source, one, tail, |piece| write_decoded(decoder, piece, false))
}

/// Hands over the last lines, piece by piece; returns where they end.
fn read_one(
    source: &mut Source,
    one: &Found,
    tail: i64,
    mut take: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let limit = one.part.as_ref().map_or(one.file.end, |part| part.to.unwrap_or(one.file.end));
    let begin = one.part.as_ref().map_or(one.file.begin, |part| part.from);
    let mut tail = u64::try_from(tail).ok();
    let mut offset = begin;
    loop {
        let query = LogQuery {
            action: LogAction::Read,
            node: one.node,
            file: one.file.name.clone(),
            offset,
            limit: Some(limit),
            tail: tail.take(),
            ..LogQuery::default()
        };
        let told = source.ask(query)?;
        take(&told.bytes)?;
        offset = told.offset + told.bytes.len() as u64;
        if told.bytes.is_empty() || offset >= limit {
            return Ok(offset.max(begin));
        }
    }
}

/// Prints a piece of a file, and what is left of it where it is the last one.
fn write_decoded(decoder: &mut Option<Decoder>, bytes: &[u8], is_last: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match decoder {
        None => out.write_all(bytes)?,
        Some(decoder) => {
            out.write_all(decoder.text(bytes)?.as_bytes())?;
            if is_last {
                out.write_all(decoder.finish()?.as_bytes())?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

fn subject(options: &LogsOptions) -> anyhow::Result<Subject> {
    let words: Vec<&str> = options.words.iter().map(String::as_str).collect();
    let (kind, rest) = match &words[..] {
        [kind @ ("actor" | "task" | "worker" | "job"), rest @ ..] => (*kind, rest.first().copied()),
        ["cluster"] | [] => return Ok(Subject::Files(String::new())),
        ["cluster", glob] | [glob] => return Ok(Subject::Files((*glob).to_owned())),
        [first, ..] => {
            bail!("`{first}` is none of actor, task, worker, job and cluster, and only one pattern can be given")
        }
    };
    let of = |wanted: LogSelector| Ok(Subject::Of(Box::new(wanted)));
    if let (Some(pid), "actor" | "worker") = (options.pid, kind) {
        return of(LogSelector { pid: Some(pid), ..LogSelector::default() });
    }
    let Some(given) = options.id.as_deref().or(rest) else {
        bail!("which {kind}? `oxiray logs {kind} ID`: `oxiray list {kind}s` shows those that there are");
    };
    let whole = |kinds: &[&str]| match &options.session {
        Some(_) => Ok(given.to_owned()),
        None => identifiers::whole(options.address.as_deref(), kinds, given),
    };
    match kind {
        "actor" => {
            let actor = ActorId::from_hex(given)
                .or_else(|_| Ok::<_, anyhow::Error>(ActorId::from_hex(&whole(&["actors"])?)?))?;
            of(LogSelector { actor: Some(actor), ..LogSelector::default() })
        }
        "task" => {
            let task =
                TaskId::from_hex(given).or_else(|_| Ok::<_, anyhow::Error>(TaskId::from_hex(&whole(&["tasks"])?)?))?;
            of(LogSelector { task: Some(task), attempt: options.attempt, ..LogSelector::default() })
        }
        "worker" => {
            if let Ok(pid) = given.parse() {
                return of(LogSelector { pid: Some(pid), ..LogSelector::default() });
            }
            let id = WorkerId::from_hex(given)
                .or_else(|_| Ok::<_, anyhow::Error>(WorkerId::from_hex(&whole(&["workers"])?)?))?;
            of(LogSelector { worker: Some(id), ..LogSelector::default() })
        }
        _ => job_subject(options, given),
    }
}

/// Of a job's number the workers' logs, of a submission's name, or the beginning of one, that of its program.
fn job_subject(options: &LogsOptions, given: &str) -> anyhow::Result<Subject> {
    if let Ok(job) = JobId::from_hex(given) {
        return Ok(Subject::Of(Box::new(LogSelector { job: Some(job), ..LogSelector::default() })));
    }
    if options.session.is_some() {
        return Ok(Subject::Submitted(given.to_owned()));
    }
    Ok(Subject::Submitted(crate::job::named(&mut visit::begin(&visit::find(options.address.as_deref())?)?, given)?))
}

/// The nodes that are asked: the one that is named; else for files that of this machine, and all for whatever else.
fn nodes(options: &LogsOptions, own: Option<NodeId>) -> anyhow::Result<Vec<Option<NodeId>>> {
    let names_files = !matches!(options.words.first().map(String::as_str), Some("actor" | "task" | "worker" | "job"));
    if options.node.is_none() && options.node_ip.is_none() && names_files {
        return Ok(vec![own]);
    }
    let asked = StateQuery { kind: StateKind::Nodes, limit: 10_000, ..StateQuery::default() };
    let (rows, _) = visit::rows(options.address.as_deref(), &asked, visit::LIST_LIMIT)?;
    let address = options.address.as_deref();
    let node = options.node.as_deref().map(|given| identifiers::whole(address, &["nodes"], given)).transpose()?;
    let is_meant = |row: &&Json| match (&node, &options.node_ip) {
        (Some(node), _) => row["node_id"] == node.as_str(),
        (_, Some(ip)) => row["node_ip"] == ip.as_str(),
        (None, None) => row["state"] == "ALIVE",
    };
    let found = rows.iter().filter(is_meant).filter_map(|row| NodeId::from_hex(row["node_id"].as_str()?).ok());
    let found: Vec<Option<NodeId>> = found.map(Some).collect();
    match &options.node_ip {
        Some(address) if found.is_empty() => {
            bail!("there is no node with the address `{address}`: see `oxiray list nodes`")
        }
        _ => Ok(found),
    }
}

/// Where the logs of a session are that has ended.
fn ended_session(name: &str) -> anyhow::Result<PathBuf> {
    let folder = session::root()?.join(LOGS);
    let is_session = |path: &Path| path.is_dir() && !path.is_symlink();
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut known: Vec<String> = entries
        .filter(|entry| is_session(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    known.sort_unstable();
    if !known.iter().any(|known| known.starts_with(name)) {
        bail!(
            "no logs of a session `{name}` are kept in {}: there are those of {}",
            folder.display(),
            known.join(", ")
        );
    }
    let list = format!("the folders in {}", folder.display());
    Ok(folder.join(identifiers::among(known.iter().map(String::as_str), name, ("session", &list))?))
}

fn since_ms(since: Option<Duration>) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.map_or(0, |since| now.saturating_sub(since).as_millis() as u64)
}

/// A number of seconds that is a time.
fn seconds(text: &str) -> Result<f64, String> {
    let read = text
        .parse()
        .ok()
        .filter(|seconds| Duration::try_from_secs_f64(*seconds).is_ok_and(|time| time.as_secs() < 86_400));
    read.ok_or_else(|| format!("`{text}` is no number of seconds such as 0.5, and less than a day"))
}

/// A number with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time such as 90s, 10m, 2h or 1d");
    let (number, unit) = text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

fn row(found: &Found) -> Json {
    let ListedLog { name, worker, job, actor, label, pid, error, began_ms, ended_ms, begin, end, parts: _ } =
        &found.file;
    json!({
        "node_id": found.node.map(|node| node.hex()),
        "name": name,
        "worker_id": worker.map(|id| id.hex()),
        "job_id": job.map(|id| id.hex()),
        "actor_id": actor.map(|id| id.hex()),
        "label": label,
        "pid": pid,
        "stream": worker.map(|_| if *error { "err" } else { "out" }),
        "began_ms": began_ms,
        "ended_ms": ended_ms,
        "begin": begin,
        "end": end,
        "part": found.part.as_ref().map(|part| json!({
            "task_id": part.task.hex(),
            "attempt": part.attempt,
            "from": part.from,
            "to": part.to,
            "shared": part.shared,
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Order};
    use clap::Parser as _;

    fn read(words: &str) -> LogsOptions {
        let all = ["oxiray", "logs"].into_iter().chain(words.split_whitespace());
        match Arguments::try_parse_from(all).expect("it is understood").order {
            Order::Logs(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_meant_is_said_in_our_words_and_in_ray_s() {
        let subject = |words: &str| super::subject(&read(words)).map_err(|error| error.to_string());
        let pid = |pid| Ok(Subject::Of(Box::new(LogSelector { pid: Some(pid), ..LogSelector::default() })));
        assert_eq!(subject(""), Ok(Subject::Files(String::new())));
        assert_eq!(subject("*.err"), Ok(Subject::Files("*.err".into())));
        assert_eq!(subject("cluster daemon.log"), Ok(Subject::Files("daemon.log".into())));
        assert_eq!((subject("worker 12"), subject("actor --pid 12")), (pid(12), pid(12)));
        assert_eq!(subject("job --id nightly-1 --session=one"), Ok(Subject::Submitted("nightly-1".into())));
        let task = TaskId::new([7; 24]);
        let wanted = LogSelector { task: Some(task), attempt: Some(2), ..LogSelector::default() };
        for words in [format!("task {task} --attempt 2"), format!("task --id {task} --attempt-number=2")] {
            assert_eq!(subject(&words), Ok(Subject::Of(Box::new(wanted.clone()))));
        }
        assert!(subject("actor").expect_err("which one").contains("which actor?"));
        assert!(subject("one two").expect_err("two patterns").contains("only one pattern"));
    }

    #[test]
    fn times_have_units() {
        assert_eq!((duration("90s"), duration("2h")), (Ok(Duration::from_secs(90)), Ok(Duration::from_secs(7200))));
        for text in ["", "10", "m", "-1s", "1ä", "99999999999999999999d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
