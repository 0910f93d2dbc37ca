//! Who descends from whom, read from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

/// The PID namespace of this process, by the inode that names it: elsewhere its process numbers mean other processes.
pub fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// The living and unreaped children of `pid`.
pub fn children_of(pid: u32) -> Vec<u32> {
    if kernel_lists_children() { listed_children(pid) } else { scan().remove(&pid).unwrap_or_default() }
}

/// The parent of `pid`, the parent of that, and so on; none where it is gone.
pub fn ancestors_of(pid: u32) -> Vec<u32> {
    let parent = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        parent_in_stat(&stat).filter(|parent| *parent > 0)
    };
    std::iter::successors(parent(&pid), parent).take(DEPTH_MAX).collect()
}

/// What the kernel calls a process, as `ps` shows it; nothing where it is gone, or is not shown to this user.
pub fn name_of(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Everything below `pid`, parents before their children.
pub fn descendants_of(pid: u32) -> Vec<u32> {
    let mut scanned = (!kernel_lists_children()).then(scan);
    let mut found = Vec::new();
    let mut next = 0;
    let mut parent = pid;
    loop {
        match &mut scanned {
            Some(children) => found.extend(children.remove(&parent).unwrap_or_default()),
            None => found.extend(listed_children(parent)),
        }
        let Some(pid) = found.get(next) else { return found };
        parent = *pid;
        next += 1;
    }
}

/// The processes of this user that were started with this environment variable, or descend from one that was; this
/// process is not among them.
pub fn started_with(name: &str, value: &[u8]) -> Vec<u32> {
    let wanted = [name.as_bytes(), b"=", value].concat();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            variables.split(|byte| *byte == 0).any(|variable| variable == wanted)
        })
        .collect()
}

/// Kernels built without `CONFIG_PROC_CHILDREN` lack the file.
fn kernel_lists_children() -> bool {
    static LISTS: OnceLock<bool> = OnceLock::new();
    *LISTS.get_or_init(|| fs::exists("/proc/thread-self/children").unwrap_or(false))
}

/// No process is further below the first one.
const DEPTH_MAX: usize = 1_000;

/// A child is listed under the thread that forked it.
fn listed_children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Every process by its parent.
fn scan() -> BTreeMap<u32, Vec<u32>> {
    let mut by_parent: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let parent = fs::read_to_string(entry.path().join("stat")).ok().and_then(|stat| parent_in_stat(&stat));
        by_parent.entry(parent.unwrap_or(0)).or_default().push(pid);
    }
    by_parent
}

/// The program's name stands in parentheses and may hold anything, parentheses too.
fn parent_in_stat(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_program_name_does_not_hide_the_parent() {
        assert_eq!(parent_in_stat("12 (a) R 1 (b)) S 77 12 12 0"), Some(77));
        assert_eq!(parent_in_stat("nonsense"), None);
    }

    #[test]
    fn scanning_and_listing_agree() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("cat");
        let own = std::process::id();
        assert!(scan().get(&own).is_some_and(|children| children.contains(&child.id())));
        assert!(children_of(own).contains(&child.id()));
        assert_eq!(ancestors_of(child.id())[0], own);
        assert_eq!(ancestors_of(u32::MAX), []);
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }
}
