//! Cgroups whose processes are refused device nodes: one for each worker, in one of the daemon's.
//!
//! ```text
//! own cgroup of the daemon
//!   └─ oxiray-fence-<name>   the daemon's, locked as long as it lives
//!        ├─ w-1              a worker and all that it starts
//!        └─ w-2
//! ```
//!
//! No controller is needed with version 2, so that the daemon's own cgroup may have processes as well.

use crate::own_cgroup::{CgroupVersion, own_cgroup};
use crate::program::{Program, Programs};
use crate::{DenyList, FenceError, exceptions, tree};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, openat, stat};
use rustix::io::Errno;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How the cgroups of daemons are called.
const PREFIX: &str = "oxiray-fence-";
/// How many names are tried for a daemon's.
const NAMES_MAX: u32 = 8;
/// By which a process of one thread enters with version 1: moving a whole process has the kernel wait for every
/// processor, which takes it some ten milliseconds.
const DOOR_1: &std::ffi::CStr = c"tasks";
/// By which a process enters with version 2.
const DOOR_2: &std::ffi::CStr = c"cgroup.procs";

/// Has this process, which has one thread, enter a cgroup, given by its directory. Safe between fork and exec: it makes
/// four system calls.
pub fn enter(directory: impl AsFd) -> Result<(), Errno> {
    let open = |door| openat(directory.as_fd(), door, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let door = match open(DOOR_1) {
        Err(Errno::NOENT) => open(DOOR_2)?,
        door => door?,
    };
    // Zero is whoever writes it.
    rustix::io::write(&door, b"0").map(drop)
}

/// The processes that live in a cgroup or further down, by its directory; 0 stands for one that cannot be seen from here.
pub fn processes_in(cgroup: &Path) -> Vec<u32> {
    tree::pids_beneath(cgroup)
}

/// Kills whoever is in a cgroup or further down, and waits 5 s at most until they are gone.
pub fn end_processes_in(cgroup: &Path) -> Result<(), FenceError> {
    tree::end(cgroup)
}

/// The cgroup of a daemon, in which those of its workers are.
#[derive(Debug)]
pub struct DaemonCgroup {
    version: CgroupVersion,
    path: PathBuf,
    /// The directory, locked (FENCE-5).
    _lock: OwnedFd,
    programs: Programs,
    last_number: u64,
}

impl DaemonCgroup {
    /// Makes one in this process's own cgroup. Where the name is taken, a number follows it.
    pub fn make(version: CgroupVersion, name: &str) -> Result<Self, FenceError> {
        let own = own_cgroup(Path::new("/"), version)?;
        for number in 0..NAMES_MAX {
            let suffix = if number == 0 { String::new() } else { format!(".{number}") };
            let path = own.join(format!("{PREFIX}{name}{suffix}"));
            if let Some(lock) = make_locked(&path)? {
                return Ok(Self { version, path, _lock: lock, programs: Programs::default(), last_number: 0 });
            }
        }
        let action = format!("make a cgroup of the name {PREFIX}{name} in {}", own.display());
        Err(FenceError::of_cgroup(action, Errno::EXIST))
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the cgroup of a worker. It refuses nothing yet.
    pub fn make_worker(&mut self) -> Result<WorkerCgroup, FenceError> {
        self.last_number += 1;
        let path = self.path.join(format!("w-{}", self.last_number));
        fs::create_dir(&path).map_err(|error| FenceError::of_cgroup(format!("make {}", path.display()), error))?;
        WorkerCgroup::at(self.version, path)
    }

    /// Has a worker's cgroup refuse exactly what is in a list, from now on and for whoever is in it already. After an
    /// error nothing is promised of what it refuses.
    pub fn refuse(&mut self, worker: &mut WorkerCgroup, denied: &DenyList) -> Result<(), FenceError> {
        let WorkerCgroup { path, directory, refusing } = worker;
        match refusing {
            Refusing::Exceptions(old) => {
                exceptions::exchange(path, old, denied)?;
                *old = denied.clone();
            }
            Refusing::Program(attached) => {
                let program = self.programs.of(denied)?;
                match attached {
                    Some(old) if Arc::ptr_eq(old, &program) => {}
                    Some(old) => program.replace(old, directory.as_fd(), path)?,
                    None => program.attach(directory.as_fd(), path)?,
                }
                *attached = Some(program);
            }
        }
        Ok(())
    }

    /// Removes what dead daemons left beside this one, after killing whoever is in it and waiting 5 s at most until
    /// they are gone; each with what came of it.
    pub fn sweep(&self) -> Vec<(PathBuf, Result<(), FenceError>)> {
        let beside = self.path.parent().and_then(|own| fs::read_dir(own).ok()).into_iter().flatten().flatten();
        let others = beside
            .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()))
            .map(|entry| entry.path())
            .filter(|path| *path != self.path);
        let swept = others.filter_map(|path| {
            let directory = open_directory(&path).ok()?;
            // FENCE-5. While it is locked here, nobody else takes it.
            flock(&directory, FlockOperation::NonBlockingLockExclusive).ok()?;
            let result = tree::end(&path).and_then(|()| tree::remove(&path));
            Some((path, result))
        });
        swept.collect()
    }

    /// Removes it with those of its workers, after killing whoever is still in them.
    pub fn remove(self) -> Result<(), FenceError> {
        tree::end(&self.path)?;
        tree::remove(&self.path)
    }
}

