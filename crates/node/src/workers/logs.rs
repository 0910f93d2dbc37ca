//! What workers print, in files: one for standard output and one for standard error of each worker.
//!
//! - FILES-1: what a worker printed is in its file before anybody is told of it.
//! - FILES-2: a file does not grow beyond twice [`FILE_BYTES_MAX`], all together not far beyond [`SESSION_BYTES_MAX`] nor
//!   [`FILES_MAX`]: what was written to longest ago goes first.
//! - FILES-3: no file is kept open, since a machine may have more workers than a process may have files.

use crate::descriptors::with_reserve;
use oxiray_ids::{JobId, WorkerId};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// At this size a file is set aside under its name with `.1`, and begun anew.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The most that files of workers take.
const SESSION_BYTES_MAX: u64 = 512 << 20;

/// The most files of workers.
const FILES_MAX: usize = 10_000;

/// After so many bytes, and so many new files, it is looked at how many there are.
const BYTES_BETWEEN_LOOKS: u64 = SESSION_BYTES_MAX / 8;
const FILES_BETWEEN_LOOKS: usize = FILES_MAX / 8;

#[derive(Debug)]
pub(crate) struct WorkerLogs {
    directory: PathBuf,
    bytes: u64,
    files: usize,
}

impl WorkerLogs {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, bytes: 0, files: 0 }
    }

    /// Where the lines of a worker are, under the name that Ray gives to such a file.
    pub(crate) fn path(&self, (worker, job): (WorkerId, JobId), pid: u32, is_error: bool) -> PathBuf {
        let ending = if is_error { "err" } else { "out" };
        self.directory.join(format!("worker-{worker}-{job}-{pid}.{ending}"))
    }

    /// FILES-1. Where the disk is full, the lines are shown and not kept.
    pub(crate) fn append(&mut self, path: &Path, lines: &[u8]) {
        let open = || OpenOptions::new().create(true).append(true).mode(0o600).open(path);
        let Ok(mut file) = open().or_else(|_| with_reserve(open)) else { return };
        let before = file.metadata().map_or(0, |found| found.len());
        // What a full disk took of it is all there is.
        let _ = file.write_all(lines);
        self.bytes += lines.len() as u64;
        self.files += usize::from(before == 0);
        if before + lines.len() as u64 > FILE_BYTES_MAX {
            let mut aside = path.as_os_str().to_owned();
            aside.push(".1");
            let _ = fs::rename(path, aside);
        }
        if self.bytes > BYTES_BETWEEN_LOOKS || self.files > FILES_BETWEEN_LOOKS {
            (self.bytes, self.files) = (0, 0);
            trim(&self.directory, SESSION_BYTES_MAX, FILES_MAX);
        }
    }
}

/// FILES-2.
fn trim(directory: &Path, bytes_max: u64, files_max: usize) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("worker-"))
        .filter_map(|entry| {
            let found = entry.metadata().ok()?;
            Some((found.modified().ok()?, found.len(), entry.path()))
        })
        .collect();
    files.sort_unstable();
    let mut bytes = 0;
    for (index, (_, length, path)) in files.iter().rev().enumerate() {
        bytes += length;
        if bytes > bytes_max || index >= files_max {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_file_is_set_aside_when_it_is_full() {
        let place = tempfile::tempdir().expect("a directory");
        let mut logs = WorkerLogs::new(place.path().to_owned());
        let (worker, job) = (WorkerId::NIL, JobId::from_number(7));
        let path = logs.path((worker, job), 12, true);
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert_eq!(name, format!("worker-{worker}-{job}-12.err"));
        logs.append(&path, b"one\n");
        logs.append(&path, b"two\n");
        assert_eq!(fs::read(&path).expect("there"), b"one\ntwo\n");
        OpenOptions::new().append(true).open(&path).and_then(|file| file.set_len(FILE_BYTES_MAX)).expect("a hole");
        logs.append(&path, b"three\n");
        logs.append(&path, b"four\n");
        assert_eq!(fs::read(&path).expect("there"), b"four\n");
        let aside = place.path().join(format!("{name}.1"));
        assert_eq!(fs::metadata(aside).expect("there").len(), FILE_BYTES_MAX + 6);
    }

    #[test]
    fn what_was_written_to_longest_ago_goes_first() {
        let place = tempfile::tempdir().expect("a directory");
        let names = ["worker-a.out", "worker-b.out", "worker-c.out", "daemon.log"];
        for (age, name) in (0..).zip(names) {
            fs::write(place.path().join(name), [0; 10]).expect("written");
            let file = OpenOptions::new().append(true).open(place.path().join(name)).expect("there");
            file.set_modified(SystemTime::now() - Duration::from_secs(age * 10)).expect("dated");
        }
        let left = || names.map(|name| place.path().join(name).exists());
        trim(place.path(), 20, 10);
        assert_eq!(left(), [true, true, false, true]);
        trim(place.path(), 20, 1);
        assert_eq!(left(), [true, false, false, true]);
    }
}
