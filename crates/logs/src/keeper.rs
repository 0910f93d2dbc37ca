//! What is printed is kept.

use crate::FailedPart;
use crate::archive::{Archive, KeptFile, Segment, segment_path};
use crate::index::{Index, Row};
use crate::limits::{Cut, Held, LogLimits, cuts};
use crate::names::FileName;
use crate::parts::Part;
use bytes::Bytes;
use oxiray_ids::{ActorId, JobId, WorkerId};
use oxiray_wire::labels::Span;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// It is looked whether everything is within its limits after this part of a job's, so many new files, or that long.
const LOOKS_PER_JOB: u64 = 16;
const FILES_BETWEEN_LOOKS: usize = 1000;
const MS_BETWEEN_LOOKS: u64 = 10 * 60 * 1000;

/// What comes out of a worker's pipe, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Printed {
    /// Whole lines, each with its newline, and the task, class or actor that printed them.
    Lines {
        /// Under which name.
        name: String,
        /// What was printed.
        lines: Bytes,
    },
    /// A call begins.
    Begins(Span),
    /// A call is over.
    Ends(Span),
    /// A call is over, and failed.
    Fails(Span),
}

/// What could not be written: the first time, and how often by the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What was tried, and why it failed.
    pub text: String,
    /// How often something failed so far.
    pub count: u64,
}

/// What was done since it was looked at limits.
#[derive(Debug, Default)]
struct Since {
    bytes: u64,
    files: usize,
    at_ms: u64,
}

/// Writes what workers print.
#[derive(Debug)]
pub struct Keeper {
    archive: Archive,
    limits: LogLimits,
    index: Index,
    /// FILES-3.
    open: Option<(FileName, File)>,
    /// A descriptor that is given up for a file where there are none left.
    spare: Option<File>,
    since: Since,
    /// What failed calls printed, since that was asked for.
    failed: VecDeque<FailedPart>,
    trouble: Option<Trouble>,
    is_told: bool,
}

impl Keeper {
    /// Keeps what is printed in this folder, where another daemon may have been before.
    pub fn new(directory: &Path, limits: LogLimits, is_resumed: bool) -> Self {
        let archive = if is_resumed { Archive::open(directory) } else { Archive::new(directory) };
        Self {
            archive,
            limits,
            index: Index::new(directory),
            open: None,
            spare: File::open("/dev/null").ok(),
            since: Since::default(),
            failed: VecDeque::new(),
            trouble: None,
            is_told: false,
        }
    }

    /// What is kept, for questions. What calls printed is written first, so that it is found.
    pub fn archive(&mut self) -> &Archive {
        self.save();
        &self.archive
    }

    /// Keeps what a pipe brought; `missed` bytes before it are not there, since writing could not keep up.
    pub fn append(&mut self, name: FileName, pieces: &[Printed], missed: u64, now_ms: u64) {
        let since = &mut self.since;
        let file = self.archive.files.entry(name).or_insert_with(|| {
            since.files += 1;
            KeptFile::begun(now_ms)
        });
        self.archive.changes += u64::from(file.ended_ms.is_some());
        // One worker may work for a job twice.
        (file.ended_ms, file.written_ms) = (None, now_ms);
        if missed > 0 {
            file.lost += missed;
            "they came faster than they could be written".clone_into(&mut file.lost_why);
        }
        let is_new = file.end() == 0;
        let (label, actor) = (file.label.clone(), file.actor);
        let written = self.arranged(&name, pieces);
        self.write(name, &written);
        let Some(file) = self.archive.files.get(&name) else { return };
        self.archive.changes += u64::from((is_new && file.end() > 0) || actor != file.actor);
        if file.segments.back().is_some_and(|segment| segment.bytes >= self.limits.file_bytes) {
            self.set_aside(name);
        } else if file.end() > 0 && (is_new || (label.is_empty() && label != file.label) || actor != file.actor) {
            self.note(&name);
        }
    }

