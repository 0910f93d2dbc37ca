//! How a machine and the processes of its workers are, as its daemon measures them every few seconds.

use oxiray_fields::Fields;
use oxiray_ids::NodeId;

/// How a machine is. Beside its workers that is less than 240 bytes, and about 190 for a machine of usual size.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct NodeStatistics {
    /// When it was measured, in milliseconds since 1970 by its own clock.
    #[field(1)]
    pub measured_ms: u64,
    /// When the machine started, in seconds since 1970 by its own clock.
    #[field(2)]
    pub booted_s: u64,
    /// The part of the processors below that was busy since the last measuring, in thousandths.
    #[field(3)]
    pub cpu_permille: u32,
    /// How many processors there are for this daemon, in thousandths of one.
    #[field(4)]
    pub cpu_millis: u32,
    /// How many processes were ready to run, on average over 1, 5 and 15 minutes, in hundredths.
    #[field(5)]
    pub loads: Vec<u32>,
    /// Memory.
    #[field(6)]
    pub memory: Option<MemoryStatistics>,
    /// The file system of `/`.
    #[field(7)]
    pub disk: Option<DiskSpace>,
    /// Bytes that were read from the machine's disks.
    #[field(8)]
    pub disk_read: Option<Flow>,
    /// Bytes that were written to them.
    #[field(9)]
    pub disk_written: Option<Flow>,
    /// How often they were read from.
    #[field(10)]
    pub disk_reads: Option<Flow>,
    /// How often they were written to.
    #[field(11)]
    pub disk_writes: Option<Flow>,
    /// Bytes that were sent to other machines.
    #[field(12)]
    pub sent: Option<Flow>,
    /// Bytes that were received from them.
    #[field(13)]
    pub received: Option<Flow>,
    /// The processes of workers, by their numbers.
    #[field(14)]
    pub workers: Vec<WorkerStatistics>,
    /// Where the node exports metrics; nothing where it does not.
    #[field(15)]
    pub metrics: Option<MetricsPlace>,
}

/// Where a node exports metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct MetricsPlace {
    /// The port.
    #[field(1)]
    pub port: u32,
    /// The one address that it listens at; empty where that is every address of the node.
    #[field(2)]
    pub host: String,
}

/// How the machine of a node is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct MeasuredNode {
    /// The node.
    #[field(1)]
    pub node_id: NodeId,
    /// What it measured last.
    #[field(2)]
    pub statistics: Option<NodeStatistics>,
    /// The version of its daemon; empty where that did not tell.
    #[field(3)]
    pub version: String,
}

/// The lengths of turns of a daemon's loop, in milliseconds, of which it counts how many were longer.
pub const TURN_STEPS_MS: [u64; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/// What a daemon has done since it started, and what its store has, as told with the machine's statistics.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DaemonStatistics {
    /// How many turns its loop took.
    #[field(1)]
    pub turns: u64,
    /// How long they took together, in microseconds.
    #[field(2)]
    pub turns_us: u64,
    /// How many of them were longer than each of [`TURN_STEPS_MS`].
    #[field(3)]
    pub longer_turns: Vec<u64>,
    /// Objects that its store has, wherever they lie.
    #[field(4)]
    pub objects: u64,
    /// Those of them that processes have mapped.
    #[field(5)]
    pub pinned: u64,
    /// Those of them that are spilled.
    #[field(6)]
    pub spilled: u64,
    /// How many objects its store has spilled.
    #[field(7)]
    pub spills: u64,
    /// How many of them it has brought back into memory.
    #[field(8)]
    pub restores: u64,
}

/// What goes on for as long as the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields)]
pub struct Flow {
    /// Since it started.
    #[field(1)]
    pub total: u64,
    /// In each second since the last measuring.
    #[field(2)]
    pub per_s: u64,
}

/// The memory of a machine; sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields)]
pub struct MemoryStatistics {
    /// The tightest bound on this daemon: the machine's size, or a control group's limit.
    #[field(1)]
    pub limit: u64,
    /// What is in use of that.
    #[field(2)]
    pub used: u64,
    /// What memory files take of the machine's memory.
    #[field(3)]
    pub shared: u64,
    /// The machine's own size.
    #[field(4)]
    pub host_limit: u64,
    /// What is in use of the machine's memory, by whomever.
    #[field(5)]
    pub host_used: u64,
    /// What the objects take that the node's store has spilled.
    #[field(6)]
    pub spilled: u64,
}

/// The room on a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields)]
pub struct DiskSpace {
    /// Its size.
    #[field(1)]
    pub size: u64,
    /// What is taken.
    #[field(2)]
    pub used: u64,
    /// What is left for those who are not root.
    #[field(3)]
    pub free: u64,
}

/// How the process of a worker is: 24 bytes for one of 15 GiB, as a part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields)]
pub struct WorkerStatistics {
    /// The process.
    #[field(1)]
    pub pid: u32,
    /// The memory that it has, in KiB.
    #[field(2)]
    pub resident_kib: u64,
    /// What of that it shares with nobody, in KiB; 0 where that is not measured yet.
    #[field(3)]
    pub own_kib: u64,
    /// How much of one processor it took since the last measuring, in thousandths.
    #[field(4)]
    pub cpu_permille: u32,
    /// How many files it has open.
    #[field(5)]
    pub files: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    #[test]
    fn a_large_machine_fits_into_its_bytes() {
        const TIB: u64 = 1 << 40;
        let flow = Some(Flow { total: 900 * TIB, per_s: 400 << 30 });
        let memory = MemoryStatistics {
            limit: 4 * TIB,
            used: 3 * TIB,
            shared: TIB,
            host_limit: 4 * TIB,
            host_used: 3 * TIB,
            spilled: 0,
        };
        let worker = WorkerStatistics {
            pid: 4_194_303,
            resident_kib: 15 << 20,
            own_kib: 15 << 20,
            cpu_permille: 100_000,
            files: 1_000,
        };
        let of = |workers: Vec<WorkerStatistics>| NodeStatistics {
            measured_ms: 1_795_441_906_850,
            booted_s: 1_795_441_906,
            cpu_permille: 1_000,
            cpu_millis: 512_000,
            loads: vec![60_000; 3],
            memory: Some(memory),
            disk: Some(DiskSpace { size: 60 * TIB, used: 30 * TIB, free: 30 * TIB }),
            disk_read: flow,
            disk_written: flow,
            disk_reads: flow,
            disk_writes: flow,
            sent: flow,
            received: flow,
            workers,
            metrics: Some(MetricsPlace { port: 65_535, host: "255.255.255.255".into() }),
        };
        let alone = of(Vec::new()).encoded_len();
        assert!(alone < 240, "{alone}");
        let each = (of(vec![worker; 10]).encoded_len() - alone) / 10;
        assert!(each <= 24, "{each}");
    }
}
