//! Rows of the lists, from what the head says and what is kept (pure).

use super::cpus::CpuHolder;
use super::holdings::{Device, DeviceKey, Stretch, Use, WHOLE};
use super::machines::machine_cells;
use super::rows::{MadeRow, Row};
use super::tables::{Names, Shown, Tables, amount, by_node, label, name};
use oxiray_ids::{JobId, NodeId};
use oxiray_state::state_name;
use oxiray_wire::message::ObjectUse;
use oxiray_wire::state::{
    ActorPhase, ActorRow, DemandKind, GroupRow, GroupState, JobRow, NodeRow, ObjectRow, TaskRow, WaitingRow,
    WorkerDuty, WorkerRow,
};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fmt::Display;

/// How many holdings a list looks at: the newest ones.
const GRANTS_MAX: usize = 10_000;

fn text(value: Option<impl Display>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn named(node: Option<NodeId>, names: &Names) -> Option<String> {
    node.map(|node| names.of(node))
}

/// Devices in short, for the row of their node.
fn small(devices: &[&Shown<'_>]) -> Vec<Json> {
    let one = |one: &&Shown<'_>| {
        let (key, label) = (one.key.to_string(), one.label());
        json!({"key": key, "label": label, "state": one.state, "held": one.held, "reason": one.reason})
    };
    devices.iter().map(one).collect()
}

/// How a node is, in one word.
pub(crate) fn node_state(node: &NodeRow) -> &'static str {
    match (node.alive, &node.draining) {
        (false, _) => "DEAD",
        (true, Some(_)) => "DRAINING",
        (true, None) => "ALIVE",
    }
}

/// Nodes.
pub(crate) fn nodes(tables: &Tables) -> Vec<Row> {
    let devices = tables.devices();
    let of_nodes = by_node(&devices);
    let row = |(place, node): (usize, &NodeRow)| {
        let life = node.lifetime().unwrap_or_default();
        let store = amount(&node.resources, "object_store_memory");
        let mut cells = machine_cells(tables.machines.of(node.node_id).filter(|_| node.alive));
        let told = json!({
            "name": name(node), "address": node.address, "hostname": node.hostname, "state": node_state(node), "head": node.head,
            "labels": node.labels, "resources": node.resources, "available": node.available, "death": node.death,
            "draining": node.draining.as_ref().map(|draining| &draining.words), "drain_deadline_ms": tables.deadlines.of(node.node_id),
            "store_used": node.store_used,
            "devices": small(of_nodes.get(&node.node_id).map_or(&[], Vec::as_slice)), "started_ms": life.started_ms, "ended_ms": life.ended_ms,
            "node_id": node.node_id.to_string(), "store_size": (store > 0.0).then_some(store),
            "version": tables.machines.version(node.node_id), "clock_ms": tables.machines.clock_ms(node.node_id).filter(|_| node.alive),
            "silent": node.alive && tables.machines.is_silent(node.node_id, tables.until_ms),
        });
        add(&mut cells, told);
        Row::new(u64::MAX - place as u64, node.node_id.to_string(), cells)
    };
    tables.state.nodes.iter().enumerate().map(row).collect()
}

/// Adds cells to others.
fn add(cells: &mut Json, more: Json) {
    if let (Json::Object(cells), Json::Object(more)) = (cells, more) {
        cells.extend(more);
    }
}

/// Devices.
pub(crate) fn devices(tables: &Tables) -> Vec<Row> {
    let row = |(place, one): (usize, Shown<'_>)| {
        let used = one.row.and_then(|row| row.used.as_ref());
        let held = tables.holdings.device(&one.key).into_iter().flat_map(Device::open);
        let holders: Vec<Json> = held
            .filter(|stretch| stretch.used != Use::Quarantined)
            .map(|held| json!({"name": &*held.holder.name, "share": share(held), "pid": held.holder.pid}))
            .collect();
        let cells = json!({
            "label": one.label(), "state": one.state, "reason": one.reason, "held": one.held, "holders": holders,
            "node_id": one.key.node.to_string(), "node_name": tables.names.of(one.key.node),
            "id": one.row.map(|row| &row.id), "busy": used.and_then(|used| used.busy_percent).map(|percent| f64::from(percent) / 100.0),
            "memory_used": used.and_then(|used| used.used_bytes), "memory_size": used.and_then(|used| used.total_bytes),
            "notes": one.row.map(|row| &row.notes), "violations": one.row.map(|row| &row.violations),
            "foreign": one.row.map(|row| &row.foreign),
        });
        Row::new(u64::MAX - place as u64, one.key.to_string(), cells)
    };
    tables.devices().into_iter().enumerate().map(row).collect()
}

