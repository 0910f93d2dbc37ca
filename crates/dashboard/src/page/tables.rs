//! All that is kept for the page (pure).

use super::cpus::CpuActors;
use super::deadlines::Deadlines;
use super::events::Events;
use super::holdings::{Device, DeviceKey, Holdings, Use, WHOLE};
use super::machines::{Machines, in_use};
use super::runs::Runs;
use super::series::Series;
use oxiray_families::device_resource;
use oxiray_ids::NodeId;
use oxiray_wire::message::ChronicleBatch;
use oxiray_wire::state::{
    ChronicleCursor, ChronicleEntry, ClusterState, DeviceRow, DeviceService, MeasuredNode, NodeRow,
};
use std::collections::{BTreeMap, BTreeSet};

/// How often a point is added to each series, in milliseconds.
const POINT_MS: u64 = 5_000;
/// After how long without a point what was between is not known, in milliseconds.
const GAP_MS: u64 = 4 * POINT_MS;

/// In so many bits there is room for the numbers of one head's entries.
const HEAD_BITS: u32 = 40;

/// What a series is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measured {
    /// How busy a device is, and how full its memory.
    Device(DeviceKey),
    /// Which part of a node's CPUs is held, and of its devices.
    Node(NodeId),
    /// Which part of a node's memory is held, and how many bytes are in its object store.
    Memory(NodeId),
    /// Which part of its CPUs is busy, and which of its memory is in use.
    Used(NodeId),
    /// Which part of its disk is in use.
    Disk(NodeId),
    /// How many bytes a second it reads from its disks, and writes to them.
    DiskTraffic(NodeId),
    /// How many bytes a second it receives, and sends.
    Network(NodeId),
}

impl Measured {
    fn node(&self) -> NodeId {
        match self {
            Self::Device(key) => key.node,
            Self::Node(node)
            | Self::Memory(node)
            | Self::Used(node)
            | Self::Disk(node)
            | Self::DiskTraffic(node)
            | Self::Network(node) => *node,
        }
    }
}

/// What people call the nodes.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<NodeId, String>);

impl Names {
    /// Those of these nodes.
    pub(crate) fn of_nodes(nodes: &[NodeRow]) -> Self {
        Self(nodes.iter().map(|node| (node.node_id, name(node))).collect())
    }

    /// A node's name; its number where it has none.
    pub(crate) fn of(&self, node: NodeId) -> String {
        self.0.get(&node).cloned().unwrap_or_else(|| node.to_string().chars().take(8).collect())
    }
}

/// What was heard of the chronicle.
#[derive(Debug, Default)]
struct Heard {
    cursor: Option<ChronicleCursor>,
    last_number: u64,
    /// How many heads were heard before this one: the numbers of each begin anew.
    heads: u64,
    /// Whether nothing of the chronicle is missing up to now.
    is_recording: bool,
}

/// The tables.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// Who held what.
    pub(crate) holdings: Holdings,
    /// What happened.
    pub(crate) events: Events,
    /// Training runs.
    pub(crate) runs: Runs,
    /// Numbers over time.
    pub(crate) series: Series<Measured>,
    /// How the cluster was when the head last said so.
    pub(crate) state: ClusterState,
    /// When that was, in milliseconds since 1970; 0 before the first time.
    pub(crate) until_ms: u64,
    /// The nodes' names.
    pub(crate) names: Names,
    /// How their machines are.
    pub(crate) machines: Machines,
    /// Which actors have CPUs.
    pub(crate) cpu_actors: CpuActors,
    /// When nodes that are drained end.
    pub(crate) deadlines: Deadlines,
    heard: Heard,
    point_ms: u64,
    sequence: u64,
    changed: BTreeMap<&'static str, u64>,
}

impl Tables {
    /// The number of the last change.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Up to where the chronicle is known.
    pub(crate) fn cursor(&self) -> Option<ChronicleCursor> {
        self.heard.cursor
    }

