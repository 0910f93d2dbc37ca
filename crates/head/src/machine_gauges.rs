//! The gauges of one machine.

use crate::amounts::{available_of, total_of};
use crate::members::Member;
use crate::metrics::{ClusterGauge, ClusterHistogram, ClusterSample};
use oxiray_resources::Quantity;
use oxiray_wire::message::DeviceUse;
use oxiray_wire::state::{DaemonStatistics, Flow, NodeStatistics, TURN_STEPS_MS, WorkerStatistics};
use std::collections::BTreeMap;

const MEBIBYTE: f64 = 1_048_576.0;
/// What Ray's gauges in MB count.
const MEGABYTE: f64 = 1e6;
/// The resource whose devices have Ray's gauges of GPUs.
const GPU: &str = "GPU";
/// What a worker is called that runs nothing.
const IDLE: &str = "ray::IDLE";

/// A machine, as its gauges name it.
pub(crate) struct MachineGauges<'a> {
    member: &'a Member,
    is_head: bool,
}

type GaugeTags = Vec<(&'static str, String)>;

impl<'a> MachineGauges<'a> {
    pub(crate) fn of(member: &'a Member, is_head: bool) -> Self {
        Self { member, is_head }
    }

    /// With the address and identifier of the node, ascending.
    fn ledger_tags(&self, more: &[(&'static str, &str)]) -> GaugeTags {
        let own = [("NodeAddress", self.member.told.ip.clone()), ("NodeId", self.member.view.node.hex())];
        let mut tags: GaugeTags = more.iter().map(|(key, value)| (*key, (*value).to_owned())).chain(own).collect();
        tags.sort_unstable();
        tags
    }

    /// With what Ray's gauges of machines have, ascending.
    fn machine_tags(&self, more: &[(&'static str, &str)]) -> GaugeTags {
        let role = if self.is_head { "head" } else { "worker" };
        let own = [
            ("IsHeadNode", self.is_head.to_string()),
            ("RayNodeType", role.to_owned()),
            ("ip", self.member.told.ip.clone()),
        ];
        let mut tags: GaugeTags = more.iter().map(|(key, value)| (*key, (*value).to_owned())).chain(own).collect();
        tags.sort_unstable();
        tags
    }

    /// What its ledger and its store have.
    pub(crate) fn offers(&self) -> Vec<ClusterSample> {
        let (total, available) = (total_of(&self.member.view), available_of(&self.member.view));
        let resources = total.iter().flat_map(|(name, total)| {
            let available = available.get(name).copied().unwrap_or(Quantity::ZERO);
            let used = Quantity::from_units(total.units().saturating_sub(available.units()));
            [("USED", used), ("AVAILABLE", available)].map(|(state, amount)| {
                let tags = self.ledger_tags(&[("Name", name.as_str()), ("State", state)]);
                (ClusterGauge::Resources, tags, amount.as_f64())
            })
        });
        let used = self.member.state.store_used;
        let store = [(ClusterGauge::StoreUsed, used), (ClusterGauge::StoreAvailable, self.member.store_left())];
        let store = store.map(|(gauge, bytes)| (gauge, self.ledger_tags(&[]), bytes as f64));
        let spilled = self.member.state.statistics.as_ref().and_then(|measured| measured.memory);
        let places = [("MMAP_SHM", Some(used)), ("SPILLED", spilled.map(|memory| memory.spilled))];
        let lie = places.into_iter().filter_map(|(place, bytes)| {
            Some((ClusterGauge::StoreMemory, self.ledger_tags(&[("Location", place)]), bytes? as f64))
        });
        let objects =
            self.member.state.daemon.iter().flat_map(|daemon| self.objects_of(daemon, spilled.map(|of| of.spilled)));
        resources.chain(store).chain(lie).chain(objects).collect()
    }

    /// The objects of its store, and what became of them.
    fn objects_of(&self, daemon: &DaemonStatistics, spilled_bytes: Option<u64>) -> Vec<ClusterSample> {
        let of = |gauge, tags: &[(&'static str, &str)], count: u64| (gauge, self.ledger_tags(tags), count as f64);
        let bytes = spilled_bytes.map(|bytes| of(ClusterGauge::SpillBytes, &[("State", "Spilled")], bytes));
        let counts = [
            of(ClusterGauge::StoreObjects, &[], daemon.objects),
            of(ClusterGauge::SpillObjects, &[("State", "Pinned")], daemon.pinned),
            of(ClusterGauge::SpillObjects, &[("State", "Spilled")], daemon.spilled),
            of(ClusterGauge::SpillRequests, &[("Type", "Spilled")], daemon.spills),
            of(ClusterGauge::SpillRequests, &[("Type", "Restored")], daemon.restores),
        ];
        counts.into_iter().chain(bytes).collect()
    }

    /// How long the turns of its daemon's loop took.
    pub(crate) fn turns(&self) -> Option<ClusterHistogram> {
        let daemon = self.member.state.daemon.as_ref()?;
        // Each step says how many were longer: what was longer than the step before and no longer than this one is between.
        let (mut left, mut counts) = (daemon.turns, Vec::with_capacity(TURN_STEPS_MS.len() + 1));
        for at in 0..TURN_STEPS_MS.len() {
            let longer = daemon.longer_turns.get(at).copied().unwrap_or(0).min(left);
            counts.push(left - longer);
            left = longer;
        }
        counts.push(left);
        Some(ClusterHistogram {
            gauge: ClusterGauge::LoopStall,
            tags: self.ledger_tags(&[]),
            boundaries: TURN_STEPS_MS.map(|step| step as f64 / 1e3).to_vec(),
            counts,
            sum: daemon.turns_us as f64 / 1e6,
        })
    }

    /// What it measured of itself.
    pub(crate) fn measures(&self) -> Vec<ClusterSample> {
        let Some(measured) = &self.member.state.statistics else { return Vec::new() };
        let tags = self.machine_tags(&[]);
        values_of(measured).into_iter().map(|(gauge, value)| (gauge, tags.clone(), value)).collect()
    }

    /// What its workers use, added up by what they run.
    pub(crate) fn components(&self, names: &BTreeMap<u32, &str>) -> Vec<ClusterSample> {
        let workers = self.member.state.statistics.iter().flat_map(|measured| &measured.workers);
        let mut by_name: BTreeMap<String, WorkerStatistics> = BTreeMap::new();
        for worker in workers {
            let sum = by_name.entry(component(names.get(&worker.pid))).or_default();
            sum.resident_kib = sum.resident_kib.saturating_add(worker.resident_kib);
            sum.own_kib = sum.own_kib.saturating_add(worker.own_kib);
            sum.cpu_permille = sum.cpu_permille.saturating_add(worker.cpu_permille);
            sum.files = sum.files.saturating_add(worker.files);
        }
        let of_name = |(name, sum): (String, WorkerStatistics)| {
            let tags = vec![("Component", name), ("ip", self.member.told.ip.clone())];
            let (resident, own) = ((sum.resident_kib << 10) as f64, (sum.own_kib << 10) as f64);
            [
                (ClusterGauge::ComponentCpu, f64::from(sum.cpu_permille) / 10.0),
                (ClusterGauge::ComponentResident, resident),
                (ClusterGauge::ComponentResidentMb, resident / MEGABYTE),
                (ClusterGauge::ComponentOwn, own),
                (ClusterGauge::ComponentOwnMb, own / MEGABYTE),
                (ClusterGauge::ComponentShared, (resident - own).max(0.0)),
                (ClusterGauge::ComponentFiles, f64::from(sum.files)),
            ]
            .map(|(gauge, value)| (gauge, tags.clone(), value))
        };
        by_name.into_iter().flat_map(of_name).chain(self.devices_of_components(names)).collect()
    }

    /// What its workers have of GPUs and of their memory, added up by what they run.
    fn devices_of_components(&self, names: &BTreeMap<u32, &str>) -> Vec<ClusterSample> {
        let gpus = self.member.state.uses.iter().filter(|used| used.resource == GPU);
        let mut by_name: BTreeMap<String, (u64, Option<u32>)> = BTreeMap::new();
        for process in gpus.flat_map(|used| &used.processes) {
            if let Some(name) = names.get(&process.pid) {
                let (bytes, busy) = by_name.entry(component(Some(name))).or_default();
                *bytes = bytes.saturating_add(process.bytes);
                let more = process.busy_percent.map(|more| busy.unwrap_or(0).saturating_add(more));
                *busy = more.or(*busy);
            }
        }
        let of_name = |(name, (bytes, busy)): (String, (u64, Option<u32>))| {
            let tags = vec![("Component", name), ("ip", self.member.told.ip.clone())];
            let busy = busy.map(|busy| (ClusterGauge::ComponentGpu, tags.clone(), f64::from(busy)));
            [(ClusterGauge::ComponentGpuMemory, tags, bytes as f64 / MEBIBYTE)].into_iter().chain(busy)
        };
        by_name.into_iter().flat_map(of_name).collect()
    }

    /// Its devices: whether they are given, how much of each is granted, and how much they are used.
    pub(crate) fn devices(&self) -> Vec<ClusterSample> {
        let state = &self.member.state;
        let mut gauges = Vec::new();
        for (resource, count) in self.member.device_counts() {
            let free: Vec<_> =
                self.member.view.free_devices.get(&resource).map(|free| free.iter().collect()).unwrap_or_default();
            let ids = self.member.told.device_sizes.iter().find(|sizes| sizes.resource == resource.as_str());
            for slot in 0..count as usize {
                let number = slot.to_string();
                let id = ids.and_then(|sizes| sizes.ids.get(slot)).filter(|id| !id.is_empty()).unwrap_or(&number);
                let device = [("device", number.as_str()), ("resource", resource.as_str()), ("uuid", id.as_str())];
                let quarantined = state.conditions.iter().any(|known| {
                    known.resource == resource.as_str() && known.slot as usize == slot && known.reason.is_some()
                });
                let word = if quarantined { "quarantined" } else { "in service" };
                let tags: Vec<_> = device.iter().copied().chain([("state", word)]).collect();
                gauges.push((ClusterGauge::DeviceState, self.ledger_tags(&tags), 1.0));
                if let Some(Some(room)) = free.get(slot) {
                    let granted = (1.0 - room.free.share.as_f64()).max(0.0);
                    gauges.push((ClusterGauge::DeviceShare, self.ledger_tags(&device), granted));
                }
                let is_of = |used: &&DeviceUse| used.resource == resource.as_str() && used.slot as usize == slot;
                let used = state.uses.iter().find(is_of);
                gauges.extend(self.uses_of(&device, used));
                if resource.as_str() == GPU {
                    gauges.extend(self.gpu(&number, id, used));
                }
            }
        }
        gauges
    }

    fn uses_of(&self, device: &[(&'static str, &str)], used: Option<&DeviceUse>) -> Vec<ClusterSample> {
        let busy = used.and_then(|used| used.busy_percent).map(|percent| f64::from(percent) / 100.0);
        let bytes = used.and_then(|used| used.used_bytes).map(|bytes| bytes as f64);
        let known = [(ClusterGauge::DeviceBusy, busy), (ClusterGauge::DeviceMemory, bytes)];
        known.into_iter().filter_map(|(gauge, value)| Some((gauge, self.ledger_tags(device), value?))).collect()
    }

    fn gpu(&self, index: &str, id: &str, used: Option<&DeviceUse>) -> Vec<ClusterSample> {
        let kind = self.member.view.labels.get("ray.io/accelerator-type").map_or(GPU, String::as_str);
        let tags = self.machine_tags(&[("GpuDeviceName", kind), ("GpuIndex", index), ("GpuUuid", id)]);
        let bytes = used.and_then(|used| used.used_bytes);
        let free = used.and_then(|used| used.total_bytes).zip(bytes).map(|(total, used)| total.saturating_sub(used));
        let known = [
            (ClusterGauge::GpusAvailable, Some(1.0)),
            (ClusterGauge::GpusUtilization, used.and_then(|used| used.busy_percent).map(f64::from)),
            (ClusterGauge::GramUsed, bytes.map(|bytes| bytes as f64 / MEBIBYTE)),
            (ClusterGauge::GramAvailable, free.map(|bytes| bytes as f64 / MEBIBYTE)),
            (ClusterGauge::GpuPower, used.and_then(|used| used.power_mw).map(f64::from)),
            (ClusterGauge::GpuTemperature, used.and_then(|used| used.temperature_c).map(f64::from)),
        ];
        known.into_iter().filter_map(|(gauge, value)| Some((gauge, tags.clone(), value?))).collect()
    }
}

/// What the workers of a name are called together.
fn component(name: Option<&&str>) -> String {
    name.filter(|name| !name.is_empty()).map_or_else(|| IDLE.to_owned(), |name| format!("ray::{name}"))
}

fn values_of(measured: &NodeStatistics) -> Vec<(ClusterGauge, f64)> {
    let mut values = vec![
        (ClusterGauge::CpuUtilization, f64::from(measured.cpu_permille) / 10.0),
        (ClusterGauge::CpuCount, f64::from(measured.cpu_millis) / 1e3),
    ];
    if let Some(memory) = measured.memory {
        let sizes = [
            (ClusterGauge::MemoryUsed, memory.used),
            (ClusterGauge::MemoryAvailable, memory.limit.saturating_sub(memory.used)),
            (ClusterGauge::MemoryTotal, memory.limit),
            (ClusterGauge::MemoryShared, memory.shared),
            (ClusterGauge::MemoryUsedHost, memory.host_used),
            (ClusterGauge::MemoryTotalHost, memory.host_limit),
            (ClusterGauge::CgroupUsed, memory.used),
            (ClusterGauge::CgroupTotal, memory.limit),
        ];
        values.extend(sizes.map(|(gauge, bytes)| (gauge, bytes as f64)));
    }
    if let Some(disk) = measured.disk {
        let all = (disk.used.saturating_add(disk.free)).max(1);
        values.extend([
            (ClusterGauge::DiskUsage, disk.used as f64),
            (ClusterGauge::DiskFree, disk.free as f64),
            (ClusterGauge::DiskUtilization, disk.used as f64 / all as f64 * 100.0),
        ]);
    }
    let flows: [(Option<Flow>, ClusterGauge, ClusterGauge); 6] = [
        (measured.disk_read, ClusterGauge::DiskRead, ClusterGauge::DiskReadSpeed),
        (measured.disk_written, ClusterGauge::DiskWritten, ClusterGauge::DiskWriteSpeed),
        (measured.disk_reads, ClusterGauge::DiskReads, ClusterGauge::DiskReadIops),
        (measured.disk_writes, ClusterGauge::DiskWrites, ClusterGauge::DiskWriteIops),
        (measured.sent, ClusterGauge::NetworkSent, ClusterGauge::NetworkSendSpeed),
        (measured.received, ClusterGauge::NetworkReceived, ClusterGauge::NetworkReceiveSpeed),
    ];
    for (flow, total, speed) in flows {
        let flow = flow.unwrap_or_default();
        values.extend([(total, flow.total as f64), (speed, flow.per_s as f64)]);
    }
    values
}