fn share(stretch: &Stretch) -> f64 {
    f64::from(stretch.share) / f64::from(WHOLE)
}

/// Who held devices between two moments, and whether there were more than are told.
pub(crate) fn grants(tables: &Tables, from_ms: u64, to_ms: u64) -> (Vec<Row>, bool) {
    let devices = tables.holdings.devices().flat_map(|(key, device)| device.stretches().map(move |one| (key, one)));
    let is_between = |one: &Stretch| one.from_ms <= to_ms && one.to_ms.is_none_or(|to| to >= from_ms);
    let mut found: Vec<(&DeviceKey, &Stretch)> = devices.filter(|(_, one)| is_between(one)).collect();
    let is_cut = found.len() > GRANTS_MAX;
    if is_cut {
        found.sort_by_key(|(_, one)| std::cmp::Reverse(one.from_ms));
        found.truncate(GRANTS_MAX);
    }
    (found.into_iter().map(|(key, one)| grant(key, one, &tables.names)).collect(), is_cut)
}

/// One part of a device that was held.
pub(crate) fn grant(key: &DeviceKey, one: &Stretch, names: &Names) -> Row {
    let state = ["held", "checking", "quarantined"][one.used as usize];
    let is_out = one.used == Use::Quarantined;
    let cells = json!({
        "device": key.to_string(), "label": label(key), "node_id": key.node.to_string(), "node_name": names.of(key.node),
        "name": if is_out { "" } else { &one.holder.name }, "reason": is_out.then_some(&*one.holder.name), "state": state,
        "share": share(one), "from_ms": one.from_ms, "to_ms": one.to_ms, "pid": (one.holder.pid > 0).then_some(one.holder.pid),
        "worker_id": text(one.holder.worker), "job_id": text(one.holder.job), "actor_id": text(one.holder.actor),
        "group": text(one.holder.group),
    });
    Row::new(one.from_ms, one.number.to_string(), cells)
}

/// Who held CPUs between two moments, in the place of parts of devices.
pub(crate) fn cpu_grants(tables: &Tables, holders: &[CpuHolder], (from_ms, to_ms): (u64, u64)) -> Vec<Row> {
    let is_between = |one: &&CpuHolder| one.from_ms <= to_ms && one.to_ms.is_none_or(|to| to >= from_ms);
    let sizes: BTreeMap<NodeId, f64> =
        tables.state.nodes.iter().map(|row| (row.node_id, amount(&row.resources, "CPU"))).collect();
    let row = |one: &CpuHolder| {
        let (whole, holder) = (sizes.get(&one.node).copied().unwrap_or_default(), &one.holder);
        let cells = json!({
            "device": one.node.to_string(), "label": "CPU", "node_id": one.node.to_string(), "node_name": tables.names.of(one.node),
            "name": &*holder.name, "reason": null, "state": "held", "share": if whole > 0.0 { (one.cpus / whole).min(1.0) } else { 0.0 },
            "amount": one.cpus, "from_ms": one.from_ms, "to_ms": one.to_ms, "pid": (holder.pid > 0).then_some(holder.pid),
            "worker_id": text(holder.worker), "job_id": text(holder.job), "actor_id": text(holder.actor), "group": text(holder.group),
        });
        Row::new(one.from_ms, one.key.clone(), cells)
    };
    holders.iter().filter(is_between).map(row).collect()
}

/// What waits, longest first.
pub(crate) fn waiting(tables: &Tables) -> Vec<Row> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let row = |one: &WaitingRow| {
        let demand = one.demand.as_ref().map(|demand| &demand.by_name);
        let base =
            format!("{}:{}:{}", one.kind, one.name, demand.map(|demand| format!("{demand:?}")).unwrap_or_default());
        let count = seen.entry(base.clone()).or_default();
        *count += 1;
        let key = if *count > 1 { format!("{base}:{count}") } else { base };
        let cells = json!({
            "name": one.name, "kind": one.kind.name(), "demand": demand, "count": one.count, "seconds": one.seconds,
            "overtaken": one.overtaken, "why": one.why, "id": whose(tables, one),
        });
        Row::new((one.seconds * 1_000.0) as u64, key, cells)
    };
    tables.state.waiting.iter().map(row).collect()
}

