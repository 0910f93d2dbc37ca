//! What Ray's page asks for besides lists: nodes with what they measure, actors by their identifiers, what ran when.
//!
//! Keys are Ray's, in camel case where Ray has them so. Ports that Oxiray has not are 0, as where Ray has none.

use crate::RayAnswer;
use crate::ordered::Ordered;
use oxiray_ids::{ActorId, NodeId};
use oxiray_state::actor_state;
use oxiray_wire::message::DeviceUse;
use oxiray_wire::state::{
    ActorPhase, ActorRow, Flow, MeasuredNode, MemoryStatistics, NodeRow, NodeStatistics, TaskRow, WorkerDuty,
    WorkerRow, WorkerStatistics,
};
use std::collections::BTreeMap;

/// The version of Ray whose answers these are.
pub const RAY_VERSION: &str = "2.60.0";

const MEBIBYTE: u64 = 1 << 20;

/// What the answers on nodes and actors are made of.
#[derive(Debug, Clone, Copy)]
pub struct ClusterView<'a> {
    /// Nodes, those that died among them.
    pub nodes: &'a [NodeRow],
    /// How their machines are.
    pub measured: &'a [MeasuredNode],
    /// Workers and drivers.
    pub workers: &'a [WorkerRow],
    /// Actors.
    pub actors: &'a [ActorRow],
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
}

