//! How many descriptors the daemon may open, and how many of them it keeps for itself.
//!
//! - DESCRIPTORS-1: where there are none left for others, the daemon still hears of its children, finds their descendants
//!   and opens its log anew: for these the limit is raised by what was kept back.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// How many are kept back.
const RESERVE: u64 = 16;

/// Raises the limit as far as it goes, but for the reserve: each worker takes a handful, and each large object one.
pub(crate) fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = maximum.map(|most| if most > 4 * RESERVE { most - RESERVE } else { most });
    // Where it is refused, the limit stays as it is, and errors name it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
}

/// Does what must not fail for want of a descriptor (DESCRIPTORS-1).
pub(crate) fn with_reserve<T>(work: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before });
    let result = work();
    let _ = setrlimit(Resource::Nofile, before);
    result
}

/// A descriptor of a process; nothing where there is no such process, as where it is in another namespace.
///
/// # Errors
/// Where there are no descriptors left: nobody would hear of its death.
pub(crate) fn pidfd_of(pid: u32) -> Result<Option<OwnedFd>, String> {
    match oxiray_processes::pidfd_of(pid) {
        Err(error @ (Errno::MFILE | Errno::NFILE)) => {
            Err(format!("process {pid} cannot be watched: {}", in_words(&error.into())))
        }
        found => Ok(found.ok()),
    }
}

/// What an error says, and where it is for want of descriptors, the way out.
pub(crate) fn in_words(error: &io::Error) -> String {
    if !matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) {
        return error.to_string();
    }
    let limit = getrlimit(Resource::Nofile).current.map_or_else(|| "all".to_owned(), |limit| limit.to_string());
    format!(
        "{error}: this daemon may have {limit} descriptors, and they are in use. Raise `ulimit -n` where it is started"
    )
}
