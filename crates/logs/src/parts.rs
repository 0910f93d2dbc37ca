//! Which part of which file an attempt of a task printed.

use crate::names::FileName;
use oxiray_ids::{JobId, TaskId};
use oxiray_wire::labels::Span;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The most that are remembered.
const PARTS_MAX: usize = 65_536;
/// At this size the file of a job's parts is set aside, and begun anew.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// The most calls that are under way at once in one file.
const OPEN_MAX: usize = 4096;

/// A part of a file that is written no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub(crate) span: Span,
    pub(crate) file: FileName,
    pub(crate) from: u64,
    /// Nothing while it goes on.
    pub(crate) to: Option<u64>,
}

/// A line of the file of a job's parts.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    task: TaskId,
    attempt: u32,
    file: String,
    from: u64,
    to: u64,
    shared: bool,
}

impl Row {
    fn part(&self) -> Option<Part> {
        let span = Span { task: self.task, attempt: self.attempt, shared: self.shared };
        Some(Part { span, file: FileName::read(&self.file)?, from: self.from, to: Some(self.to) })
    }
}

/// A call that is under way; it begins where something is written first.
#[derive(Debug)]
struct Open {
    span: Span,
    from: Option<u64>,
}

/// All parts of files.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    open: BTreeMap<FileName, Vec<Open>>,
    /// The last ones, in the order in which they ended.
    ring: VecDeque<Part>,
    /// Whether there are others in files.
    has_more: bool,
    unsaved: BTreeMap<JobId, Vec<u8>>,
}

/// Where the parts of a job's tasks are.
pub(crate) fn path(directory: &Path, job: JobId) -> PathBuf {
    directory.join(format!("tasks-{job}.jsonl"))
}

fn aside(path: &Path) -> PathBuf {
    path.with_extension("jsonl.1")
}

impl Parts {
    /// Those of a session whose parts are in files alone.
    pub(crate) fn in_files() -> Self {
        Self { has_more: true, ..Self::default() }
    }

    pub(crate) fn begin(&mut self, file: FileName, span: Span) {
        let open = self.open.entry(file).or_default();
        if open.len() < OPEN_MAX {
            open.push(Open { span, from: None });
        }
        if open.len() > 1 {
            for one in open {
                one.span.shared = true;
            }
        }
    }

    /// Something is written to a file, from there on. Whether a call begins with it.
    pub(crate) fn written(&mut self, file: &FileName, at: u64) -> bool {
        let mut begins = false;
        for open in self.open.get_mut(file).into_iter().flatten() {
            begins |= open.from.is_none();
            open.from.get_or_insert(at);
        }
        begins
    }

    /// A call is over. Returns its part, where it printed anything.
    pub(crate) fn end(&mut self, file: FileName, span: Span, at: u64) -> Option<Part> {
        let open = self.open.get_mut(&file)?;
        let is_it = |one: &Open| one.span.task == span.task && one.span.attempt == span.attempt;
        let index = open.iter().rposition(is_it)?;
        let ended = open.swap_remove(index);
        self.keep(file, ended, at)
    }

    /// The process that printed into a file is gone: so are the calls that it ran, whose parts these are.
    pub(crate) fn end_all(&mut self, file: &FileName, at: u64) -> Vec<Part> {
        let ended = self.open.remove(file).into_iter().flatten();
        ended.filter_map(|ended| self.keep(*file, ended, at)).collect()
    }

    fn keep(&mut self, file: FileName, Open { span, from }: Open, at: u64) -> Option<Part> {
        let from = from.filter(|from| *from < at)?;
        if self.ring.len() == PARTS_MAX {
            self.ring.pop_front();
            self.has_more = true;
        }
        let part = Part { span, file, from, to: Some(at) };
        self.ring.push_back(part);
        let Span { task, attempt, shared } = span;
        let row = Row { task, attempt, file: file.to_string(), from, to: at, shared };
        let unsaved = self.unsaved.entry(task.job()).or_default();
        // A row is numbers and names, which can be written.
        let _ = serde_json::to_writer(&mut *unsaved, &row);
        unsaved.push(b'\n');
        Some(part)
    }

    /// Writes what is only remembered.
    pub(crate) fn save(&mut self, directory: &Path) -> io::Result<()> {
        let mut result = Ok(());
        for (job, lines) in std::mem::take(&mut self.unsaved) {
            result = result.and(append(&path(directory, job), &lines));
        }
        result
    }

    /// A job of which nothing else is kept.
    pub(crate) fn forget(&mut self, directory: &Path, job: JobId) {
        self.unsaved.remove(&job);
        let path = path(directory, job);
        let _ = fs::remove_file(aside(&path));
        let _ = fs::remove_file(path);
    }

    /// What a task printed: all attempts, or one of them.
    pub(crate) fn of(&self, directory: &Path, task: TaskId, attempt: Option<u32>) -> Vec<Part> {
        let is_meant = |span: &Span| span.task == task && attempt.is_none_or(|attempt| span.attempt == attempt);
        if !self.has_more {
            return self.recent(task, attempt);
        }
        let path = path(directory, task.job());
        let rows = rows(&aside(&path), task).into_iter().chain(rows(&path, task));
        let over = rows.filter_map(|row| row.part()).filter(|part| is_meant(&part.span));
        over.chain(self.going_on(is_meant)).collect()
    }

    /// The same of those that are remembered.
    pub(crate) fn recent(&self, task: TaskId, attempt: Option<u32>) -> Vec<Part> {
        let is_meant = |span: &Span| span.task == task && attempt.is_none_or(|attempt| span.attempt == attempt);
        let over = self.ring.iter().filter(|part| is_meant(&part.span)).copied();
        over.chain(self.going_on(is_meant)).collect()
    }

    /// Those that go on, of which something is written.
    fn going_on(&self, is_meant: impl Fn(&Span) -> bool) -> impl Iterator<Item = Part> {
        let open = self.open.iter().flat_map(|(file, open)| open.iter().map(move |one| (file, one)));
        let meant = open.filter(move |(_, one)| is_meant(&one.span));
        meant.filter_map(|(file, one)| Some(Part { span: one.span, file: *file, from: one.from?, to: None }))
    }
}

fn append(path: &Path, lines: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.write_all(lines)?;
    if file.metadata()?.len() > FILE_BYTES_MAX {
        fs::rename(path, aside(path))?;
    }
    Ok(())
}

/// The lines of a file that tell of a task.
fn rows(path: &Path, task: TaskId) -> Vec<Row> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let wanted = task.hex();
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    let of_task = lines.filter(|line| line.windows(wanted.len()).any(|text| text == wanted.as_bytes()));
    of_task.filter_map(|line| serde_json::from_slice(&line).ok()).collect()
}
