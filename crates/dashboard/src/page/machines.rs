//! How the machines of nodes and the processes of workers are, as their daemons measured last (pure).
//!
//! - MACHINES-1: what is kept is what the living nodes told last. A node that tells nothing new keeps what it told, and is silent
//!   after [`SILENT_MS`], by the clock of this program.
//! - MACHINES-2: how far a node's clock differs is known up to how long a measurement takes to be heard: up to about 6 s, since what
//!   daemons measure each 5 s is asked for as often, and much the same each time where both periods are. The least of the last
//!   [`LAGS_MAX`] counts.

use oxiray_ids::NodeId;
use oxiray_wire::state::{Flow, MeasuredNode, NodeStatistics, WorkerRow, WorkerStatistics};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// After how long without a new measurement a node is silent, in milliseconds. Daemons measure each 5 s, and what they told is asked for
/// as often.
const SILENT_MS: u64 = 15_000;

/// Of how many measurements it is looked at how late they came, and of how many at least (MACHINES-2).
const LAGS_MAX: usize = 12;
const LAGS_MIN: usize = 3;

/// What one node told, and when that was new.
#[derive(Debug)]
struct Machine {
    version: String,
    statistics: Option<NodeStatistics>,
    news_ms: u64,
    /// How much later than measured, by the node's clock, the last ones were heard, by the clock of this program.
    lags: VecDeque<i64>,
}

impl Machine {
    fn measured_ms(&self) -> Option<u64> {
        self.statistics.as_ref().map(|statistics| statistics.measured_ms)
    }
}

/// What the nodes told.
#[derive(Debug, Default)]
pub(crate) struct Machines(BTreeMap<NodeId, Machine>);

impl Machines {
    /// What the nodes told last is this (MACHINES-1).
    pub(crate) fn hear(&mut self, told: Vec<MeasuredNode>, now_ms: u64) {
        let there: BTreeSet<NodeId> = told.iter().map(|one| one.node_id).collect();
        self.0.retain(|node, _| there.contains(node));
        for MeasuredNode { node_id, statistics, version } in told {
            let known = self.0.remove(&node_id);
            let mut machine = Machine { version, statistics, news_ms: now_ms, lags: VecDeque::new() };
            let is_new = known.as_ref().is_none_or(|known| known.measured_ms() != machine.measured_ms());
            if let Some(known) = known {
                machine.news_ms = if is_new { now_ms } else { known.news_ms };
                machine.lags = known.lags;
            }
            if let Some(measured_ms) = machine.measured_ms().filter(|_| is_new) {
                let lag = i128::from(now_ms) - i128::from(measured_ms);
                machine.lags.push_back(i64::try_from(lag).unwrap_or(if lag > 0 { i64::MAX } else { i64::MIN }));
                let surplus = machine.lags.len().saturating_sub(LAGS_MAX);
                machine.lags.drain(..surplus);
            }
            self.0.insert(node_id, machine);
        }
    }

    /// What a node told last.
    pub(crate) fn of(&self, node: NodeId) -> Option<&NodeStatistics> {
        self.0.get(&node)?.statistics.as_ref()
    }

    /// By how much a node's clock is ahead of that of this program, in milliseconds, as far as that is known (MACHINES-2).
    pub(crate) fn clock_ms(&self, node: NodeId) -> Option<i64> {
        let lags = &self.0.get(&node)?.lags;
        lags.iter().min().filter(|_| lags.len() >= LAGS_MIN).map(|least| least.saturating_neg())
    }

    /// The version of a node's daemon, where it told.
    pub(crate) fn version(&self, node: NodeId) -> Option<&str> {
        self.0.get(&node).map(|machine| machine.version.as_str()).filter(|version| !version.is_empty())
    }

    /// What a node told, where that is not old.
    pub(crate) fn lately(&self, node: NodeId, now_ms: u64) -> Option<&NodeStatistics> {
        self.of(node).filter(|_| !self.is_silent(node, now_ms))
    }

    /// Whether a node tells nothing new, though it should: it did before.
    pub(crate) fn is_silent(&self, node: NodeId, now_ms: u64) -> bool {
        let machine = self.0.get(&node).filter(|machine| machine.statistics.is_some());
        machine.is_some_and(|machine| machine.news_ms.saturating_add(SILENT_MS) < now_ms)
    }

    /// A worker's process.
    fn process(&self, row: &WorkerRow) -> Option<&WorkerStatistics> {
        let pid = row.pid.filter(|_| row.exit.is_none())?;
        self.of(row.node?)?.workers.iter().find(|process| process.pid == pid)
    }

    /// The cells of a worker's row that say how its process is; nothing where that is not measured.
    pub(crate) fn process_cells(&self, row: &WorkerRow) -> Json {
        let Some(process) = self.process(row) else { return json!({}) };
        // What it shares with nobody is measured later than the rest.
        let own = Some(process.own_kib << 10).filter(|bytes| *bytes > 0);
        json!({
            "memory": process.resident_kib << 10, "own_memory": own, "cpu": part(process.cpu_permille), "files": process.files,
        })
    }
}

fn part(permille: u32) -> f64 {
    f64::from(permille) / 1_000.0
}

fn per_s(flow: Option<Flow>) -> Option<u64> {
    flow.map(|flow| flow.per_s)
}

/// The cells of a node's row that say how its machine is; nothing where that is not measured.
pub(crate) fn machine_cells(measured: Option<&NodeStatistics>) -> Json {
    let Some(measured) = measured else { return json!({}) };
    let memory = measured.memory.filter(|memory| memory.limit > 0);
    json!({
        "cpu_busy": part(measured.cpu_permille), "cpu_count": part(measured.cpu_millis),
        "memory_used": memory.map(|memory| memory.used), "memory_size": memory.map(|memory| memory.limit),
        "disk_used": measured.disk.map(|disk| disk.used), "disk_size": measured.disk.map(|disk| disk.size),
        "disk_read": per_s(measured.disk_read), "disk_written": per_s(measured.disk_written),
        "received": per_s(measured.received), "sent": per_s(measured.sent),
    })
}

