//! Nodes that processes of a cgroup are refused, by both versions.

use crate::attempts::{NO_DRIVER, REFUSED, StandIns, all_ways, shell, tried, unique_name, versions};
use oxiray_fence::{CgroupVersion, DaemonCgroup, DenyList, DenyRule, FenceError, Node, NodeKind, WorkerCgroup, enter};
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn list(nodes: &[Node]) -> DenyList {
    DenyList::new(nodes.iter().map(|node| DenyRule::from(*node))).expect("a short list")
}

/// Enters the cgroup, as a child does when it is born.
fn entering(worker: &WorkerCgroup) -> impl FnMut() -> io::Result<()> + Send + Sync + Clone + 'static {
    let directory: Arc<OwnedFd> = Arc::new(worker.directory().try_clone_to_owned().expect("a descriptor"));
    move || Ok(enter(directory.as_fd())?)
}

/// A daemon's cgroup with that of a worker, which is refused these nodes.
fn refusing(version: CgroupVersion, denied: &DenyList) -> (DaemonCgroup, WorkerCgroup) {
    let mut daemon = DaemonCgroup::make(version, &unique_name()).expect("the probe made one");
    let mut worker = daemon.make_worker().expect("made");
    daemon.refuse(&mut worker, denied).expect("refused");
    (daemon, worker)
}

/// Nothing is left of it.
fn remove(daemon: DaemonCgroup) {
    let path = daemon.path().to_owned();
    daemon.remove().expect("nobody is in it");
    assert!(!path.exists());
}

#[test]
fn a_refused_node_cannot_be_opened_by_anybody_by_any_name() {
    let Some(nodes) = StandIns::make() else { return };
    for version in versions() {
        let (daemon, worker) = refusing(version, &list(&[nodes.char(1), nodes.char(2)]));
        for (way, said) in all_ways(&nodes.path("1"), entering(&worker)) {
            assert!(said.contains(REFUSED), "{version}, {way}: {said}");
        }
        for (way, said) in all_ways(&nodes.path("0"), entering(&worker)) {
            assert!(said.contains(NO_DRIVER), "{version}, own node, {way}: {said}");
        }
        let open = |name: &str| tried("cat \"$1\"", &[nodes.path(name)], entering(&worker));
        assert!(open("again").contains(REFUSED), "{version}: {}", open("again"));
        // Block devices have numbers of their own.
        assert!(open("block").contains(NO_DRIVER), "{version}: {}", open("block"));
        assert_eq!(tried("stat -c %F \"$1\"", &[nodes.path("1")], entering(&worker)), "character special file");
        assert_eq!(tried("head -c 1 /dev/zero | wc -c", &[""; 0], entering(&worker)), "1");
        let make = |name: &str, minor: &str| {
            let words = [nodes.path(name).into_os_string(), nodes.major.to_string().into(), minor.into()];
            tried("mknod \"$1\" c $2 $3 && echo made", &words, entering(&worker))
        };
        assert!(make("third", "1").contains(REFUSED), "{version}: {}", make("third", "1"));
        assert_eq!(make(&format!("fourth of {version}"), "7"), "made");
        remove(daemon);
    }
}

#[test]
fn all_nodes_of_a_driver_are_refused_at_once() {
    let Some(nodes) = StandIns::make() else { return };
    for version in versions() {
        let all = DenyRule { kind: NodeKind::Char, major: nodes.major, minor: None };
        let (daemon, worker) = refusing(version, &DenyList::new([all]).expect("one rule"));
        for name in ["0", "1", "2", "again"] {
            let said = tried("cat \"$1\"", &[nodes.path(name)], entering(&worker));
            assert!(said.contains(REFUSED), "{version}, {name}: {said}");
        }
        assert!(tried("cat \"$1\"", &[nodes.path("block")], entering(&worker)).contains(NO_DRIVER));
        remove(daemon);
    }
}

