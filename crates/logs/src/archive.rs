//! What is kept, and how it is read.

use crate::failed::{FailedName, FailedPart, TAIL_BYTES_MAX};
use crate::glob;
use crate::index;
use crate::names::FileName;
use crate::parts::{Part, Parts};
use oxiray_ids::{ActorId, TaskId};
use oxiray_wire::message::{
    FailedTaskLog, FailureCode, ListedLog, LogAction, LogAnswer, LogPart, LogQuery, LogSelector,
};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The most that one answer has of a file.
pub const PIECE_BYTES_MAX: usize = 256 << 10;
/// The most files that one answer tells of.
const FILES_MAX: usize = 1000;

/// A piece of a worker's output: one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) begin: u64,
    pub(crate) bytes: u64,
}

/// What is known of a worker's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptFile {
    pub(crate) actor: Option<ActorId>,
    /// The task, class or actor that printed last.
    pub(crate) label: String,
    pub(crate) began_ms: u64,
    pub(crate) written_ms: u64,
    /// Nothing while its process lives.
    pub(crate) ended_ms: Option<u64>,
    /// Those that were set aside, the first one first, and the one that is written; never empty.
    pub(crate) segments: VecDeque<Segment>,
    /// Bytes that were printed and are not there, and why.
    pub(crate) lost: u64,
    pub(crate) lost_why: String,
}

impl KeptFile {
    pub(crate) fn begun(now_ms: u64) -> Self {
        Self {
            actor: None,
            label: String::new(),
            began_ms: now_ms,
            written_ms: now_ms,
            ended_ms: None,
            segments: VecDeque::from([Segment { begin: 0, bytes: 0 }]),
            lost: 0,
            lost_why: String::new(),
        }
    }

    pub(crate) fn begin(&self) -> u64 {
        self.segments.front().map_or(0, |segment| segment.begin)
    }

    pub(crate) fn end(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.begin + segment.bytes)
    }
}

/// The file of what was set aside as the latest, or before that; of the one that is written for 0.
pub(crate) fn segment_path(directory: &Path, name: &FileName, back: usize) -> PathBuf {
    match back {
        0 => directory.join(name.to_string()),
        back => directory.join(format!("{name}.{back}")),
    }
}

/// What is kept in a folder of logs.
#[derive(Debug)]
pub struct Archive {
    pub(crate) directory: PathBuf,
    pub(crate) files: BTreeMap<FileName, KeptFile>,
    pub(crate) parts: Parts,
    /// Nothing is written to any file there any more.
    is_over: bool,
    /// How often a worker's file or a part of one was begun, was over or was removed.
    pub(crate) changes: u64,
}

impl Archive {
    /// That of a session that has ended.
    pub fn of_ended(directory: &Path) -> Self {
        Self { is_over: true, ..Self::open(directory) }
    }

    /// What was kept by a daemon that is gone: all its workers are.
    pub(crate) fn open(directory: &Path) -> Self {
        let rows = index::read(directory);
        let mut names: Vec<FileName> = rows.keys().copied().collect();
        // One that the index does not know yet.
        names.extend(entries(directory).filter_map(|(name, _)| FileName::read(&name)));
        let known = names.into_iter().filter_map(|name| Some((name, found(directory, &name, rows.get(&name))?)));
        Self {
            directory: directory.to_owned(),
            files: known.collect(),
            parts: Parts::in_files(),
            is_over: false,
            changes: 0,
        }
    }

