//! Which fences this machine has, found out by trying each, and which of them a request gets.

use crate::landlock::{Ruleset, restrict_thread};
use crate::own_cgroup::CgroupVersion;
use crate::{DaemonCgroup, DenyList, DenyRule, FenceError, Node, enter};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{CapabilitySet, configure_capability_in_ambient_set};
use std::ffi::CStr;
use std::fmt;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

/// What the process that tries a fence is refused, and what it must be able to open.
const REFUSED: &CStr = c"/dev/null";
const LET_THROUGH: &CStr = c"/dev/zero";
/// What it tells besides the numbers of errors, which are smaller.
const COULD_OPEN: i32 = 200;
const COULD_NOT_OPEN: i32 = 201;

/// By what the kernel refuses nodes, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// A program of a cgroup v2.
    Cgroup,
    /// Exceptions of a cgroup v1.
    Cgroup1,
    /// A ruleset of Landlock.
    Landlock,
}

impl Mechanism {
    /// All, strongest first.
    pub const ALL: [Self; 3] = [Self::Cgroup, Self::Cgroup1, Self::Landlock];

    /// Whether this machine has it for this process, or why not (FENCE-4). A child process tries it. Nothing of it
    /// stays; the name is that of the cgroup that is there meanwhile.
    pub fn probe(self, name: &str) -> Result<(), FenceError> {
        match self {
            Self::Cgroup => probe_cgroup(CgroupVersion::Two, name),
            Self::Cgroup1 => probe_cgroup(CgroupVersion::One, name),
            Self::Landlock => {
                let ruleset = Ruleset::all_but(&[PathBuf::from(path(REFUSED))])?;
                try_out(Errno::ACCESS, || restrict_thread(ruleset.as_fd()))
            }
        }
    }
}

/// Has what this process starts from here on do without the capabilities that make fences, where a systemd unit or a container
/// gave them to be handed on (`AmbientCapabilities=`): a program of a user could undo its fence with them. This process
/// keeps them. Call it while the process has one thread.
pub fn keep_capabilities_to_oneself() {
    for capability in [CapabilitySet::BPF, CapabilitySet::NET_ADMIN] {
        // A kernel that does not know one hands it on to nobody.
        let _ = configure_capability_in_ambient_set(capability, false);
    }
}

fn path(path: &CStr) -> &str {
    path.to_str().expect("both are plain text")
}

fn probe_cgroup(version: CgroupVersion, name: &str) -> Result<(), FenceError> {
    let node = Node::at(path(REFUSED).as_ref()).ok().flatten().ok_or_else(|| FenceError::Refused {
        action: format!("try a fence on {}", path(REFUSED)),
        error: Errno::NODEV,
        way: Some("it is to be a device node"),
    })?;
    let mut daemon = DaemonCgroup::make(version, name)?;
    let tried = tried_in(&mut daemon, node);
    let removed = daemon.remove();
    tried.and(removed)
}

fn tried_in(daemon: &mut DaemonCgroup, node: Node) -> Result<(), FenceError> {
    let mut worker = daemon.make_worker()?;
    // Twice, since it has to be possible to exchange one for another.
    daemon.refuse(&mut worker, &DenyList::default())?;
    daemon.refuse(&mut worker, &DenyList::new([DenyRule::from(node)])?)?;
    try_out(Errno::PERM, || enter(worker.directory()))
}