/// The actor or group that waits; of tasks the head keeps no list.
fn whose(tables: &Tables, one: &WaitingRow) -> Option<String> {
    let state = &tables.state;
    match one.kind {
        DemandKind::Actor => {
            let waits = |actor: &&ActorRow| {
                matches!(actor.state, ActorPhase::Waiting | ActorPhase::Restarting) && actor.class == one.name
            };
            state.actors.iter().find(waits).map(|actor| actor.actor_id.to_string())
        }
        DemandKind::Group => {
            let waits = |group: &&GroupRow| {
                let id = group.placement_group_id.to_string();
                matches!(group.state, GroupState::Pending | GroupState::Rescheduling)
                    && (group.name == one.name || id.starts_with(&one.name))
            };
            state.placement_groups.iter().find(waits).map(|group| group.placement_group_id.to_string())
        }
        DemandKind::Task => None,
    }
}

/// Actors.
pub(crate) fn actors(rows: &[ActorRow], names: &Names) -> Vec<Row> {
    let row = |(place, one): (usize, &ActorRow)| {
        let cells = json!({
            "class": one.class, "name": one.name, "namespace": one.namespace, "job_id": one.job_id.to_string(), "detached": one.detached,
            "state": one.state.name().to_uppercase(), "cause": one.cause, "pid": one.pid, "restarts": one.restarts,
            "node_id": text(one.node_id), "node_name": named(one.node_id, names), "group": text(one.surroundings.as_ref().and_then(|around| around.group)),
            "resources": one.resources.as_ref().map(|held| &held.by_name),
        });
        Row::new(u64::MAX - place as u64, one.actor_id.to_string(), cells)
    };
    rows.iter().enumerate().map(row).collect()
}

/// Placement groups.
pub(crate) fn placement_groups(rows: &[GroupRow]) -> Vec<Row> {
    let row = |(place, one): (usize, &GroupRow)| {
        let bundle = |bundle: &oxiray_wire::state::BundleRow| json!({"resources": bundle.resources, "node_id": text(bundle.node_id)});
        let cells = json!({
            "name": one.name, "state": one.state.name(), "scheduling": one.scheduling.name(), "strategy": one.strategy,
            "job_id": one.job_id.to_string(), "detached": one.detached, "reason": one.reason, "creation_ms": one.creation_ms,
            "bundles": one.bundles.iter().map(bundle).collect::<Vec<_>>(),
        });
        Row::new(u64::MAX - place as u64, one.placement_group_id.to_string(), cells)
    };
    rows.iter().enumerate().map(row).collect()
}

/// Jobs, with the devices that each holds now and has held.
pub(crate) fn jobs(rows: &[JobRow], tables: &Tables) -> Vec<Row> {
    let held = held_by_job(tables);
    let of = |one: &JobRow| one.driver.as_ref().and_then(|driver| held.get(&driver.job)).copied().unwrap_or_default();
    rows.iter().map(|one| job(one, &tables.names, of(one))).collect()
}

/// A job that holds so many devices now, and held a whole one for so many milliseconds.
pub(crate) fn job(one: &JobRow, names: &Names, (now, milliseconds): (f64, f64)) -> Row {
    let job = one.driver.as_ref().map(|driver| driver.job);
    let key = if one.submission.is_empty() { text(job).unwrap_or_default() } else { one.submission.clone() };
    let cells = json!({
        "submission": one.submission, "job_id": text(job), "state": one.state.name(), "entrypoint": one.entrypoint,
        "message": one.message, "error": one.error, "started_ms": one.started_ms, "ended_ms": one.ended_ms,
        "node_id": text(one.node), "node_name": named(one.node, names), "pid": one.driver.as_ref().map(|driver| driver.pid),
        "ip": one.driver.as_ref().map(|driver| &driver.ip), "exit_code": one.exit_code, "metadata": one.metadata,
        "devices": now, "device_seconds": milliseconds / 1_000.0,
    });
    Row::new(one.started_ms, key, cells)
}

