//! The logs of sessions, which stay when a session ends: what an error points to is there when it is read.
//!
//! - KEPT-1: logs of a session that runs are left alone here; it is one that runs as long as its directory is there.
//! - KEPT-2: of those that ended, the last [`SESSIONS_MAX`] are kept, as long as they are no older than [`AGE_MAX`] and
//!   take no more than [`BYTES_MAX`] together; the size of the last one alone does not matter.

use oxiray_wire::session::{LATEST, LOGS, logs_of, private_directory};
use rustix::fs::Mode;
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

/// Where Ray has its sessions, beside ours, and the link there that tools follow to the latest one's `logs`.
const RAY: &str = "ray";
const RAY_LATEST: &str = "session_latest";

/// How the directories of sessions are called that the link of Ray's may lead to.
const OWN_PREFIX: &str = "oxiray-";

/// Makes the directory of a session's logs. It is `logs` within itself too: whoever follows Ray's link to the latest
/// session looks there, and the session's own directory does not outlive it.
pub(crate) fn make(session: &Path) -> io::Result<()> {
    let logs = logs_of(session);
    private_directory(logs.parent().unwrap_or(&logs))?;
    private_directory(&logs)?;
    symlink(".", logs.join(LOGS))
}

/// Has `logs` within a session's directory lead to its logs.
pub(crate) fn show_in(session: &Path) -> io::Result<()> {
    symlink(fs::canonicalize(logs_of(session))?, session.join(LOGS))
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

/// Has the link lead to the logs of this session that tools written for Ray follow, unless it is Ray's own.
pub(crate) fn make_ray_latest(root: &Path, session: &Path) -> io::Result<()> {
    let is_own = |path: &Path| path.to_string_lossy().contains(OWN_PREFIX);
    let (Some(base), true) = (root.parent(), is_own(root)) else { return Ok(()) };
    let folder = base.join(RAY);
    // Every user of the machine may have sessions of Ray's there, as in a directory for temporary files.
    if rustix::fs::mkdir(&folder, Mode::from_raw_mode(0o1777)).is_ok() {
        rustix::fs::chmod(&folder, Mode::from_raw_mode(0o1777))?;
    }
    let link = folder.join(RAY_LATEST);
    if fs::symlink_metadata(&link).is_ok() && !fs::read_link(&link).is_ok_and(|target| is_own(&target)) {
        return Ok(());
    }
    let unfinished = folder.join(format!("{RAY_LATEST}.{}", std::process::id()));
    let _ = fs::remove_file(&unfinished);
    symlink(fs::canonicalize(logs_of(session))?, &unfinished)?;
    fs::rename(unfinished, link)
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
        for file in files.filter_map(|file| file.metadata().ok()).filter(fs::Metadata::is_file) {
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
    fn tools_written_for_ray_find_the_latest_logs() {
        let base = tempfile::tempdir().expect("a directory");
        let root = base.path().join("oxiray-7");
        let link = base.path().join("ray/session_latest");
        for number in [1, 2] {
            make_ray_latest(&root, &ended(&root, number)).expect("linked");
            let log = fs::read_to_string(link.join("logs/daemon.log")).expect("there");
            assert_eq!(
                (log.as_str(), fs::read_link(&link).expect("a link")),
                ("words", logs_of(&root.join(format!("session_{number}"))))
            );
        }
        fs::remove_file(&link).and_then(|()| symlink("session_of_ray", &link)).expect("Ray's own");
        make_ray_latest(&root, &ended(&root, 3)).expect("left alone");
        assert_eq!(fs::read_link(&link).expect("a link"), Path::new("session_of_ray"));
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