/// Has a child take on a fence and then open both nodes.
fn try_out(refusal: Errno, take_on: impl FnOnce() -> Result<(), Errno>) -> Result<(), FenceError> {
    let failed = |error| FenceError::Refused { action: "try a fence in a process".to_owned(), error, way: None };
    // SAFETY: the child has the one thread that called this; it makes system calls, allocates nothing, and ends without
    // running anything else of this program.
    let child = match unsafe { libc::fork() } {
        0 => {
            let said = take_on().map_or_else(Errno::raw_os_error, |()| what_opens(refusal));
            // SAFETY: as above.
            unsafe { libc::_exit(said) }
        }
        child => Pid::from_raw(child).ok_or_else(|| failed(Errno::AGAIN))?,
    };
    let status = loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            result => break result.map_err(failed)?,
        }
    };
    match status.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        Some(COULD_OPEN) => Err(FenceError::NotEnforced { node: path(REFUSED).to_owned() }),
        Some(COULD_NOT_OPEN) => Err(FenceError::Refused {
            action: format!("open {} within a fence that lets it through", path(LET_THROUGH)),
            error: Errno::ACCESS,
            way: None,
        }),
        Some(error) => Err(FenceError::Refused {
            action: "take on a fence".to_owned(),
            error: Errno::from_raw_os_error(error),
            way: None,
        }),
        None => Err(failed(Errno::CHILD)),
    }
}

fn what_opens(refusal: Errno) -> i32 {
    let open = |path| open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(drop);
    match (open(REFUSED), open(LET_THROUGH)) {
        (Err(error), Ok(())) if error == refusal => 0,
        (Ok(()), _) => COULD_OPEN,
        _ => COULD_NOT_OPEN,
    }
}

/// How far devices are to be kept from those that they were not granted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isolation {
    /// A process is told its devices by variables, and nothing else is done.
    Variable,
    /// Besides, it is looked at who uses them.
    Watch,
    /// The kernel refuses them where it can.
    Fence,
    /// The kernel refuses them, or the request is refused.
    Require,
}

impl Isolation {
    /// Their words, weakest first.
    const WORDS: [(&str, Self); 4] =
        [("variable", Self::Variable), ("watch", Self::Watch), ("fence", Self::Fence), ("require", Self::Require)];

    /// The isolation of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(name, _)| *name == word).map(|(_, isolation)| *isolation)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize].0
    }

    /// All words, for people.
    pub fn words() -> String {
        Self::WORDS.map(|(name, _)| format!("`{name}`")).join(", ")
    }
}

/// Each mechanism with what came of trying it here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Means {
    /// A program of a cgroup v2.
    pub cgroup: Result<(), FenceError>,
    /// Exceptions of a cgroup v1.
    pub cgroup1: Result<(), FenceError>,
    /// A ruleset of Landlock.
    pub landlock: Result<(), FenceError>,
}

impl Means {
    /// Tries all of them, see [`Mechanism::probe`].
    pub fn probe(name: &str) -> Self {
        Self {
            cgroup: Mechanism::Cgroup.probe(name),
            cgroup1: Mechanism::Cgroup1.probe(name),
            landlock: Mechanism::Landlock.probe(name),
        }
    }

    /// What came of trying one.
    pub fn of(&self, mechanism: Mechanism) -> &Result<(), FenceError> {
        match mechanism {
            Mechanism::Cgroup => &self.cgroup,
            Mechanism::Cgroup1 => &self.cgroup1,
            Mechanism::Landlock => &self.landlock,
        }
    }

    /// Those of `suited` that work here, strongest first.
    pub fn usable(&self, suited: &[Mechanism]) -> Vec<Mechanism> {
        Mechanism::ALL.into_iter().filter(|one| suited.contains(one) && self.of(*one).is_ok()).collect()
    }

    /// Why these devices get no fence, or a weaker one, in a sentence for each mechanism that they do not get.
    pub fn why_unfenced(&self, suited: &[Mechanism]) -> String {
        let why = Mechanism::ALL.into_iter().filter_map(|mechanism| {
            let failed = self.of(mechanism).as_ref().err().map(FenceError::to_string);
            let unsuited =
                || (!suited.contains(&mechanism)).then(|| "the driver of these devices does not bear it".to_owned());
            Some(format!("{mechanism}: {}.", failed.or_else(unsuited)?))
        });
        why.collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Cgroup => "cgroup v2",
            Self::Cgroup1 => "cgroup v1",
            Self::Landlock => "Landlock",
        })
    }
}

#[cfg(test)]
mod tests;