    /// That of a session that begins.
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            files: BTreeMap::new(),
            parts: Parts::default(),
            is_over: false,
            changes: 0,
        }
    }

    /// Answers a question; nothing where it is to wait for more to be written.
    pub fn answer(&self, asked: &LogQuery) -> Option<LogAnswer> {
        let answered = match asked.action {
            LogAction::List => Ok(Some(self.list(asked))),
            LogAction::Read => self.read(asked).map(Some),
            LogAction::Follow => self.read(asked).map(|told| (!told.bytes.is_empty() || told.is_over).then_some(told)),
            LogAction::Watch => {
                let mark = self.mark(&asked.wanted.clone().unwrap_or_default());
                Ok((mark != asked.mark).then(|| LogAnswer { mark, ..LogAnswer::default() }))
            }
        };
        let told = match answered {
            Ok(told) => told?,
            Err(failure) => LogAnswer { failure: Some(failure), ..LogAnswer::default() },
        };
        Some(LogAnswer { request: asked.request, ..told })
    }

    fn list(&self, asked: &LogQuery) -> LogAnswer {
        let wanted = asked.wanted.clone().unwrap_or_default();
        let parts = wanted.task.map(|task| self.parts.of(&self.directory, task, wanted.attempt));
        let mut found: Vec<ListedLog> = self
            .files
            .iter()
            .filter(|(name, file)| file.end() > 0 && is_of(&wanted, name, file))
            .map(|(name, file)| told(name, file))
            .chain(self.others().filter(|_| is_for_others(&wanted)))
            .filter(|file| file.name > asked.file && glob::fits(&wanted.glob, &file.name))
            .filter_map(|file| with_parts(file, parts.as_deref()))
            .chain(self.of_failed(&wanted).filter(|file| file.name > asked.file))
            .collect();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let more = found.len() > FILES_MAX;
        found.truncate(FILES_MAX);
        LogAnswer { files: found, more, mark: self.mark(&wanted), ..LogAnswer::default() }
    }

    /// Changes when what is listed does; files that are no worker's are looked for on the disk.
    fn mark(&self, wanted: &LogSelector) -> u64 {
        let mut hasher = DefaultHasher::new();
        if let Some(task) = wanted.task {
            self.parts.recent(task, wanted.attempt).hash(&mut hasher);
            return hasher.finish();
        }
        for (name, file) in &self.files {
            if file.end() > 0 && is_of(wanted, name, file) && glob::fits(&wanted.glob, &name.to_string()) {
                (name, file.ended_ms.is_some()).hash(&mut hasher);
            }
        }
        let others = self.others().filter(|_| is_for_others(wanted)).map(|other| other.name);
        let mut others: Vec<String> = others.filter(|name| glob::fits(&wanted.glob, name)).collect();
        others.sort_unstable();
        others.hash(&mut hasher);
        hasher.finish()
    }

    /// How often what there is of workers changed: as long as that is the same, so is every mark of lists of it.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What is there besides the files of workers.
    fn others(&self) -> impl Iterator<Item = ListedLog> {
        let is_unfinished = |name: &str| Path::new(name).extension().is_some_and(|extension| extension == "new");
        let is_other = move |name: &str| !name.starts_with("worker-") && !is_unfinished(name);
        let found = entries(&self.directory).filter(move |(name, _)| is_other(name));
        found.map(|(name, metadata)| ListedLog {
            name,
            began_ms: metadata.created().map_or(0, ms),
            end: metadata.len(),
            ..ListedLog::default()
        })
    }

    /// What is kept of a task that failed on other nodes.
    fn of_failed(&self, wanted: &LogSelector) -> impl Iterator<Item = ListedLog> {
        let (task, attempt, error) = (wanted.task, wanted.attempt, wanted.error);
        let others = task.into_iter().flat_map(|_| self.others());
        others.filter_map(move |other| {
            let name = FailedName::read(&other.name).filter(|name| Some(name.task) == task)?;
            let is_meant = attempt.is_none_or(|attempt| attempt == name.attempt)
                && error.is_none_or(|error| error == name.is_error);
            let FailedName { task, attempt, is_error, is_shared, .. } = name;
            let part = LogPart { task, attempt, from: 0, to: Some(other.end), shared: is_shared };
            is_meant.then(|| ListedLog { error: is_error, job: Some(task.job()), parts: vec![part], ..other })
        })
    }

    /// What a failed attempt printed last.
    pub fn tail_of_failed(&self, FailedPart(part): &FailedPart) -> Option<FailedTaskLog> {
        let file = self.opened(&part.file.to_string())?;
        let to = part.to?.min(file.end);
        let from = part.from.max(to.saturating_sub(TAIL_BYTES_MAX)).max(file.begin);
        let bytes = file.piece(from, to).ok().filter(|bytes| !bytes.is_empty())?;
        let oxiray_wire::labels::Span { task, attempt, shared } = part.span;
        let cut = from.saturating_sub(part.from);
        Some(FailedTaskLog { task, attempt, error: part.file.is_error, shared, bytes: bytes.into(), cut })
    }

    fn read(&self, asked: &LogQuery) -> Result<LogAnswer, oxiray_wire::message::Failure> {
        let unknown = || {
            let text =
                format!("there is no file of logs `{}` on that node: `oxiray logs` lists those there are", asked.file);
            FailureCode::NotFound.because(text)
        };
        let file = self.opened(&asked.file).ok_or_else(unknown)?;
        let limit = self.limit(asked).map_err(|text| FailureCode::NotFound.because(text))?;
        let end = file.end.min(limit.unwrap_or(u64::MAX));
        let unreadable =
            |error: io::Error| FailureCode::Unreadable.because(format!("{} cannot be read: {error}", asked.file));
        let mut offset = asked.offset.clamp(file.begin, end.max(file.begin));
        if let Some(lines) = asked.tail {
            offset = file.begin_of_tail(offset, end, lines).map_err(unreadable)?;
        }
        let bytes = file.piece(offset, end).map_err(unreadable)?;
        let is_limited = limit.is_some_and(|limit| offset + bytes.len() as u64 >= limit);
        let is_over = is_limited || (file.is_over && offset + bytes.len() as u64 >= file.end);
        Ok(LogAnswer { bytes: bytes.into(), offset, end: file.end, is_over, ..LogAnswer::default() })
    }

    /// Up to where a file is to be read: to the end of what an attempt printed, where that is followed and over.
    fn limit(&self, asked: &LogQuery) -> Result<Option<u64>, String> {
        let wanted = asked.wanted.as_ref().and_then(|wanted| Some((wanted.task?, wanted.attempt?)));
        let (LogAction::Follow, None, Some((task, attempt))) = (asked.action, asked.limit, wanted) else {
            return Ok(asked.limit);
        };
        let Some(file) = FileName::read(&asked.file) else { return Ok(None) };
        self.part_at(task, attempt, file, asked.offset)
            .map(|part| part.to)
            .ok_or_else(|| format!("attempt {attempt} of task {task} printed nothing there to `{file}` that is kept"))
    }

    /// The part of a file that an attempt printed which begins at or before that byte.
    fn part_at(&self, task: TaskId, attempt: u32, file: FileName, at: u64) -> Option<Part> {
        let last = |parts: Vec<Part>| {
            let own = parts.into_iter().filter(|part| part.file == file && part.from <= at);
            own.max_by_key(|part| part.from)
        };
        let recent = last(self.parts.recent(task, Some(attempt)));
        recent.or_else(|| last(self.parts.of(&self.directory, task, Some(attempt))))
    }

    /// FILES-5.
    fn opened(&self, text: &str) -> Option<Readable> {
        if let Some((name, file)) = FileName::read(text).and_then(|name| self.files.get_key_value(&name)) {
            let count = file.segments.len();
            let path = |index: usize| segment_path(&self.directory, name, count - 1 - index);
            let segments = file.segments.iter().enumerate().map(|(index, segment)| (path(index), *segment)).collect();
            let is_over = self.is_over || file.ended_ms.is_some();
            return Some(Readable { segments, begin: file.begin(), end: file.end(), is_over });
        }
        let other = self.others().find(|other| other.name == text)?;
        let segments = vec![(self.directory.join(&other.name), Segment { begin: 0, bytes: other.end })];
        Some(Readable { segments, begin: 0, end: other.end, is_over: self.is_over })
    }

    /// The file that tells how a worker's process ended: its errors, where it printed any.
    pub(crate) fn last_words(&self, files: &[FileName]) -> Option<PathBuf> {
        let has_words = |name: &&FileName| self.files.get(name).is_some_and(|file| file.end() > file.begin());
        let named = files.iter().filter(has_words).max_by_key(|name| name.is_error)?;
        Some(segment_path(&self.directory, named, 0)).filter(|path| path.exists())
    }
}