/// Makes a directory and locks it; `None` where it is another's.
fn make_locked(path: &Path) -> Result<Option<OwnedFd>, FenceError> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(FenceError::of_cgroup(format!("make {}", path.display()), error)),
        Ok(()) => {}
    }
    // Somebody who sweeps may have come between.
    let Ok(directory) = open_directory(path) else { return Ok(None) };
    if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let is_there = fstat(&directory).is_ok_and(|held| stat(path).is_ok_and(|found| found.st_ino == held.st_ino));
    Ok(is_there.then_some(directory))
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// By what a cgroup refuses nodes now.
#[derive(Debug)]
enum Refusing {
    /// Version 2.
    Program(Option<Arc<Program>>),
    /// Version 1.
    Exceptions(DenyList),
}

/// The cgroup of one worker and all that it starts.
#[derive(Debug)]
pub struct WorkerCgroup {
    path: PathBuf,
    directory: OwnedFd,
    refusing: Refusing,
}

impl WorkerCgroup {
    /// One that is there already, made for other limits of the worker's: a process is in one cgroup of a hierarchy
    /// only.
    pub fn at(version: CgroupVersion, path: PathBuf) -> Result<Self, FenceError> {
        let directory =
            open_directory(&path).map_err(|error| FenceError::of_cgroup(format!("open {}", path.display()), error))?;
        let refusing = match version {
            CgroupVersion::One => Refusing::Exceptions(DenyList::default()),
            CgroupVersion::Two => Refusing::Program(None),
        };
        Ok(Self { path, directory, refusing })
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file by which a process of one thread enters.
    pub fn door(&self) -> PathBuf {
        let door = match &self.refusing {
            Refusing::Exceptions(_) => DOOR_1,
            Refusing::Program(_) => DOOR_2,
        };
        self.path.join(door.to_string_lossy().as_ref())
    }

    /// Its directory, for the process that is to [`enter`].
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Whether a process lives in it.
    pub fn is_populated(&self) -> bool {
        tree::is_populated(&self.path)
    }

    /// The processes in it and in those that they made in it.
    pub fn processes(&self) -> Vec<u32> {
        processes_in(&self.path)
    }

    /// Removes it, and those that its processes made in it. An error says who is still there.
    pub fn remove(&self) -> Result<(), FenceError> {
        tree::remove(&self.path)
    }
}
