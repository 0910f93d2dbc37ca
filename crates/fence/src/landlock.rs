//! Rulesets of Landlock that let a thread open everything but some device nodes.
//!
//! Landlock grants what is below a directory and cannot take out of that. So a ruleset grants the *siblings*: on the
//! way from `/` to each refused node, whatever else is in each directory. What comes to be in one of those directories
//! afterwards was granted by nobody and cannot be opened; what comes to be further down can.
//!
//! - LANDLOCK-1: a refused node stays so under each name that a mount gives to it, and so does a node of the same
//!   number beside it, in `/dev`, or on a devtmpfs that is mounted elsewhere. A name that was made in any other place
//!   before is not found.
//! - LANDLOCK-2: no device node can be made, so that no further name comes to be.
//! - LANDLOCK-3: files can be moved between directories as before. That has to be handled and granted: where it is not
//!   handled, the kernel refuses it everywhere.

use crate::mounts::{Mount, names_of, parsed, table};
use crate::{FenceError, Node};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::ptr;

/// The entries of one directory that are looked at.
const ENTRIES_MAX: usize = 65_536;
/// How deep `/dev` is looked through for nodes.
const DEPTH_MAX: usize = 4;
/// The first version that can let files be moved between directories.
const VERSION_MIN: u32 = 2;

const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
const REFER: u64 = 1 << 13;
/// What is refused where it is not granted.
const HANDLED: u64 = READ_FILE | WRITE_FILE | MAKE_CHAR | MAKE_BLOCK | REFER;
/// What is granted for a file, and for what is below a directory (LANDLOCK-2).
const OF_FILE: u64 = READ_FILE | WRITE_FILE;
const OF_DIRECTORY: u64 = OF_FILE | REFER;

const ASK_VERSION: u32 = 1;
const PATH_BENEATH: u32 = 1;

#[repr(C)]
struct RulesetAttributes {
    handled: u64,
}

#[repr(C, packed)]
struct PathAttributes {
    allowed: u64,
    parent: i32,
}

/// A ruleset, with what it was made from.
#[derive(Debug)]
pub struct Ruleset {
    descriptor: OwnedFd,
    /// The directories of which each entry was granted, with the moment of their last change.
    granted: Vec<(PathBuf, Change)>,
    /// What was mounted.
    mounts: String,
}

/// When a directory was last changed, in seconds and nanoseconds, and since clocks of file systems are coarse, how many
/// links and bytes it has; `None` where it is not there.
type Change = Option<(i64, i64, u64, u64)>;

impl Ruleset {
    /// Lets everything be opened but what is at these paths, now or later. It takes no privilege.
    pub fn all_but(paths: &[PathBuf]) -> Result<Self, FenceError> {
        let version = version()?;
        if version < VERSION_MIN {
            return Err(FenceError::OldLandlock(version));
        }
        let mounts = table(Path::new("/"))?;
        let refused = Refused::find(paths, &parsed(&mounts))?;
        let descriptor = create().map_err(|error| of_landlock("create a ruleset", error))?;
        let mut granted = Vec::new();
        for directory in &refused.directories {
            granted.push((directory.clone(), change_of(directory)));
            grant_entries(&descriptor, directory, &refused)?;
        }
        Ok(Self { descriptor, granted, mounts })
    }

    /// Whether one that is made now would be the same: nothing was mounted since, and nothing has come or gone in the
    /// directories on the way to what it refuses.
    pub fn is_current(&self) -> bool {
        table(Path::new("/")).is_ok_and(|mounts| mounts == self.mounts)
            && self.granted.iter().all(|(directory, change)| change_of(directory) == *change)
    }
}