/// The regular files of a folder.
fn entries(directory: &Path) -> impl Iterator<Item = (String, fs::Metadata)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((entry.file_name().into_string().ok()?, metadata))
    })
}

fn ms(time: std::time::SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A worker's file as it was left.
fn found(directory: &Path, name: &FileName, row: Option<&index::Row>) -> Option<KeptFile> {
    let mut segments = VecDeque::new();
    let mut written = None;
    for back in 0.. {
        match fs::symlink_metadata(segment_path(directory, name, back)) {
            Ok(metadata) => {
                written = written.or_else(|| metadata.modified().ok().map(ms));
                segments.push_front(Segment { begin: 0, bytes: metadata.len() });
            }
            // One that was just set aside has nothing new yet.
            Err(_) if back == 0 => segments.push_front(Segment { begin: 0, bytes: 0 }),
            Err(_) => break,
        }
    }
    let written_ms = written?;
    let mut begin = row.map_or(0, |row| row.begin);
    for segment in &mut segments {
        segment.begin = begin;
        begin += segment.bytes;
    }
    Some(KeptFile {
        actor: row.and_then(|row| row.actor),
        label: row.map_or_else(String::new, |row| row.name.clone()),
        began_ms: row.map_or(written_ms, |row| row.from_ms),
        written_ms,
        ended_ms: Some(row.and_then(|row| row.till_ms).unwrap_or(written_ms)),
        segments,
        lost: 0,
        lost_why: String::new(),
    })
}

fn is_of(wanted: &LogSelector, name: &FileName, file: &KeptFile) -> bool {
    wanted.job.is_none_or(|job| job == name.job)
        && wanted.worker.is_none_or(|worker| worker == name.worker)
        && wanted.pid.is_none_or(|pid| pid == name.pid)
        && wanted.error.is_none_or(|error| error == name.is_error)
        && wanted.actor.is_none_or(|actor| file.actor == Some(actor))
        && file.ended_ms.is_none_or(|_| file.written_ms >= wanted.since_ms)
}

/// Whether files that are no worker's may be meant: others than this process write them.
pub fn is_for_others(wanted: &LogSelector) -> bool {
    let LogSelector { glob: _, job, actor, task, attempt: _, pid, worker, error, since_ms } = wanted;
    job.is_none()
        && actor.is_none()
        && task.is_none()
        && pid.is_none()
        && worker.is_none()
        && error.is_none()
        && *since_ms == 0
}

fn told(name: &FileName, file: &KeptFile) -> ListedLog {
    ListedLog {
        name: name.to_string(),
        worker: Some(name.worker),
        job: Some(name.job),
        actor: file.actor,
        label: file.label.clone(),
        pid: name.pid,
        error: name.is_error,
        began_ms: file.began_ms,
        ended_ms: file.ended_ms,
        begin: file.begin(),
        end: file.end(),
        parts: Vec::new(),
    }
}

/// A file with what was asked for of it; nothing where there is nothing.
fn with_parts(file: ListedLog, parts: Option<&[Part]>) -> Option<ListedLog> {
    let Some(parts) = parts else { return Some(file) };
    let own = parts.iter().filter(|part| part.file.to_string() == file.name);
    let parts: Vec<LogPart> = own
        .map(|part| {
            let oxiray_wire::labels::Span { task, attempt, shared } = part.span;
            LogPart { task, attempt, from: part.from, to: part.to, shared }
        })
        .collect();
    (!parts.is_empty()).then_some(ListedLog { parts, ..file })
}

/// What can be read of a file.
struct Readable {
    segments: Vec<(PathBuf, Segment)>,
    begin: u64,
    end: u64,
    is_over: bool,
}

impl Readable {
    /// What is there between two bytes, as much of it as one answer has.
    fn piece(&self, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let mut piece = Vec::new();
        let to = to.min(from + PIECE_BYTES_MAX as u64);
        for (path, segment) in &self.segments {
            let at = from + piece.len() as u64;
            let end = to.min(segment.begin + segment.bytes);
            if at < segment.begin || at >= end {
                continue;
            }
            let mut read = vec![0; (end - at) as usize];
            let count = read_at(&File::open(path)?, &mut read, at - segment.begin)?;
            piece.extend_from_slice(&read[..count]);
            if count < read.len() {
                break;
            }
        }
        Ok(piece)
    }

    /// Where the last so many lines begin between two bytes.
    fn begin_of_tail(&self, from: u64, to: u64, lines: u64) -> io::Result<u64> {
        let (mut at, mut seen) = (to, 0);
        while at > from && lines > 0 {
            let begin = at.saturating_sub(PIECE_BYTES_MAX as u64).max(from);
            let piece = self.piece(begin, at)?;
            for (index, byte) in piece.iter().enumerate().rev() {
                // The newline at the very end closes the last line.
                let next = begin + index as u64 + 1;
                if *byte == b'\n' && next < to {
                    seen += 1;
                    if seen == lines {
                        return Ok(next);
                    }
                }
            }
            at = begin;
        }
        Ok(at)
    }
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
