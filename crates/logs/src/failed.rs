//! What tasks printed last that failed on other nodes: a file for each attempt and stream, in the head's folder of logs.
//!
//! - FAILED-1: of one attempt and stream the last [`TAIL_BYTES_MAX`] are kept, of all together [`KEPT_BYTES_MAX`] in
//!   [`KEPT_FILES_MAX`] files; what came first goes first.
//! - FAILED-2: a file is named after the attempt and its node, so that it is found without an index, by the next head as well.

use crate::parts::Part;
use oxiray_ids::{NodeId, TaskId};
use oxiray_wire::message::FailedTaskLog;
use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// FAILED-1.
pub const TAIL_BYTES_MAX: u64 = 64 << 10;
const KEPT_BYTES_MAX: u64 = 64 << 20;
const KEPT_FILES_MAX: usize = 2000;

/// What the name of such a file begins with.
const BEGINNING: &str = "failed-";

/// A part of a file that an attempt printed which failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedPart(pub(crate) Part);

/// The name of such a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedName {
    /// The task.
    pub task: TaskId,
    /// Which attempt.
    pub attempt: u32,
    /// The node on which it failed.
    pub node: NodeId,
    /// Whether it is of standard error.
    pub is_error: bool,
    /// Whether others of the same process printed meanwhile.
    pub is_shared: bool,
}

impl fmt::Display for FailedName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, attempt, node, is_error, is_shared } = self;
        let shared = if *is_shared { "-shared" } else { "" };
        let stream = if *is_error { "err" } else { "out" };
        write!(to, "{BEGINNING}{task}-{attempt}-{node}{shared}.{stream}")
    }
}

impl FailedName {
    /// What a name says; nothing where it is of another file.
    pub fn read(text: &str) -> Option<Self> {
        let (name, stream) = text.strip_prefix(BEGINNING)?.rsplit_once('.')?;
        let mut parts = name.split('-');
        let (task, attempt, node) = (parts.next()?, parts.next()?, parts.next()?);
        let read = Self {
            task: TaskId::from_hex(task).ok()?,
            attempt: attempt.parse().ok()?,
            node: NodeId::from_hex(node).ok()?,
            is_error: stream == "err",
            is_shared: parts.next().is_some(),
        };
        (read.to_string() == text).then_some(read)
    }
}

/// The files that there are, those that came first in front.
#[derive(Debug)]
pub struct FailedLogs {
    directory: PathBuf,
    kept: VecDeque<(FailedName, u64)>,
}

impl FailedLogs {
    /// Those that a head before this one kept in the folder, too.
    pub fn open(directory: &Path) -> Self {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .filter_map(|entry| {
                let name = FailedName::read(entry.file_name().to_str()?)?;
                let about = entry.metadata().ok().filter(fs::Metadata::is_file)?;
                Some((about.modified().ok(), name, about.len()))
            })
            .collect();
        found.sort_by_key(|(written, ..)| *written);
        let kept = found.into_iter().map(|(_, name, bytes)| (name, bytes)).collect();
        Self { directory: directory.to_owned(), kept }
    }

    /// Keeps what a node tells.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn keep(&mut self, node: NodeId, told: &FailedTaskLog) -> io::Result<()> {
        let FailedTaskLog { task, attempt, error, shared, bytes, cut } = told;
        let name = FailedName { task: *task, attempt: *attempt, node, is_error: *error, is_shared: *shared };
        let bytes = &bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX as usize)..];
        let mut text = Vec::new();
        if *cut > 0 {
            text = format!("[oxiray] the first {cut} bytes of what this attempt printed are on its node only\n").into();
        }
        text.extend_from_slice(bytes);
        self.kept.retain(|(known, _)| *known != name);
        self.make_room(text.len() as u64);
        let path = self.directory.join(name.to_string());
        let written = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&path);
        if let Err(error) = written.and_then(|mut file| file.write_all(&text)) {
            // A part of it would be taken for all.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        self.kept.push_back((name, text.len() as u64));
        Ok(())
    }

    /// FAILED-1.
    fn make_room(&mut self, bytes: u64) {
        let mut held: u64 = self.kept.iter().map(|(_, bytes)| bytes).sum();
        while (held + bytes > KEPT_BYTES_MAX || self.kept.len() >= KEPT_FILES_MAX)
            && let Some((name, freed)) = self.kept.pop_front()
        {
            // One that has gone by other hands is gone.
            let _ = fs::remove_file(self.directory.join(name.to_string()));
            held -= freed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(number: u8, text: &[u8]) -> FailedTaskLog {
        let (task, bytes) = (TaskId::new([number; 24]), text.to_vec().into());
        FailedTaskLog { task, bytes, ..FailedTaskLog::default() }
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let name = FailedName {
            task: TaskId::new([7; 24]),
            attempt: 3,
            node: NodeId::new([9; 28]),
            is_error: true,
            is_shared: false,
        };
        for name in [name, FailedName { is_error: false, is_shared: true, ..name }] {
            assert_eq!(FailedName::read(&name.to_string()), Some(name));
        }
        for text in ["daemon.log", "failed-.out", "failed-1-2-3.out", "failed-../../secret.out"] {
            assert_eq!(FailedName::read(text), None, "{text}");
        }
    }

    #[test]
    fn what_came_first_goes_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let node = NodeId::new([9; 28]);
        let mut logs = FailedLogs::open(folder.path());
        let long = vec![b'x'; 2 * TAIL_BYTES_MAX as usize];
        logs.keep(node, &told(1, &long)).expect("kept");
        logs.keep(node, &told(1, &long)).expect("kept again");
        logs.keep(node, &FailedTaskLog { cut: 5, ..told(2, b"last words\n") }).expect("kept");
        let names = |logs: &FailedLogs| logs.kept.iter().map(|(name, bytes)| (name.task, *bytes)).collect::<Vec<_>>();
        let second = names(&logs)[1].1;
        assert_eq!(names(&logs), [(TaskId::new([1; 24]), TAIL_BYTES_MAX), (TaskId::new([2; 24]), second)]);
        let text = fs::read_to_string(folder.path().join(logs.kept[1].0.to_string())).expect("there");
        assert!(text.starts_with("[oxiray] the first 5 bytes") && text.ends_with("\nlast words\n"), "{text}");
        assert_eq!(FailedLogs::open(folder.path()).kept.len(), 2);
        logs.make_room(KEPT_BYTES_MAX - second);
        assert_eq!(names(&logs), [(TaskId::new([2; 24]), second)]);
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
    }
}