/// How many devices each job holds now, and for how many milliseconds of a whole device it held some.
pub(crate) fn held_by_job(tables: &Tables) -> BTreeMap<JobId, (f64, f64)> {
    let mut held: BTreeMap<JobId, (f64, f64)> = BTreeMap::new();
    for stretch in tables.holdings.devices().flat_map(|(_, device)| device.stretches()) {
        let Some(job) = stretch.holder.job.filter(|_| stretch.used == Use::Held) else { continue };
        let of_job = held.entry(job).or_default();
        if stretch.to_ms.is_none() {
            of_job.0 += share(stretch);
        }
        let end = stretch.to_ms.unwrap_or_else(|| tables.holdings.until_ms());
        of_job.1 += share(stretch) * end.saturating_sub(stretch.from_ms) as f64;
    }
    held
}

/// Tasks, those that began last first.
pub(crate) fn tasks<'of>(
    rows: &'of [TaskRow],
    names: &'of Names,
) -> impl Iterator<Item = MadeRow<impl Fn() -> Json + 'of>> {
    rows.iter().map(move |one| {
        let rank = one.started_us.max(called_us(one));
        MadeRow::new(rank, format!("{}:{}", one.task_id, one.attempt), move || task_cells(one, names))
    })
}

fn called_us(one: &TaskRow) -> u64 {
    one.origin.map(|origin| origin.called_us).unwrap_or_default()
}

fn task_cells(one: &TaskRow, names: &Names) -> Json {
    json!({
        "task_id": one.task_id.to_string(), "attempt": one.attempt, "name": one.name, "function": one.function,
        "state": state_name(one.task_id, one.stage), "type": one.kind().name(), "node_id": text(one.node_id),
        "node_name": named(one.node_id, names), "worker_id": text(one.worker_id), "pid": one.pid, "error": one.error,
        "message": one.message, "started_ms": one.started_us / 1_000, "ended_ms": one.ended_us / 1_000,
        "created_ms": called_us(one) / 1_000, "parent_task_id": text(one.origin.and_then(|origin| origin.parent)),
        "job_id": one.task_id.job().to_string(), "actor_id": text(one.actor()),
        "resources": one.resources.as_ref().map(|needed| &needed.by_name),
        "group": text(one.surroundings.as_ref().and_then(|around| around.group)),
    })
}

/// Workers and drivers.
pub(crate) fn workers(rows: &[WorkerRow], names: &Names) -> Vec<Row> {
    let row = |one: &WorkerRow| {
        let exit = one.exit.as_ref();
        let cells = json!({
            "pid": one.pid, "duty": one.duty.name(), "name": one.name, "job_id": text(one.job_id), "resources": one.resources,
            "node_id": text(one.node), "node_name": named(one.node, names), "ip": one.ip, "started_ms": one.started_ms,
            "ended_ms": exit.map_or(0, |exit| exit.ended_ms), "exit": exit.map(|exit| exit.kind.name()),
            "detail": exit.map(|exit| &exit.detail), "state": if exit.is_some() { "DEAD" } else { "ALIVE" },
        });
        // Those that do something come first, and those that are gone last.
        let class = match (exit, one.duty) {
            (Some(_), _) => 0,
            (None, WorkerDuty::Idle | WorkerDuty::Spare) => 1,
            (None, _) => 2,
        };
        Row::new((class << 56) | (one.started_ms & ((1 << 56) - 1)), one.worker_id.to_string(), cells)
    };
    rows.iter().map(row).collect()
}

/// Workers and drivers, with how the processes of workers are.
pub(crate) fn measured_workers(rows: &[WorkerRow], tables: &Tables) -> Vec<Row> {
    let mut told = workers(rows, &tables.names);
    for (row, one) in told.iter_mut().zip(rows) {
        if let Json::Object(measured) = tables.machines.process_cells(one) {
            row.cells.extend(measured);
        }
    }
    told
}