    /// What is to be written, once it is noted where calls begin and end in it.
    fn arranged(&mut self, name: &FileName, pieces: &[Printed]) -> Vec<u8> {
        let Self { archive: Archive { files, parts, changes, .. }, failed, .. } = self;
        let Some(file) = files.get_mut(name) else { return Vec::new() };
        let (end, is_empty) = (file.end(), file.segments.back().is_none_or(|segment| segment.bytes == 0));
        let mut text = Vec::new();
        let mut is_begun = !is_empty;
        for piece in pieces {
            match piece {
                Printed::Lines { name: label, lines } => {
                    if !std::mem::replace(&mut is_begun, true) {
                        text.extend_from_slice(head(name.job, file.begin()).as_bytes());
                    }
                    if file.lost > 0 {
                        text.extend_from_slice(gap(file).as_bytes());
                    }
                    *changes += u64::from(parts.written(name, end + text.len() as u64));
                    text.extend_from_slice(lines);
                    if !label.is_empty() {
                        label.clone_into(&mut file.label);
                    }
                }
                Printed::Begins(span) => {
                    file.actor = file.actor.or_else(|| Some(span.task.actor()).filter(is_actor));
                    parts.begin(*name, *span);
                }
                Printed::Ends(span) | Printed::Fails(span) => {
                    let part = parts.end(*name, *span, end + text.len() as u64);
                    let has_failed = matches!(piece, Printed::Fails(_));
                    note_failed(failed, part.filter(|_| has_failed));
                    *changes += 1;
                }
            }
        }
        text
    }

    fn write(&mut self, name: FileName, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        let written = self.opened(name).and_then(|file| file.write_all(text));
        let path = segment_path(&self.archive.directory, &name, 0);
        let Some(file) = self.archive.files.get_mut(&name) else { return };
        let Some(segment) = file.segments.back_mut() else { return };
        self.since.bytes += text.len() as u64;
        match written {
            Ok(()) => segment.bytes += text.len() as u64,
            Err(error) => {
                // What a full disk took of it is there.
                let before = segment.bytes;
                segment.bytes =
                    fs::metadata(&path).ok().filter(fs::Metadata::is_file).map_or(before, |found| found.len());
                file.lost += text.len() as u64 - (segment.bytes.saturating_sub(before)).min(text.len() as u64);
                file.lost_why = error.to_string();
                self.open = None;
                self.failed(&format!("{} cannot be written to: {error}", path.display()));
            }
        }
    }

    /// The file that is written to.
    fn opened(&mut self, name: FileName) -> io::Result<&mut File> {
        let open = if let Some(open) = self.open.take().filter(|(open, _)| *open == name) {
            open
        } else {
            let path = segment_path(&self.archive.directory, &name, 0);
            let open = || OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
            (name, self.with_spare(open)?)
        };
        Ok(&mut self.open.insert(open).1)
    }