impl AsFd for Ruleset {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Holds this process, and whatever it starts, to a ruleset for good. It must have one thread: the others would not be
/// held. Where that takes it, programs that run as their file's owner no longer do (`no_new_privs`).
pub fn restrict_self(ruleset: impl AsFd) -> Result<(), FenceError> {
    // A directory has a link for each one in it, and two of its own.
    let tasks = fs::metadata("/proc/self/task");
    let tasks = tasks.map_err(|error| FenceError::of_file("count the threads of this process".to_owned(), error))?;
    match tasks.nlink() - 2 {
        1 => restrict_thread(ruleset.as_fd()).map_err(|error| of_landlock("take on a ruleset", error)),
        several => Err(FenceError::SeveralThreads(several)),
    }
}

/// Holds this thread to a ruleset. Safe between fork and exec: it makes system calls and nothing else.
pub(crate) fn restrict_thread(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    match restrict(ruleset) {
        // Whoever has CAP_SYS_ADMIN needs no more.
        Err(Errno::PERM) => {
            rustix::thread::set_no_new_privs(true)?;
            restrict(ruleset)
        }
        result => result,
    }
}

fn version() -> Result<u32, FenceError> {
    // SAFETY: asked for its version the kernel takes no attributes.
    let result = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<RulesetAttributes>(), 0_usize, ASK_VERSION)
    };
    checked(result).map(|version| version as u32).map_err(|error| of_landlock("ask for the version of Landlock", error))
}

fn create() -> Result<OwnedFd, Errno> {
    let attributes = RulesetAttributes { handled: HANDLED };
    let size = size_of::<RulesetAttributes>();
    // SAFETY: the kernel reads `size` bytes of attributes that are laid out as it expects.
    let result = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0_u32) };
    // SAFETY: the kernel has made this descriptor for us.
    checked(result).map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

fn add(ruleset: &OwnedFd, file: &OwnedFd, allowed: u64) -> Result<(), Errno> {
    let attributes = PathAttributes { allowed, parent: file.as_raw_fd() };
    // SAFETY: the kernel reads attributes of a path, which are laid out as it expects.
    let result = unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), PATH_BENEATH, &raw const attributes, 0_u32)
    };
    checked(result).map(drop)
}

fn restrict(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the call takes numbers.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) }).map(drop)
}

fn checked(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result < 0 {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    } else {
        Ok(result)
    }
}

fn of_landlock(action: impl Into<String>, error: Errno) -> FenceError {
    let way = match error {
        Errno::NOSYS => Some("this kernel, or the sandbox that stands for it, has no Landlock (Linux 5.13)"),
        Errno::OPNOTSUPP => {
            Some("this kernel has Landlock and was started without it: `landlock` is missing in its option `lsm=`")
        }
        Errno::TOOBIG => Some("16 rulesets hold this process already, which is the most"),
        _ => None,
    };
    FenceError::Refused { action: action.into(), error, way }
}

/// What a ruleset must not grant.
#[derive(Debug, Default)]
struct Refused {
    /// Where it is, under all names.
    paths: BTreeSet<PathBuf>,
    /// What it is, where it is a device.
    nodes: Vec<Node>,
    /// The directories on the way there.
    directories: BTreeSet<PathBuf>,
}

impl Refused {
    /// LANDLOCK-1.
    fn find(paths: &[PathBuf], mounts: &[Mount]) -> Result<Self, FenceError> {
        let mut refused = Self::default();
        for path in paths {
            let real = real(path).map_err(|error| FenceError::of_file(format!("find {}", path.display()), error))?;
            refused.nodes.extend(Node::at(&real).ok().flatten());
            refused.paths.extend(names_of(&real, mounts));
        }
        if !refused.nodes.is_empty() {
            let elsewhere = mounts.iter().filter(|mount| mount.kind == "devtmpfs").map(|mount| mount.point.as_path());
            let places: BTreeSet<&Path> = elsewhere.chain([Path::new("/dev")]).collect();
            for place in places {
                find_nodes(place, &refused.nodes, DEPTH_MAX, &mut refused.paths);
            }
        }
        let above = refused.paths.iter().flat_map(|path| path.ancestors().skip(1)).map(Path::to_owned);
        refused.directories = above.collect();
        Ok(refused)
    }
}

/// A path without symbolic links. What is not there keeps its name, so that it is refused when it comes.
fn real(path: &Path) -> std::io::Result<PathBuf> {
    match (fs::canonicalize(path), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == ErrorKind::NotFound => Ok(real(parent)?.join(name)),
        (result, _, _) => result,
    }
}

/// Adds the nodes of these numbers below a directory, on its own file system.
fn find_nodes(directory: &Path, nodes: &[Node], depth: usize, found: &mut BTreeSet<PathBuf>) {
    let Ok(own) = rustix::fs::lstat(directory) else { return };
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(what) = rustix::fs::lstat(&path) else { continue };
        match FileType::from_raw_mode(what.st_mode) {
            FileType::Directory if depth > 1 && what.st_dev == own.st_dev => find_nodes(&path, nodes, depth - 1, found),
            _ if Node::of(&what).is_some_and(|node| nodes.contains(&node)) => drop(found.insert(path)),
            _ => {}
        }
    }
}

