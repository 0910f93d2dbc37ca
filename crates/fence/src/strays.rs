//! Descriptors of device nodes that a process has open although it may not open them: no fence takes those back.
//!
//! What was mapped into memory stays mapped when its descriptor is closed.

use crate::{DenyList, FenceError, Node};
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// As many descriptors, from 0 on, are asked about one by one.
const LOW: usize = 256;

/// An open descriptor of a device that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// Its number in the process that has it.
    pub descriptor: i32,
    /// What it is.
    pub node: Node,
    /// The name under which it was opened.
    pub path: PathBuf,
}

/// The descriptors of a process that are device nodes of a list.
pub fn strays_of(pid: u32, denied: &DenyList) -> Result<Vec<Stray>, FenceError> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    // What was closed meanwhile is no stray any more.
    let node = |descriptor: i32| Node::at(&folder.join(descriptor.to_string())).ok().flatten();
    Ok(strays_among(listed(&folder)?, &folder, denied, node))
}

/// Closes this process's descriptors that are device nodes of a list, and tells which they were. Nothing of this
/// program must count on one of them: call it before anything opens such a node.
pub fn close_strays(denied: &DenyList) -> Result<Vec<Stray>, FenceError> {
    let strays = own_strays(denied)?;
    for stray in &strays {
        // SAFETY: it was inherited and nobody here has it for his own; its number may be used anew.
        unsafe { rustix::io::close(stray.descriptor) };
    }
    Ok(strays)
}

/// This process's descriptors that are device nodes of a list.
pub fn own_strays(denied: &DenyList) -> Result<Vec<Stray>, FenceError> {
    let folder = Path::new("/proc/self/fd");
    let own = match own_descriptors(folder) {
        Some(own) => own,
        None => listed(folder)?,
    };
    let node = |descriptor| {
        // SAFETY: it was open a moment ago, and nobody else runs here; of one that is closed the kernel says so.
        let found = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(descriptor) }).ok()?;
        Node::of(&found)
    };
    Ok(strays_among(own, folder, denied, node))
}

fn strays_among(
    descriptors: Vec<i32>,
    folder: &Path,
    denied: &DenyList,
    node: impl Fn(i32) -> Option<Node>,
) -> Vec<Stray> {
    let stray = |descriptor| {
        let node = node(descriptor).filter(|node| denied.refuses(*node))?;
        let path = fs::read_link(folder.join(descriptor.to_string())).unwrap_or_default();
        Some(Stray { descriptor, node, path })
    };
    descriptors.into_iter().filter_map(stray).collect()
}

/// All that are open, by the folder in which the kernel lists them.
fn listed(folder: &Path) -> Result<Vec<i32>, FenceError> {
    let entries =
        fs::read_dir(folder).map_err(|error| FenceError::of_file(format!("list {}", folder.display()), error))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// All that this process has open, where it has none of a high number. The list in its folder would make the kernel name each of
/// them, on the way to every grant: about 0.1 ms. One question tells which of the low ones are open, and the size of the folder
/// (from Linux 6.2 on) that there are no others.
fn own_descriptors(folder: &Path) -> Option<Vec<i32>> {
    let count = fs::metadata(folder).ok()?.len();
    let mut asked: [libc::pollfd; LOW] =
        std::array::from_fn(|number| libc::pollfd { fd: number as i32, events: 0, revents: 0 });
    // SAFETY: the call reads and writes as many entries as it is told of, and waits for nothing.
    if unsafe { libc::poll(asked.as_mut_ptr(), LOW as libc::nfds_t, 0) } < 0 {
        return None;
    }
    let open: Vec<i32> = asked.iter().filter(|one| one.revents & libc::POLLNVAL == 0).map(|one| one.fd).collect();
    (open.len() as u64 == count).then_some(open)
}
