//! The cgroup that this process is in.
//!
//! OWN-CGROUP-1: a directory counts as this process's cgroup only where it lists the process. In a container the path
//! of `/proc/self/cgroup` may be the host's, and what is mounted only a part of the hierarchy, or another one's.

use crate::FenceError;
use crate::mounts::{Mount, parsed, table};
use crate::tree::pids_in;
use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The controller of version 1.
const CONTROLLER: &str = "devices";

/// Of cgroups. On a hybrid machine both are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// The hierarchy with the controller `devices`.
    One,
    /// The unified hierarchy, where devices are a program's to refuse.
    Two,
}

impl fmt::Display for CgroupVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if *self == Self::One { "cgroup v1" } else { "cgroup v2" })
    }
}

/// The directory of this process's cgroup, on the machine whose files are under `root`.
pub(crate) fn own_cgroup(root: &Path, version: CgroupVersion) -> Result<PathBuf, FenceError> {
    let missing = || FenceError::NoHierarchy(version);
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).map_err(|_| missing())?;
    let path = path_in(&groups, version).ok_or_else(missing)?;
    let mounts = parsed(&table(root)?);
    let places: Vec<PathBuf> = mounts
        .iter()
        .filter(|mount| is_hierarchy(mount, version))
        .flat_map(|mount| beneath(mount, path))
        .map(|place| root.join(place.strip_prefix("/").unwrap_or(&place)))
        .collect();
    let own = std::process::id();
    let found = places.iter().find(|place| pids_in(place).contains(&own)).cloned();
    found.ok_or_else(|| match places.into_iter().next() {
        Some(directory) => FenceError::NotVisible { version, directory },
        None => missing(),
    })
}

/// The path in the hierarchy, from the text of `/proc/self/cgroup`.
fn path_in(groups: &str, version: CgroupVersion) -> Option<&Path> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_it = match version {
            CgroupVersion::One => controllers.split(',').any(|controller| controller == CONTROLLER),
            CgroupVersion::Two => controllers.is_empty(),
        };
        is_it.then(|| Path::new(path))
    })
}

fn is_hierarchy(mount: &Mount, version: CgroupVersion) -> bool {
    match version {
        CgroupVersion::One => mount.kind == "cgroup" && mount.options.split(',').any(|option| option == CONTROLLER),
        CgroupVersion::Two => mount.kind == "cgroup2",
    }
}

/// Where a mount may show the cgroup at a path: relative to what it shows of the hierarchy, and, since within a
/// namespace of cgroups paths are relative to that, relative to its point.
fn beneath(mount: &Mount, path: &Path) -> Vec<PathBuf> {
    let relative = [path.strip_prefix(&mount.root), path.strip_prefix("/")];
    let is_plain = |within: &&Path| within.components().all(|part| matches!(part, Component::Normal(_)));
    relative.into_iter().flatten().filter(is_plain).map(|within| mount.point.join(within)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    /// A machine with these files, in some of which `PID` stands for this process.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().expect("within the root")).expect("made");
            fs::write(file, text.replace("PID", &std::process::id().to_string())).expect("written");
        }
        root
    }

    fn own(root: &tempfile::TempDir, version: CgroupVersion) -> Result<String, String> {
        let found = own_cgroup(root.path(), version).map_err(|error| error.to_string())?;
        Ok(found.strip_prefix(root.path()).expect("within the root").display().to_string())
    }

    #[test]
    fn on_a_hybrid_machine_there_are_both() {
        let root = machine(&[
            ("proc/self/cgroup", "5:devices:/batch/job\n4:memory:/\n0::/user.slice/a b\n"),
            ("proc/thread-self/mountinfo", HYBRID),
            ("sys/fs/cgroup/devices/batch/job/cgroup.procs", "1\nPID\n"),
            ("sys/fs/cgroup/unified/user.slice/a b/cgroup.procs", "PID\n"),
        ]);
        assert_eq!(own(&root, CgroupVersion::One).as_deref(), Ok("sys/fs/cgroup/devices/batch/job"));
        assert_eq!(own(&root, CgroupVersion::Two).as_deref(), Ok("sys/fs/cgroup/unified/user.slice/a b"));
    }

    #[test]
    fn in_a_container_what_is_mounted_is_the_process_s_own() {
        // Without a namespace of cgroups the path is the host's, and the mount shows that part of it.
        let shown = machine(&[
            ("proc/self/cgroup", "0::/docker/ab12\n"),
            ("proc/thread-self/mountinfo", "50 40 0:30 /docker/ab12 /sys/fs/cgroup ro - cgroup2 cgroup rw\n"),
            ("sys/fs/cgroup/cgroup.procs", "PID\n"),
        ]);
        assert_eq!(own(&shown, CgroupVersion::Two).as_deref(), Ok("sys/fs/cgroup"));
        // With one, the path is relative to it, and the mount may say that it lies further up.
        let within = machine(&[
            ("proc/self/cgroup", "0::/leaf\n"),
            ("proc/thread-self/mountinfo", "50 40 0:30 /../.. /sys/fs/cgroup rw - cgroup2 cgroup rw\n"),
            ("sys/fs/cgroup/leaf/cgroup.procs", "PID\n"),
        ]);
        assert_eq!(own(&within, CgroupVersion::Two).as_deref(), Ok("sys/fs/cgroup/leaf"));
    }

    #[test]
    fn a_cgroup_of_others_is_not_this_process_s() {
        let root = machine(&[
            ("proc/self/cgroup", "0::/../escape\n5:devices:/\n"),
            ("proc/thread-self/mountinfo", HYBRID),
            ("sys/fs/cgroup/devices/cgroup.procs", "1\n"),
            ("sys/fs/cgroup/escape/cgroup.procs", "PID\n"),
        ]);
        let said = own(&root, CgroupVersion::One).expect_err("OWN-CGROUP-1");
        assert!(said.contains("not visible") && said.contains("/sys/fs/cgroup/devices"), "{said}");
        let said = own(&root, CgroupVersion::Two).expect_err("it leads out of the mount");
        assert_eq!(said, "no cgroup v2 hierarchy for devices is mounted here, or this process is in no cgroup of it");
    }

    #[test]
    fn a_machine_without_the_hierarchy_says_so() {
        let root = machine(&[("proc/self/cgroup", "4:memory:/\n0::/\n"), ("proc/thread-self/mountinfo", "")]);
        for version in [CgroupVersion::One, CgroupVersion::Two] {
            assert_eq!(own_cgroup(root.path(), version), Err(FenceError::NoHierarchy(version)));
        }
    }
}
