//! How the machine and its workers' processes are: processors, memory, disks, network. Measured on a thread of its own, for
//! what `/proc` has may be long, and some of it waits for a process that is in the kernel.
//!
//! - STATISTICS-1: what costs much, the memory that a worker shares with nobody, is measured for as many workers as fit into
//!   [`OWN_MEMORY_LIMIT`] of a processor each time; the others' stands from before, and they are the next ones' turn.

use crate::limits::{Limits, kibibytes};
use oxiray_threads::{STATISTICS, spawn};
use oxiray_wire::state::{DiskSpace, Flow, MemoryStatistics, NodeStatistics, WorkerStatistics};
use rustix::fs::statvfs;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between two measurings.
pub(crate) const PERIOD: Duration = Duration::from_secs(5);
/// How long one measuring looks for memory that is a worker's own.
const OWN_MEMORY_LIMIT: Duration = Duration::from_millis(5);
/// How much `/proc/*/stat` counts in a second.
const TICKS_PER_S: f64 = 100.0;
/// What the sectors of `/proc/diskstats` are, whatever those of the disk are.
const SECTOR_BYTES: u64 = 512;
/// Interfaces that lead to no other machine, or through one that is counted itself.
const INNER_INTERFACES: [&str; 9] = ["lo", "veth", "docker", "br-", "virbr", "cali", "cni", "flannel", "bond"];

/// Takes what was measured.
pub(crate) type Measured = Arc<dyn Fn(NodeStatistics) + Send + Sync>;

/// Where the machine is measured. Its thread starts with the first measuring, and ends with it.
pub(crate) struct StatisticsClient {
    next: Option<Instant>,
    thread: Measuring,
}

enum Measuring {
    Unasked(Measured),
    /// Takes the processes of workers.
    Asked(SyncSender<Vec<u32>>),
    /// There is no thread that measures.
    Nobody,
}

impl StatisticsClient {
    pub(crate) fn new(measured: Measured) -> Self {
        Self { next: None, thread: Measuring::Unasked(measured) }
    }

    /// When the machine is to be measured. The first time is a period after the start, which is none of the time that a
    /// program waits for its cluster.
    pub(crate) fn deadline(&mut self, now: Instant) -> Instant {
        *self.next.get_or_insert(now + PERIOD)
    }

    /// Has the machine measured, with these processes of workers. A measuring that takes longer than a period takes the
    /// place of the next.
    pub(crate) fn measure(&mut self, workers: Vec<u32>, now: Instant) {
        self.next = Some(now + PERIOD);
        if let Measuring::Unasked(measured) = &self.thread {
            let (sender, asked) = sync_channel(1);
            let measured = Arc::clone(measured);
            self.thread = match spawn(STATISTICS, move || serve(&asked, &measured)) {
                Ok(_) => Measuring::Asked(sender),
                Err(_) => Measuring::Nobody,
            };
        }
        if let Measuring::Asked(sender) = &self.thread {
            // A full line is a measuring under way, a broken one a thread that has ended.
            drop(sender.try_send(workers));
        }
    }
}

impl fmt::Debug for StatisticsClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StatisticsClient").finish_non_exhaustive()
    }
}

fn serve(asked: &Receiver<Vec<u32>>, measured: &Measured) {
    let mut gauge = Gauge::under(Path::new("/"));
    for workers in asked {
        measured(gauge.measure(&workers, Instant::now(), SystemTime::now()));
    }
}

/// What is counted since the machine started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    /// Read from disks and written to them: bytes, then how often.
    disks: [u64; 4],
    /// Sent and received.
    network: [u64; 2],
}

/// What processors did, in units of whoever counts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Processors {
    busy: f64,
    all: f64,
}

/// Measures, and knows what it measured before.
struct Gauge {
    root: PathBuf,
    limits: Option<Limits>,
    before: Option<(Instant, Counts, Processors)>,
    /// The time that each worker took of processors, in ticks, and its own memory.
    workers: BTreeMap<u32, (u64, u64)>,
    /// The process whose own memory is measured first.
    turn: u32,
}

impl Gauge {
    /// Of the machine whose files lie under that directory.
    fn under(root: &Path) -> Self {
        let limits = Limits::under(root);
        Self { root: root.to_owned(), limits, before: None, workers: BTreeMap::new(), turn: 0 }
    }