#[test]
fn a_fence_is_exchanged_under_a_running_process() {
    let Some(nodes) = StandIns::make() else { return };
    for version in versions() {
        let (mut daemon, mut worker) = refusing(version, &DenyList::default());
        let script = "while read -r line; do cat \"$1\" \"$2\" 2>&1 | tr '\\n' ' '; echo; done";
        let mut process = shell(script, &[nodes.path("1"), nodes.path("2")], entering(&worker))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut orders = process.stdin.take().expect("piped");
        let mut answers = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut ask = move || {
            writeln!(orders, "go").expect("it reads");
            let said = answers.next().expect("it answers").expect("text");
            [1, 2].map(|node| {
                let of_node = said.split("cat: ").nth(node).expect("one for each node");
                assert!(of_node.contains(REFUSED) != of_node.contains(NO_DRIVER), "{said}");
                of_node.contains(REFUSED)
            })
        };
        assert_eq!(ask(), [false, false], "{version}");
        let [first, second] = [1, 2].map(|minor| list(&[nodes.char(minor)]));
        // The second round finds the programs loaded.
        for _ in 0..2 {
            daemon.refuse(&mut worker, &first).expect("exchanged");
            assert_eq!(ask(), [true, false], "{version}");
            daemon.refuse(&mut worker, &first).expect("nothing to be done");
            daemon.refuse(&mut worker, &second).expect("exchanged");
            assert_eq!(ask(), [false, true], "{version}");
            daemon.refuse(&mut worker, &list(&[nodes.char(1), nodes.char(2)])).expect("exchanged");
            assert_eq!(ask(), [true, true], "{version}");
            daemon.refuse(&mut worker, &DenyList::default()).expect("exchanged");
            assert_eq!(ask(), [false, false], "{version}");
        }
        drop(ask);
        process.wait().expect("it has nothing more to read");
        remove(daemon);
    }
}

#[test]
fn a_cgroup_is_removed_only_when_nobody_is_in_it() {
    for version in versions() {
        let (daemon, worker) = refusing(version, &DenyList::default());
        assert!(!worker.is_populated());
        let mut process = shell("exec cat", &[""; 0], entering(&worker)).stdin(Stdio::piped()).spawn().expect("cat");
        assert!(worker.is_populated(), "{version}");
        let error = worker.remove().expect_err("somebody is in it");
        let expected = FenceError::Occupied { directory: worker.path().to_owned(), pids: vec![process.id()] };
        assert_eq!(error, expected, "{version}");
        drop(process.stdin.take());
        process.wait().expect("it ends");
        assert!(!worker.is_populated(), "{version}");
        // A process of root can make cgroups in its own.
        fs::create_dir_all(worker.path().join("made/within")).expect("made");
        worker.remove().expect("nobody is in it");
        assert!(!worker.path().exists(), "{version}");
        worker.remove().expect("it is gone already");
        remove(daemon);
    }
}

#[test]
fn what_a_dead_daemon_left_is_removed_and_what_a_living_one_has_is_not() {
    for version in versions() {
        let (living, of_living) = refusing(version, &DenyList::default());
        let (dead, of_dead) = refusing(version, &DenyList::default());
        let own = DaemonCgroup::make(version, &unique_name()).expect("made");
        fs::create_dir(of_dead.path().join("within")).expect("made");
        let nest = WorkerCgroup::at(version, of_dead.path().join("within")).expect("it is there");
        let left = ["a worker", "a child in a cgroup further down"].into_iter().zip([&of_dead, &nest]);
        let mut left: Vec<_> = left
            .map(|(what, place)| {
                let process = shell("exec cat", &[""; 0], entering(place)).stdin(Stdio::piped()).spawn();
                let mut process = process.expect("cat");
                // It would end with that.
                (what, process.stdin.take(), process)
            })
            .collect();
        let place = dead.path().to_owned();
        assert!(own.sweep().iter().all(|(path, _)| *path != place), "FENCE-5: it lives");
        drop(dead);
        // Children that other tests fork have the lock until they run their program.
        let deadline = Instant::now() + Duration::from_secs(30);
        while place.exists() {
            assert!(Instant::now() < deadline, "{version}: it is dead");
            for (path, result) in own.sweep() {
                assert_ne!(path, living.path(), "FENCE-5");
                assert_eq!(result, Ok(()), "{version}: {}", path.display());
            }
        }
        for (what, _, process) in &mut left {
            let status = process.wait().expect("it was killed");
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&status),
                Some(libc::SIGKILL),
                "{version}: {what}"
            );
        }
        assert!(of_living.path().exists());
        remove(own);
        remove(living);
    }
}

