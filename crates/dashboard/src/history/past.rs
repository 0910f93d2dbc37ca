//! What was read of a session's history, and how it was at a moment (pure).
//!
//! - PAST-1: it takes [`Past::most_bytes`] at most, about. Of more the oldest is left out, and from when on the rest is whole
//!   is known.

use super::line::{Begin, BeginHow, CLUSTER, HistoryLine, LineKind, SCHEMA, has_ended};
use super::processors::Told;
use crate::page::lists::held_by_job;
use crate::page::rows::{Row, TextRow, Unread};
use crate::page::tables::Tables;
use oxiray_wire::message::ChronicleBatch;
use oxiray_wire::state::{ChronicleCursor, ChronicleEntry, ClusterState, DeviceRow, NodeRow, WaitingRow};
use serde::de::{Deserialize, DeserializeOwned};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet};

/// What a version of a row takes beside its text.
const VERSION_BYTES: usize = 96;
/// What an entry of the chronicle takes beside its texts.
const EVENT_BYTES: usize = 400;
/// How long rows may take to be told anew after a recorder began, in milliseconds.
const TOLD_ANEW_MS: u64 = 30_000;
/// How many moments the lines of charts are made of.
const POINTS: usize = 360;
/// How many rows of nodes are read for charts.
const POINT_ROWS_MAX: usize = 100_000;
/// How many entries of the chronicle are put into tables at once (HISTORY-3).
const BATCH_MAX: usize = 1_024;
/// How many bytes of rows are looked at at once, as JSON: in memory they are several times as large (HISTORY-3).
const ROWS_BYTES_MAX: usize = 24 << 20;
/// How often the older half is left out at once.
const ROUNDS_MAX: u32 = 16;
/// What is said where something was left out.
const LEFT_OUT: &str = "The history is larger than what is shown of it at once: its beginning is left out. Name one job to see all of that.";
/// How many things that are wrong are told of.
const NOTES_MAX: usize = 20;
/// How many stretches of which nothing is known are told of.
const GAPS_MAX: usize = 1_000;

/// A row from a moment on.
#[derive(Debug, Clone)]
struct Version {
    from_ms: u64,
    rank: u64,
    /// The row as JSON; nothing where it is gone.
    cells: Option<Box<str>>,
    has_ended: bool,
}

/// The versions of a row, oldest first.
#[derive(Debug, Default)]
struct Versions {
    /// The file of the newest.
    file: u32,
    all: Vec<Version>,
}

impl Versions {
    fn at(&self, at_ms: u64) -> Option<&Version> {
        let after = self.all.partition_point(|version| version.from_ms <= at_ms);
        self.all.get(after.checked_sub(1)?)
    }

    fn add(&mut self, version: Version) {
        let after = self.all.partition_point(|known| known.from_ms <= version.from_ms);
        self.all.insert(after, version);
    }
}

/// An entry of the chronicle, and of which head.
#[derive(Debug)]
struct PastEvent {
    origin: u32,
    entry: ChronicleEntry,
}

/// A moment from which on rows of a file, or of all, are told anew.
#[derive(Debug)]
struct Seam {
    at_ms: u64,
    /// The file; nothing for all.
    file: Option<u32>,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Past {
    most_bytes: usize,
    bytes: usize,
    lists: BTreeMap<String, BTreeMap<String, Versions>>,
    events: Vec<PastEvent>,
    origins: Vec<String>,
    files: Vec<String>,
    seams: Vec<Seam>,
    gaps: Vec<(u64, u64)>,
    notes: Vec<String>,
    /// The session, as its files say.
    begin: Begin,
    begun_ms: u64,
    until_ms: u64,
}

/// Who goes by this name, or else by one that begins so; all of these where that is not one.
pub(crate) fn meant<'name>(wanted: &str, names: &[(&'name str, &'name str)]) -> Result<&'name str, Vec<&'name str>> {
    if let Some((_, found)) = names.iter().find(|(name, _)| *name == wanted) {
        return Ok(found);
    }
    let begin: BTreeSet<&str> =
        names.iter().filter(|(name, _)| name.starts_with(wanted)).map(|(_, found)| *found).collect();
    let begin: Vec<&str> = begin.into_iter().collect();
    if let [found] = begin[..] { Ok(found) } else { Err(begin) }
}

