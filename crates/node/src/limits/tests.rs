use super::*;
use tempfile::TempDir;

const MEMINFO: &str = "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:   12582912 kB\nShmem:  1024 kB\n";

/// A recorded machine: its files by their paths.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().expect("a folder");
    for (path, text) in [("proc/meminfo", MEMINFO)].iter().chain(files) {
        let file = root.path().join(path);
        fs::create_dir_all(file.parent().expect("a path has a folder")).expect("a folder");
        fs::write(file, text).expect("a file");
    }
    root
}

fn tightest(root: &TempDir) -> Level {
    let limits = Limits::under(root.path()).expect("a machine");
    limits.memory().into_iter().min_by_key(|level| level.limit).expect("a machine has memory")
}

/// Source, limit and use of the tightest bound, in MiB.
fn told(files: &[(&str, &str)]) -> (String, u64, u64) {
    let level = tightest(&tree(files));
    (level.source, level.limit >> 20, level.used >> 20)
}

const V2: &str = "31 24 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

#[test]
fn without_groups_the_machine_is_the_limit() {
    assert_eq!(told(&[]), ("/proc/meminfo".to_owned(), 16 << 10, 4 << 10));
    let unlimited = [
        ("proc/self/cgroup", "0::/user.slice/session-1.scope\n"),
        ("proc/self/mountinfo", V2),
        ("sys/fs/cgroup/user.slice/session-1.scope/memory.max", "max\n"),
        ("sys/fs/cgroup/user.slice/session-1.scope/memory.current", "1048576\n"),
    ];
    assert_eq!(told(&unlimited).0, "/proc/meminfo");
    assert!(Limits::under(Path::new("/nonexistent")).is_none());
}

/// systemd: the slice above the service is tighter than the service.
#[test]
fn every_level_of_version_2_counts_and_dropped_cache_is_not_use() {
    let files = [
        ("proc/self/cgroup", "0::/batch.slice/job.service\n"),
        ("proc/self/mountinfo", V2),
        ("sys/fs/cgroup/batch.slice/job.service/memory.max", "8589934592\n"),
        ("sys/fs/cgroup/batch.slice/job.service/memory.current", "1\n"),
        ("sys/fs/cgroup/batch.slice/memory.max", "max\n"),
        ("sys/fs/cgroup/batch.slice/memory.high", "4294967296\n"),
        ("sys/fs/cgroup/batch.slice/memory.current", "2147483648\n"),
        (
            "sys/fs/cgroup/batch.slice/memory.stat",
            "anon 5\nfile 9\ninactive_file 1048576000\nactive_file 104857600\nfile_dirty 104857600\nshmem 7340032\n",
        ),
        ("sys/fs/cgroup/batch.slice/job.service/memory.events", "low 0\nhigh 3\nmax 0\noom 2\noom_kill 5\n"),
        (
            "sys/fs/cgroup/batch.slice/memory.pressure",
            "some avg10=40.00 avg60=1\nfull avg10=12.34 avg60=0.00 total=9\n",
        ),
        ("sys/fs/cgroup/batch.slice/cpu.max", "250000 100000\n"),
        ("sys/fs/cgroup/batch.slice/job.service/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/batch.slice/pids.max", "max\n"),
        ("sys/fs/cgroup/batch.slice/job.service/pids.max", "512\n"),
        (
            "proc/self/limits",
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024        4096         files\n",
        ),
    ];
    let root = tree(&files);
    let level = tightest(&root);
    assert_eq!(level.source, "/sys/fs/cgroup/batch.slice/memory.high");
    assert_eq!((level.limit >> 20, level.used >> 20, level.shared >> 20), (4096, 2048 - 1000, 7));
    assert_eq!(level.stalled, Some(123));
    let limits = Limits::under(root.path()).expect("a machine");
    assert_eq!((limits.kills(), limits.cpu().map(|bound| bound.limit)), (5, Some(2.5)));
    let pids = limits.pids().expect("a bound");
    assert_eq!((pids.limit, pids.source.as_str()), (512.0, "/sys/fs/cgroup/batch.slice/job.service/pids.max"));
    assert_eq!(limits.open_files().map(|bound| bound.limit), Some(4096.0));
    let text = limits.describe();
    assert!(
        text.contains("memory      4096 MiB, 1048 MiB of it in use (/sys/fs/cgroup/batch.slice/memory.high)"),
        "{text}"
    );
}

