//! Nodes that stand for accelerators, and processes that try to open them.

use oxiray_fence::{CgroupVersion, Mechanism, Node, NodeKind};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// What opening a node says: that it was refused by number, that it was let through and there is no driver, that it was
/// refused by path.
pub(crate) const REFUSED: &str = "Operation not permitted";
pub(crate) const NO_DRIVER: &str = "No such device or address";
pub(crate) const DENIED: &str = "Permission denied";

/// The name of a cgroup that no other test has.
pub(crate) fn unique_name() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed))
}

/// Whether the kernel has a mechanism; the reason is printed where it does not.
pub(crate) fn has(mechanism: Mechanism) -> bool {
    let tried = mechanism.probe(&unique_name());
    if let Err(error) = &tried {
        println!("skipped: {mechanism}: {error}");
    }
    tried.is_ok()
}

/// The versions of cgroups by which nodes can be refused here.
pub(crate) fn versions() -> Vec<CgroupVersion> {
    let both = [(Mechanism::Cgroup, CgroupVersion::Two), (Mechanism::Cgroup1, CgroupVersion::One)];
    both.into_iter().filter(|(mechanism, _)| has(*mechanism)).map(|(_, version)| version).collect()
}

/// Nodes of a driver that does not exist: to open one says so, unless it is refused before.
pub(crate) struct StandIns {
    folder: TempDir,
    pub(crate) major: u32,
}

impl StandIns {
    /// Three character devices `0` to `2`, a second name `again` of device 1, and a block device `block` of its number.
    pub(crate) fn make() -> Option<Self> {
        let stand_ins = Self { folder: tempfile::tempdir().expect("a folder"), major: major_without_driver() };
        let nodes = [("0", 0), ("1", 1), ("2", 2), ("again", 1)].map(|(name, minor)| (name, NodeKind::Char, minor));
        for (name, kind, minor) in nodes.into_iter().chain([("block", NodeKind::Block, 1)]) {
            if let Err(error) = make_node(&stand_ins.path(name), stand_ins.node(kind, minor)) {
                println!("skipped: device nodes cannot be made here: {error}");
                return None;
            }
        }
        let said = tried("cat \"$1\"", &[stand_ins.path("0")], || Ok(()));
        if !said.contains(NO_DRIVER) {
            println!("skipped: device nodes of {} are not looked at: {said}", stand_ins.folder.path().display());
            return None;
        }
        Some(stand_ins)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn node(&self, kind: NodeKind, minor: u32) -> Node {
        Node { kind, major: self.major, minor }
    }

    pub(crate) fn char(&self, minor: u32) -> Node {
        self.node(NodeKind::Char, minor)
    }
}

/// One of those numbers that the kernel leaves to experiments.
fn major_without_driver() -> u32 {
    let drivers = fs::read_to_string("/proc/devices").expect("it is always there");
    let taken: Vec<u32> = drivers.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    (240..=254).find(|major| !taken.contains(major)).expect("one of them is free")
}

pub(crate) fn make_node(path: &Path, node: Node) -> io::Result<()> {
    let kind = if node.kind == NodeKind::Char { FileType::CharacterDevice } else { FileType::BlockDevice };
    let mode = Mode::from_raw_mode(0o666);
    Ok(mknodat(CWD, path, kind, mode, makedev(node.major, node.minor))?)
}

/// A shell that runs a script with arguments from `$1` on, after `first` has run in its process. Its own descriptors go
/// on to what it starts.
pub(crate) fn shell<First>(script: &str, arguments: &[impl AsRef<OsStr>], first: First) -> Command
where
    First: FnMut() -> io::Result<()> + Send + Sync + 'static,
{
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, "sh"]).args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
    // SAFETY: what tests run there makes system calls and nothing else.
    unsafe { command.pre_exec(first) };
    command
}

/// All that a script prints, see [`shell`].
pub(crate) fn tried<First>(script: &str, arguments: &[impl AsRef<OsStr>], first: First) -> String
where
    First: FnMut() -> io::Result<()> + Send + Sync + 'static,
{
    let output = shell(script, arguments, first).output().expect("a shell that takes on its fence");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned()
}

/// The number of a descriptor that children are given, larger than any that a test has.
pub(crate) const GIVEN: i32 = 250;

/// Ways to a node other than opening it by its name in the process that took on the fence. The node is `$1`; descriptor
/// 250 names it without having opened it.
const WAYS: [(&str, &str); 7] = [
    ("a child", "cat \"$1\""),
    ("the process itself, after exec", "exec cat \"$1\""),
    ("a child of a child", "sh -c 'sh -c \"cat \\\"$1\\\"; true\" sh \"$1\"; true' sh \"$1\""),
    ("a child in a session of its own", "setsid sh -c 'cat \"$1\"; true' sh \"$1\""),
    ("an orphan", "(cat \"$1\" &) | cat"),
    ("a descriptor that is opened again", "cat /proc/self/fd/250"),
    ("writing", "{ echo a > \"$1\"; } 2>&1"),
];

/// Has this child, and what it starts, have a descriptor under the number [`GIVEN`].
pub(crate) fn give(descriptor: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: nothing of this child has that number.
    let given = unsafe { libc::dup2(descriptor.as_raw_fd(), GIVEN) };
    if given == GIVEN { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What each of the [`WAYS`] says of a node.
pub(crate) fn all_ways<First>(path: &Path, first: First) -> Vec<(&'static str, String)>
where
    First: FnMut() -> io::Result<()> + Send + Sync + Clone + 'static,
{
    let way = |(what, script): (&'static str, &str)| {
        let (mut first, path) = (first.clone(), path.to_owned());
        let text = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
        let said = tried(script, &[path], move || {
            first()?;
            give(&rustix::fs::open(text.as_c_str(), rustix::fs::OFlags::PATH, Mode::empty())?)
        });
        (what, said)
    };
    WAYS.into_iter().map(way).collect()
}
