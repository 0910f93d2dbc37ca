//! The picture of devices over time, charts, and the cluster in short (pure).

use super::cpus::{self, CpuHolder};
use super::holdings::{Device, DeviceKey, Stretch, Use, WHOLE};
use super::lists::node_state;
use super::merging::{Bar, Part, Window, bars};
use super::series::Point;
use super::tables::{Measured, Shown, Tables, amount, by_node, name};
use oxiray_ids::NodeId;
use oxiray_wire::state::{ActorPhase, GroupState, NodeRow};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// How many lines a chart has.
const LINES_MAX: usize = 16;

/// The names that bars have, each once.
#[derive(Debug, Default)]
struct Legend<'held> {
    numbers: BTreeMap<&'held str, usize>,
    names: Vec<&'held str>,
}

impl<'held> Legend<'held> {
    fn number(&mut self, name: &'held str) -> usize {
        *self.numbers.entry(name).or_insert_with(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }
}

fn part(of: u32) -> f64 {
    f64::from(of) / f64::from(WHOLE)
}

fn bar<'held>(bar: &Bar<'held>, legend: &mut Legend<'held>) -> Json {
    keyed(bar, bar.number.map(|number| number.to_string()).as_deref(), legend.number(bar.name))
}

/// A bar with its key, and the number of its name.
fn keyed(bar: &Bar<'_>, key: Option<&str>, name: usize) -> Json {
    json!([bar.from_ms, bar.to_ms, part(bar.offset), part(bar.share), bar.used as u8, name, bar.count, key])
}

/// Points within a window, no closer than a pixel.
fn thinned(points: impl Iterator<Item = Point>, window: Window) -> Vec<Point> {
    let pixel = window.to_ms.saturating_sub(window.from_ms) / u64::from(window.pixels.max(1));
    let mut kept: Vec<Point> = Vec::new();
    let mut before = None;
    for point in points.take_while(|point| point.0 <= window.to_ms) {
        if point.0 < window.from_ms {
            before = Some(point);
        } else if kept
            .last()
            .is_none_or(|last| point.0 >= last.0.saturating_add(pixel) || last.1.is_none() != point.1.is_none())
        {
            kept.extend(before.take());
            kept.push(point);
        }
    }
    kept.extend(before);
    kept
}

/// Who held which device between two moments, merged to pixels; nodes by their CPUs where there are no devices. Of nodes that are
/// not of the part, only how many devices they have is told.
pub(crate) fn holdings(tables: &Tables, window: Window, part: Part) -> Json {
    let devices = tables.devices();
    let mut legend = Legend::default();
    let is_by_cpu = devices.is_empty();
    let nodes: Vec<Json> = if is_by_cpu {
        let nodes: Vec<&NodeRow> = tables.state.nodes.iter().filter(|node| node.alive).collect();
        nodes_by_cpu(tables, &nodes, (window, part), legend.number("CPUs in use"))
    } else {
        let of_nodes = by_node(&devices);
        let nodes = tables.state.nodes.iter().filter_map(|node| Some((node, of_nodes.get(&node.node_id)?.as_slice())));
        nodes_with_devices(tables, &nodes.collect::<Vec<_>>(), (window, part), &mut legend)
    };
    let holdings = &tables.holdings;
    json!({
        "unit": if is_by_cpu { "CPU" } else { "device" }, "from": window.from_ms, "to": window.to_ms, "begun_ms": holdings.begun_ms(),
        "until_ms": holdings.until_ms(), "gaps": gaps(tables, window), "names": legend.names, "nodes": nodes,
    })
}

/// The stretches of a window of which nothing is known.
fn gaps(tables: &Tables, window: Window) -> Vec<(u64, u64)> {
    tables.holdings.gaps().filter(|(from, to)| *from <= window.to_ms && *to >= window.from_ms).collect()
}