    fn with_spare(&mut self, open: impl Fn() -> io::Result<File>) -> io::Result<File> {
        let opened = open();
        let is_short = |error: &io::Error| matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE));
        match opened {
            Err(error) if is_short(&error) => {
                self.spare = None;
                open()
            }
            opened => {
                self.spare = self.spare.take().or_else(|| File::open("/dev/null").ok());
                opened
            }
        }
    }

    /// FILES-1.
    fn set_aside(&mut self, name: FileName) {
        self.open = None;
        let path = |back: usize| segment_path(&self.archive.directory, &name, back);
        let backups = self.limits.backups as usize;
        let Some(file) = self.archive.files.get_mut(&name) else { return };
        let count = file.segments.len();
        for back in (0..count.min(backups)).rev() {
            // One that has gone by other hands has no name to change.
            let _ = fs::rename(path(back), path(back + 1));
        }
        if backups == 0 {
            let _ = fs::remove_file(path(0));
        }
        let begin = file.end();
        file.segments.push_back(Segment { begin, bytes: 0 });
        while file.segments.len() > backups + 1 {
            file.segments.pop_front();
        }
        self.note(&name);
    }

    /// Writes a file's line in the index.
    fn note(&mut self, name: &FileName) {
        if let Some(row) = self.archive.files.get(name).map(|file| Row::of(name, file)) {
            self.note_row(&row);
        }
    }

    fn note_row(&mut self, row: &Row) {
        let Self { archive: Archive { files, .. }, index, .. } = self;
        let written = if index.is_long(files.len()) {
            index.write_anew(files.iter().map(|(name, file)| Row::of(name, file)))
        } else {
            index.append(row)
        };
        if let Err(error) = written {
            self.failed(&format!("the index of logs cannot be written to: {error}"));
        }
    }

    /// A worker's processes are gone, in the way in which they were asked to end or in another, with which its calls failed.
    /// Returns the file that tells how they ended.
    pub fn end(&mut self, worker: WorkerId, as_asked: bool, now_ms: u64) -> Option<PathBuf> {
        let first = FileName { worker, job: JobId::new([0; 4]), pid: 0, is_error: false };
        let own = self.archive.files.range(first..).map(|(name, _)| *name).take_while(|name| name.worker == worker);
        let own: Vec<FileName> = own.collect();
        for name in &own {
            let Some(file) = self.archive.files.get_mut(name) else { continue };
            if file.ended_ms.is_none() {
                file.ended_ms = Some(now_ms);
                self.archive.changes += 1;
                let end = file.end();
                let parts = self.archive.parts.end_all(name, end);
                for part in parts.into_iter().filter(|_| !as_asked) {
                    note_failed(&mut self.failed, Some(part));
                }
                if end == 0 {
                    self.archive.files.remove(name);
                } else {
                    self.note(name);
                }
            }
        }
        self.archive.last_words(&own)
    }

    /// Nothing is to be done at once: writes what is only remembered, and looks whether everything is within its limits.
    pub fn rest(&mut self, now_ms: u64) {
        self.save();
        self.open = None;
        let is_due = self.since.bytes > self.limits.job_bytes / LOOKS_PER_JOB
            || self.since.files > FILES_BETWEEN_LOOKS
            || now_ms.saturating_sub(self.since.at_ms) > MS_BETWEEN_LOOKS;
        if is_due {
            self.look(now_ms);
        }
    }

    /// FILES-2.
    fn look(&mut self, now_ms: u64) {
        self.since = Since { at_ms: now_ms, ..Since::default() };
        let held = self.archive.files.iter().map(|(name, file)| {
            let bytes = file.segments.iter().map(|segment| segment.bytes).sum();
            let aside = bytes - file.segments.back().map_or(0, |segment| segment.bytes);
            Held { name: *name, bytes, aside, ended_ms: file.ended_ms }
        });
        let held: Vec<Held> = held.collect();
        for cut in cuts(&held, &self.limits, now_ms) {
            match cut {
                Cut::Remove(name) => self.remove(name),
                Cut::DropAside(name) => self.drop_aside(name),
                Cut::BeginAnew(name) => {
                    self.set_aside(name);
                    self.drop_aside(name);
                }
            }
        }
    }

    fn remove(&mut self, name: FileName) {
        let Some(file) = self.archive.files.remove(&name) else { return };
        self.archive.changes += 1;
        for back in 0..file.segments.len() {
            let _ = fs::remove_file(segment_path(&self.archive.directory, &name, back));
        }
        let row = Row { removed: true, bytes: 0, begin: file.end(), ..Row::of(&name, &file) };
        self.note_row(&row);
        if !self.archive.files.keys().any(|other| other.job == name.job) {
            let Archive { directory, parts, .. } = &mut self.archive;
            parts.forget(directory, name.job);
        }
    }

    fn drop_aside(&mut self, name: FileName) {
        let Some(file) = self.archive.files.get_mut(&name) else { return };
        for back in 1..file.segments.len() {
            let _ = fs::remove_file(segment_path(&self.archive.directory, &name, back));
        }
        file.segments.drain(..file.segments.len() - 1);
        self.note(&name);
    }

    /// What failed calls printed since the last time, the last ones at most.
    pub fn take_failed(&mut self) -> VecDeque<FailedPart> {
        std::mem::take(&mut self.failed)
    }

    fn save(&mut self) {
        let Archive { directory, parts, .. } = &mut self.archive;
        if let Err(error) = parts.save(directory) {
            self.failed(&format!("what tasks printed cannot be written down: {error}"));
        }
    }

    /// FILES-4.
    fn failed(&mut self, text: &str) {
        let trouble = self.trouble.get_or_insert_with(|| Trouble { text: text.to_owned(), count: 0 });
        trouble.count += 1;
    }

    /// What went wrong first, told once.
    pub fn new_trouble(&mut self) -> Option<Trouble> {
        let trouble = self.trouble.clone().filter(|_| !self.is_told)?;
        self.is_told = true;
        Some(trouble)
    }

    /// All that went wrong, at the end.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }
}

/// So many are remembered at most until it is asked.
const FAILED_MAX: usize = 64;

fn note_failed(failed: &mut VecDeque<FailedPart>, part: Option<Part>) {
    failed.extend(part.map(FailedPart));
    while failed.len() > FAILED_MAX {
        failed.pop_front();
    }
}

fn is_actor(actor: &ActorId) -> bool {
    !actor.is_nil() && !actor.is_nil_of_job()
}

/// What a file begins with: Ray's line, and what is not there any more.
fn head(job: JobId, begin: u64) -> String {
    let line = format!(":job_id:{job}\n");
    if begin == 0 {
        return line;
    }
    format!("{line}[oxiray] the first {begin} bytes of what this process printed are not kept any more\n")
}

/// What stands where something is missing.
fn gap(file: &mut KeptFile) -> String {
    let (lost, why) = (std::mem::take(&mut file.lost), std::mem::take(&mut file.lost_why));
    format!("\n[oxiray] {lost} bytes that were printed here are not kept: {why}\n")
}

#[cfg(test)]
mod tests;
