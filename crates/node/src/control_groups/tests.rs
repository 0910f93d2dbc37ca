//! Groups of both versions, recorded as folders: a folder knows no controllers, and holds what is written.

use super::*;
use std::time::SystemTime;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("written");
    }
    folder
}

fn own_pid() -> String {
    std::process::id().to_string()
}

#[test]
fn options_follow_the_environment() {
    let of = |pairs: &[(&str, &str)]| {
        Options::of(&pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    };
    assert_eq!(of(&[]), (Options { memory: true, processes: 4096, device_memory: false }, None));
    let given = [(MEMORY_VARIABLE, "0"), (PROCESSES_VARIABLE, "64")];
    assert_eq!(of(&given), (Options { memory: false, processes: 64, device_memory: false }, None));
    let (options, wrong) = of(&[(PROCESSES_VARIABLE, "many")]);
    assert_eq!(options.processes, 4096);
    assert!(wrong.expect("a complaint").contains("OXIRAY_WORKER_PIDS_MAX is `many`"));
}

#[test]
fn a_worker_may_have_half_of_the_processes_that_there_may_be() {
    let options = Options { memory: true, processes: 4096, device_memory: false };
    let within = |tightest| options.processes_within(tightest);
    assert_eq!([within(None), within(Some(32_768.0)), within(Some(120.0)), within(Some(1.0))], [4096, 4096, 60, 1]);
}

#[test]
fn a_group_that_holds_others_is_not_divided() {
    let own = folder(&[
        ("cgroup.procs", &format!("1\n{}\n", own_pid())),
        ("cgroup.controllers", "cpu memory pids"),
        ("cgroup.subtree_control", ""),
        ("cgroup.type", "domain"),
    ]);
    let said = divided(own.path(), "memory", std::process::id()).expect_err("GROUPS-2");
    if rustix::process::getuid().is_root() {
        assert!(said.contains("holds 1 other processes") && said.contains("Delegate=yes"), "{said}");
    }
    assert!(!own.path().join(LEAF).exists());
}

#[test]
fn the_root_of_all_groups_and_one_that_is_divided_already_need_no_leaf() {
    let root = folder(&[("cgroup.controllers", "memory pids"), ("cgroup.subtree_control", "")]);
    assert_eq!(divided(root.path(), "memory", 1).as_deref(), Ok(root.path()));
    assert_eq!(read(&root.path().join("cgroup.subtree_control")).as_deref(), Some("+memory"));

    let above = folder(&[("cgroup.controllers", "memory pids"), ("cgroup.subtree_control", "memory pids")]);
    let leaf = above.path().join(LEAF);
    fs::create_dir(&leaf).expect("made");
    assert_eq!(divided(&leaf, "pids", 1).as_deref(), Ok(above.path()), "another daemon divided it");
    let said = divided(&leaf, "rdma", 1).expect_err("there is none");
    assert!(said.contains("has no controller `rdma`"), "{said}");
}

#[test]
fn a_group_that_is_not_this_processs_own_is_left_alone() {
    let own = folder(&[("cgroup.procs", "1\n")]);
    let said = place_in(Version::One, own.path(), "memory", "oxiray-1").expect_err("GROUPS-1");
    assert!(said.contains("not visible"), "{said}");
    let flat = folder(&[("cgroup.procs", &own_pid()), ("memory.use_hierarchy", "0\n")]);
    let said = place_in(Version::One, flat.path(), "memory", "oxiray-1").expect_err("limits above would not hold");
    assert!(said.contains("do not hold"), "{said}");
}

#[test]
fn limits_and_kills_are_written_and_read_in_both_versions() {
    for (version, door, limit, none, usage, kills) in [
        (Version::One, "tasks", "memory.limit_in_bytes", "-1", "memory.usage_in_bytes", "memory.oom_control"),
        (Version::Two, "cgroup.procs", "memory.max", "max", "memory.current", "memory.events"),
    ] {
        let above = folder(&[]);
        let place = Place { version, directory: above.path().to_owned() };
        let places = Places { memory: Some(&place), processes: Some(&place), device_memory: None };
        let mut cell = Cell::make(places, "w1", 100).expect("a group");
        let within = |file: &str| above.path().join("w1").join(file);
        let put = |file: &str, text: &str| fs::write(within(file), text).expect("written");
        assert_eq!(cell.doors(), [within(door).display().to_string()]);
        assert_eq!(read(&within("pids.max")).as_deref(), Some("100"));
        put(usage, "1000");
        put("pids.events", "max 3\n");
        cell.begin();
        cell.limit_memory(Some(200 << 20)).expect("a limit");
        let allowed = (200 << 20) + (64 << 20) + 1000;
        assert_eq!(read(&within(limit)), Some(allowed.to_string()), "what it has already comes on top");
        assert_eq!((cell.kill(), cell.meets_process_limit()), (Killed::Nobody, false));

        put(kills, "oom 0\noom_kill 1\n");
        assert_eq!(cell.kill(), Killed::FurtherUp);
        put(kills, "oom 1\noom_kill 1\n");
        put("memory.failcnt", "7\n");
        let Killed::OverItsLimit(exceeded) = cell.kill() else { panic!("its own was met") };
        assert_eq!((exceeded.asked, exceeded.limit), (200 << 20, allowed));
        put("pids.events", "max 4\n");
        assert_eq!((cell.meets_process_limit(), cell.meets_process_limit()), (true, false), "it is news once");

        cell.allow_object(1 << 20).expect("a limit");
        assert_eq!(read(&within(limit)), Some((allowed + (1 << 20) + (64 << 10)).to_string()));
        cell.limit_memory(None).expect("none");
        assert_eq!(read(&within(limit)).as_deref(), Some(none));
    }
}

#[test]
fn what_a_killed_daemon_left_is_removed_by_its_sessions_word() {
    let (session, above) = (folder(&[]), folder(&[]));
    let (ours, others) = (above.path().join("oxiray-7-0a"), above.path().join("somebody"));
    fs::create_dir_all(ours.join("w1")).expect("made");
    fs::create_dir_all(others.join("w1")).expect("made");
    fs::write(session.path().join(NAMES), format!("{}\n{}\n", ours.display(), others.display())).expect("written");
    remove_left(session.path());
    // Files of a real group vanish with it, and those of a folder do not: what end_all wrote keeps it.
    assert!(others.join("w1").exists() && !others.join("w1/pids.max").exists(), "only what is called as ours are");
    assert_eq!(read(&ours.join("w1/pids.max")).as_deref(), Some("0"), "nothing can be forked there any more");
}

#[test]
fn what_dead_daemons_left_is_removed_unless_somebody_has_it() {
    let above = folder(&[]);
    let mut ended = std::process::Command::new("true").spawn().expect("a process");
    let dead = ended.id();
    ended.wait().expect("ended");
    let left = above.path().join(format!("oxiray-{dead}-00000001"));
    let kept = above.path().join(format!("oxiray-{dead}-00000002"));
    let living = above.path().join(format!("oxiray-{}-00000003", std::process::id()));
    let other = above.path().join("oxiray-fence-7");
    let full = above.path().join(format!("oxiray-{dead}-00000004"));
    // Its daemon was the first process of another namespace; here somebody else has that number.
    let old = above.path().join(format!("oxiray-{}-00000005", std::process::id()));
    for group in [&left, &kept, &living, &other, &full, &old] {
        fs::create_dir(group).expect("made");
    }
    let long_ago = SystemTime::now() - 2 * UNLOCKED_MAX;
    for group in [&old, &other] {
        fs::File::open(group).and_then(|group| group.set_modified(long_ago)).expect("its time is set");
    }
    fs::create_dir(left.join("w1")).expect("made");
    // Where this is no control group, a file stands for what keeps it from being removed.
    fs::write(full.join("cgroup.procs"), dead.to_string()).expect("written");
    let lock = locked(&kept).expect("GROUPS-5: nobody has it");
    assert!(locked(&kept).is_none());
    sweep(above.path());
    let is_there = [&left, &kept, &living, &other, &full, &old].map(|group| group.exists());
    assert_eq!(is_there, [false, true, true, true, true, false]);
    drop(lock);
    sweep(above.path());
    assert!(!kept.exists());
}

/// A process's own group of version 2 whose root tells of the memory of devices, as folders.
fn with_device_memory(controllers: &str) -> (tempfile::TempDir, Limits) {
    let root = folder(&[]);
    let own = root.path().join("sys/fs/cgroup/node");
    fs::create_dir_all(root.path().join("proc/self")).expect("made");
    fs::create_dir_all(&own).expect("made");
    let put = |file: &str, text: &str| fs::write(root.path().join(file), text).expect("written");
    put("proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 1024 kB\n");
    put("proc/self/cgroup", "0::/node\n");
    put("proc/self/mountinfo", "31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("sys/fs/cgroup/dmem.capacity", "drm/0000:03:00.0/vram0 8514437120\ndrm/0000:03:00.0/stolen 5\n");
    put("sys/fs/cgroup/node/cgroup.controllers", controllers);
    put("sys/fs/cgroup/node/cgroup.subtree_control", "");
    put("sys/fs/cgroup/node/cgroup.procs", &own_pid());
    let limits = Limits::under(root.path()).expect("limits");
    (root, limits)
}

#[test]
fn memory_of_devices_is_limited_where_the_kernel_has_the_controller() {
    let (_root, limits) = with_device_memory("cpu memory pids");
    let why = why_no_device_memory(&limits).expect("it has none");
    assert!(why.contains("has no controller `dmem`"), "{why}");
    let (root, limits) = with_device_memory("cpu dmem memory pids");
    let own = root.path().join("sys/fs/cgroup/node");
    assert_eq!(limits.unified_group().as_deref(), Some(own.as_path()));
    assert_eq!(limits.unified_root().as_deref(), own.parent());
    assert_eq!(why_no_device_memory(&limits), None);
    assert_eq!(read(&own.join("cgroup.subtree_control")).as_deref(), Some("+dmem"));
    fs::write(own.join("cgroup.procs"), "1\n").expect("written");
    let why = why_no_device_memory(&limits).expect("it is another's group");
    assert!(why.contains("not visible"), "{why}");
}

#[test]
fn a_limit_of_a_devices_memory_is_written_for_who_is_in_the_group_and_taken_away_with_him() {
    let above = folder(&[]);
    let place = Place { version: Version::Two, directory: above.path().to_owned() };
    let places = Places { device_memory: Some(&place), ..Places::default() };
    let mut cell = Cell::make(places, "w1", 100).expect("a group");
    let within = |file: &str| above.path().join("w1").join(file);
    let door = within("cgroup.procs").display().to_string();
    assert_eq!((cell.doors(), cell.device_memory_door()), (vec![door.clone()], Some(door)));
    let region = "drm/0000:03:00.0/vram0";
    cell.limit_device_memory(region, 8 << 30).expect("a limit");
    assert_eq!(read(&within("dmem.max")).as_deref(), Some("drm/0000:03:00.0/vram0 8589934592"));
    assert!(cell.is_clean(true), "the next worker may have it");
    assert_eq!(read(&within("dmem.max")).as_deref(), Some("drm/0000:03:00.0/vram0 max"));
    fs::remove_file(within("dmem.max")).expect("removed");
    fs::create_dir(within("dmem.max")).expect("nothing can be written there");
    let why = cell.limit_device_memory(region, 8 << 30).expect_err("it cannot be written");
    assert!(why.contains("dmem.max: "), "{why}");
    let mut without = Cell::make(Places { memory: Some(&place), ..Places::default() }, "w2", 100).expect("a group");
    assert!(without.limit_device_memory(region, 1).expect_err("no controller").contains("no controller `dmem`"));
}