/// Who held how many CPUs of which node between two moments, for a cluster without devices: each node is one row, as high as it has
/// CPUs. Nothing is known of the time before `begun_ms`.
pub(crate) fn cpu_holdings(
    tables: &Tables,
    holders: &[CpuHolder],
    begun_ms: u64,
    (window, part): (Window, Part),
) -> Json {
    let nodes: Vec<&NodeRow> = tables.state.nodes.iter().filter(|node| node.alive).collect();
    let of_nodes = cpus::by_node(holders);
    let stretches = |node: &&NodeRow| {
        let of_node = of_nodes.get(&node.node_id).map_or(&[][..], Vec::as_slice);
        (node.node_id, cpus::stretches(of_node, amount(&node.resources, "CPU")))
    };
    let of_part: BTreeMap<NodeId, Vec<Stretch>> =
        nodes.iter().skip(part.first).take(part.count).map(stretches).collect();
    let window = part
        .coarsened(window, |window| of_part.values().map(|all| bars(all.iter(), window, tables.until_ms).len()).sum());
    let mut legend = Legend::default();
    let row = |(place, node): (usize, &&NodeRow)| {
        let cpus = amount(&node.resources, "CPU");
        let told = of_part.get(&node.node_id).filter(|_| part.has(place)).map(|all| {
            let bars = bars(all.iter(), window, tables.until_ms).into_iter().map(|one| {
                let key = one.number.and_then(|place| holders.get(usize::try_from(place).ok()?));
                keyed(&one, key.map(|holder| holder.key.as_str()), legend.number(one.name))
            });
            let bars: Vec<Json> = bars.collect();
            vec![json!({
                "key": node.node_id.to_string(), "label": format!("{cpus} CPUs"), "state": "held", "reason": null, "bars": bars,
                "use": [], "cores": cpus,
            })]
        });
        let mut row = row_of_node(node, (1, 0), told);
        row["cores"] = cpus.into();
        row
    };
    let told: Vec<Json> = nodes.iter().enumerate().map(row).collect();
    json!({
        "unit": "CPU", "from": window.from_ms, "to": window.to_ms, "begun_ms": begun_ms, "until_ms": tables.until_ms,
        "gaps": gaps(tables, window),
        "names": legend.names, "nodes": told,
    })
}