impl ClusterView<'_> {
    /// `/nodes?view=summary`.
    pub fn summary(&self) -> RayAnswer {
        let nodes: Ordered = self.nodes.iter().map(|node| Ordered::Map(self.node(node))).collect();
        let living = self.nodes.iter().filter(|node| node.alive);
        let resources = living.map(|node| (node.node_id.hex(), logical_resources(node).into()));
        let data = [("summary".to_owned(), nodes), ("nodeLogicalResources".into(), Ordered::Map(resources.collect()))];
        RayAnswer::of(200, "Node summary fetched.", Ordered::Map(data.into()))
    }

    /// `/nodes?view=hostNameList`.
    pub fn host_names(&self) -> RayAnswer {
        let mut names: Vec<&str> = self.nodes.iter().filter(|node| node.alive).map(|node| &*node.hostname).collect();
        names.sort_unstable();
        names.dedup();
        let names = names.into_iter().map(Ordered::from).collect();
        RayAnswer::of(200, "Node hostname list fetched.", Ordered::map([("hostNameList", names)]))
    }

    /// `/nodes/{id}`.
    pub fn detail(&self, id: &str) -> RayAnswer {
        let Some(node) = self.nodes.iter().find(|node| node.node_id.hex() == id) else {
            let text = format!("Node {id} is not known: `/nodes?view=summary` lists those that are");
            return RayAnswer::of(404, &text, Ordered::empty_map());
        };
        let mut told = self.node(node);
        let own = self.actors.iter().filter(|actor| actor.node_id == Some(node.node_id));
        told.push(("actors".into(), own.map(|actor| (actor.actor_id.hex(), self.actor(actor))).collect::<Named>().0));
        RayAnswer::of(200, "Node details fetched.", Ordered::map([("detail", Ordered::Map(told))]))
    }

    /// `/logical/actors`, those with these identifiers only where there are any.
    pub fn logical_actors(&self, ids: Option<&str>) -> RayAnswer {
        let wanted: Option<Vec<&str>> = ids.map(|ids| ids.split(',').collect());
        let is_wanted = |id: ActorId| wanted.as_ref().is_none_or(|ids| ids.contains(&id.hex().as_str()));
        let actors = self.actors.iter().filter(|actor| is_wanted(actor.actor_id));
        let actors: Named = actors.map(|actor| (actor.actor_id.hex(), self.actor(actor))).collect();
        RayAnswer::of(200, "All actors fetched.", Ordered::map([("actors", actors.0)]))
    }

    /// `/logical/actors/{id}`.
    pub fn logical_actor(&self, id: &str) -> RayAnswer {
        match self.actors.iter().find(|actor| actor.actor_id.hex() == id) {
            Some(actor) => RayAnswer::of(200, "Actor details fetched.", Ordered::map([("detail", self.actor(actor))])),
            None => RayAnswer::of(
                404,
                &format!("Actor {id} is not known: `/logical/actors` lists those that are"),
                Ordered::empty_map(),
            ),
        }
    }

    fn measured(&self, node: NodeId) -> Option<&NodeStatistics> {
        self.measured.iter().find(|measured| measured.node_id == node)?.statistics.as_ref()
    }

    fn node(&self, node: &NodeRow) -> Vec<(String, Ordered)> {
        let measured = self.measured(node.node_id);
        let mut told: Vec<(&str, Ordered)> = vec![
            ("now", (self.now_ms as f64 / 1e3).into()),
            ("hostname", (&node.hostname).into()),
            ("ip", (&node.address).into()),
        ];
        if let Some(measured) = measured {
            told.extend(of_machine(measured));
        }
        let gpus = node.devices.iter().filter(|device| device.resource == "GPU");
        told.push(("gpus", (0_u32..).zip(gpus).map(|(index, gpu)| device(index, gpu)).collect()));
        told.push(("tpus", Ordered::List(Vec::new())));
        if let Some(measured) = measured {
            let flow = |of: Option<Flow>| of.unwrap_or_default();
            let (sent, received) = (flow(measured.sent), flow(measured.received));
            told.push(("network", vec![sent.total.into(), received.total.into()].into()));
            told.push(("networkSpeed", vec![real(sent.per_s), real(received.per_s)].into()));
        }
        let workers = measured.into_iter().flat_map(|measured| &measured.workers);
        told.push(("workers", workers.map(process).collect()));
        told.push(("raylet", self.raylet(node)));
        told.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The node's daemon, under the name of Ray's.
    fn raylet(&self, node: &NodeRow) -> Ordered {
        let own: Vec<_> =
            self.workers.iter().filter(|worker| worker.node == Some(node.node_id) && worker.exit.is_none()).collect();
        let store = node.resources.get("object_store_memory").copied().unwrap_or(0.0) as u64;
        let left = store.saturating_sub(node.store_used);
        let lifetime = node.lifetime().unwrap_or_default();
        let message = if node.death.is_empty() { None } else { Some(&node.death) };
        let resources = node.resources.iter().map(|(name, amount)| (camel(name), (*amount).into())).collect();
        Ordered::map([
            ("coreWorkersStats", own.iter().map(|worker| core_worker(worker)).collect()),
            ("numWorkers", own.len().into()),
            ("storeStats", Ordered::map([("objectStoreBytesAvail", Ordered::text(store))])),
            ("objectStoreUsedMemory", node.store_used.into()),
            ("objectStoreAvailableMemory", left.into()),
            ("nodeId", node.node_id.hex().into()),
            ("nodeManagerAddress", (&node.address).into()),
            ("rayletSocketName", (&node.socket).into()),
            ("objectStoreSocketName", (&node.socket).into()),
            ("nodeManagerPort", 0_u32.into()),
            ("objectManagerPort", 0_u32.into()),
            ("nodeManagerHostname", (&node.hostname).into()),
            ("resourcesTotal", Ordered::Map(resources)),
            ("nodeName", (&node.name).into()),
            ("startTimeMs", Ordered::text(lifetime.started_ms)),
            ("isHeadNode", node.head.into()),
            ("labels", Ordered::map(node.labels.iter().map(|(name, value)| (name.as_str(), value.into())))),
            ("state", if node.alive { "ALIVE" } else { "DEAD" }.into()),
            ("endTimeMs", Ordered::text(lifetime.ended_ms)),
            ("stateMessage", message.into()),
        ])
    }

    fn actor(&self, actor: &ActorRow) -> Ordered {
        let node = self.nodes.iter().find(|node| Some(node.node_id) == actor.node_id);
        let worker = self.workers.iter().find(|worker| {
            worker.duty == WorkerDuty::Actor
                && worker.pid == actor.pid
                && worker.node == actor.node_id
                && actor.pid.is_some()
        });
        let statistics = actor.node_id.and_then(|node| self.measured(node));
        let used = statistics
            .and_then(|measured| measured.workers.iter().find(|measured| Some(measured.pid) == actor.pid))
            .filter(|_| actor.state != ActorPhase::Dead);
        let exit = if actor.state == ActorPhase::Dead { actor.cause.as_deref().unwrap_or_default() } else { "-" };
        let started = worker.map_or(0, |worker| worker.started_ms);
        let ended = worker.and_then(|worker| worker.exit.as_ref()).map_or(0, |exit| exit.ended_ms);
        let address = Ordered::map([
            ("nodeId", actor.node_id.map(|node| node.hex()).into()),
            ("ipAddress", node.map(|node| &node.address).into()),
            ("port", 0_u32.into()),
            ("workerId", worker.map(|worker| worker.worker_id.hex()).into()),
        ]);
        let resources = actor.resources.iter().flat_map(|amounts| &amounts.by_name);
        Ordered::map([
            ("actorId", actor.actor_id.hex().into()),
            ("jobId", actor.job_id.hex().into()),
            ("address", address),
            ("name", (&actor.name).into()),
            ("className", (&actor.class).into()),
            ("state", actor_state(actor.state).into()),
            ("numRestarts", Ordered::text(actor.restarts)),
            ("timestamp", real(started.max(ended))),
            ("pid", actor.pid.unwrap_or(0).into()),
            ("startTime", started.into()),
            ("endTime", ended.into()),
            ("reprName", "".into()),
            ("labelSelector", Ordered::empty_map()),
            ("actorClass", (&actor.class).into()),
            ("exitDetail", exit.into()),
            ("requiredResources", Ordered::map(resources.map(|(name, amount)| (name.as_str(), (*amount).into())))),
            ("gpus", Ordered::List(Vec::new())),
            ("processStats", used.map(process).into()),
            ("mem", statistics.and_then(|measured| measured.memory).as_ref().map(memory).into()),
            ("tpus", Ordered::List(Vec::new())),
        ])
    }
}