#[test]
fn a_daemon_ends_whoever_is_left_with_its_own_cgroup() {
    for version in versions() {
        let (daemon, worker) = refusing(version, &DenyList::default());
        let mut process =
            shell("cat & cat", &[""; 0], entering(&worker)).stdin(Stdio::piped()).spawn().expect("a shell");
        remove(daemon);
        let status = process.wait().expect("it was killed");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL), "{version}");
    }
}

#[test]
fn a_fence_within_another_opens_nothing() {
    let Some(nodes) = StandIns::make() else { return };
    for version in versions() {
        let [first, second] = [1, 2].map(|minor| list(&[nodes.char(minor)]));
        let (mut daemon, outer) = refusing(version, &first);
        let mut inner = WorkerCgroup::at(version, made(outer.path(), "within")).expect("it is there");
        let says = |worker: &WorkerCgroup, refused: [bool; 2]| {
            for (name, refused) in ["1", "2"].into_iter().zip(refused) {
                let said = tried("cat \"$1\"", &[nodes.path(name)], entering(worker));
                assert!(said.contains(if refused { REFUSED } else { NO_DRIVER }), "{version}, {name}: {said}");
            }
        };
        says(&inner, [true, false]);
        daemon.refuse(&mut inner, &second).expect("refused");
        says(&inner, [true, true]);
        daemon.refuse(&mut inner, &first).expect("exchanged");
        says(&inner, [true, false]);
        daemon.refuse(&mut inner, &DenyList::default()).expect("exchanged");
        // FENCE-3
        says(&inner, [true, false]);
        remove(daemon);
    }
}

#[test]
fn a_name_that_is_taken_gets_a_number() {
    for version in versions() {
        let name = unique_name();
        let [first, second] = [0, 1].map(|_| DaemonCgroup::make(version, &name).expect("made"));
        let file_name = |daemon: &DaemonCgroup| daemon.path().file_name().expect("a name").to_owned();
        assert_eq!(file_name(&first).to_str(), Some(format!("oxiray-fence-{name}").as_str()));
        assert_eq!(file_name(&second).to_str(), Some(format!("oxiray-fence-{name}.1").as_str()));
        remove(first);
        remove(second);
    }
}

/// A directory made by hand.
fn made(around: &Path, name: &str) -> PathBuf {
    let path = around.join(name);
    fs::create_dir(&path).expect("made");
    path
}

/// The cgroup of a worker within one that allows these devices alone.
fn worker_within(daemon: &DaemonCgroup, name: &str, allowed: &[String]) -> WorkerCgroup {
    let around = made(daemon.path(), name);
    fs::write(around.join("devices.deny"), "a").expect("written");
    for entry in allowed {
        fs::write(around.join("devices.allow"), entry).expect("written");
    }
    WorkerCgroup::at(CgroupVersion::One, made(&around, "w")).expect("it is there")
}

#[test]
fn what_is_refused_further_up_stays_so_and_what_cannot_be_refused_is_told() {
    if !versions().contains(&CgroupVersion::One) {
        return;
    }
    let mut daemon = DaemonCgroup::make(CgroupVersion::One, &unique_name()).expect("made");
    let node = |minor| Node { kind: NodeKind::Char, major: 195, minor };
    let mut worker = worker_within(&daemon, "driver", &["c 195:* rwm".to_owned()]);
    let error = daemon.refuse(&mut worker, &list(&[node(1)])).expect_err("the kernel takes nothing away there");
    assert!(matches!(&error, FenceError::StillAllowed { entry, .. } if entry == "c 195:* rwm"), "{error}");

    let mut worker = worker_within(&daemon, "nodes", &[1, 2].map(|minor| format!("c 195:{minor} rwm")));
    daemon.refuse(&mut worker, &list(&[node(0), node(1)])).expect("refused");
    daemon.refuse(&mut worker, &list(&[node(1)])).expect("exchanged");
    let read = fs::read_to_string(worker.path().join("devices.list")).expect("it is there");
    assert_eq!(read.trim(), "c 195:2 rwm", "FENCE-3");
    remove(daemon);
}
