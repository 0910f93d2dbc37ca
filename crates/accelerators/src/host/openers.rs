//! Which processes have device nodes open, by the links in `/proc/<pid>/fd`.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use oxiray_families::DeviceNode;

use super::number_of;

/// The most processes, and the most open files of one, that are looked at.
const ENTRIES_LIMIT: usize = 1 << 16;

/// The processes below `processes` that have one of the nodes open; `None` where there are none to be seen. Those that may not
/// be looked at are left out. A recorded machine's links name the path of a node, and a real one's lead to it by whatever name
/// it was opened.
pub(super) fn of(processes: &Path, nodes: &[DeviceNode], is_recorded: bool) -> Option<Vec<u32>> {
    let entries = fs::read_dir(processes).ok()?.take(ENTRIES_LIMIT);
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut pids: Vec<u32> = pids.collect();
    if pids.is_empty() {
        return None;
    }
    pids.sort_unstable();
    pids.retain(|pid| {
        let Ok(links) = fs::read_dir(processes.join(format!("{pid}/fd"))) else { return false };
        let mut links = links.take(ENTRIES_LIMIT).filter_map(|link| Some(link.ok()?.path()));
        links.any(|link| if is_recorded { names(&link, nodes) } else { leads_to(&link, nodes) })
    });
    Some(pids)
}

fn names(link: &Path, nodes: &[DeviceNode]) -> bool {
    fs::read_link(link).is_ok_and(|target| nodes.iter().any(|node| Path::new(&node.path) == target))
}

fn leads_to(link: &Path, nodes: &[DeviceNode]) -> bool {
    let Ok(found) = fs::metadata(link) else { return false };
    let number = Some(number_of(found.rdev()));
    found.file_type().is_char_device() && nodes.iter().any(|node| node.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_families::NodeNumber;

    fn node(path: &str, major: u32, minor: u32) -> DeviceNode {
        DeviceNode { path: path.to_owned(), number: Some(NodeNumber { major, minor }) }
    }

    #[test]
    fn a_node_is_known_by_its_numbers_whatever_its_name() {
        let _open = fs::File::open("/dev/full").expect("it is there");
        let own = std::process::id();
        let found = of(Path::new("/proc"), &[node("/dev/other", 1, 7)], false).expect("processes");
        assert!(found.contains(&own), "{found:?}");
        let found = of(Path::new("/proc"), &[node("/dev/full", 195, 77)], false).expect("processes");
        assert!(found.is_empty(), "nobody has a device of these numbers");
        assert_eq!(of(Path::new("/no/such/folder"), &[], false), None, "no process can be seen");
    }
}