/// Objects by name, as they come.
struct Named(Ordered);

impl FromIterator<(String, Ordered)> for Named {
    fn from_iter<I: IntoIterator<Item = (String, Ordered)>>(entries: I) -> Self {
        Self(Ordered::Map(entries.into_iter().collect()))
    }
}

fn real(number: u64) -> Ordered {
    Ordered::Real(number as f64)
}

fn of_machine(measured: &NodeStatistics) -> Vec<(&'static str, Ordered)> {
    let bound = measured.memory.unwrap_or_default();
    let flow = |of: Option<Flow>| of.unwrap_or_default();
    let io = [measured.disk_read, measured.disk_written, measured.disk_reads, measured.disk_writes].map(flow);
    let processors = measured.cpu_millis.div_ceil(1_000);
    let loads: Vec<f64> = measured.loads.iter().map(|load| f64::from(*load) / 100.0).collect();
    let per_cpu = |load: &f64| ((load / f64::from(processors.max(1))) * 100.0).round() / 100.0;
    let loads: Ordered = vec![
        loads.iter().map(|load| Ordered::Real(*load)).collect(),
        loads.iter().map(|load| Ordered::Real(per_cpu(load))).collect(),
    ]
    .into();
    let disk = measured.disk.unwrap_or_default();
    let disk = Ordered::map([
        ("total", disk.size.into()),
        ("used", disk.used.into()),
        ("free", disk.free.into()),
        ("percent", percent(disk.used, disk.used + disk.free).into()),
    ]);
    vec![
        ("cpu", (f64::from(measured.cpu_permille) / 10.0).into()),
        ("cpus", vec![processors.into(), processors.into()].into()),
        ("mem", memory(&bound)),
        ("hostMem", vec![bound.host_used.into(), bound.host_limit.into()].into()),
        ("cgroupMem", vec![bound.used.into(), bound.limit.into()].into()),
        ("shm", bound.shared.into()),
        ("bootTime", real(measured.booted_s)),
        ("loadAvg", loads),
        ("disk", Ordered::map([("/", disk)])),
        ("diskIo", io.iter().map(|flow| flow.total.into()).collect()),
        ("diskIoSpeed", io.iter().map(|flow| real(flow.per_s)).collect()),
    ]
}

/// In all, left, used in percent, and used.
fn memory(bound: &MemoryStatistics) -> Ordered {
    vec![
        bound.limit.into(),
        bound.limit.saturating_sub(bound.used).into(),
        percent(bound.used, bound.limit).into(),
        bound.used.into(),
    ]
    .into()
}

/// To one place.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 1e3).round() / 10.0 }
}

fn device(index: u32, device: &DeviceUse) -> Ordered {
    let mebibytes = |bytes: Option<u64>| bytes.map(|bytes| bytes / MEBIBYTE);
    Ordered::map([
        ("index", index.into()),
        ("name", (&device.resource).into()),
        ("uuid", (&device.id).into()),
        ("utilizationGpu", device.busy_percent.into()),
        ("memoryUsed", mebibytes(device.used_bytes).into()),
        ("memoryTotal", mebibytes(device.total_bytes).into()),
        ("processesPids", Ordered::List(Vec::new())),
    ])
}

fn process(measured: &WorkerStatistics) -> Ordered {
    Ordered::map([
        ("pid", measured.pid.into()),
        ("cpuPercent", (f64::from(measured.cpu_permille) / 10.0).into()),
        ("memoryInfo", Ordered::map([("rss", real(measured.resident_kib << 10))])),
        ("numFds", measured.files.into()),
    ])
}