/// Grants all entries of a directory but those that are refused or lead there.
fn grant_entries(ruleset: &OwnedFd, directory: &Path, refused: &Refused) -> Result<(), FenceError> {
    let failed = |error| of_landlock(format!("list {}", directory.display()), error);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = match openat(CWD, directory, flags, Mode::empty()) {
        // Nothing in it is granted, and nobody gets to it.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(Errno::ACCESS) if matches!(rustix::fs::stat(directory.join(".")), Err(Errno::ACCESS)) => return Ok(()),
        result => result.map_err(failed)?,
    };
    for (count, entry) in Dir::read_from(&folder).map_err(failed)?.enumerate() {
        if count == ENTRIES_MAX {
            return Err(FenceError::TooManyEntries { directory: directory.to_owned(), limit: ENTRIES_MAX });
        }
        let entry = entry.map_err(failed)?;
        let path = directory.join(OsStr::from_bytes(entry.file_name().to_bytes()));
        let is_itself = [c".", c".."].contains(&entry.file_name());
        if is_itself || refused.paths.contains(&path) || refused.directories.contains(&path) {
            continue;
        }
        grant(ruleset, &folder, entry.file_name(), entry.file_type(), refused)
            .map_err(|error| of_landlock(format!("grant {}", path.display()), error))?;
    }
    Ok(())
}

/// Grants one entry. What a symbolic link leads to is granted where it is, and what is gone needs nothing.
fn grant(ruleset: &OwnedFd, folder: &OwnedFd, name: &CStr, kind: FileType, refused: &Refused) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(folder, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        result => result?,
    };
    // What is mounted over a directory is one, and may be a file system that answers nobody else.
    if kind == FileType::Directory {
        return add(ruleset, &file, OF_DIRECTORY);
    }
    let what = fstat(&file)?;
    match FileType::from_raw_mode(what.st_mode) {
        FileType::Symlink => Ok(()),
        FileType::Directory => add(ruleset, &file, OF_DIRECTORY),
        _ if Node::of(&what).is_some_and(|node| refused.nodes.contains(&node)) => Ok(()),
        _ => add(ruleset, &file, OF_FILE),
    }
}

fn change_of(directory: &Path) -> Change {
    let found = fs::metadata(directory).ok()?;
    Some((found.mtime(), found.mtime_nsec(), found.nlink(), found.size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_kernel_s_sizes() {
        assert_eq!((size_of::<RulesetAttributes>(), size_of::<PathAttributes>()), (8, 12));
    }

    #[test]
    fn a_directory_changes_with_what_is_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let before = change_of(folder.path());
        assert_eq!(change_of(folder.path()), before);
        fs::create_dir(folder.path().join("dri")).expect("made");
        assert_ne!(change_of(folder.path()), before);
        assert_eq!(change_of(&folder.path().join("none")), None);
    }

    #[test]
    fn a_node_that_is_not_there_is_refused_by_the_name_that_it_will_have() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = fs::canonicalize(folder.path()).expect("it is there");
        fs::create_dir(place.join("dev")).expect("made");
        std::os::unix::fs::symlink(place.join("dev"), place.join("link")).expect("made");
        let late = place.join("link/dri/card1");
        let refused = Refused::find(&[late], &[]).expect("found");
        assert_eq!(refused.paths, BTreeSet::from([place.join("dev/dri/card1")]));
        assert!(refused.directories.contains(&place.join("dev/dri")), "{:?}", refused.directories);
        assert!(refused.directories.contains(Path::new("/")), "{:?}", refused.directories);
    }

    #[test]
    fn a_node_of_a_refused_number_in_dev_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = fs::canonicalize(folder.path()).expect("it is there");
        std::os::unix::fs::symlink("/dev/null", place.join("link")).expect("made");
        let found = Refused::find(&[place.join("link")], &[]).expect("found");
        assert_eq!((found.paths, found.nodes.len()), (BTreeSet::from([PathBuf::from("/dev/null")]), 1));
        // What is no device has no number.
        let found = Refused::find(&[place.join("null")], &[]).expect("found");
        assert_eq!((found.paths, found.nodes.len()), (BTreeSet::from([place.join("null")]), 0));
    }
}