    fn measure(&mut self, workers: &[u32], now: Instant, clock: SystemTime) -> NodeStatistics {
        let stat = self.read("proc/stat");
        let machine_processors = stat.lines().filter(|line| is_of_one_processor(line)).count() as f64;
        let quota = self.limits.as_ref().and_then(|limits| Some((limits.cpu()?.limit, limits.cpu_used_us()?)));
        let counts = Counts { disks: self.disks(), network: network(&self.read("proc/net/dev")) };
        let processors = match quota {
            Some((limit, used_us)) if limit < machine_processors => {
                Processors { busy: used_us as f64 / 1e6, all: limit * uptime_s(&self.read("proc/uptime")) }
            }
            _ => of_machine(&stat),
        };
        let millis = quota.map_or(machine_processors, |(limit, _)| limit.min(machine_processors)) * 1e3;
        let seconds = self.before.map(|(at, ..)| now.saturating_duration_since(at).as_secs_f64()).filter(|s| *s > 0.0);
        let (_, counted, worked) = self.before.unwrap_or((now, counts, processors));
        self.before = Some((now, counts, processors));
        let flow = |total: u64, before: u64| {
            let per_s = seconds.map_or(0.0, |seconds| total.saturating_sub(before) as f64 / seconds);
            Some(Flow { total, per_s: per_s.round() as u64 })
        };
        let [disk_read, disk_written, disk_reads, disk_writes] =
            std::array::from_fn(|at| flow(counts.disks[at], counted.disks[at]));
        let [sent, received] = std::array::from_fn(|at| flow(counts.network[at], counted.network[at]));
        let since = clock.duration_since(UNIX_EPOCH).unwrap_or_default();
        NodeStatistics {
            measured_ms: since.as_millis() as u64,
            booted_s: field(&stat, "btime").unwrap_or(0),
            cpu_permille: permille(worked, processors),
            cpu_millis: millis as u32,
            loads: loads(&self.read("proc/loadavg")),
            memory: self.limits.as_ref().and_then(memory),
            disk: self.disk(),
            disk_read,
            disk_written,
            disk_reads,
            disk_writes,
            sent,
            received,
            workers: self.workers(workers, seconds),
            metrics: None,
        }
    }

    /// A file; empty where there is none.
    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    fn disk(&self) -> Option<DiskSpace> {
        let found = statvfs(&self.root).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        let used = bytes(found.f_blocks.saturating_sub(found.f_bfree));
        Some(DiskSpace { size: bytes(found.f_blocks), used, free: bytes(found.f_bavail) })
    }

    /// Of the disks that are devices: what lies on several of them, as with LVM, is counted with those.
    fn disks(&self) -> [u64; 4] {
        let mut all = [0; 4];
        for line in self.read("proc/diskstats").lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if !fields.get(2).is_some_and(|name| self.is_disk(name)) {
                continue;
            }
            let number = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            let found = [number(5) * SECTOR_BYTES, number(9) * SECTOR_BYTES, number(3), number(7)];
            for (sum, count) in all.iter_mut().zip(found) {
                *sum = u64::saturating_add(*sum, count);
            }
        }
        all
    }

    fn is_disk(&self, name: &str) -> bool {
        !name.contains(['/', '.']) && self.root.join("sys/block").join(name).join("device").exists()
    }

    fn workers(&mut self, pids: &[u32], seconds: Option<f64>) -> Vec<WorkerStatistics> {
        let mut living: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let mut found = Vec::new();
        for pid in pids {
            let Some((resident_kib, ticks)) = self.process(*pid) else { continue };
            let before = self.workers.get(pid).copied();
            let taken =
                before.zip(seconds).map(|((before, _), s)| ticks.saturating_sub(before) as f64 / TICKS_PER_S / s);
            let own_kib = before.map_or(0, |(_, own)| own);
            living.insert(*pid, (ticks, own_kib));
            found.push(WorkerStatistics {
                pid: *pid,
                resident_kib,
                own_kib,
                cpu_permille: (taken.unwrap_or(0.0) * 1e3).round() as u32,
                files: self.files(*pid),
            });
        }
        self.workers = living;
        found.sort_unstable_by_key(|worker| worker.pid);
        self.measure_own_memory(&mut found);
        found
    }

    /// STATISTICS-1.
    fn measure_own_memory(&mut self, workers: &mut [WorkerStatistics]) {
        let began = Instant::now();
        let first = workers.partition_point(|worker| worker.pid < self.turn);
        let (before, after) = workers.split_at_mut(first);
        for worker in after.iter_mut().chain(before) {
            self.turn = worker.pid;
            if began.elapsed() >= OWN_MEMORY_LIMIT {
                return;
            }
            let rollup = self.read(&format!("proc/{}/smaps_rollup", worker.pid));
            let Some(own) = own_kib(&rollup) else { continue };
            worker.own_kib = own;
            if let Some((_, known)) = self.workers.get_mut(&worker.pid) {
                *known = own;
            }
        }
    }

    /// The memory that a process has, in KiB, and the time that it took of processors, in ticks.
    fn process(&self, pid: u32) -> Option<(u64, u64)> {
        let stat = self.read(&format!("proc/{pid}/stat"));
        // What it is called may have spaces and parentheses in it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let resident_kib = kibibytes(&self.read(&format!("proc/{pid}/status")), "VmRSS:")?;
        Some((resident_kib, number(11)? + number(12)?))
    }

    fn files(&self, pid: u32) -> u32 {
        fs::read_dir(self.root.join(format!("proc/{pid}/fd"))).map_or(0, |files| files.count() as u32)
    }
}

