//! The sessions of this user on this machine: which there are, whether their daemons live, and a connection to one.
//!
//! What lies in a session's directory is drawn in [`oxiray_wire::session`]. A daemon holds a lock on its directory for as
//! long as it lives: a directory that nobody locks belonged to a daemon that was killed.

use oxiray_wire::session::{CURRENT, DESCRIPTION};
pub use oxiray_wire::session::{connect, within};
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What the names of sessions' directories begin with.
const PREFIX: &str = "session_";

/// What `session.json` holds: how the daemon of a session is found and entered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Address that `init(address=…)` takes.
    pub address: String,
    /// The secret that lets a client in.
    pub token: String,
    /// The daemon's process, as it counts in its own PID namespace: [`Description::process`] is what others may use.
    pub pid: u32,
    /// Its parent in that namespace, where that is to start another in its place.
    #[serde(default)]
    pub supervisor: Option<u32>,
    /// That namespace.
    pub pid_namespace: u64,
    /// The node, in hexadecimal digits.
    pub node: String,
    /// The version of the daemon.
    pub version: String,
    /// Whether it ends with its driver.
    #[serde(default)]
    pub private: bool,
    /// Whether it is a member of the cluster at the address: who connects here is a client of the head.
    #[serde(default)]
    pub member: bool,
    /// The node's own address.
    #[serde(default)]
    pub ip: String,
    /// Where a head listens for other machines, as `IP:PORT`.
    #[serde(default)]
    pub listens: Option<String>,
}

impl Description {
    /// Reads the description in a session's directory; `None` where there is none that can be read.
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(directory.join(DESCRIPTION)).ok()?).ok()
    }

    /// The daemon's process; `None` where it runs in another PID namespace, such as another container, since its number
    /// means another process here.
    pub fn process(&self) -> Option<u32> {
        (self.pid_namespace == oxiray_processes::pid_namespace()).then_some(self.pid)
    }

    /// Its parent, where that is to start another daemon in its place; `None` as above.
    pub fn supervisor(&self) -> Option<u32> {
        self.process().and(self.supervisor)
    }

    /// The port that its address ends with.
    pub fn port(&self) -> Option<u16> {
        self.address.rsplit_once(':')?.1.parse().ok()
    }

    /// Whether `address` means this session: `localhost` stands for this machine, whatever its address is.
    pub fn answers_to(&self, address: &str) -> bool {
        let local = address.rsplit_once(':').filter(|(host, _)| ["localhost", "127.0.0.1", "0.0.0.0"].contains(host));
        let port = |known: &str| known.rsplit_once(':').map(|(_, port)| port.to_owned());
        self.address == address || local.is_some_and(|(_, asked)| port(&self.address).is_some_and(|port| port == asked))
    }
}

/// A session that has been described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSession {
    /// Its directory, or a link to that among the sessions of its user.
    pub directory: PathBuf,
    /// How its daemon is entered.
    pub description: Description,
    /// Whether it is the one that `address="auto"` means.
    pub is_current: bool,
    /// Whether its daemon lives.
    pub is_alive: bool,
}

/// The directory of all sessions of this user, by this process's variables.
///
/// # Errors
/// Where it cannot be made, belongs to another user, is a link, or is open to others.
pub fn root() -> io::Result<PathBuf> {
    oxiray_wire::session::root(|name| std::env::var(name).ok())
}

/// The sessions under `root`, the current one first, those of killed daemons among them.
pub fn described(root: &Path) -> Vec<FoundSession> {
    let current = fs::read_to_string(root.join(CURRENT)).unwrap_or_default();
    let mut sessions: Vec<FoundSession> = directories(root)
        .filter_map(|directory| {
            // Those who only look share the lock, so that they do not take each other for a daemon.
            let unlocked = try_lock(&directory, FlockOperation::NonBlockingLockShared).ok()?;
            let is_current = directory.file_name().is_some_and(|name| name.to_string_lossy() == current.trim());
            let description = Description::read(&directory)?;
            Some(FoundSession { directory, description, is_current, is_alive: unlocked.is_none() })
        })
        .collect();
    sessions.sort_by_key(|session| !session.is_current);
    sessions
}