    /// What changed since.
    pub(crate) fn changed_since(&self, sequence: u64) -> Vec<&'static str> {
        // A page of before this program began has numbers that mean nothing here.
        let since = if sequence > self.sequence { 0 } else { sequence };
        self.changed.iter().filter(|(_, changed)| **changed > since).map(|(kind, _)| *kind).collect()
    }

    fn change(&mut self, kinds: impl IntoIterator<Item = &'static str>) {
        self.sequence += 1;
        for kind in kinds {
            self.changed.insert(kind, self.sequence);
        }
    }

    /// What happened since the last batch.
    pub(crate) fn record(&mut self, batch: &ChronicleBatch, now_ms: u64) {
        let is_other_head = match (self.heard.cursor, batch.cursor) {
            (Some(before), Some(now)) => before.origin != now.origin,
            _ => false,
        };
        if is_other_head {
            self.heard.heads += 1;
        }
        let before = self.heard.heads << HEAD_BITS;
        if batch.is_fresh || batch.gap.is_some() || is_other_head {
            self.holdings.begin_anew(now_ms);
        }
        let is_first = self.holdings.until_ms() == 0;
        for entry in &batch.entries {
            // What still holds of what the head has forgotten else comes first, with numbers missing in between.
            if is_first && (self.heard.last_number == 0 || entry.number != self.heard.last_number + 1) {
                self.holdings.begin_at(entry.at_ms);
            }
            self.heard.last_number = entry.number;
            let entry = ChronicleEntry { number: before + entry.number, ..entry.clone() };
            self.holdings.apply(&entry);
            self.runs.apply(&entry);
            self.events.keep(entry);
        }
        self.heard.is_recording = !batch.has_more;
        if self.heard.is_recording {
            self.holdings.know_until(now_ms);
        }
        self.heard.cursor = batch.cursor.or(self.heard.cursor);
        if !batch.entries.is_empty() || batch.is_fresh {
            let of_entries = batch.entries.iter().map(|entry| list_of(entry.event.kind()));
            let of_devices = ["holdings", "grants", "devices", "events", "overview"];
            self.change(of_entries.chain(of_devices).collect::<BTreeSet<_>>());
        }
    }

    /// Of what was before nothing is known.
    pub(crate) fn begin_at(&mut self, at_ms: u64) {
        self.holdings.begin_at(at_ms);
    }

    /// The chronicle is not heard: what is held from here on is not known.
    pub(crate) fn stop_recording(&mut self) {
        self.heard.is_recording = false;
    }

    /// Whether points are to be added to the series at the next look.
    pub(crate) fn has_point(&self, now_ms: u64) -> bool {
        now_ms >= self.point_ms.saturating_add(POINT_MS)
    }

    /// What the nodes' machines were measured to be.
    pub(crate) fn measured(&mut self, told: Vec<MeasuredNode>, now_ms: u64) {
        self.machines.hear(told, now_ms);
        self.change(["nodes", "workers"]);
    }

    /// When the head began, where it says so, and else when it was heard first.
    pub(crate) fn begun_ms(&self) -> u64 {
        let head = self.state.nodes.iter().find(|node| node.head).and_then(NodeRow::lifetime);
        head.map(|life| life.started_ms).filter(|began| *began > 0).unwrap_or_else(|| self.holdings.begun_ms())
    }

    /// How many living nodes tell nothing new, though they should.
    pub(crate) fn silent(&self) -> usize {
        let living = self.state.nodes.iter().filter(|node| node.alive);
        living.filter(|node| self.machines.is_silent(node.node_id, self.until_ms)).count()
    }

    /// How the cluster is now.
    pub(crate) fn look(&mut self, state: ClusterState, now_ms: u64) {
        self.names = Names::of_nodes(&state.nodes);
        self.until_ms = now_ms;
        if self.heard.is_recording {
            self.holdings.know_until(now_ms);
        }
        self.cpu_actors.look(&state, now_ms);
        self.deadlines.look(&state.nodes, now_ms);
        let has_point = self.has_point(now_ms);
        if has_point {
            self.point_ms = now_ms;
            self.measure(&state, now_ms);
        }
        // Tasks, objects and processes are asked for when somebody looks at them: whether they changed shows only then.
        let mut changed = vec!["tasks", "objects", "workers", "actors", "placement_groups", "jobs"];
        if state != self.state {
            changed.extend(["nodes", "devices", "waiting", "overview"]);
        }
        if has_point {
            changed.extend(["series", "holdings"]);
        }
        self.state = state;
        self.change(changed);
    }

    fn measure(&mut self, state: &ClusterState, now_ms: u64) {
        let nodes: BTreeSet<NodeId> = state.nodes.iter().map(|node| node.node_id).collect();
        self.series.retain(|measured| nodes.contains(&measured.node()));
        for node in state.nodes.iter().filter(|node| node.alive) {
            let part = |whole: f64, free: f64| (whole > 0.0).then(|| ((whole - free) / whole).clamp(0.0, 1.0) as f32);
            let of = |name: &str| part(amount(&node.resources, name), amount(&node.available, name));
            let sums = |amounts: &BTreeMap<String, f64>| -> f64 {
                amounts.iter().filter(|(name, _)| device_resource(name).is_some()).map(|(_, amount)| amount).sum()
            };
            let devices = part(sums(&node.resources), sums(&node.available));
            self.series.push(&Measured::Node(node.node_id), (now_ms, of("CPU"), devices), GAP_MS);
            let stored = Some(node.store_used as f32);
            self.series.push(&Measured::Memory(node.node_id), (now_ms, of("memory"), stored), GAP_MS);
        }
        let living = state.nodes.iter().filter(|node| node.alive).map(|node| node.node_id);
        let of = [Measured::Used, Measured::Disk, Measured::DiskTraffic, Measured::Network];
        for (node, measured) in living.filter_map(|node| Some((node, self.machines.lately(node, now_ms)?))) {
            for (key, (one, other)) in of.iter().zip(in_use(measured)).filter(|(_, pair)| *pair != (None, None)) {
                self.series.push(&key(node), (now_ms, one, other), GAP_MS);
            }
        }
        for (key, busy, memory) in used(state) {
            self.series.push(&Measured::Device(key), (now_ms, busy, memory), GAP_MS);
        }
    }
}