/// The tightest bound on memory, and the machine's.
fn memory(limits: &Limits) -> Option<MemoryStatistics> {
    let levels = limits.memory();
    let machine = levels.first()?;
    let tightest = levels.iter().min_by_key(|level| level.limit)?;
    Some(MemoryStatistics {
        limit: tightest.limit,
        used: tightest.used.min(tightest.limit),
        shared: machine.shared,
        host_limit: machine.limit,
        host_used: machine.used,
        // The daemon knows, which has the store.
        spilled: 0,
    })
}

/// `cpu0 …`, and not `cpu …`, which is of all.
fn is_of_one_processor(line: &str) -> bool {
    line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

fn of_machine(stat: &str) -> Processors {
    let Some(line) = stat.lines().find_map(|line| line.strip_prefix("cpu ")) else { return Processors::default() };
    // Guests are counted with whoever runs them already.
    let ticks: Vec<f64> = line.split_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
    let all = ticks.iter().sum();
    let idle: f64 = ticks.iter().skip(3).take(2).sum();
    Processors { busy: all - idle, all }
}

/// The busy part since before.
fn permille(before: Processors, now: Processors) -> u32 {
    let (busy, all) = (now.busy - before.busy, now.all - before.all);
    if all > 0.0 { (busy / all * 1e3).round().clamp(0.0, 1e3) as u32 } else { 0 }
}

fn uptime_s(text: &str) -> f64 {
    text.split_whitespace().next().and_then(|field| field.parse().ok()).unwrap_or(0.0)
}

fn loads(text: &str) -> Vec<u32> {
    let loads = text.split_whitespace().take(3).filter_map(|field| field.parse::<f64>().ok());
    loads.map(|load| (load * 100.0).round() as u32).collect()
}

/// What was sent to other machines, and received from them.
fn network(text: &str) -> [u64; 2] {
    let mut all = [0_u64; 2];
    for line in text.lines() {
        let Some((name, counts)) = line.split_once(':') else { continue };
        if INNER_INTERFACES.iter().any(|inner| name.trim().starts_with(inner)) {
            continue;
        }
        let counts: Vec<u64> = counts.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let of = |at: usize| counts.get(at).copied().unwrap_or(0);
        all = [all[0].saturating_add(of(8)), all[1].saturating_add(of(0))];
    }
    all
}

/// `name 12`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Pages that nobody else has; nothing where the kernel does not say.
fn own_kib(rollup: &str) -> Option<u64> {
    Some(kibibytes(rollup, "Private_Clean:")? + kibibytes(rollup, "Private_Dirty:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 50 0 25 400 25 0 0 0 0 0\ncpu1 50 0 25 400 25 0 0 0 0 0\nbtime 1700\n";

    /// A machine with a disk, a partition of it, a loop device, and one worker.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().expect("a directory")).expect("it is made");
            fs::write(file, text).expect("it is written");
        };
        write("proc/stat", STAT);
        write("proc/uptime", "500.25 900.0\n");
        write("proc/loadavg", "1.35 1.04 0.83 2/300 4711\n");
        write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\nShmem: 10 kB\n");
        write(
            "proc/diskstats",
            " 254 0 vda 10 0 100 0 20 0 200 0\n 254 1 vda1 9 0 90 0 19 0 190 0\n 7 0 loop0 5 0 50 0 0 0 0 0\n",
        );
        write("sys/block/vda/device/vendor", "");
        write("sys/block/loop0/size", "8");
        write(
            "proc/net/dev",
            "h\nh\n    lo: 5 0 0 0 0 0 0 0 5 0\n  eth0: 700 1 0 0 0 0 0 0 300 1\nveth1: 9 0 0 0 0 0 0 0 9 0\n",
        );
        write("proc/7/stat", "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 100 9999 25 1\n");
        write("proc/7/status", "Name: a) b\nVmRSS:\t     100 kB\n");
        write("proc/7/smaps_rollup", "0-1 ---p\nRss: 100 kB\nPrivate_Clean: 8 kB\nPrivate_Dirty: 32 kB\n");
        write("proc/7/fd/0", "");
        write("proc/7/fd/1", "");
        root
    }

    #[test]
    fn a_machine_is_measured_from_its_files() {
        let root = machine();
        let mut gauge = Gauge::under(root.path());
        let (now, clock) = (Instant::now(), UNIX_EPOCH + Duration::from_millis(1_234));
        let first = gauge.measure(&[7, 8], now, clock);
        assert_eq!((first.measured_ms, first.booted_s, first.cpu_millis, first.cpu_permille), (1_234, 1_700, 2_000, 0));
        assert_eq!(first.loads, [135, 104, 83]);
        let memory = first.memory.expect("the machine tells");
        assert_eq!((memory.limit, memory.used, memory.shared), (1_000 << 10, 400 << 10, 10 << 10));
        let total = |flow: Option<Flow>| flow.expect("it is counted").total;
        let disks = [first.disk_read, first.disk_written, first.disk_reads, first.disk_writes].map(total);
        assert_eq!(disks, [51_200, 102_400, 10, 20], "a partition and a loop device are no disks");
        assert_eq!(
            [total(first.sent), total(first.received)],
            [300, 700],
            "what stays within the machine is not counted"
        );
        assert!(first.disk.is_some_and(|disk| disk.size >= disk.used));
        let worker = WorkerStatistics { pid: 7, resident_kib: 100, own_kib: 40, cpu_permille: 0, files: 2 };
        assert_eq!(first.workers, [worker], "process 8 is gone");

        fs::write(root.path().join("proc/stat"), STAT.replace("cpu  100", "cpu  175").replace("50 800", "75 800"))
            .expect("it is written");
        fs::write(root.path().join("proc/net/dev"), "eth0: 1700 1 0 0 0 0 0 0 800 1\n").expect("it is written");
        fs::write(root.path().join("proc/7/stat"), "7 (a) S 1 7 7 0 -1 0 0 0 0 0 550 150 0 0 20 0 1 0 100 9999 25 1\n")
            .expect("it is written");
        let second = gauge.measure(&[7], now + Duration::from_secs(10), clock);
        assert_eq!(second.cpu_permille, 1_000, "100 ticks, none of them idle");
        assert_eq!(
            (second.sent, second.received),
            (Some(Flow { total: 800, per_s: 50 }), Some(Flow { total: 1_700, per_s: 100 }))
        );
        assert_eq!(second.workers[0].cpu_permille, 500, "five seconds of ten");
    }

    #[test]
    fn a_quota_is_what_processors_there_are() {
        let root = machine();
        let write = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().expect("a directory")).expect("it is made");
            fs::write(file, text).expect("it is written");
        };
        write("proc/self/cgroup", "0::/job\n");
        write("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("sys/fs/cgroup/job/cpu.max", "50000 100000\n");
        write("sys/fs/cgroup/job/cpu.stat", "usage_usec 1000000\nuser_usec 1\n");
        let mut gauge = Gauge::under(root.path());
        let now = Instant::now();
        assert_eq!(gauge.measure(&[], now, UNIX_EPOCH).cpu_millis, 500);
        write("sys/fs/cgroup/job/cpu.stat", "usage_usec 2000000\nuser_usec 1\n");
        write("proc/uptime", "504.25 900.0\n");
        let second = gauge.measure(&[], now + Duration::from_secs(4), UNIX_EPOCH);
        assert_eq!(second.cpu_permille, 500, "one second of the two that half a processor has in four");
    }

    #[test]
    fn a_machine_that_tells_nothing_is_measured_too() {
        let root = tempfile::tempdir().expect("a directory");
        let measured = Gauge::under(root.path()).measure(&[1], Instant::now(), UNIX_EPOCH);
        assert_eq!((measured.cpu_permille, measured.memory, measured.workers.len()), (0, None, 0));
    }
}
