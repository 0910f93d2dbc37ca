//! The logs of sessions, which stay when a session ends: what an error points to is there when it is read.
//!
//! - KEPT-1: logs of a session that runs are left alone here; it is one that runs as long as its directory is there.
//! - KEPT-2: of those that ended, the last [`SESSIONS_MAX`] are kept, as long as they are no older than [`AGE_MAX`] and
//!   take no more than [`BYTES_MAX`] together; the size of the last one alone does not matter.

use oxiray_wire::session::{LATEST, LOGS, logs_of, private_directory};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The most sessions that have ended and whose logs are kept.
const SESSIONS_MAX: usize = 20;

/// The most that their logs take.
const BYTES_MAX: u64 = 1 << 30;

/// How long they are kept.
const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Makes the directory of a session's logs.
pub(crate) fn make(session: &Path) -> io::Result<()> {
    let logs = logs_of(session);
    private_directory(logs.parent().unwrap_or(&logs))?;
    private_directory(&logs)
}

/// Has the link for the latest session under `root` lead to the logs of this one.
pub(crate) fn make_latest(root: &Path, session: &Path) -> io::Result<()> {
    let logs = logs_of(session);
    private_directory(&root.join(LOGS))?;
    let unfinished = root.join(LOGS).join(format!("{LATEST}.{}", std::process::id()));
    let _ = fs::remove_file(&unfinished);
    symlink(fs::canonicalize(logs)?, &unfinished)?;
    fs::rename(unfinished, root.join(LOGS).join(LATEST))
}

/// KEPT-2. What cannot be removed now is removed another time.
pub(crate) fn trim(root: &Path) {
    let mut ended: Vec<Kept> = fs::read_dir(root.join(LOGS))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()) && !root.join(entry.file_name()).exists())
        .map(|entry| Kept::of(entry.path()))
        .collect();
    ended.sort_by_key(|kept| std::cmp::Reverse(kept.written));
    let oldest = SystemTime::now() - AGE_MAX;
    let mut bytes = 0;
    for (index, kept) in ended.iter().enumerate() {
        bytes += kept.bytes;
        if index >= SESSIONS_MAX || (index > 0 && bytes > BYTES_MAX) || kept.written < oldest {
            let _ = fs::remove_dir_all(&kept.path);
        }
    }
    let latest = root.join(LOGS).join(LATEST);
    if latest.is_symlink() && !latest.exists() {
        let _ = fs::remove_file(latest);
    }
}

/// The logs of a session that has ended.
struct Kept {
    path: PathBuf,
    bytes: u64,
    /// When something was written last.
    written: SystemTime,
}

impl Kept {
    fn of(path: PathBuf) -> Self {
        let mut kept = Self { path, bytes: 0, written: SystemTime::UNIX_EPOCH };
        let files = fs::read_dir(&kept.path).into_iter().flatten().flatten();
        for file in files.filter_map(|file| file.metadata().ok()) {
            kept.bytes += file.len();
            kept.written = kept.written.max(file.modified().unwrap_or(SystemTime::UNIX_EPOCH));
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(root: &Path, number: u64) -> PathBuf {
        let session = root.join(format!("session_{number}"));
        make(&session).expect("made");
        let log = logs_of(&session).join("daemon.log");
        fs::write(&log, "words").expect("written");
        let time = SystemTime::now() - AGE_MAX / 2 + Duration::from_secs(number);
        fs::File::options().append(true).open(&log).and_then(|log| log.set_modified(time)).expect("dated");
        session
    }

    #[test]
    fn the_logs_of_the_last_sessions_are_kept_and_those_of_running_ones_left_alone() {
        let root = tempfile::tempdir().expect("a directory");
        let sessions: Vec<PathBuf> = (0..SESSIONS_MAX as u64 + 3).map(|number| ended(root.path(), number)).collect();
        fs::create_dir(&sessions[0]).expect("it runs");
        make_latest(root.path(), &sessions[1]).expect("linked");
        trim(root.path());
        let left: Vec<bool> = sessions.iter().map(|session| logs_of(session).exists()).collect();
        let expected: Vec<bool> = (0..sessions.len()).map(|number| number == 0 || number >= 3).collect();
        assert_eq!(left, expected);
        assert!(!root.path().join(LOGS).join(LATEST).is_symlink(), "a link that leads nowhere goes");
        make_latest(root.path(), &sessions[5]).expect("linked");
        assert_eq!(fs::read_to_string(root.path().join(LOGS).join(LATEST).join("daemon.log")).expect("there"), "words");
    }

    #[test]
    fn what_is_old_or_large_goes() {
        let root = tempfile::tempdir().expect("a directory");
        let (small, large, last) = (ended(root.path(), 1), ended(root.path(), 2), ended(root.path(), 3));
        let file = |session: &Path| fs::File::options().append(true).open(logs_of(session).join("daemon.log"));
        let grow = |session: &Path| {
            let written = file(session)?.metadata()?.modified()?;
            file(session)?.set_len(BYTES_MAX + 1)?;
            file(session)?.set_modified(written)
        };
        let left = || [&small, &large, &last].map(|session| logs_of(session).exists());
        grow(&large).expect("a hole");
        trim(root.path());
        assert_eq!(left(), [false, false, true]);
        grow(&last).expect("a hole");
        trim(root.path());
        assert_eq!(left(), [false, false, true], "the last one is kept whatever its size");
        let before = SystemTime::now() - AGE_MAX - Duration::from_secs(1);
        file(&last).and_then(|file| file.set_modified(before)).expect("dated");
        trim(root.path());
        assert_eq!(left(), [false, false, false]);
    }
}