/// How much each device is used, where somebody can tell.
fn used(state: &ClusterState) -> Vec<(DeviceKey, Option<f32>, Option<f32>)> {
    let uses = state.nodes.iter().flat_map(|node| node.devices.iter().map(move |used| (node.node_id, used)));
    uses.map(|(node, used)| {
        let memory = used.used_bytes.zip(used.total_bytes).filter(|(_, total)| *total > 0);
        let key = DeviceKey { node, resource: used.resource.clone(), slot: used.slot };
        let busy = used.busy_percent.map(|percent| percent as f32 / 100.0);
        (key, busy, memory.map(|(used, total)| (used as f64 / total as f64) as f32))
    })
    .collect()
}

/// A device, as the page shows it.
#[derive(Debug)]
pub(crate) struct Shown<'state> {
    /// Which.
    pub(crate) key: DeviceKey,
    /// Whether it is free, held, being checked or out of service.
    pub(crate) state: &'static str,
    /// Why it is out of service.
    pub(crate) reason: Option<String>,
    /// How much of it is held, from 0 to 1.
    pub(crate) held: f64,
    /// What the head says of it.
    pub(crate) row: Option<&'state DeviceRow>,
}

impl Shown<'_> {
    /// What people call it among those of its node.
    pub(crate) fn label(&self) -> String {
        label(&self.key)
    }
}

/// What people call a device among those of its node.
pub(crate) fn label(key: &DeviceKey) -> String {
    format!("{} {}", key.resource, key.slot)
}