/// References to objects, the largest first.
pub(crate) fn objects(rows: &[ObjectRow]) -> impl Iterator<Item = MadeRow<impl Fn() -> Json>> {
    rows.iter().map(|one| {
        let key = format!("{}@{}:{}", one.object, one.ip, one.pid);
        MadeRow::new(one.size.unwrap_or_default(), key, move || object_cells(one))
    })
}

fn object_cells(one: &ObjectRow) -> Json {
    let used = match one.used {
        ObjectUse::Actor => "a handle of an actor",
        ObjectUse::Mapped => "mapped in memory",
        ObjectUse::Argument => "an argument of a call",
        ObjectUse::Referred => "a reference",
        ObjectUse::Contained => "contained in another",
        ObjectUse::Device => "keeps tensors on a device",
        ObjectUse::Unknown => "a record",
    };
    json!({
        "object": one.object.to_string(), "size": one.size, "state": state_name(one.object.task(), one.stage), "used": used,
        "site": one.site, "is_worker": one.is_worker, "pid": one.pid, "ip": one.ip,
    })
}

/// The cells of the map: a node's number, name and state, which part of its CPUs is held, and its devices.
pub(crate) fn map(tables: &Tables) -> Json {
    let devices = tables.devices();
    let of_nodes = by_node(&devices);
    let cell = |node: &NodeRow| {
        let whole = amount(&node.resources, "CPU");
        let part = if whole > 0.0 { 1.0 - amount(&node.available, "CPU") / whole } else { 0.0 };
        let of_node = of_nodes.get(&node.node_id).map_or(&[][..], Vec::as_slice);
        let states: Vec<&str> = of_node.iter().map(|one| one.state).collect();
        let held: Vec<f64> = of_node.iter().map(|one| one.held).collect();
        json!([node.node_id.to_string(), name(node), node_state(node), part, states, held])
    };
    json!({"nodes": tables.state.nodes.iter().map(cell).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::{PlacementGroupId, TaskId, WorkerId};
    use oxiray_wire::message::{ChronicleBatch, TaskStage};
    use oxiray_wire::state::{
        Amounts, ChronicleEntry, ChronicleEvent, ClusterState, DevicePart, DriverProcess, WorkerExit,
    };

    fn held(number: u64, at_ms: u64, event: ChronicleEvent, job: JobId) -> ChronicleEntry {
        let device = Some(DevicePart { resource: "GPU".into(), grant: 1, share: 5_000, ..DevicePart::default() });
        ChronicleEntry {
            number,
            at_ms,
            event,
            node: Some(NodeId::new([1; 28])),
            device,
            job: Some(job),
            name: "f".into(),
            ..ChronicleEntry::default()
        }
    }

    #[test]
    fn a_job_is_told_what_it_holds_and_held() {
        let job = JobId::new([3; 4]);
        let mut tables = Tables::default();
        let entries = vec![
            held(1, 1_000, ChronicleEvent::DeviceGranted, job),
            held(2, 3_000, ChronicleEvent::DeviceReturning, job),
            held(3, 4_000, ChronicleEvent::DeviceFree, job),
            held(4, 5_000, ChronicleEvent::DeviceGranted, job),
        ];
        tables.record(&ChronicleBatch { entries, ..ChronicleBatch::default() }, 9_000);
        let driver = Some(DriverProcess { job, ..DriverProcess::default() });
        let rows = jobs(&[JobRow { driver, submission: "s".into(), ..JobRow::default() }], &tables);
        assert_eq!(
            (rows[0].cells["devices"].as_f64(), rows[0].cells["device_seconds"].as_f64()),
            (Some(0.5), Some(3.0))
        );
        let (rows, is_cut) = grants(&tables, 3_500, 4_500);
        let told: Vec<_> =
            rows.iter().map(|row| (row.cells["state"].as_str().unwrap_or_default(), row.key.as_str())).collect();
        assert_eq!((told, is_cut), (vec![("checking", "2")], false));
    }

    #[test]
    fn a_node_that_is_drained_has_the_moment_at_which_it_ends() {
        use oxiray_wire::state::DrainState;
        let draining = |deadline_s| Some(DrainState { deadline_s, ..DrainState::default() });
        let mut tables = Tables::default();
        let mut told_at = |deadlines: [Option<f64>; 2], now_ms| -> Vec<Option<u64>> {
            let of = |(number, draining)| NodeRow {
                node_id: NodeId::new([number; 28]),
                alive: true,
                draining,
                ..NodeRow::default()
            };
            let drained = deadlines.map(draining);
            let nodes = (1..).zip(drained.into_iter().chain([None])).map(of).collect();
            tables.look(ClusterState { nodes, ..ClusterState::default() }, now_ms);
            super::nodes(&tables).iter().map(|row| row.cells["drain_deadline_ms"].as_u64()).collect()
        };
        assert_eq!(told_at([Some(89.7), None], 10_100), [Some(100_000), None, None]);
        assert_eq!(told_at([Some(89.0), None], 11_010), [Some(100_000), None, None], "it is the same moment");
        assert_eq!(told_at([Some(99.0), None], 11_010), [Some(111_000), None, None], "it is another one");
        assert_eq!(told_at([None, Some(1e16)], 12_000), [None; 3], "no reader's clock goes so far");
        assert_eq!(told_at([Some(f64::MAX), Some(f64::NAN)], u64::MAX), [None; 3]);
    }

    #[test]
    fn holders_of_cpus_have_their_parts_of_their_nodes() {
        let mut tables = Tables::default();
        let node = |number: u8, cpus: f64| NodeRow {
            node_id: NodeId::new([number; 28]),
            resources: BTreeMap::from([("CPU".into(), cpus)]),
            ..NodeRow::default()
        };
        tables.look(ClusterState { nodes: vec![node(1, 4.0), node(2, 8.0)], ..ClusterState::default() }, 1);
        let holder = |number: u8, to_ms| CpuHolder {
            key: number.to_string(),
            node: NodeId::new([number; 28]),
            cpus: 2.0,
            from_ms: 10,
            to_ms,
            holder: super::super::holdings::Holder::default(),
        };
        let rows =
            cpu_grants(&tables, &[holder(1, None), holder(2, None), holder(3, None), holder(1, Some(20))], (30, 40));
        let told: Vec<_> = rows.iter().map(|row| (row.key.as_str(), row.cells["share"].as_f64())).collect();
        assert_eq!(told, [("1", Some(0.5)), ("2", Some(0.25)), ("3", Some(0.0))]);
    }

    #[test]
    fn who_waits_is_named_where_the_head_knows() {
        let group = PlacementGroupId::new([5; 18]);
        let row = |name: &str, kind| WaitingRow {
            name: name.into(),
            kind,
            demand: Some(Amounts::default()),
            ..WaitingRow::default()
        };
        let mut tables = Tables::default();
        let groups = vec![GroupRow { placement_group_id: group, name: "pg".into(), ..GroupRow::default() }];
        let waiting_rows = vec![row("pg", DemandKind::Group), row("f", DemandKind::Task), row("f", DemandKind::Task)];
        tables.look(ClusterState { placement_groups: groups, waiting: waiting_rows, ..ClusterState::default() }, 1);
        let rows = waiting(&tables);
        assert_eq!(rows[0].cells["id"].as_str().map(str::to_owned), Some(group.to_string()));
        assert_eq!(rows[1].cells["id"], Json::Null);
        assert_ne!(rows[1].key, rows[2].key, "each row has a key of its own");
    }

    #[test]
    fn the_dead_stand_behind_the_living_and_tasks_keep_their_errors() {
        let dead = WorkerRow {
            worker_id: WorkerId::new([1; 28]),
            exit: Some(WorkerExit::default()),
            started_ms: 99,
            ..WorkerRow::default()
        };
        let alive = WorkerRow {
            worker_id: WorkerId::new([2; 28]),
            duty: WorkerDuty::Task,
            started_ms: 5,
            ..WorkerRow::default()
        };
        let rows = workers(&[dead, alive], &Names::default());
        assert!(rows[1].rank > rows[0].rank);
        let failed = TaskRow {
            task_id: TaskId::default(),
            stage: TaskStage::Failed,
            error: Some("ValueError".into()),
            ..TaskRow::default()
        };
        let (told, names) = ([failed], Names::default());
        let rows: Vec<Row> = tasks(&told, &names).map(|row| row.made()).collect();
        assert_eq!(
            (rows[0].cells["state"].as_str(), rows[0].cells["error"].as_str()),
            (Some("FAILED"), Some("ValueError"))
        );
    }
}
