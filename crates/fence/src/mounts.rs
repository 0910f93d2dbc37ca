//! The table of mounts of this process.

use crate::FenceError;
use std::fs;
use std::path::{Path, PathBuf};

/// The file. A thread may have a table of its own.
const TABLE: &str = "proc/thread-self/mountinfo";

/// What is mounted somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The file system, by its device number.
    pub(crate) file_system: String,
    /// Which part of it.
    pub(crate) root: PathBuf,
    /// Where.
    pub(crate) point: PathBuf,
    /// The type of the file system.
    pub(crate) kind: String,
    /// The options of the file system, among them the controllers of a hierarchy of cgroups.
    pub(crate) options: String,
}

/// The text of the table of the machine under `root`.
pub(crate) fn table(root: &Path) -> Result<String, FenceError> {
    let file = root.join(TABLE);
    fs::read_to_string(&file).map_err(|error| FenceError::of_file(format!("read {}", file.display()), error))
}

/// The mounts of a table, in the order in which they were made.
pub(crate) fn parsed(table: &str) -> Vec<Mount> {
    table.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(2);
    let (file_system, root, point) = (fields.next()?, fields.next()?, fields.next()?);
    let mut rest = after.split(' ');
    let (kind, options) = (rest.next()?, rest.nth(1)?);
    Some(Mount {
        file_system: file_system.to_owned(),
        root: unescaped(root),
        point: unescaped(point),
        kind: kind.to_owned(),
        options: options.to_owned(),
    })
}

/// Blanks of a path are octal numbers in the table.
fn unescaped(path: &str) -> PathBuf {
    PathBuf::from(path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\"))
}

/// The paths under which mounts show what is at `path`, itself among them.
pub(crate) fn names_of(path: &Path, mounts: &[Mount]) -> Vec<PathBuf> {
    let around = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    // Of those at one point the last lies on top.
    let Some(holder) = around.max_by_key(|mount| mount.point.components().count()) else {
        return vec![path.to_owned()];
    };
    let within = holder.root.join(path.strip_prefix(&holder.point).expect("the holder's point is a prefix"));
    let of_file_system = mounts.iter().filter(|mount| mount.file_system == holder.file_system);
    of_file_system.filter_map(|mount| Some(mount.point.join(within.strip_prefix(&mount.root).ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
        23 1 254:0 / / rw - ext4 /dev/vda rw\n\
        25 23 0:6 / /dev rw,relatime shared:2 - devtmpfs devtmpfs rw,mode=755\n\
        26 25 0:25 / /dev/shm rw - tmpfs tmpfs rw\n\
        40 23 0:6 /dri /srv/with\\040blank rw - devtmpfs devtmpfs rw\n\
        41 23 0:6 /nvidia1 /opt/gpu rw - devtmpfs devtmpfs rw\n\
        42 23 254:0 /home /mnt/home rw - ext4 /dev/vda rw\n";

    fn names(path: &str) -> Vec<String> {
        let names = names_of(Path::new(path), &parsed(TABLE));
        names.iter().map(|name| name.components().collect::<PathBuf>().display().to_string()).collect()
    }

    #[test]
    fn mounts_give_a_file_other_names() {
        assert_eq!(names("/dev/nvidia1"), ["/dev/nvidia1", "/opt/gpu"]);
        assert_eq!(names("/opt/gpu"), ["/dev/nvidia1", "/opt/gpu"]);
        assert_eq!(names("/dev/dri/card1"), ["/dev/dri/card1", "/srv/with blank/card1"]);
        assert_eq!(names("/dev/shm/a"), ["/dev/shm/a"]);
        assert_eq!(names("/home/root/dev/x"), ["/home/root/dev/x", "/mnt/home/root/dev/x"]);
    }

    #[test]
    fn the_last_of_several_mounts_at_one_point_counts() {
        let table = format!("{TABLE}50 23 0:60 / /dev rw - tmpfs tmpfs rw\n");
        assert_eq!(names_of(Path::new("/dev/nvidia1"), &parsed(&table)), [Path::new("/dev/nvidia1")]);
    }

    #[test]
    fn what_is_no_table_has_no_mounts() {
        assert_eq!(parsed("nonsense\n1 2 3\n - \n"), []);
    }
}