/// The sessions of living daemons under `root`, the current one first.
pub fn living(root: &Path) -> Vec<FoundSession> {
    let mut sessions = described(root);
    sessions.retain(|session| session.is_alive);
    sessions
}

/// Orders sessions as a caller looks for one: heads before members, which pass on what they are asked, and of either those
/// whose daemons live before others.
pub fn heads_first(mut sessions: Vec<FoundSession>) -> Vec<FoundSession> {
    sessions.sort_by_key(|session| (session.description.member, !session.is_alive));
    sessions
}

/// The directories of sessions under `root`, and the links to such.
pub fn directories(root: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)).map(|entry| entry.path())
}

/// Opens a session's directory, for its lock.
///
/// # Errors
/// Where there is no such directory.
pub fn open(directory: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(directory, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// The lock of a session's directory; `None` where somebody else has it.
///
/// # Errors
/// Where there is no such directory, or it cannot be locked.
pub fn try_lock(directory: &Path, operation: FlockOperation) -> io::Result<Option<OwnedFd>> {
    let opened = open(directory)?;
    match rustix::fs::flock(&opened, operation) {
        Ok(()) => Ok(Some(opened)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(port: u16) -> Description {
        Description {
            address: format!("10.1.2.3:{port}"),
            token: "secret".into(),
            pid: 7,
            supervisor: Some(6),
            pid_namespace: oxiray_processes::pid_namespace(),
            node: "ab".into(),
            version: "0".into(),
            private: false,
            member: false,
            ip: "127.0.0.1".into(),
            listens: None,
        }
    }

    fn make(root: &Path, name: &str, description: &Description) -> PathBuf {
        let directory = root.join(name);
        fs::create_dir(&directory).expect("a directory");
        fs::write(directory.join(DESCRIPTION), serde_json::to_string(description).expect("JSON")).expect("written");
        directory
    }

    #[test]
    fn a_process_of_another_pid_namespace_is_nobody_here() {
        let here = description(1);
        assert_eq!((here.process(), here.supervisor()), (Some(7), Some(6)));
        let elsewhere = Description { pid_namespace: here.pid_namespace + 1, ..here };
        assert_eq!((elsewhere.process(), elsewhere.supervisor()), (None, None));
    }

    #[test]
    fn addresses_of_this_machine_mean_the_session_with_their_port() {
        let described = description(6379);
        for meant in ["10.1.2.3:6379", "localhost:6379", "127.0.0.1:6379", "0.0.0.0:6379"] {
            assert!(described.answers_to(meant), "{meant}");
        }
        for other in ["10.1.2.3:6380", "localhost:6380", "10.1.2.4:6379", "6379", ""] {
            assert!(!described.answers_to(other), "{other}");
        }
    }

    #[test]
    fn sessions_are_found_in_order_and_told_from_those_of_killed_daemons() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        let member = Description { member: true, ..description(1) };
        let [first, second, third] =
            [("session_1", &member), ("session_2", &description(2)), ("session_3", &description(3))]
                .map(|(name, described)| make(root, name, described));
        fs::create_dir(root.join("session_4")).expect("one that is not described yet");
        make(root, "logs", &description(5));
        fs::write(root.join(CURRENT), "session_1\n").expect("written");
        let locks = [&first, &third].map(|directory| try_lock(directory, FlockOperation::NonBlockingLockExclusive));
        assert!(locks.iter().all(|lock| matches!(lock, Ok(Some(_)))));

        let looking = try_lock(&second, FlockOperation::NonBlockingLockShared);
        let all = described(root);
        assert!(matches!(looking, Ok(Some(_))), "who only looks is no daemon");
        let mut alive: Vec<_> = all.iter().map(|one| (one.directory.clone(), one.is_alive, one.is_current)).collect();
        assert_eq!(alive.remove(0), (first.clone(), true, true));
        alive.sort();
        assert_eq!(alive, [(second, false, false), (third.clone(), true, false)]);
        let found: Vec<PathBuf> = heads_first(living(root)).into_iter().map(|one| one.directory).collect();
        assert_eq!(found, [third, first]);
    }
}