fn core_worker(worker: &WorkerRow) -> Ordered {
    let kind = if worker.duty == WorkerDuty::Driver { "DRIVER" } else { "WORKER" };
    Ordered::map([
        ("ipAddress", (&worker.ip).into()),
        ("jobId", worker.job_id.map(|job| job.hex()).unwrap_or_default().into()),
        ("workerId", worker.worker_id.hex().into()),
        ("pid", worker.pid.unwrap_or(0).into()),
        ("language", "PYTHON".into()),
        ("workerType", kind.into()),
    ])
}

/// `object_store_memory` is `objectStoreMemory`.
fn camel(name: &str) -> String {
    let mut parts = name.split('_').filter(|part| !part.is_empty());
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |written, part| {
        let (head, tail) = part.split_at(part.chars().next().map_or(0, char::len_utf8));
        written + &head.to_uppercase() + tail
    })
}

/// `0.5/1.0 GPU`, a line for each resource.
fn logical_resources(node: &NodeRow) -> String {
    let line = |(name, total): (&String, &f64)| {
        let free = node.available.get(name).copied().unwrap_or(0.0);
        let used = if name == "object_store_memory" { node.store_used as f64 } else { (total - free).max(0.0) };
        let shown = |amount: f64| {
            if name.ends_with("memory") { bytes(amount) } else { format!("{:?}", (amount * 1e4).round() / 1e4) }
        };
        format!("{}/{} {name}", shown(used), shown(*total))
    };
    let shown = node.resources.iter().filter(|(name, _)| !name.starts_with("node:"));
    shown.map(line).collect::<Vec<_>>().join("\n")
}

/// `0B`, `15.57GiB`.
fn bytes(count: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = if count < 1024.0 { 0 } else { (count.log2() / 10.0).floor().min(4.0) as i32 };
    let shown = count / 1024_f64.powi(power);
    if power == 0 { format!("{shown:.0}B") } else { format!("{shown:.2}{}", UNITS[power as usize]) }
}

/// `/api/v0/cluster_metadata`. Each program brings a Python of its own, and no version is that of the cluster.
pub fn cluster_metadata() -> RayAnswer {
    let data = [("rayVersion", RAY_VERSION.into()), ("pythonVersion", "".into()), ("rayInitCluster", false.into())];
    RayAnswer::of(200, "", Ordered::map(data))
}

/// `/api/v0/tasks/timeline`: what ran when, as events of Chrome's trace format; of one job where it is named.
pub fn timeline(rows: &[TaskRow], nodes: &[NodeRow], job: Option<&str>) -> RayAnswer {
    let ran = rows.iter().filter(|row| row.started_us > 0 && row.ended_us >= row.started_us);
    let mut processes: BTreeMap<_, u64> = BTreeMap::new();
    let mut threads: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    let mut events = Vec::new();
    for row in ran.filter(|row| job.is_none_or(|job| row.task_id.job().hex() == job)) {
        let next = processes.len() as u64;
        let process = *processes.entry(row.node_id).or_insert(next);
        let next = threads.len() as u64;
        let (_, thread) = *threads.entry(row.worker_id).or_insert((process, next));
        events.push(Ordered::map([
            ("cat", format!("task::{}", row.function).into()),
            ("name", (&row.name).into()),
            ("pid", process.into()),
            ("tid", thread.into()),
            ("ts", real(row.started_us)),
            ("dur", real(row.ended_us - row.started_us)),
            ("cname", "generic_work".into()),
            ("args", arguments(row)),
            ("ph", "X".into()),
        ]));
    }
    let address = |node| nodes.iter().find(|row| Some(row.node_id) == node).map_or("", |row| &row.address);
    let named = |name: &str, text: String, process: u64, thread: Option<u64>| {
        Ordered::map([
            ("name", name.into()),
            ("args", Ordered::map([("name", text.into())])),
            ("pid", process.into()),
            ("tid", thread.into()),
            ("ph", "M".into()),
        ])
    };
    for (node, process) in &processes {
        events.push(named("process_name", format!("Node {}", address(*node)), *process, None));
    }
    for (worker, (process, thread)) in &threads {
        let worker = worker.map(|worker| worker.hex()).unwrap_or_default();
        events.push(named("thread_name", format!("worker:{worker}"), *process, Some(*thread)));
    }
    RayAnswer::plain(200, &events.into())
}

fn arguments(row: &TaskRow) -> Ordered {
    Ordered::map([
        ("name", (&row.name).into()),
        ("task_id", row.task_id.hex().into()),
        ("job_id", row.task_id.job().hex().into()),
        ("attempt_number", row.attempt.into()),
        ("func_or_class_name", (&row.function).into()),
        ("actor_id", row.actor().map(|actor| actor.hex()).into()),
    ])
}