fn nodes_with_devices<'tables>(
    tables: &'tables Tables,
    nodes: &[(&NodeRow, &[&Shown<'_>])],
    (window, part): (Window, Part),
    legend: &mut Legend<'tables>,
) -> Vec<Json> {
    let of_part = || nodes.iter().skip(part.first).take(part.count).flat_map(|(_, devices)| devices.iter());
    let until_ms = tables.holdings.until_ms();
    let window = part.coarsened(window, |window| {
        of_part()
            .map(|one| bars(stretches(tables, one), window, until_ms).len() + used(tables, one, window).len())
            .sum()
    });
    let row = |(place, (node, devices)): (usize, &(&NodeRow, &[&Shown<'_>]))| {
        let told: Option<Vec<Json>> =
            part.has(place).then(|| devices.iter().map(|one| device(tables, one, window, legend)).collect());
        let measured = devices.iter().filter(|one| is_measured(tables, one, window)).count();
        row_of_node(node, (devices.len(), measured), told)
    };
    nodes.iter().enumerate().map(row).collect()
}

/// A node with its devices; where they are not told, their number alone, so that their place can be kept free.
fn row_of_node(node: &NodeRow, (count, measured): (usize, usize), devices: Option<Vec<Json>>) -> Json {
    let (id, name, state) = (node.node_id.to_string(), name(node), node_state(node));
    match devices {
        Some(devices) => json!({"id": id, "name": name, "state": state, "devices": devices}),
        None => json!({"id": id, "name": name, "state": state, "devices": null, "count": count, "measured": measured}),
    }
}

fn stretches<'tables>(tables: &'tables Tables, one: &Shown<'_>) -> impl Iterator<Item = &'tables Stretch> {
    tables.holdings.device(&one.key).into_iter().flat_map(Device::stretches)
}

fn points<'tables>(tables: &'tables Tables, one: &Shown<'_>) -> impl Iterator<Item = Point> + use<'tables> {
    tables.series.of(&Measured::Device(DeviceKey::clone(&one.key)))
}

/// Whether a device has a line of its use in a window.
fn is_measured(tables: &Tables, one: &Shown<'_>, window: Window) -> bool {
    points(tables, one).next().is_some_and(|point| point.0 <= window.to_ms)
}

/// How busy a device was and how full its memory, to a thousandth: a line is six pixels high.
fn used(tables: &Tables, one: &Shown<'_>, window: Window) -> Vec<(u64, Option<f64>, Option<f64>)> {
    let short = |part: Option<f32>| part.map(|part| (f64::from(part) * 1e3).round() / 1e3);
    let kept = thinned(points(tables, one), window).into_iter();
    kept.map(|(at, busy, memory)| (at, short(busy), short(memory))).collect()
}

fn device<'tables>(tables: &'tables Tables, one: &Shown<'_>, window: Window, legend: &mut Legend<'tables>) -> Json {
    let bars = bars(stretches(tables, one), window, tables.holdings.until_ms());
    let bars: Vec<Json> = bars.iter().map(|one| bar(one, legend)).collect();
    json!({
        "key": one.key.to_string(), "label": one.label(), "state": one.state, "reason": one.reason, "bars": bars,
        "use": used(tables, one, window),
    })
}

fn nodes_by_cpu(tables: &Tables, nodes: &[&NodeRow], (window, part): (Window, Part), name_number: usize) -> Vec<Json> {
    let points = |node: &NodeRow, window| thinned(tables.series.of(&Measured::Node(node.node_id)), window);
    let window = part.coarsened(window, |window| {
        nodes.iter().skip(part.first).take(part.count).map(|node| points(node, window).len()).sum()
    });
    let row = |(place, node): (usize, &&NodeRow)| {
        let told = part.has(place).then(|| vec![by_cpu(node, &points(node, window), name_number)]);
        row_of_node(node, (1, 0), told)
    };
    nodes.iter().enumerate().map(row).collect()
}

/// A node as one row: how much of its CPUs was held.
fn by_cpu(node: &NodeRow, points: &[Point], name_number: usize) -> Json {
    let mut bars: Vec<(u64, Option<u64>, f64)> = Vec::new();
    for (at, cpu, _) in points.iter().copied() {
        let held = f64::from(cpu.unwrap_or_default());
        if let Some(last) = bars.last_mut() {
            if cpu.is_some() && (last.2 - held).abs() < 1e-6 && last.1.is_none() {
                continue;
            }
            last.1 = last.1.or(Some(at));
        }
        if cpu.is_some() {
            bars.push((at, None, held));
        }
    }
    let held = bars.into_iter().filter(|one| one.2 > 0.0);
    let bars: Vec<Json> =
        held.map(|(from, to, held)| json!([from, to, 0, held, Use::Held as u8, name_number, 1, null])).collect();
    let cpus = node.resources.get("CPU").copied().unwrap_or_default();
    json!({
        "key": node.node_id.to_string(), "label": format!("{cpus} CPUs"), "state": "held", "reason": null, "bars": bars, "use": [],
    })
}

/// A line of a chart: its name and its points.
type Line = (String, Vec<(u64, Option<f32>)>);

/// A chart's lines, which share their moments.
fn chart(lines: Vec<Line>) -> Json {
    let mut times: Vec<u64> = lines.iter().flat_map(|(_, points)| points.iter().map(|(at, _)| *at)).collect();
    times.sort_unstable();
    times.dedup();
    let line = |(name, points): Line| {
        let by_time: BTreeMap<u64, Option<f32>> = points.into_iter().collect();
        let values: Vec<Option<f32>> = times.iter().map(|at| by_time.get(at).copied().flatten()).collect();
        json!({"name": name, "values": values})
    };
    let lines: Vec<Json> = lines.into_iter().map(line).collect();
    json!({"times": times, "lines": lines})
}

/// What is held of a node and what is in use, as parts of the whole, and its traffic in bytes a second.
pub(crate) fn node_chart(tables: &Tables, node: NodeId) -> Json {
    let of = |measured: &Measured, first: bool| -> Vec<(u64, Option<f32>)> {
        tables.series.of(measured).map(|(at, one, other)| (at, if first { one } else { other })).collect()
    };
    let pairs = [
        (Measured::Node(node), [Some("CPU held"), Some("devices held")]),
        (Measured::Memory(node), [Some("memory held"), None]),
        (Measured::Used(node), [Some("CPU in use"), Some("memory in use")]),
        (Measured::Disk(node), [Some("disk in use"), None]),
        (Measured::DiskTraffic(node), [Some("read"), Some("written")]),
        (Measured::Network(node), [Some("received"), Some("sent")]),
    ];
    let lines = pairs.iter().flat_map(|(measured, names)| {
        names
            .iter()
            .zip([true, false])
            .filter_map(move |(name, first)| Some(((*name)?.to_owned(), of(measured, first))))
    });
    chart(lines.filter(|(_, points)| points.iter().any(|(_, value)| value.is_some())).collect())
}

/// What a training run reported, over time and by the number of the report, and which reports' checkpoints were kept when.
pub(crate) fn run_chart(tables: &Tables, key: &str) -> Json {
    let lines = tables.runs.lines(key).take(LINES_MAX);
    let lines = lines.map(|(name, points)| (name, points.into_iter().map(|(at, value, _)| (at, value)).collect()));
    let mut told = chart(lines.collect());
    let of_time: BTreeMap<u64, Option<f32>> = tables.runs.reports(key).map(|(at, number, _)| (at, number)).collect();
    let times = told["times"].as_array().into_iter().flatten().filter_map(Json::as_u64);
    told["reports"] = times.map(|at| json!(of_time.get(&at).copied().flatten())).collect();
    told["checkpoints"] = tables.runs.checkpoints(key).map(|(at, number, _)| json!([at, number])).collect();
    told
}

/// The bytes in the nodes' object stores; those of the fullest where there are many.
pub(crate) fn store_chart(tables: &Tables) -> Json {
    let mut nodes: Vec<&NodeRow> = tables.state.nodes.iter().filter(|node| node.alive).collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(node.store_used));
    nodes.truncate(LINES_MAX);
    let line = |node: &NodeRow| {
        let points = tables.series.of(&Measured::Memory(node.node_id)).map(|(at, _, stored)| (at, stored));
        (name(node), points.collect())
    };
    chart(nodes.into_iter().map(line).collect())
}

/// The cluster in short.
pub(crate) fn overview(tables: &Tables) -> Json {
    let state = &tables.state;
    let devices = tables.devices();
    let count = |word: &str| devices.iter().filter(|one| one.state == word).count();
    let alive = state.nodes.iter().filter(|node| node.alive).count();
    let daemon = state.daemon.clone().unwrap_or_default();
    let running = state.jobs.iter().filter(|job| !job.ended).count();
    json!({
        "session": daemon.session, "address": daemon.address, "version": env!("CARGO_PKG_VERSION"), "warnings": daemon.warnings,
        "nodes": {"alive": alive, "dead": state.nodes.len() - alive, "silent": tables.silent()},
        "devices": {
            "total": devices.len(), "held": devices.iter().map(|one| one.held).sum::<f64>(), "checking": count("checking"),
            "quarantined": count("quarantined"),
        },
        "waiting": state.waiting.iter().map(|one| one.count).sum::<u64>(), "jobs": {"RUNNING": running},
        "actors": state.actors.iter().filter(|actor| actor.state != ActorPhase::Dead).count(),
        "groups": state.placement_groups.iter().filter(|group| group.state != GroupState::Removed).count(),
        "processes": state.workers.len(), "autoscaler": state.autoscaler, "store": state.store,
        "totals": state.totals, "available": state.available,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_wire::message::{ChronicleBatch, DeviceUse};
    use oxiray_wire::state::{ChronicleEntry, ChronicleEvent, ClusterState, DevicePart};

    fn node(cpus: f64, free: f64) -> NodeRow {
        NodeRow {
            node_id: NodeId::new([1; 28]),
            alive: true,
            head: true,
            name: "one".into(),
            resources: BTreeMap::from([("CPU".into(), cpus)]),
            available: BTreeMap::from([("CPU".into(), free)]),
            ..NodeRow::default()
        }
    }

    fn look(tables: &mut Tables, free: f64, now_ms: u64) {
        tables.look(ClusterState { nodes: vec![node(4.0, free)], ..ClusterState::default() }, now_ms);
    }

    #[test]
    fn a_cluster_without_devices_is_shown_by_its_cpus() {
        let mut tables = Tables::default();
        for (at, free) in [(10_000, 4.0), (20_000, 1.0), (30_000, 1.0), (40_000, 4.0)] {
            look(&mut tables, free, at);
        }
        let told = holdings(&tables, Window { from_ms: 0, to_ms: 50_000, pixels: 100 }, Part::WHOLE);
        assert_eq!(
            (told["unit"].as_str(), told["nodes"][0]["devices"][0]["label"].as_str()),
            (Some("CPU"), Some("4 CPUs"))
        );
        assert_eq!(told["nodes"][0]["devices"][0]["bars"], json!([[20_000, 40_000, 0, 0.75, 0, 0, 1, null]]));
    }

    #[test]
    fn who_holds_cpus_is_a_bar_with_a_key_as_high_as_its_part() {
        let mut tables = Tables::default();
        tables.record(&ChronicleBatch::default(), 11_000);
        tables.record(&ChronicleBatch { is_fresh: true, ..ChronicleBatch::default() }, 13_000);
        look(&mut tables, 4.0, 20_000);
        let holder = |key: &str, cpus, to_ms| CpuHolder {
            key: key.into(),
            node: NodeId::new([1; 28]),
            cpus,
            from_ms: 10_000,
            to_ms,
            holder: super::super::holdings::Holder { name: key.into(), ..Default::default() },
        };
        let holders = [holder("task:a:0", 1.0, Some(15_000)), holder("actor:b", 2.0, None)];
        let window = Window { from_ms: 0, to_ms: 50_000, pixels: 100 };
        let told = cpu_holdings(&tables, &holders, 5_000, (window, Part::WHOLE));
        let device = &told["nodes"][0]["devices"][0];
        let expected =
            json!([[10_000, 15_000, 0.0, 0.25, 0, 0, 1, "task:a:0"], [10_000, null, 0.25, 0.5, 0, 1, 1, "actor:b"]]);
        assert_eq!((&device["bars"], &device["label"], &device["cores"]), (&expected, &json!("4 CPUs"), &json!(4.0)));
        assert_eq!(
            (&told["unit"], &told["begun_ms"], &told["until_ms"]),
            (&json!("CPU"), &json!(5_000), &json!(20_000))
        );
        assert_eq!(told["gaps"], json!([[11_000, 13_000]]));
        let none = cpu_holdings(&tables, &holders, 5_000, (window, Part::of(1, 1)));
        assert_eq!((&none["nodes"][0]["devices"], &none["nodes"][0]["cores"]), (&Json::Null, &json!(4.0)));
    }

    #[test]
    fn a_picture_has_bars_with_names_shares_and_keys() {
        let mut tables = Tables::default();
        tables.record(&ChronicleBatch::default(), 10_000);
        look(&mut tables, 4.0, 10_000);
        let device =
            Some(DevicePart { resource: "GPU".into(), slot: 2, grant: 1, share: 2_500, ..DevicePart::default() });
        let entry = ChronicleEntry {
            number: 8,
            at_ms: 12_000,
            event: ChronicleEvent::DeviceGranted,
            node: Some(NodeId::new([1; 28])),
            device,
            name: "f".into(),
            ..ChronicleEntry::default()
        };
        tables.record(&ChronicleBatch { entries: vec![entry], ..ChronicleBatch::default() }, 20_000);
        let told = holdings(&tables, Window { from_ms: 0, to_ms: 50_000, pixels: 100 }, Part::WHOLE);
        assert_eq!(told["nodes"][0]["devices"][0]["bars"], json!([[12_000, null, 0.0, 0.25, 0, 0, 1, "8"]]));
        assert_eq!(
            (&told["names"], &told["until_ms"], &told["begun_ms"]),
            (&json!(["f"]), &json!(20_000), &json!(10_000))
        );
    }

    #[test]
    fn a_picture_of_many_devices_has_those_of_a_part_of_the_nodes_and_few_points_of_each() {
        let used = |slot| DeviceUse {
            resource: "GPU".into(),
            slot,
            busy_percent: Some(33),
            used_bytes: Some(1),
            total_bytes: Some(3),
            ..DeviceUse::default()
        };
        let row = |number: u8| NodeRow {
            node_id: NodeId::new([number; 28]),
            resources: BTreeMap::from([("GPU".into(), 8.0)]),
            devices: (0..8).map(used).collect(),
            ..node(4.0, 4.0)
        };
        let mut tables = Tables::default();
        for second in 0..700_u64 {
            let state = ClusterState { nodes: (1..=100).map(row).collect(), ..ClusterState::default() };
            tables.look(state, 10_000 + second * 5_000);
        }
        let window = Window { from_ms: 0, to_ms: 4_000_000, pixels: 4_000 };
        let told = holdings(&tables, window, Part::of(10, 20));
        let nodes = told["nodes"].as_array().expect("nodes");
        assert_eq!(nodes.len(), 100);
        assert_eq!(
            (&nodes[9]["devices"], &nodes[9]["count"], &nodes[9]["measured"]),
            (&Json::Null, &json!(8), &json!(8))
        );
        let devices: Vec<&Json> =
            nodes[10..30].iter().flat_map(|node| node["devices"].as_array().expect("told")).collect();
        let points: usize = devices.iter().map(|device| device["use"].as_array().expect("a line").len()).sum();
        assert_eq!(devices.len(), 160);
        assert!((3_000..=12_000).contains(&points), "{points}");
        assert_eq!(devices[0]["use"][1].as_array().map(|point| &point[1..]), Some(&[json!(0.33), json!(0.333)][..]));
        assert!(told.to_string().len() < 600_000);
    }

    #[test]
    fn a_runs_chart_has_the_number_of_each_report_and_the_checkpoints() {
        let entry = |at_ms, text: &str| ChronicleEntry {
            number: at_ms,
            at_ms,
            event: ChronicleEvent::TrainReported,
            name: "run".into(),
            text: text.into(),
            ..ChronicleEntry::default()
        };
        let entries = vec![entry(1, "loss=2,report=0"), entry(2, "loss=1,report=4,(checkpoint)=3")];
        let mut tables = Tables::default();
        tables.record(&ChronicleBatch { entries, ..ChronicleBatch::default() }, 9);
        let told = run_chart(&tables, ":run");
        assert_eq!(told["lines"], json!([{"name": "loss", "values": [2.0, 1.0]}]));
        assert_eq!((&told["reports"], &told["checkpoints"]), (&json!([0.0, 4.0]), &json!([[2, 3.0]])));
    }

    #[test]
    fn the_lines_of_a_chart_share_their_moments() {
        let told = chart(vec![("a".into(), vec![(1, Some(1.0)), (3, None)]), ("b".into(), vec![(2, Some(2.0))])]);
        assert_eq!(told["times"], json!([1, 2, 3]));
        assert_eq!(told["lines"][1]["values"], json!([null, 2.0, null]));
    }

    #[test]
    fn a_nodes_chart_has_what_is_in_use_beside_what_is_held() {
        use oxiray_wire::state::{DiskSpace, Flow, MeasuredNode, MemoryStatistics, NodeStatistics};
        let (mut tables, one) = (Tables::default(), NodeId::new([1; 28]));
        let statistics = NodeStatistics {
            measured_ms: 1,
            cpu_permille: 500,
            memory: Some(MemoryStatistics { limit: 4, used: 1, ..MemoryStatistics::default() }),
            disk: Some(DiskSpace { size: 8, used: 2, free: 6 }),
            sent: Some(Flow { total: 90, per_s: 7 }),
            ..NodeStatistics::default()
        };
        tables.measured(
            vec![MeasuredNode { node_id: one, statistics: Some(statistics), ..MeasuredNode::default() }],
            10_000,
        );
        look(&mut tables, 1.0, 10_000);
        let told = node_chart(&tables, one);
        let lines: Vec<(&str, &Json)> = told["lines"]
            .as_array()
            .expect("lines")
            .iter()
            .map(|line| (line["name"].as_str().unwrap_or_default(), &line["values"][0]))
            .collect();
        let expected = [
            ("CPU held", json!(0.75)),
            ("CPU in use", json!(0.5)),
            ("memory in use", json!(0.25)),
            ("disk in use", json!(0.25)),
            ("sent", json!(7.0)),
        ];
        assert_eq!(lines, expected.each_ref().map(|(name, value)| (*name, value)));
    }
}