/// Two numbers of a node for a series, each where it is known.
type Pair = (Option<f32>, Option<f32>);

/// What is in use of a node's CPUs and its memory, as parts; what of its disk; what it reads and writes there, and what it receives and
/// sends, in bytes a second.
pub(crate) fn in_use(measured: &NodeStatistics) -> [Pair; 4] {
    let of = |used: u64, whole: u64| (whole > 0).then(|| (used as f64 / whole as f64).min(1.0) as f32);
    let flow = |flow: Option<Flow>| per_s(flow).map(|bytes| bytes as f32);
    [
        (Some(part(measured.cpu_permille) as f32), measured.memory.and_then(|memory| of(memory.used, memory.limit))),
        (measured.disk.and_then(|disk| of(disk.used, disk.size)), None),
        (flow(measured.disk_read), flow(measured.disk_written)),
        (flow(measured.received), flow(measured.sent)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_wire::state::{DiskSpace, MemoryStatistics, WorkerExit};

    fn told(node: u8, measured_ms: u64) -> MeasuredNode {
        let workers = vec![WorkerStatistics { pid: 7, resident_kib: 2, own_kib: 0, cpu_permille: 1_500, files: 9 }];
        let statistics = NodeStatistics {
            measured_ms,
            cpu_permille: 250,
            cpu_millis: 4_000,
            memory: Some(MemoryStatistics { limit: 8, used: 2, ..MemoryStatistics::default() }),
            disk: Some(DiskSpace { size: 10, used: 5, free: 4 }),
            received: Some(Flow { total: 99, per_s: 3 }),
            workers,
            ..NodeStatistics::default()
        };
        MeasuredNode { node_id: NodeId::new([node; 28]), statistics: Some(statistics), version: "0.1.0".into() }
    }

    #[test]
    fn a_node_that_measures_nothing_new_is_silent_and_one_that_never_did_is_not() {
        let mut machines = Machines::default();
        let [one, other, never] = [1, 2, 3].map(|number| NodeId::new([number; 28]));
        let untold = || MeasuredNode { node_id: never, ..MeasuredNode::default() };
        machines.hear(vec![told(1, 5), told(2, 5), untold()], 1_000);
        machines.hear(vec![told(1, 5), told(2, 6), untold()], 15_000);
        let silent = |machines: &Machines, now_ms| [one, other, never].map(|node| machines.is_silent(node, now_ms));
        assert_eq!(silent(&machines, 16_000), [false; 3]);
        assert_eq!(silent(&machines, 16_001), [true, false, false]);
        assert!(machines.of(one).is_some() && machines.lately(one, 16_001).is_none());
        machines.hear(vec![told(2, 6)], 16_500);
        assert!(machines.of(one).is_none() && !machines.is_silent(one, 99_999), "it is gone");
        assert!(machines.is_silent(other, 30_001));
    }

    #[test]
    fn how_far_a_clock_differs_is_the_least_lag_of_the_last_measurements() {
        let mut machines = Machines::default();
        let node = NodeId::new([1; 28]);
        // Its clock is 30 s ahead; the second measurement took the shortest time to be heard.
        for (measured_ms, now_ms) in [(130_000, 104_000), (135_000, 105_300), (135_000, 109_900), (140_000, 112_000)] {
            assert_eq!(machines.clock_ms(node), None, "too few were heard");
            machines.hear(vec![told(1, measured_ms)], now_ms);
        }
        assert_eq!(machines.clock_ms(node), Some(29_700));
        // It was set right since.
        for more in 0..LAGS_MAX as u64 {
            machines.hear(vec![told(1, 200_000 + 5_000 * more)], 200_100 + 5_000 * more);
        }
        assert_eq!((machines.clock_ms(node), machines.0[&node].lags.len()), (Some(-100), LAGS_MAX));
        machines.hear(vec![told(1, u64::MAX)], 0);
        assert_eq!(machines.clock_ms(node), Some(i64::MAX));
    }

    #[test]
    fn what_was_measured_is_told_and_what_was_not_stays_away() {
        let mut machines = Machines::default();
        machines.hear(vec![told(1, 5)], 1_000);
        let node = NodeId::new([1; 28]);
        let cells = machine_cells(machines.of(node));
        assert_eq!((machines.version(node), machines.version(NodeId::new([2; 28]))), (Some("0.1.0"), None));
        let numbers = ["cpu_busy", "cpu_count", "memory_used", "memory_size", "disk_used", "disk_size", "received"];
        let numbers = numbers.map(|name| cells[name].as_f64());
        assert_eq!(numbers, [0.25, 4.0, 2.0, 8.0, 5.0, 10.0, 3.0].map(Some));
        assert_eq!((&cells["sent"], machine_cells(None)), (&Json::Null, json!({})));
        assert_eq!(
            in_use(machines.of(node).expect("told")),
            [(Some(0.25), Some(0.25)), (Some(0.5), None), (None, None), (Some(3.0), None)]
        );
        let row = WorkerRow { pid: Some(7), node: Some(node), ..WorkerRow::default() };
        assert_eq!(machines.process_cells(&row), json!({"memory": 2_048, "own_memory": null, "cpu": 1.5, "files": 9}));
        let dead = WorkerRow { exit: Some(WorkerExit::default()), ..row.clone() };
        let other = WorkerRow { pid: Some(8), ..row };
        assert_eq!([dead, other].map(|row| machines.process_cells(&row)), [json!({}), json!({})]);
    }
}