impl Tables {
    /// All devices of living nodes, by node in the head's order.
    pub(crate) fn devices(&self) -> Vec<Shown<'_>> {
        let head = self.state.nodes.iter().find(|node| node.head).map(|node| node.node_id).unwrap_or_default();
        let rows: BTreeMap<DeviceKey, &DeviceRow> =
            self.state.devices.iter().map(|row| (key_of(row, head), row)).collect();
        let mut out: BTreeMap<(NodeId, &str), u32> = BTreeMap::new();
        for (key, _) in rows.iter().filter(|(_, row)| row.state == DeviceService::Quarantined) {
            *out.entry((key.node, &key.resource)).or_default() += 1;
        }
        let mut by_node: BTreeMap<NodeId, BTreeSet<DeviceKey>> = BTreeMap::new();
        for key in rows.keys().chain(self.holdings.devices().map(|(key, _)| key)) {
            by_node.entry(key.node).or_default().insert(key.clone());
        }
        let mut shown = Vec::new();
        for node in self.state.nodes.iter().filter(|node| node.alive) {
            let mut keys = by_node.remove(&node.node_id).unwrap_or_default();
            keys.extend(offered(node, &out));
            shown.extend(keys.into_iter().map(|key| self.shown(rows.get(&key).copied(), key)));
        }
        shown
    }

    /// Whether it is known that no node has a device, and none is known to have had one.
    pub(crate) fn is_without_devices(&self) -> bool {
        let offers = |node: &NodeRow| {
            node.alive && node.resources.iter().any(|(name, count)| *count > 0.0 && device_resource(name).is_some())
        };
        let is_known = self.until_ms > 0 && self.state.devices.is_empty();
        is_known && self.holdings.devices().next().is_none() && !self.state.nodes.iter().any(offers)
    }

    fn shown<'state>(&self, row: Option<&'state DeviceRow>, key: DeviceKey) -> Shown<'state> {
        let (mut held, mut is_checked, mut reason) = (0_u32, false, None);
        for stretch in self.holdings.device(&key).into_iter().flat_map(Device::open) {
            match stretch.used {
                Use::Held => held += stretch.share,
                Use::Checking => is_checked = true,
                Use::Quarantined => reason = Some(stretch.holder.name.to_string()),
            }
        }
        let out = row.filter(|row| row.state == DeviceService::Quarantined);
        let reason = out.map(|row| row.reason.clone().unwrap_or_default()).or(reason);
        let state = match (&reason, is_checked, held) {
            (Some(_), ..) => "quarantined",
            (None, true, _) => "checking",
            (None, false, 0) => "free",
            _ => "held",
        };
        Shown { key, state, reason, held: f64::from(held.min(WHOLE)) / f64::from(WHOLE), row }
    }
}

/// The devices that follow from how many a node offers, besides those that are out of service.
fn offered(node: &NodeRow, out: &BTreeMap<(NodeId, &str), u32>) -> Vec<DeviceKey> {
    let mut keys = Vec::new();
    for (resource, count) in node.resources.iter().filter(|(name, _)| device_resource(name).is_some()) {
        let out = out.get(&(node.node_id, resource.as_str())).copied().unwrap_or_default();
        let slots = (count.ceil().clamp(0.0, 1_024.0) as u32).saturating_add(out);
        keys.extend((0..slots).map(|slot| DeviceKey { node: node.node_id, resource: resource.clone(), slot }));
    }
    keys
}

/// Devices by their nodes.
pub(crate) fn by_node<'shown, 'state>(
    devices: &'shown [Shown<'state>],
) -> BTreeMap<NodeId, Vec<&'shown Shown<'state>>> {
    let mut found: BTreeMap<NodeId, Vec<&Shown<'_>>> = BTreeMap::new();
    for one in devices {
        found.entry(one.key.node).or_default().push(one);
    }
    found
}

fn key_of(row: &DeviceRow, head: NodeId) -> DeviceKey {
    DeviceKey { node: row.node.unwrap_or(head), resource: row.resource.clone(), slot: row.slot }
}

/// What people call a node.
pub(crate) fn name(node: &NodeRow) -> String {
    let given = [&node.name, &node.hostname, &node.address].into_iter().find(|text| !text.is_empty());
    given.cloned().unwrap_or_else(|| node.node_id.to_string())
}

/// How much there is of a resource.
pub(crate) fn amount(amounts: &BTreeMap<String, f64>, name: &str) -> f64 {
    amounts.get(name).copied().unwrap_or_default()
}

