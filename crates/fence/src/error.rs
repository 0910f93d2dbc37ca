//! What stands in the way of a fence, in sentences that say what to do about it.

use crate::CgroupVersion;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::path::PathBuf;

/// Why there is no fence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FenceError {
    /// A list is longer than every kernel takes.
    #[error("{given} device nodes are to be refused at once, where {limit} is the limit")]
    TooManyRules {
        /// How many there are.
        given: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The hierarchy is not there.
    #[error("no {0} hierarchy for devices is mounted here, or this process is in no cgroup of it")]
    NoHierarchy(CgroupVersion),
    /// The hierarchy is there, and this process's own cgroup is not.
    #[error(
        "the cgroup of this process is not visible in {}: mount {version} so that it is, as with a cgroup namespace of the \
         container's own", directory.display()
    )]
    NotVisible {
        /// Of which hierarchy.
        version: CgroupVersion,
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// The kernel lets only some do this.
    #[error("{action} takes {}, and this process lacks {}: {way}", .needed.join(" and "), .lacking.join(" and "))]
    Capabilities {
        /// What was tried.
        action: &'static str,
        /// What that takes.
        needed: Vec<&'static str>,
        /// What of it is not there.
        lacking: Vec<&'static str>,
        /// What to do.
        way: &'static str,
    },
    /// A system call failed.
    #[error("cannot {action}: {error}{}", .way.map(|way| format!("; {way}")).unwrap_or_default())]
    Refused {
        /// What was tried.
        action: String,
        /// What the kernel said.
        error: Errno,
        /// What to do, where that is known.
        way: Option<&'static str>,
    },
    /// A fence of ours would take the place of somebody else's.
    #[error(
        "a device program further up than {} would be put out of force by one there: whoever attached it has to allow more \
         than one (BPF_F_ALLOW_MULTI)", directory.display()
    )]
    WouldOverride {
        /// Where ours was to be.
        directory: PathBuf,
    },
    /// An exception of version 1 takes away only what was given under the same numbers.
    #[error(
        "{} still allows `{entry}`, which the cgroup above gives as a whole: no part of that can be refused there",
        directory.display()
    )]
    StillAllowed {
        /// The cgroup.
        directory: PathBuf,
        /// The line of `devices.list`.
        entry: String,
    },
    /// A cgroup is in use.
    #[error("somebody is still in {}{}", directory.display(), in_parentheses(.pids))]
    Occupied {
        /// The cgroup.
        directory: PathBuf,
        /// The processes in it that can be seen from here.
        pids: Vec<u32>,
    },
    /// The kernel is too old for a ruleset that does no harm.
    #[error(
        "Landlock is of version {0} here, and version 2 is needed (Linux 5.19): before, files cannot be moved between directories"
    )]
    OldLandlock(u32),
    /// A ruleset holds one thread.
    #[error(
        "a ruleset holds the thread that takes it on, and this process has {0}: take it on before others are started"
    )]
    SeveralThreads(u64),
    /// A directory has more entries than are looked at.
    #[error("{} has more than {limit} entries, too many for a ruleset that names each", directory.display())]
    TooManyEntries {
        /// The directory.
        directory: PathBuf,
        /// How many there may be.
        limit: usize,
    },
    /// The kernel took the fence and does not hold it.
    #[error("{node} could be opened although it was refused: the kernel takes this fence and does not enforce it")]
    NotEnforced {
        /// What was opened.
        node: String,
    },
}

fn in_parentheses(pids: &[u32]) -> String {
    let listed: Vec<String> = pids.iter().map(u32::to_string).collect();
    if listed.is_empty() { String::new() } else { format!(" (processes {})", listed.join(", ")) }
}

/// What files of cgroups take, in words.
const DELEGATION: &str =
    "that takes root, or a cgroup that is delegated to this user, as with `Delegate=yes` in a systemd unit";

impl FenceError {
    /// Whether what was to be looked at is not there any more, as a process that has ended.
    pub fn is_of_nothing(&self) -> bool {
        matches!(self, Self::Refused { error: Errno::NOENT | Errno::SRCH, .. })
    }

    /// Something about a file failed.
    pub fn of_file(action: String, error: impl Into<std::io::Error>) -> Self {
        Self::Refused { action, error: Errno::from_io_error(&error.into()).unwrap_or(Errno::IO), way: None }
    }

    /// Something about a file of a cgroup failed.
    pub(crate) fn of_cgroup(action: String, error: impl Into<std::io::Error>) -> Self {
        let error = Errno::from_io_error(&error.into()).unwrap_or(Errno::IO);
        let way = match error {
            Errno::ROFS => Some("cgroups are mounted read-only here, as in most containers; they have to be writable"),
            Errno::ACCESS | Errno::PERM => Some(DELEGATION),
            _ => None,
        };
        Self::Refused { action, error, way }
    }

    /// The kernel said EPERM: what this process lacks, or, where it lacks nothing, that somebody else forbids it.
    pub(crate) fn not_permitted(
        action: &'static str,
        needed: &[(CapabilitySet, &'static str)],
        way: &'static str,
    ) -> Self {
        let held = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        let lacking = needed.iter().filter(|(one, _)| !held.contains(*one)).map(|(_, name)| *name).collect::<Vec<_>>();
        if lacking.is_empty() || held.contains(CapabilitySet::SYS_ADMIN) {
            let way = "this process has the capabilities that this takes, so that a sandbox forbids it, or they hold in a \
                       user namespace only";
            return Self::Refused { action: action.to_owned(), error: Errno::PERM, way: Some(way) };
        }
        Self::Capabilities { action, needed: needed.iter().map(|(_, name)| *name).collect(), lacking, way }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let read_only = FenceError::of_cgroup("make /sys/fs/cgroup/a".to_owned(), Errno::ROFS).to_string();
        assert_eq!(
            read_only,
            "cannot make /sys/fs/cgroup/a: Read-only file system (os error 30); cgroups are mounted read-only here, as in \
             most containers; they have to be writable"
        );
        let error = FenceError::Capabilities {
            action: "loading a device program",
            needed: vec!["CAP_BPF", "CAP_NET_ADMIN"],
            lacking: vec!["CAP_BPF"],
            way: "start as root",
        };
        assert_eq!(
            error.to_string(),
            "loading a device program takes CAP_BPF and CAP_NET_ADMIN, and this process lacks CAP_BPF: start as root"
        );
        let occupied = |pids: &[u32]| FenceError::Occupied { directory: PathBuf::from("/c/w-1"), pids: pids.to_vec() };
        assert_eq!(occupied(&[7, 9]).to_string(), "somebody is still in /c/w-1 (processes 7, 9)");
        assert_eq!(occupied(&[]).to_string(), "somebody is still in /c/w-1");
    }
}