/// Docker, version 2: the namespace shows the container's group as the root.
#[test]
fn a_namespace_shows_the_groups_own_files_at_the_root() {
    let files = [
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", "1 2 0:27 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"),
        ("sys/fs/cgroup/memory.max", "1572864000\n"),
        ("sys/fs/cgroup/memory.current", "104857600\n"),
        ("sys/fs/cgroup/memory.stat", "inactive_file 0\n"),
    ];
    assert_eq!(told(&files), ("/sys/fs/cgroup/memory.max".to_owned(), 1500, 100));
    // The host's mount, seen from within a namespace: its root lies above what the namespace calls `/`.
    let mut seen_from_within = files;
    seen_from_within[1].1 = "1 2 0:27 /../../.. /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
    assert_eq!(told(&seen_from_within).1, 1500);
}

/// Docker and Kubernetes, version 1, without a namespace: only the container's part is mounted, under the host's path.
#[test]
fn version_1_is_found_below_what_is_mounted() {
    let path = "/kubepods/burstable/pod1/abc";
    let groups =
        format!("12:pids:{path}\n5:cpu,cpuacct:{path}\n4:memory:{path}\n1:name=systemd:{path}\n0::/system.slice\n");
    let mount = |at: &str, kind: &str| format!("50 40 0:30 {path} /sys/fs/cgroup/{at} ro - cgroup cgroup rw,{kind}\n");
    let mounts = [mount("memory", "memory"), mount("cpu,cpuacct", "cpu,cpuacct"), mount("pids", "pids")].concat();
    let files = [
        ("proc/self/cgroup", groups.as_str()),
        ("proc/self/mountinfo", mounts.as_str()),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n"),
        (
            "sys/fs/cgroup/memory/memory.stat",
            "cache 1\ninactive_file 1\nhierarchical_memory_limit 1610612736\ntotal_shmem 1048576\ntotal_dirty 0\n\
             total_inactive_file 314572800\ntotal_active_file 209715200\n",
        ),
        ("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/pids/pids.max", "100\n"),
    ];
    let root = tree(&files);
    let level = tightest(&root);
    assert_eq!((level.limit >> 20, level.used >> 20, level.shared >> 20), (1536, 524, 1));
    let limits = Limits::under(root.path()).expect("a machine");
    assert_eq!(limits.kills(), 3);
    assert_eq!(
        (limits.cpu().map(|bound| bound.limit), limits.pids().map(|bound| bound.limit)),
        (Some(1.5), Some(100.0))
    );
}

/// Slurm on version 1: the job's group is tighter than the step's, and the whole hierarchy is mounted. Hybrid: version 2
/// is mounted beside it and has no controllers.
#[test]
fn a_hybrid_machine_is_bound_by_the_version_that_has_the_controller() {
    let files = [
        ("proc/self/cgroup", "4:memory:/slurm/uid_1/job_2/step_0\n3:cpuset:/\n2:cpu:/\n0::/\n"),
        (
            "proc/self/mountinfo",
            "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        ),
        ("sys/fs/cgroup/unified/memory.pressure", "full avg10=0.00\n"),
        ("sys/fs/cgroup/memory/slurm/uid_1/job_2/step_0/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/slurm/uid_1/job_2/step_0/memory.usage_in_bytes", "1\n"),
        ("sys/fs/cgroup/memory/slurm/uid_1/job_2/memory.limit_in_bytes", "4294967296\n"),
        ("sys/fs/cgroup/memory/slurm/uid_1/job_2/memory.usage_in_bytes", "1073741824\n"),
        ("sys/fs/cgroup/memory/slurm/uid_1/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/slurm/uid_1/memory.usage_in_bytes", "1\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
    ];
    let source = "/sys/fs/cgroup/memory/slurm/uid_1/job_2/memory.limit_in_bytes";
    assert_eq!(told(&files), (source.to_owned(), 4096, 1024));
    assert_eq!(Limits::under(tree(&files).path()).expect("a machine").cpu(), None);
}

#[test]
fn this_machine_tells() {
    let limits = Limits::under(Path::new("/")).expect("this machine");
    let levels = limits.memory();
    assert!(levels.iter().all(|level| level.limit > 64 << 20), "{levels:?}");
    assert!(limits.open_files().is_some_and(|bound| bound.limit >= 64.0));
}