fn list_of(kind: oxiray_wire::state::ChronicleKind) -> &'static str {
    use oxiray_wire::state::ChronicleKind;
    match kind {
        ChronicleKind::Device => "devices",
        ChronicleKind::Node => "nodes",
        ChronicleKind::Job => "jobs",
        ChronicleKind::Actor => "actors",
        ChronicleKind::PlacementGroup => "placement_groups",
        ChronicleKind::Worker => "workers",
        ChronicleKind::Train => "runs",
        ChronicleKind::Autoscaler | ChronicleKind::Head => "overview",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_wire::message::DeviceUse;
    use oxiray_wire::state::{ChronicleEvent, DevicePart};

    fn node(number: u8, devices: f64) -> NodeRow {
        NodeRow {
            node_id: NodeId::new([number; 28]),
            alive: true,
            head: number == 1,
            name: format!("n{number}"),
            resources: BTreeMap::from([("GPU".into(), devices), ("CPU".into(), 8.0)]),
            available: BTreeMap::from([("CPU".into(), 6.0)]),
            ..NodeRow::default()
        }
    }

    fn granted(number: u64, node: u8, slot: u32) -> ChronicleEntry {
        let part = DevicePart { resource: "GPU".into(), slot, grant: number, share: 5_000, ..DevicePart::default() };
        let node = Some(NodeId::new([node; 28]));
        ChronicleEntry {
            number,
            at_ms: 5,
            event: ChronicleEvent::DeviceGranted,
            node,
            device: Some(part),
            ..ChronicleEntry::default()
        }
    }

    fn batch(origin: u64, entries: Vec<ChronicleEntry>) -> ChronicleBatch {
        let cursor = Some(ChronicleCursor { origin, number: entries.len() as u64, begun: 0 });
        ChronicleBatch { cursor, entries, ..ChronicleBatch::default() }
    }

    #[test]
    fn devices_are_those_that_nodes_offer_and_those_that_are_out_of_service() {
        let mut tables = Tables::default();
        let out = DeviceRow {
            resource: "GPU".into(),
            slot: 0,
            state: DeviceService::Quarantined,
            reason: Some("Xid 79".into()),
            ..DeviceRow::default()
        };
        let state =
            ClusterState { nodes: vec![node(1, 1.0), node(2, 1.0)], devices: vec![out], ..ClusterState::default() };
        tables.look(state, 1_000);
        tables.record(&batch(1, vec![granted(1, 2, 0)]), 1_000);
        let told: Vec<_> = tables
            .devices()
            .into_iter()
            .map(|one| (one.key.node.as_bytes()[0], one.key.slot, one.state, one.held))
            .collect();
        assert_eq!(told, [(1, 0, "quarantined", 0.0), (1, 1, "free", 0.0), (2, 0, "held", 0.5)]);
    }

    #[test]
    fn a_cluster_is_without_devices_where_it_is_known_that_there_were_none() {
        let mut tables = Tables::default();
        assert!(!tables.is_without_devices(), "nothing is known yet");
        let state = |devices| ClusterState { nodes: vec![node(1, 0.0), node(2, devices)], ..ClusterState::default() };
        tables.look(state(0.0), 1_000);
        assert!(tables.is_without_devices());
        tables.look(state(1.0), 2_000);
        assert!(!tables.is_without_devices());
        let gone = NodeRow { alive: false, ..node(2, 1.0) };
        tables.look(ClusterState { nodes: vec![node(1, 0.0), gone], ..ClusterState::default() }, 3_000);
        assert!(tables.is_without_devices(), "nobody held any");
        tables.record(&batch(1, vec![granted(1, 2, 0)]), 3_000);
        assert!(!tables.is_without_devices(), "who held one is still to be seen");
    }

    #[test]
    fn a_page_is_told_what_changed_since_it_last_heard() {
        let mut tables = Tables::default();
        tables.look(ClusterState { nodes: vec![node(1, 0.0)], ..ClusterState::default() }, 10_000);
        let before = tables.sequence();
        assert!(tables.changed_since(0).contains(&"nodes"));
        tables.look(ClusterState { nodes: vec![node(1, 0.0)], ..ClusterState::default() }, 11_000);
        assert!(!tables.changed_since(before).contains(&"nodes"), "nothing changed there");
        assert!(tables.changed_since(before).contains(&"tasks"));
        assert!(tables.changed_since(before + 99).contains(&"nodes"), "that page heard another program");
    }

    #[test]
    fn another_head_begins_a_new_record() {
        let mut tables = Tables::default();
        tables.record(&batch(1, vec![granted(1, 1, 0)]), 100);
        tables.record(&batch(2, vec![granted(1, 1, 0)]), 900);
        assert_eq!(tables.holdings.gaps().collect::<Vec<_>>(), [(100, 900)]);
    }

    #[test]
    fn the_record_begins_where_no_entry_is_missing_any_more() {
        let mut tables = Tables::default();
        let at = |number, at_ms| ChronicleEntry { at_ms, ..granted(number, 1, number as u32) };
        tables.record(&batch(1, vec![at(3, 10), at(7, 40), at(8, 50)]), 900);
        assert_eq!((tables.holdings.begun_ms(), tables.holdings.until_ms()), (40, 900));
        let mut whole = Tables::default();
        whole.record(&batch(1, vec![at(1, 10), at(2, 40)]), 900);
        assert_eq!(whole.holdings.begun_ms(), 10, "the head remembers all from its own begin on");
        tables.stop_recording();
        tables.look(ClusterState::default(), 2_000);
        assert_eq!(tables.holdings.until_ms(), 900, "nobody knows who holds what");
    }

    #[test]
    fn what_devices_and_nodes_are_used_for_is_measured() {
        let mut tables = Tables::default();
        let mut one = node(1, 1.0);
        one.devices.push(DeviceUse {
            resource: "GPU".into(),
            slot: 3,
            busy_percent: Some(40),
            used_bytes: Some(1),
            total_bytes: Some(4),
            ..DeviceUse::default()
        });
        let row = DeviceRow { resource: "GPU".into(), slot: 3, id: "0".into(), ..DeviceRow::default() };
        tables.look(ClusterState { nodes: vec![one], devices: vec![row], ..ClusterState::default() }, 10_000);
        let key = DeviceKey { node: NodeId::new([1; 28]), resource: "GPU".into(), slot: 3 };
        assert_eq!(tables.series.of(&Measured::Device(key)).collect::<Vec<_>>(), [(10_000, Some(0.4), Some(0.25))]);
        let held: Vec<_> = tables.series.of(&Measured::Node(NodeId::new([1; 28]))).collect();
        assert_eq!(held, [(10_000, Some(0.25), Some(1.0))]);
    }

    #[test]
    fn what_machines_measure_is_kept_beside_what_is_held_and_not_what_is_old() {
        use oxiray_wire::state::{MemoryStatistics, NodeStatistics};
        let mut tables = Tables::default();
        let one = NodeId::new([1; 28]);
        let told = |measured_ms| {
            let memory = Some(MemoryStatistics { limit: 4, used: 1, ..MemoryStatistics::default() });
            let statistics = NodeStatistics { measured_ms, cpu_permille: 500, memory, ..NodeStatistics::default() };
            vec![MeasuredNode { node_id: one, statistics: Some(statistics), ..MeasuredNode::default() }]
        };
        let state = || ClusterState { nodes: vec![node(1, 0.0), node(2, 0.0)], ..ClusterState::default() };
        for (measured_ms, now_ms) in [(1, 10_000), (2, 15_000), (2, 20_000), (2, 31_000)] {
            assert!(tables.has_point(now_ms));
            tables.measured(told(measured_ms), now_ms);
            tables.look(state(), now_ms);
            assert!(!tables.has_point(now_ms));
        }
        let used: Vec<u64> = tables.series.of(&Measured::Used(one)).map(|(at, ..)| at).collect();
        assert_eq!(used, [10_000, 15_000, 20_000], "the node told nothing new for 16 s");
        assert_eq!(tables.series.of(&Measured::Used(one)).next(), Some((10_000, Some(0.5), Some(0.25))));
        assert_eq!((tables.series.of(&Measured::Network(one)).count(), tables.silent()), (0, 1));
        tables.measured(told(3), 32_000);
        assert_eq!(tables.silent(), 0);
    }
}