/// The file that lines are read from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileNumber(u32);

impl Past {
    /// Nothing yet; it may take so many bytes.
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self { most_bytes, ..Self::default() }
    }

    /// Lines of that job follow.
    pub(crate) fn file(&mut self, job: &str) -> FileNumber {
        let known = self.files.iter().position(|file| file == job);
        let number = known.unwrap_or_else(|| {
            self.files.push(job.to_owned());
            self.files.len() - 1
        });
        FileNumber(number as u32)
    }

    /// Something is to be said of what was read.
    pub(crate) fn note(&mut self, text: String) {
        if self.notes.len() < NOTES_MAX && !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Takes a line in. Returns an error where it is of a version that means something else.
    pub(crate) fn take(&mut self, file: FileNumber, line: HistoryLine) -> Result<(), u32> {
        if line.at_ms > 0 && !matches!(line.kind, LineKind::Unknown) {
            self.begun_ms = if self.begun_ms == 0 { line.at_ms } else { self.begun_ms.min(line.at_ms) };
            self.until_ms = self.until_ms.max(line.at_ms);
        }
        match line.kind {
            LineKind::Begin => {
                let begin = line.begin.unwrap_or_default();
                if begin.schema != SCHEMA {
                    return Err(begin.schema);
                }
                let is_of_cluster = begin.job == CLUSTER;
                match begin.how {
                    BeginHow::Started if is_of_cluster => self.seams.push(Seam { at_ms: line.at_ms, file: None }),
                    BeginHow::Rolled => self.seams.push(Seam { at_ms: line.at_ms, file: Some(file.0) }),
                    BeginHow::Started | BeginHow::Continued => {}
                }
                if is_of_cluster || self.begin.session.is_empty() {
                    self.begin = begin;
                }
            }
            LineKind::Row => {
                let Some(cells) = line.cells else { return Ok(()) };
                let has_ended = has_ended(&line.list, &cells);
                let cells = Some(Json::Object(cells).to_string().into_boxed_str());
                let version = Version { from_ms: line.at_ms, rank: line.rank, cells, has_ended };
                self.add(file, (line.list, line.key), version);
            }
            LineKind::Gone => {
                let version = Version { from_ms: line.at_ms, rank: 0, cells: None, has_ended: true };
                self.add(file, (line.list, line.key), version);
            }
            LineKind::Event => {
                let Some(entry) = line.event else { return Ok(()) };
                self.bytes += EVENT_BYTES + entry.name.len() + entry.text.len();
                let origin = self.origin(line.origin);
                self.events.push(PastEvent { origin, entry });
            }
            LineKind::Gap if line.list.is_empty() => {
                if self.gaps.len() < GAPS_MAX {
                    self.gaps.push((line.from_ms, line.at_ms));
                }
            }
            LineKind::Gap | LineKind::Cut => self.note(line.text),
            LineKind::Unknown => {}
        }
        if self.bytes > self.most_bytes {
            self.leave_out();
        }
        Ok(())
    }

    fn origin(&mut self, origin: String) -> u32 {
        let known = self.origins.iter().position(|one| *one == origin);
        known.unwrap_or_else(|| {
            self.origins.push(origin);
            self.origins.len() - 1
        }) as u32
    }

    fn add(&mut self, file: FileNumber, (list, key): (String, String), version: Version) {
        let size = version.cells.as_ref().map_or(0, |cells| cells.len());
        let list = self.lists.entry(list).or_default();
        self.bytes += VERSION_BYTES + size;
        if !list.contains_key(&key) {
            self.bytes += VERSION_BYTES + key.len();
        }
        let versions = list.entry(key).or_default();
        versions.file = file.0;
        versions.add(version);
    }

    /// PAST-1: the older half of what is there goes, and again until there is room. What goes on is left out last.
    fn leave_out(&mut self) {
        for round in 0..ROUNDS_MAX {
            let versions = self.lists.values().flat_map(BTreeMap::values).flat_map(|row| &row.all);
            let mut times: Vec<u64> = versions
                .map(|version| version.from_ms)
                .chain(self.events.iter().map(|event| event.entry.at_ms))
                .collect();
            let middle = times.len() / 2;
            if middle == 0 {
                break;
            }
            // What was cut before is told again by files that are read later.
            let cut = (*times.select_nth_unstable(middle).1).max(self.begun_ms + 1);
            self.leave_out_before(cut, round > 0);
            if self.bytes <= self.most_bytes / 4 * 3 {
                break;
            }
        }
        self.note(LEFT_OUT.to_owned());
    }

    /// Leaves out what was over by then; where `all`, also what went on and was not told of since.
    fn leave_out_before(&mut self, cut: u64, all: bool) {
        let is_left_out =
            |row: &Versions| row.all.last().is_none_or(|last| last.from_ms < cut && (all || last.has_ended));
        for rows in self.lists.values_mut() {
            rows.retain(|_, row| {
                let kept = row.all.partition_point(|version| version.from_ms <= cut).saturating_sub(1);
                row.all.drain(..kept);
                !is_left_out(row)
            });
        }
        self.events.retain(|event| event.entry.at_ms >= cut);
        self.begun_ms = self.begun_ms.max(cut);
        let of_rows = self.lists.values().flat_map(|rows| rows.iter()).map(|(key, row)| {
            let cells = row.all.iter().map(|one| VERSION_BYTES + one.cells.as_ref().map_or(0, |cells| cells.len()));
            VERSION_BYTES + key.len() + cells.sum::<usize>()
        });
        let of_events = self.events.iter().map(|one| EVENT_BYTES + one.entry.name.len() + one.entry.text.len());
        self.bytes = of_rows.sum::<usize>() + of_events.sum::<usize>();
    }

    /// Until then nothing else happened.
    pub(crate) fn know_until(&mut self, at_ms: u64) {
        if self.until_ms > 0 {
            self.until_ms = self.until_ms.max(at_ms);
        }
    }

    /// All is read: what recorders that began anew did not tell of again is over, or not known.
    pub(crate) fn finish(&mut self) {
        self.seams.sort_by_key(|seam| seam.at_ms);
        self.gaps.sort_unstable();
        for seam in &self.seams {
            for (list, rows) in &mut self.lists {
                let is_remembered = matches!(list.as_str(), "jobs" | "tasks");
                if is_remembered && seam.file.is_some() {
                    continue;
                }
                for versions in rows.values_mut().filter(|row| seam.file.is_none_or(|file| row.file == file)) {
                    end(versions, seam.at_ms, is_remembered);
                }
            }
        }
        let mut first_seen: BTreeMap<u32, u64> = BTreeMap::new();
        for event in &self.events {
            let first = first_seen.entry(event.origin).or_insert(event.entry.at_ms);
            *first = (*first).min(event.entry.at_ms);
        }
        self.events.sort_by_key(|event| (first_seen.get(&event.origin).copied(), event.origin, event.entry.number));
        self.events.dedup_by_key(|event| (event.origin, event.entry.number));
    }

    /// The cluster and the session.
    pub(crate) fn begin(&self) -> &Begin {
        &self.begin
    }

    /// From when until when something is known.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.begun_ms, self.until_ms)
    }

    /// When recorders began, which is where heads came back; the first is not among them.
    pub(crate) fn seams(&self) -> Vec<u64> {
        self.seams.iter().filter(|seam| seam.file.is_none()).skip(1).map(|seam| seam.at_ms).collect()
    }

    /// The stretches of which nothing is known.
    pub(crate) fn gaps(&self) -> &[(u64, u64)] {
        &self.gaps
    }

    /// What is to be said of what was read.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether anything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.until_ms == 0
    }

    /// The rows of a list at a moment as they are kept, the highest first.
    pub(crate) fn texts(&self, list: &str, at_ms: u64) -> Vec<TextRow<'_>> {
        let rows = self.lists.get(list).into_iter().flatten();
        let there = rows.filter_map(|(key, versions)| {
            let version = versions.at(at_ms)?;
            Some(TextRow { rank: version.rank, key, cells: version.cells.as_deref()? })
        });
        let mut found: Vec<TextRow<'_>> = there.collect();
        found.sort_by(|one, other| other.rank.cmp(&one.rank).then_with(|| one.key.cmp(other.key)));
        found
    }

    /// What rows of a list said until a moment, one version after the other: of the highest ones, so many at most.
    pub(crate) fn stories(&self, list: &str, at_ms: u64, most: usize) -> Vec<(&str, Vec<Told<'_>>)> {
        let rows = self.lists.get(list).into_iter().flatten();
        let mut found: Vec<(u64, &str, &Versions)> =
            rows.filter_map(|(key, versions)| Some((versions.at(at_ms)?.rank, key.as_str(), versions))).collect();
        found.sort_by_key(|(rank, ..)| std::cmp::Reverse(*rank));
        let highest = found.into_iter().take(most);
        let told = highest.map(|(_, key, versions)| {
            let until = versions.all.iter().take_while(|version| version.from_ms <= at_ms);
            (key, until.map(|version| (version.from_ms, version.cells.as_deref())).collect())
        });
        told.collect()
    }

    /// The highest rows of a list at a moment, as many as have room in memory.
    fn highest(&self, list: &str, at_ms: u64) -> impl Iterator<Item = TextRow<'_>> {
        let mut room = ROWS_BYTES_MAX;
        self.texts(list, at_ms).into_iter().take_while(move |row| {
            let left = room.checked_sub(row.cells.len());
            room = left.unwrap_or_default();
            left.is_some()
        })
    }

    /// The same, read.
    pub(crate) fn rows(&self, list: &str, at_ms: u64) -> Vec<Row> {
        self.highest(list, at_ms).filter_map(|row| row.read()).collect()
    }

    /// Jobs at a moment, with the devices that each held by then.
    pub(crate) fn jobs(&self, at_ms: u64, tables: &Tables) -> Vec<Row> {
        let held: BTreeMap<String, (f64, f64)> =
            held_by_job(tables).into_iter().map(|(job, held)| (job.to_string(), held)).collect();
        let mut rows = self.rows("jobs", at_ms);
        for row in &mut rows {
            let job = row.cells.get("job_id").and_then(Json::as_str);
            let (now, milliseconds) = job.and_then(|job| held.get(job)).copied().unwrap_or_default();
            row.cells.insert("devices".to_owned(), now.into());
            row.cells.insert("device_seconds".to_owned(), (milliseconds / 1_000.0).into());
        }
        rows
    }

    /// What a list's rows say at a moment of what is asked, which is less than all their cells.
    pub(crate) fn read<'past, T: Deserialize<'past> + 'past>(
        &'past self,
        list: &str,
        at_ms: u64,
    ) -> impl Iterator<Item = T> + use<'past, T> {
        self.texts(list, at_ms).into_iter().filter_map(|row| serde_json::from_str(row.cells).ok())
    }

    fn typed<T: DeserializeOwned>(&self, list: &str, at_ms: u64) -> Vec<T> {
        self.highest(list, at_ms).filter_map(|row| serde_json::from_str(row.cells).ok()).collect()
    }

    /// The nodes at a moment, the head's first.
    fn nodes(&self, at_ms: u64) -> Vec<NodeRow> {
        let mut nodes: Vec<NodeRow> = self.typed("nodes", at_ms);
        nodes.sort_by_key(|node| !node.head);
        nodes
    }

    /// How the cluster was at a moment.
    fn state(&self, at_ms: u64) -> ClusterState {
        let rest: Option<ClusterState> = self.typed("cluster", at_ms).pop();
        let nodes = self.nodes(at_ms);
        let devices: Vec<DeviceRow> = self.typed("devices", at_ms);
        ClusterState { nodes, devices, waiting: self.waiting(at_ms), ..rest.unwrap_or_default() }
    }

    fn waiting(&self, at_ms: u64) -> Vec<WaitingRow> {
        let told = self.lists.get("waiting").and_then(|rows| rows.get("all")).and_then(|versions| versions.at(at_ms));
        let rows = told.and_then(|version| Some((version.from_ms, version.cells.as_ref()?)));
        let Some((from_ms, cells)) = rows else { return Vec::new() };
        let mut cells: Map<String, Json> = serde_json::from_str(cells).unwrap_or_default();
        let rows = cells.remove("rows").unwrap_or_default();
        let mut waiting: Vec<WaitingRow> = serde_json::from_value(rows).unwrap_or_default();
        for one in &mut waiting {
            one.seconds += at_ms.saturating_sub(from_ms) as f64 / 1_000.0;
        }
        waiting
    }

    /// The entries until a moment, in batches as a head would have told them: each of one head, and fresh where it is its first.
    fn batches(&self, at_ms: u64) -> impl Iterator<Item = ChronicleBatch> {
        let of_heads = self.events.chunk_by(|one, other| one.origin == other.origin);
        of_heads.flat_map(move |events| {
            let told: Vec<&ChronicleEntry> =
                events.iter().map(|event| &event.entry).filter(|entry| entry.at_ms <= at_ms).collect();
            let origin = events.first().and_then(|event| self.origins.get(event.origin as usize));
            let origin = origin.and_then(|origin| u64::from_str_radix(origin, 16).ok()).unwrap_or_default();
            let batches = told.len().div_ceil(BATCH_MAX);
            (0..batches).map(move |batch| {
                let entries = told.iter().skip(batch * BATCH_MAX).take(BATCH_MAX).map(|entry| (*entry).clone());
                let entries: Vec<ChronicleEntry> = entries.collect();
                let number = entries.last().map(|entry| entry.number).unwrap_or_default();
                let cursor = Some(ChronicleCursor { origin, number, begun: 0 });
                ChronicleBatch { entries, cursor, is_fresh: batch == 0, ..ChronicleBatch::default() }
            })
        })
    }

    /// What a page of a living cluster begins with: what happened before, and the jobs of that time.
    pub(crate) fn before(&self) -> (Tables, Vec<Row>) {
        let mut tables = Tables::default();
        self.record(&mut tables, self.until_ms);
        let mut jobs = self.jobs(self.until_ms, &tables);
        for row in &mut jobs {
            row.cells.insert("past".to_owned(), true.into());
            // A head that goes on with it tells of it itself.
            if !has_ended("jobs", &row.cells) {
                unheard(&mut row.cells);
            }
        }
        (tables, jobs)
    }

    /// Puts what happened until a moment into the page's tables.
    fn record(&self, tables: &mut Tables, at_ms: u64) {
        for batch in self.batches(at_ms) {
            let times = || batch.entries.iter().map(|entry| entry.at_ms);
            let (first_ms, last_ms) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
            if batch.is_fresh {
                // Between two heads nothing is known.
                let fresh = ChronicleBatch { cursor: batch.cursor, is_fresh: true, ..ChronicleBatch::default() };
                tables.record(&fresh, first_ms);
            }
            tables.record(&ChronicleBatch { is_fresh: false, ..batch }, last_ms);
        }
        if tables.cursor().is_some() {
            tables.record(&ChronicleBatch { cursor: tables.cursor(), ..ChronicleBatch::default() }, at_ms);
        }
        tables.begin_at(self.begun_ms);
    }

    /// The page's tables as they were at a moment.
    pub(crate) fn tables(&self, at_ms: u64) -> Tables {
        let mut tables = Tables::default();
        let at_ms = at_ms.min(self.until_ms);
        self.record(&mut tables, at_ms);
        let nodes = self.lists.get("nodes").map_or(0, BTreeMap::len).max(1);
        let points = POINTS.min(POINT_ROWS_MAX / nodes).max(1) as u64;
        let step = at_ms.saturating_sub(self.begun_ms).div_ceil(points).max(5_000);
        let mut moment = self.begun_ms;
        while moment < at_ms {
            // Charts are made of nodes alone.
            tables.look(ClusterState { nodes: self.nodes(moment), ..ClusterState::default() }, moment);
            moment += step;
        }
        tables.look(self.state(at_ms), at_ms);
        tables
    }

    /// The job that goes by this identifier or this name, or by one that begins so; the jobs that begin so where that is not
    /// one.
    pub(crate) fn job(&self, wanted: &str) -> Result<String, Vec<String>> {
        let rows = self.rows("jobs", self.until_ms);
        let names = rows.iter().flat_map(|row| {
            let of = |name: &str| row.cells.get(name).and_then(Json::as_str);
            let job = of("job_id").unwrap_or(&row.key);
            [of("submission"), of("job_id"), Some(&row.key)].into_iter().flatten().map(move |name| (name, job))
        });
        let names: Vec<(&str, &str)> = names.collect();
        meant(wanted, &names).map(str::to_owned).map_err(|several| several.into_iter().map(str::to_owned).collect())
    }

    /// Leaves out what belongs to other jobs.
    pub(crate) fn narrow(&mut self, job: &str) {
        for (list, rows) in &mut self.lists {
            if matches!(list.as_str(), "nodes" | "devices" | "waiting" | "cluster") {
                continue;
            }
            let is_of_job = |versions: &Versions| {
                let last = versions.all.iter().rev().find_map(|version| version.cells.as_ref());
                let cells: Map<String, Json> =
                    last.and_then(|cells| serde_json::from_str(cells).ok()).unwrap_or_default();
                cells.get("job_id").and_then(Json::as_str) == Some(job)
            };
            rows.retain(|_, versions| is_of_job(versions));
        }
        self.events.retain(|event| event.entry.job.is_none_or(|of| of.to_string() == job));
        let shown: BTreeSet<u64> = self
            .lists
            .get("tasks")
            .into_iter()
            .flatten()
            .flat_map(|(_, row)| &row.all)
            .map(|one| one.from_ms)
            .collect();
        let of_jobs = self.lists.get("jobs").into_iter().flatten().flat_map(|(_, row)| &row.all).map(|one| one.from_ms);
        let times: BTreeSet<u64> = of_jobs.chain(shown).collect();
        if let (Some(first), Some(last)) = (times.first(), times.last()) {
            self.begun_ms = self.begun_ms.max(first.saturating_sub(10_000));
            self.until_ms = self.until_ms.min(last.saturating_add(10_000));
        }
    }
}

