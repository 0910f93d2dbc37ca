//! Descriptors of device nodes that a process has open although it may not open them: no fence takes those back.
//!
//! What was mapped into memory stays mapped when its descriptor is closed.

use crate::{DenyList, FenceError, Node};
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

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
    // What was closed meanwhile is no stray any more.
    let node = |entry: &Path, _| Node::at(entry).ok().flatten();
    strays_in(&PathBuf::from(format!("/proc/{pid}/fd")), denied, node)
}

/// Closes this process's descriptors that are device nodes of a list, and tells which they were. Nothing of this
/// program must count on one of them: call it before anything opens such a node.
pub fn close_strays(denied: &DenyList) -> Result<Vec<Stray>, FenceError> {
    let node = |_: &Path, descriptor| {
        // SAFETY: it was listed a moment ago, and nobody else runs here; of one that is closed the kernel says so.
        let found = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(descriptor) }).ok()?;
        Node::of(&found)
    };
    let strays = strays_in(Path::new("/proc/self/fd"), denied, node)?;
    for stray in &strays {
        // SAFETY: it was inherited and nobody here has it for his own; its number may be used anew.
        unsafe { rustix::io::close(stray.descriptor) };
    }
    Ok(strays)
}

fn strays_in(
    descriptors: &Path,
    denied: &DenyList,
    node: impl Fn(&Path, i32) -> Option<Node>,
) -> Result<Vec<Stray>, FenceError> {
    let listed = fs::read_dir(descriptors)
        .map_err(|error| FenceError::of_file(format!("list {}", descriptors.display()), error))?;
    let found = listed.flatten().filter_map(|entry| {
        let (path, descriptor) = (entry.path(), entry.file_name().to_str()?.parse().ok()?);
        let node = node(&path, descriptor).filter(|node| denied.refuses(*node))?;
        Some(Stray { descriptor, node, path: fs::read_link(path).unwrap_or_default() })
    });
    Ok(found.collect())
}
