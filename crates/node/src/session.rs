//! A session's directory as its daemon has it: made, described, gone on with, swept away when its daemon is dead. How others
//! find it is in [`oxiray_visitor::session`].
//!
//! A daemon holds a lock on its directory for life. One that nobody locks belonged to a daemon that was
//! killed, and whoever comes next removes it.
//!
//! Where a session lies elsewhere than its user's sessions do, a link among those leads to it, so that whoever looks for
//! it need not know where it is. Only the user can make such a link, since nobody else may enter that directory.

use crate::session_logs;
use oxiray_visitor::session::{Description, directories, open, try_lock, within};
use oxiray_wire::session::{CURRENT, DESCRIPTION, SOCKET, logs_of, private_directory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a killed daemon may take to be gone.
const DYING_LIMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// How long its lock may outlast it.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

/// Where a head writes down what must outlive it.
const JOURNAL: &str = "journal";

/// The directory of a running session, as its daemon has it.
#[derive(Debug)]
pub(crate) struct Session {
    directory: PathBuf,
    /// Holds the lock, and names the directory whatever it is called.
    lock: OwnedFd,
    /// The other directory of sessions that a link leads here from.
    shown_in: Option<PathBuf>,
    /// Another daemon made it, and was killed.
    is_resumed: bool,
}

impl Session {
    /// Makes a directory that nobody else has, under `root`.
    pub(crate) fn make(root: &Path) -> io::Result<Self> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        loop {
            let chance = u32::from_ne_bytes(oxiray_ids::random());
            let directory = root.join(format!("session_{}_{}_{chance:08x}", time.as_secs(), std::process::id()));
            private_directory(&directory)?;
            // A sweeper may have been faster than the lock; then the name is lost, and another is taken.
            let locked = match lock(&directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                locked => locked?,
            };
            if let Some(lock) = locked
                && directory.exists()
            {
                session_logs::make(&directory)?;
                session_logs::show_in(&directory)?;
                session_logs::make_latest(root, &directory)?;
                // Another user, or Ray itself, may have that directory.
                let _ = session_logs::make_ray_latest(root, &directory);
                return Ok(Self { directory, lock, shown_in: None, is_resumed: false });
            }
        }
    }

    /// The session of a head that was killed and had this port, where there is one under `root` with a journal.
    pub(crate) fn resume(root: &Path, port: u16) -> Option<Self> {
        left(root, port).find_map(|(entry, description)| {
            let directory = if entry.is_symlink() { fs::canonicalize(&entry).ok()? } else { entry.clone() };
            let lock = lock_of_killed(&directory, &description).ok()??;
            let shown_in = entry.is_symlink().then(|| root.to_owned());
            directory.join(JOURNAL).exists().then_some(Self { directory, lock, shown_in, is_resumed: true })
        })
    }

    /// Whether another daemon made it, and was killed.
    pub(crate) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Where its head writes down what must outlive it.
    pub(crate) fn journal(&self) -> PathBuf {
        self.directory.join(JOURNAL)
    }

    /// Leaves everything as it was before this process came.
    pub(crate) fn leave(self) {
        if !self.is_resumed {
            self.remove();
        }
    }

    /// Where its logs are, which it leaves behind.
    pub(crate) fn logs(&self) -> PathBuf {
        logs_of(&self.directory)
    }

    /// Where it is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Lets the session be found under `root` too.
    pub(crate) fn show_in(&mut self, root: &Path) -> io::Result<()> {
        std::os::unix::fs::symlink(fs::canonicalize(&self.directory)?, root.join(self.name()))?;
        session_logs::make_latest(root, &self.directory)?;
        self.shown_in = Some(root.to_owned());
        Ok(())
    }

    /// The directories of sessions that it is found under.
    fn roots(&self) -> impl Iterator<Item = &Path> {
        self.directory.parent().into_iter().chain(self.shown_in.as_deref())
    }

    /// Listens on the session's socket. The path goes through the directory's descriptor, since socket
    /// addresses are short and temporary directories are not.
    pub(crate) fn listen(&self) -> io::Result<UnixListener> {
        if self.is_resumed {
            // Where there is none the machine was started anew.
            let _ = fs::remove_file(self.directory.join(SOCKET));
        }
        let listener = UnixListener::bind(within(&self.lock, SOCKET))?;
        fs::set_permissions(self.directory.join(SOCKET), std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(listener)
    }

    /// Writes down how clients find and enter the session.
    pub(crate) fn describe(&self, description: &Description) -> io::Result<()> {
        let unfinished = self.directory.join("session.json.new");
        let _ = fs::remove_file(&unfinished);
        let mut file = create(&unfinished)?;
        file.write_all(serde_json::to_string_pretty(description)?.as_bytes())?;
        if self.journal().exists() {
            file.sync_all()?;
        }
        fs::rename(unfinished, self.directory.join(DESCRIPTION))
    }

    /// Makes the session the one that `address="auto"` means.
    pub(crate) fn make_current(&self) -> io::Result<()> {
        for root in self.roots() {
            let unfinished = root.join(format!("{}.current", self.name()));
            create(&unfinished)?.write_all(self.name().as_bytes())?;
            fs::rename(unfinished, root.join(CURRENT))?;
        }
        Ok(())
    }

    /// Removes everything but the logs.
    pub(crate) fn remove(self) {
        for current in self.roots().map(|root| root.join(CURRENT)) {
            if fs::read_to_string(&current).is_ok_and(|name| name.trim() == self.name()) {
                let _ = fs::remove_file(current);
            }
        }
        let _ = fs::remove_dir_all(&self.directory);
        if let Some(root) = &self.shown_in {
            let _ = fs::remove_file(root.join(self.name()));
        }
        self.roots().for_each(session_logs::trim);
    }

    fn name(&self) -> String {
        self.directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// Makes a file that only its user reads; what is written is appended.
pub(crate) fn create(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Removes what killed daemons left under `root`, but for what a head can go on with.
pub(crate) fn sweep(root: &Path) {
    remove_dead(directories(root).filter(|directory| !directory.join(JOURNAL).exists()));
    session_logs::trim(root);
}

/// Removes all that killed daemons left under `root`. Returns how many heads could have gone on.
pub fn forget_all(root: &Path) -> usize {
    let journals = || directories(root).filter(|directory| directory.join(JOURNAL).exists()).count();
    let before = journals();
    remove_dead(directories(root));
    before.saturating_sub(journals())
}

/// Removes what a killed head left under `root` that had this port.
pub(crate) fn forget(root: &Path, port: u16) {
    for (directory, description) in left(root, port) {
        let _ = lock_of_killed(&directory, &description);
        remove_dead(std::iter::once(directory));
    }
}

/// The sessions with a journal under `root` that have this port.
fn left(root: &Path, port: u16) -> impl Iterator<Item = (PathBuf, Description)> {
    directories(root).filter_map(move |directory| {
        let described = Description::read(&directory)?;
        let is_such = described.port() == Some(port) && directory.join(JOURNAL).exists();
        is_such.then_some((directory, described))
    })
}

/// The lock of a daemon that was killed; `None` where it lives.
fn lock_of_killed(directory: &Path, description: &Description) -> io::Result<Option<OwnedFd>> {
    if let Some(locked) = lock(directory)? {
        return Ok(Some(locked));
    }
    if !description.process().is_some_and(ends) {
        return lock(directory);
    }
    // A process that it was about to start shares its lock until it runs its own program.
    let opened = open(directory)?;
    let (sender, receiver) = channel();
    oxiray_threads::spawn(oxiray_threads::SESSION_LOCK, move || {
        let locked = rustix::fs::flock(&opened, FlockOperation::LockExclusive);
        drop(sender.send(locked.map(|()| opened)));
    })?;
    match receiver.recv_timeout(LOCK_LIMIT) {
        Ok(locked) => Ok(Some(locked?)),
        Err(_) => Ok(None),
    }
}

/// Whether the process is gone; one that was killed a moment ago may take a while.
fn ends(pid: u32) -> bool {
    let Ok(process) = oxiray_processes::pidfd_of(pid) else { return true };
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&DYING_LIMIT)).is_ok_and(|ended| ended > 0)
}

fn remove_dead(directories: impl Iterator<Item = PathBuf>) {
    for directory in directories {
        match lock(&directory) {
            Ok(Some(_lock)) if directory.is_symlink() => {
                crate::control_groups::remove_left(&directory);
                let _ = fs::canonicalize(&directory).and_then(fs::remove_dir_all);
                let _ = fs::remove_file(&directory);
            }
            Ok(Some(_lock)) => {
                crate::control_groups::remove_left(&directory);
                drop(fs::remove_dir_all(&directory));
            }
            // A link that leads nowhere.
            Err(_) if directory.is_symlink() && !directory.exists() => drop(fs::remove_file(&directory)),
            Ok(None) | Err(_) => {}
        }
    }
}

/// The lock of a directory; `None` where a living daemon has it.
fn lock(directory: &Path) -> io::Result<Option<OwnedFd>> {
    try_lock(directory, FlockOperation::NonBlockingLockExclusive)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]
mod tests {
    use super::*;
    use oxiray_visitor::session::{connect, living};
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Instant;

    fn description() -> Description {
        Description {
            address: "127.0.0.1:6379".into(),
            token: "secret".into(),
            pid: 7,
            supervisor: None,
            pid_namespace: oxiray_processes::pid_namespace(),
            node: "ab".into(),
            version: "0".into(),
            private: false,
            member: false,
            ip: "127.0.0.1".into(),
            listens: None,
        }
    }

    /// What is in a directory of sessions, besides their logs.
    fn names(root: &Path) -> Vec<String> {
        let entries = fs::read_dir(root).expect("there").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| name != "logs").collect()
    }

    /// Comes to hold: processes that other tests of this program fork have the lock of a session for a moment.
    fn until(holds: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < end, "it does not come to hold");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_session_is_found_while_its_daemon_lives_and_swept_after() {
        let root = tempfile::tempdir().expect("a directory");
        let session = Session::make(root.path()).expect("a session");
        session.describe(&description()).expect("described");
        session.make_current().expect("current");
        let listener = session.listen().expect("listens");
        connect(session.directory()).expect("connects");
        drop(listener);
        let directory = session.directory().to_owned();
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        let modes = [mode(&directory), mode(&directory.join(SOCKET)), mode(&directory.join(DESCRIPTION))];
        assert_eq!(modes, [0o700, 0o600, 0o600]);
        sweep(root.path());
        let found: Vec<_> = living(root.path()).into_iter().map(|one| (one.directory, one.description)).collect();
        assert_eq!(found, [(directory.clone(), description())]);
        drop(session);
        until(|| living(root.path()).is_empty());
        until(|| {
            sweep(root.path());
            !directory.exists()
        });
    }

    #[test]
    fn a_session_that_lies_elsewhere_is_found_and_swept_like_any_other() {
        let (root, elsewhere) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let entries = |root: &tempfile::TempDir| names(root.path()).len();
        let make = || {
            let mut session = Session::make(elsewhere.path()).expect("a session");
            session.show_in(root.path()).expect("shown");
            session.describe(&description()).expect("described");
            session.make_current().expect("current");
            session
        };
        let session = make();
        let found = living(root.path());
        assert_eq!(found.len(), 1);
        assert_eq!(
            fs::canonicalize(&found[0].directory).expect("there"),
            fs::canonicalize(session.directory()).expect("there")
        );
        sweep(root.path());
        assert_eq!(living(root.path()).len(), 1);
        session.remove();
        assert_eq!((entries(&root), entries(&elsewhere)), (0, 0));

        drop(make());
        until(|| {
            sweep(root.path());
            // Only the names of the current ones are left.
            (entries(&root), entries(&elsewhere)) == (1, 1)
        });
        assert!(living(root.path()).is_empty() && living(elsewhere.path()).is_empty());
        let directory = make().directory().to_owned();
        fs::remove_dir_all(directory).expect("removed");
        until(|| {
            sweep(root.path());
            // A link that leads nowhere goes.
            entries(&root) == 1
        });
    }

    #[test]
    fn a_session_takes_its_traces_along_but_for_its_logs() {
        let root = tempfile::tempdir().expect("a directory");
        let session = Session::make(root.path()).expect("a session");
        session.make_current().expect("current");
        let (directory, logs) = (session.directory().to_owned(), session.logs());
        fs::write(logs.join("daemon.log"), "words").expect("written");
        session.remove();
        assert!(names(root.path()).is_empty() && !directory.exists());
        let latest = root.path().join("logs/latest/daemon.log");
        assert_eq!(fs::read_to_string(latest).expect("the logs stay"), "words");
        let modes =
            [&logs, &root.path().join("logs")].map(|path| fs::metadata(path).expect("there").permissions().mode());
        assert_eq!(modes.map(|mode| mode & 0o777), [0o700, 0o700]);
    }

    #[test]
    fn a_head_goes_on_though_the_lock_outlasts_the_one_that_was_killed() {
        let root = tempfile::tempdir().expect("a directory");
        let mut ended = std::process::Command::new("true").spawn().expect("a process");
        let pid = ended.id();
        ended.wait().expect("it ends");
        let session = Session::make(root.path()).expect("a session");
        let directory = session.directory().to_owned();
        session.describe(&Description { pid, ..description() }).expect("described");
        fs::write(session.journal(), "").expect("written");
        let outlasting = std::thread::spawn(move || {
            // Until somebody waits for the lock: such a line of the kernel's table has an arrow.
            let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(session.directory()).expect("there"));
            let is_awaited = |line: &str| line.contains("->") && line.contains(&format!(":{inode} "));
            while !fs::read_to_string("/proc/locks").expect("there").lines().any(is_awaited) {
                std::thread::yield_now();
            }
            drop(session);
        });
        let resumed = Session::resume(root.path(), 6379).expect("the session that was left");
        assert_eq!(resumed.directory(), directory);
        outlasting.join().expect("it ends");
        assert!(matches!(lock(&directory), Ok(None)), "it has a head again");
    }
}