/// A job or a task that went on when it was last heard of.
fn unheard(cells: &mut Map<String, Json>) {
    cells.insert("state".to_owned(), "UNKNOWN".into());
    cells.insert("message".to_owned(), "Nothing more of it was reported after the head came back.".into());
}

/// A row that goes on at a seam and is not told of soon after is over there; a job or a task is not known any more.
fn end(versions: &mut Versions, seam_ms: u64, is_remembered: bool) {
    let after = versions.all.partition_point(|version| version.from_ms < seam_ms);
    let Some(before) = after.checked_sub(1).and_then(|last| versions.all.get(last)).filter(|last| !last.has_ended)
    else {
        return;
    };
    let is_told = versions.all.get(after).is_some_and(|next| next.from_ms <= seam_ms.saturating_add(TOLD_ANEW_MS));
    if is_told {
        return;
    }
    let cells = before.cells.as_ref().filter(|_| is_remembered).and_then(|cells| {
        let mut cells: Map<String, Json> = serde_json::from_str(cells).ok()?;
        unheard(&mut cells);
        Some(Json::Object(cells).to_string().into_boxed_str())
    });
    let rank = before.rank;
    versions.all.insert(after, Version { from_ms: seam_ms, rank, has_ended: true, cells });
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_wire::state::ChronicleEvent;
    use serde_json::json;

    fn row(at_ms: u64, list: &str, key: &str, cells: &Json) -> HistoryLine {
        let cells = cells.as_object().cloned();
        HistoryLine { list: list.into(), key: key.into(), cells, rank: at_ms, ..HistoryLine::of(LineKind::Row, at_ms) }
    }

    fn begin(at_ms: u64, how: BeginHow) -> HistoryLine {
        let begin = Begin { schema: SCHEMA, job: CLUSTER.into(), how, ..Begin::default() };
        HistoryLine { begin: Some(begin), ..HistoryLine::of(LineKind::Begin, at_ms) }
    }

    fn event(number: u64, origin: &str, at_ms: u64, event: ChronicleEvent) -> HistoryLine {
        let entry = ChronicleEntry { number, at_ms, event, ..ChronicleEntry::default() };
        HistoryLine { event: Some(entry), origin: origin.into(), ..HistoryLine::of(LineKind::Event, at_ms) }
    }

    fn read(lines: impl IntoIterator<Item = HistoryLine>) -> Past {
        let mut past = Past::new(1 << 20);
        let file = past.file(CLUSTER);
        for line in lines {
            past.take(file, line).expect("it is of this version");
        }
        past.finish();
        past
    }

    fn states(past: &Past, list: &str, at_ms: u64) -> Vec<String> {
        past.rows(list, at_ms)
            .into_iter()
            .map(|row| row.cells["state"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    #[test]
    fn rows_are_as_they_were_at_each_moment() {
        let gone = HistoryLine { list: "actors".into(), key: "a".into(), ..HistoryLine::of(LineKind::Gone, 30) };
        let past = read([
            begin(1, BeginHow::Started),
            row(10, "actors", "a", &json!({"state": "STARTING"})),
            row(20, "actors", "a", &json!({"state": "ALIVE"})),
            gone,
        ]);
        for (at_ms, expected) in [(9, vec![]), (10, vec!["STARTING"]), (25, vec!["ALIVE"]), (30, vec![])] {
            assert_eq!(states(&past, "actors", at_ms), expected, "{at_ms}");
        }
        assert_eq!(past.span(), (1, 30));
    }

    #[test]
    fn what_no_recorder_told_of_again_is_over_or_not_known() {
        let seam = 100_000;
        let past = read([
            begin(1, BeginHow::Started),
            row(10, "actors", "dead", &json!({"state": "DEAD"})),
            row(10, "actors", "lost", &json!({"state": "ALIVE"})),
            row(10, "actors", "there", &json!({"state": "ALIVE"})),
            row(10, "jobs", "one", &json!({"state": "RUNNING"})),
            row(10, "jobs", "two", &json!({"state": "SUCCEEDED"})),
            begin(seam, BeginHow::Started),
            row(seam + 2_000, "actors", "there", &json!({"state": "ALIVE"})),
        ]);
        assert_eq!(states(&past, "actors", seam - 1), ["DEAD", "ALIVE", "ALIVE"]);
        assert_eq!(states(&past, "actors", seam + 1), ["DEAD", "ALIVE"]);
        assert_eq!(states(&past, "jobs", seam + 1), ["UNKNOWN", "SUCCEEDED"]);
        assert_eq!(past.seams(), [seam]);
    }

    #[test]
    fn entries_are_in_the_order_of_their_heads_and_each_there_once() {
        let past = read([
            event(2, "b", 900, ChronicleEvent::NodeJoined),
            event(1, "b", 899, ChronicleEvent::HeadCameBack),
            event(7, "a", 500, ChronicleEvent::NodeLost),
            event(7, "a", 500, ChronicleEvent::NodeLost),
            event(6, "a", 400, ChronicleEvent::NodeJoined),
        ]);
        let batches: Vec<ChronicleBatch> = past.batches(u64::MAX).collect();
        let told: Vec<Vec<u64>> =
            batches.iter().map(|batch| batch.entries.iter().map(|entry| entry.number).collect()).collect();
        assert_eq!(told, [vec![6, 7], vec![1, 2]]);
        assert_eq!(batches[1].cursor.map(|cursor| (cursor.origin, cursor.number)), Some((11, 2)));
        let tables = past.tables(450);
        assert_eq!(tables.events.len(), 1);
        assert_eq!(past.tables(u64::MAX).events.len(), 4);
    }

    #[test]
    fn a_page_of_a_living_cluster_begins_with_what_was_before() {
        let past = read([
            event(1, "a", 400, ChronicleEvent::NodeJoined),
            row(10, "jobs", "one", &json!({"state": "RUNNING"})),
            row(10, "jobs", "two", &json!({"state": "FAILED", "message": "exit code 3"})),
        ]);
        let (tables, jobs) = past.before();
        assert_eq!((tables.events.len(), tables.cursor().map(|cursor| cursor.number)), (1, Some(1)));
        let told: Vec<_> = jobs.iter().map(|row| (row.cells["state"].clone(), row.cells["past"].clone())).collect();
        assert_eq!(told, [(json!("UNKNOWN"), json!(true)), (json!("FAILED"), json!(true))]);
        assert_eq!(jobs[1].cells["message"], "exit code 3");
    }

    #[test]
    fn what_is_read_takes_bounded_memory() {
        let mut past = Past::new(200_000);
        let file = past.file(CLUSTER);
        for number in 0..20_000_u64 {
            let key = (number % 100).to_string();
            past.take(file, row(number + 1, "actors", &key, &json!({"state": "ALIVE", "n": number}))).expect("taken");
            past.take(file, row(number + 1, "tasks", &number.to_string(), &json!({"state": "FINISHED"})))
                .expect("taken");
        }
        past.finish();
        assert!(past.bytes <= 200_000, "{}", past.bytes);
        assert_eq!((past.rows("actors", 20_000).len(), past.notes().len()), (100, 1));
        assert!(past.span().0 > 10_000 && past.rows("tasks", 20_000).len() < 2_000);
    }

    #[test]
    fn rows_that_never_end_take_bounded_memory_too() {
        let mut past = Past::new(200_000);
        let file = past.file(CLUSTER);
        let cells = json!({"state": "RUNNING", "text": "x".repeat(2_000)});
        for number in 0..5_000_u64 {
            past.take(file, row(number + 1, "tasks", &number.to_string(), &cells)).expect("taken");
            assert!(past.bytes <= 200_000, "{}", past.bytes);
        }
        for number in 0..5_000_u64 {
            // All of one moment: there is no older half.
            past.take(file, row(9_000, "tasks", &number.to_string(), &cells)).expect("taken");
        }
        assert!(past.bytes <= 210_000, "{}", past.bytes);
    }

    #[test]
    fn a_version_that_means_something_else_is_not_read() {
        let mut past = Past::new(1 << 20);
        let file = past.file(CLUSTER);
        let other = Begin { schema: 9, ..Begin::default() };
        let line = HistoryLine { begin: Some(other), ..HistoryLine::of(LineKind::Begin, 1) };
        assert_eq!(past.take(file, line), Err(9));
    }

    #[test]
    fn a_report_is_of_one_job() {
        let mut past = read([
            row(10, "jobs", "one", &json!({"state": "RUNNING", "job_id": "01000000", "submission": "one"})),
            row(10, "jobs", "two", &json!({"state": "RUNNING", "job_id": "02000000"})),
            row(10, "tasks", "t", &json!({"state": "RUNNING", "job_id": "02000000"})),
            row(10, "nodes", "n", &json!({"alive": true})),
        ]);
        for given in ["one", "on", "01000000", "01"] {
            assert_eq!(past.job(given).as_deref(), Ok("01000000"), "{given}");
        }
        assert_eq!((past.job("02000000").as_deref(), past.job("three")), (Ok("02000000"), Err(Vec::new())));
        assert_eq!(past.job("0"), Err(vec!["01000000".to_owned(), "02000000".to_owned()]));
        past.narrow("01000000");
        assert_eq!(
            (past.rows("jobs", 10).len(), past.rows("tasks", 10).len(), past.rows("nodes", 10).len()),
            (1, 0, 1)
        );
    }
}
