//! `ray status`: the cluster in the lines that scripts written for Ray look for.

use crate::RayAnswer;
use crate::ordered::Ordered;
use oxiray_state::is_pending;
use oxiray_wire::state::{ClusterState, DemandKind, GroupState, NodeRow, StandingRecord};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const EXPECT: &str = "writing to a string does not fail";
const RULE: &str = "---------------------------------------------------------------";
/// The label that says which group a node belongs to.
const GROUP_LABEL: &str = "ray.io/node-group";

type Amounts = BTreeMap<String, f64>;

/// What is used of the resources of some nodes.
#[derive(Default)]
struct Usage {
    total: Amounts,
    available: Amounts,
    /// Set aside by placement groups, whether or not anything runs there.
    reserved: Amounts,
    /// Held by processes; nothing where that is not known of these nodes alone.
    held: Option<Amounts>,
    store_used: u64,
}

/// `/api/cluster_status`, with `format=1` the report alone.
pub fn answer(state: &ClusterState, is_formatted: bool, (now_s, micros): (u64, u32)) -> RayAnswer {
    let report = draw(state, false, (now_s, micros));
    if is_formatted {
        return RayAnswer::of(200, "Got formatted cluster status.", Ordered::map([("clusterStatus", report.into())]));
    }
    let mut active: BTreeMap<String, u64> = BTreeMap::new();
    for node in state.nodes.iter().filter(|node| node.alive) {
        *active.entry(name(node)).or_default() += 1;
    }
    let used = |(resource, total): (&String, &f64)| {
        let free = state.available.get(resource).copied().unwrap_or(0.0);
        (resource.clone(), vec![(total - free).max(0.0).into(), (*total).into()].into())
    };
    let usage = Ordered::Map(state.totals.iter().map(used).collect());
    let active = Ordered::Map(active.into_iter().map(|(name, count)| (name, count.into())).collect());
    let cluster = Ordered::map([
        ("time", (now_s as f64 + f64::from(micros) / 1e6).into()),
        ("autoscalerReport", Ordered::map([("activeNodes", active)])),
        ("loadMetricsReport", Ordered::map([("usage", usage)])),
    ]);
    let data = [("autoscalingStatus", report.into()), ("autoscalingError", Ordered::Null), ("clusterStatus", cluster)];
    RayAnswer::of(200, "Got cluster status.", Ordered::map(data))
}

/// The report as `ray status` prints it, at a time in seconds since 1970 and microseconds.
pub fn draw(state: &ClusterState, is_verbose: bool, now: (u64, u32)) -> String {
    let mut text = format!("======== Autoscaler status: {} ========\nNode status\n{RULE}\nActive:\n", time(now));
    draw_nodes(&mut text, state);
    write!(text, "\nResources\n{RULE}\nTotal Usage:\n").expect(EXPECT);
    let living: Vec<&NodeRow> = state.nodes.iter().filter(|node| node.alive).collect();
    draw_usage(&mut text, &usage(&living, state, true), " ");
    text.push_str("\nFrom request_resources:\n");
    draw_requested(&mut text, &state.requested);
    text.push_str("Pending Demands:\n");
    draw_demands(&mut text, state);
    for node in living.iter().filter(|_| is_verbose) {
        writeln!(text, "\nNode: {} ({})\n Usage:", node.node_id, name(node)).expect(EXPECT);
        draw_usage(&mut text, &usage(&[node], state, living.len() == 1), "  ");
        let is_idle = node.available == node.resources;
        let activity = if is_idle { "(no activity)" } else { "Resources currently in use." };
        writeln!(text, " Activity:\n  {activity}").expect(EXPECT);
    }
    text
}

fn draw_nodes(text: &mut String, state: &ClusterState) {
    let mut active: BTreeMap<String, usize> = BTreeMap::new();
    for node in state.nodes.iter().filter(|node| node.alive) {
        *active.entry(name(node)).or_default() += 1;
    }
    for (name, count) in &active {
        writeln!(text, " {count} {name}").expect(EXPECT);
    }
    if active.is_empty() {
        text.push_str(" (no active nodes)\n");
    }
    text.push_str("Pending:\n");
    let groups = state.autoscaler.iter().flat_map(|status| &status.groups);
    let pending: Vec<String> = groups
        .flat_map(|group| group.counts.iter().map(move |(state, count)| (group, state, count)))
        .filter(|(_, state, _)| is_pending(state))
        .map(|(group, state, count)| format!(" {}, {count} {state}\n", group.name))
        .collect();
    text.push_str(if pending.is_empty() { " (no pending nodes)\n" } else { "" });
    text.extend(pending);
    text.push_str("Recent failures:\n");
    let failures: Vec<String> = state
        .nodes
        .iter()
        .filter(|node| !node.alive)
        .map(|node| format!(" {}: {}\n", name(node), if node.death.is_empty() { "ended" } else { &node.death }))
        .collect();
    text.push_str(if failures.is_empty() { " (no failures)\n" } else { "" });
    text.extend(failures);
}

/// The group that a node belongs to, else a name of its own.
fn name(node: &NodeRow) -> String {
    node.labels.get(GROUP_LABEL).cloned().unwrap_or_else(|| format!("node_{}", node.node_id))
}

fn add(to: &mut Amounts, from: &Amounts) {
    for (resource, amount) in from {
        *to.entry(resource.clone()).or_default() += amount;
    }
}

fn usage(nodes: &[&NodeRow], state: &ClusterState, are_all: bool) -> Usage {
    let mut usage = Usage { held: are_all.then(Amounts::new), ..Usage::default() };
    for node in nodes {
        add(&mut usage.total, &node.resources);
        add(&mut usage.available, &node.available);
        usage.store_used += node.store_used;
    }
    let bundles =
        state.placement_groups.iter().filter(|group| group.state == GroupState::Created).flat_map(|one| &one.bundles);
    for bundle in bundles.filter(|bundle| nodes.iter().any(|node| Some(node.node_id) == bundle.node_id)) {
        add(&mut usage.reserved, &bundle.resources);
    }
    if let Some(held) = &mut usage.held {
        state.workers.iter().for_each(|worker| add(held, &worker.resources));
    }
    usage
}

fn draw_usage(text: &mut String, usage: &Usage, indent: &str) {
    for (resource, total) in usage.total.iter().filter(|(resource, _)| !resource.starts_with("node:")) {
        if resource == "object_store_memory" {
            let used = usage.store_used as f64;
            writeln!(text, "{indent}{}/{} {resource}", bytes(used), bytes(*total)).expect(EXPECT);
            continue;
        }
        let of = |amounts: &Amounts| amounts.get(resource).copied().unwrap_or(0.0);
        let taken = (total - of(&usage.available)).max(0.0);
        let reserved = of(&usage.reserved);
        // What is set aside is taken, whether or not it is used; who uses it holds it beside what others hold.
        let outside = (taken - reserved).max(0.0);
        let within = usage.held.as_ref().map_or(reserved, |held| (of(held) - outside).clamp(0.0, reserved));
        let group = if reserved > 0.0 {
            let (within, reserved) = (amount(resource, within), amount(resource, reserved));
            format!(" ({within} used of {reserved} reserved in placement groups)")
        } else {
            String::new()
        };
        let (used, total) = (amount(resource, outside + within), amount(resource, *total));
        writeln!(text, "{indent}{used}/{total} {resource}{group}").expect(EXPECT);
    }
}

fn draw_requested(text: &mut String, requested: &[StandingRecord]) {
    for StandingRecord { resources, count, .. } in requested {
        writeln!(text, " {}: {count} from request_resources()", shape(resources)).expect(EXPECT);
    }
    text.push_str(if requested.is_empty() { " (none)\n" } else { "" });
}

fn draw_demands(text: &mut String, state: &ClusterState) {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for waiting in state.waiting.iter().filter(|waiting| waiting.kind != DemandKind::Group) {
        let demand = waiting.demand.as_ref().map_or_else(|| "{}".to_owned(), |demand| shape(&demand.by_name));
        *counts.entry(demand).or_default() += waiting.count;
    }
    let mut groups: BTreeMap<String, u64> = BTreeMap::new();
    for group in state
        .placement_groups
        .iter()
        .filter(|group| matches!(group.state, GroupState::Pending | GroupState::Rescheduling))
    {
        let mut bundles: BTreeMap<String, u64> = BTreeMap::new();
        group.bundles.iter().for_each(|bundle| *bundles.entry(shape(&bundle.resources)).or_default() += 1);
        let bundles: Vec<String> = bundles.iter().map(|(bundle, count)| format!("{bundle} * {count}")).collect();
        *groups.entry(format!("{} ({})", bundles.join(", "), group.strategy)).or_default() += 1;
    }
    for (demand, count) in &counts {
        writeln!(text, " {demand}: {count}+ pending tasks/actors").expect(EXPECT);
    }
    for (group, count) in &groups {
        writeln!(text, " {group}: {count}+ pending placement groups").expect(EXPECT);
    }
    if counts.is_empty() && groups.is_empty() {
        text.push_str(" (no resource demands)\n");
    }
}

/// `{'CPU': 1.0, 'GPU': 2.0}`.
fn shape(amounts: &Amounts) -> String {
    let parts: Vec<String> = amounts.iter().map(|(resource, amount)| format!("'{resource}': {amount:?}")).collect();
    format!("{{{}}}", parts.join(", "))
}

fn amount(resource: &str, amount: f64) -> String {
    // What is left of subtractions of shares is no more than the ledger counts in.
    if resource == "memory" { bytes(amount) } else { format!("{:?}", (amount * 10_000.0).round() / 10_000.0) }
}

/// `0B`, `15.57GiB`.
fn bytes(count: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = if count < 1024.0 { 0 } else { (count.log2() / 10.0).floor().min(4.0) as i32 };
    let shown = count / 1024_f64.powi(power);
    if power == 0 { format!("{shown:.0}B") } else { format!("{shown:.2}{}", UNITS[power as usize]) }
}

/// `2026-11-25 17:41:42.566029`, in UTC.
fn time((seconds, micros): (u64, u32)) -> String {
    let moment = oxiray_kubernetes::timestamp(seconds).replace('T', " ");
    format!("{}.{micros:06}", moment.trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::NodeId;
    use oxiray_wire::state::{AutoscalerState, GroupStatus};

    #[test]
    fn a_report_is_drawn_as_ray_does() {
        let state = r#"{"nodes": [
            {"node_id": "ab", "alive": true, "death": "", "labels": {"ray.io/node-id": "ab"}, "store_used": 0,
             "resources": {"CPU": 4.0, "memory": 16718160199.0, "node:1": 1.0, "object_store_memory": 100.0},
             "available": {"CPU": 2.0, "memory": 16718160199.0, "node:1": 1.0, "object_store_memory": 100.0}},
            {"node_id": "cd", "alive": false, "death": "it was killed", "labels": {"ray.io/node-group": "spot"}, "store_used": 0,
             "resources": {"CPU": 1.0}, "available": {}}],
            "waiting": [
            {"kind": "task", "demand": {"CPU": 2.0}, "count": 3}, {"kind": "actor", "demand": {"CPU": 2.0}, "count": 1},
            {"kind": "placement group", "demand": null, "count": 1}],
            "placement_groups": [
            {"state": "CREATED", "strategy": "PACK", "bundles": [{"node_id": "ab", "resources": {"CPU": 1.0}}]},
            {"state": "PENDING", "strategy": "SPREAD",
             "bundles": [{"node_id": "", "resources": {"CPU": 1.0}}, {"node_id": "", "resources": {"CPU": 1.0}}]}],
            "requested": [{"resources": {"GPU": 1.0}, "labels": [], "count": 2}],
            "workers": [{"resources": {"CPU": 1.0}}, {"resources": {"CPU": 0.5}}]}"#;
        let [living, dead] = ["ab", "cd"].map(|digits| digits.repeat(NodeId::BYTES));
        let state = state.replace("\"ab\"", &format!("\"{living}\"")).replace("\"cd\"", &format!("\"{dead}\""));
        let state: ClusterState = serde_json::from_str(&state).expect("a state");
        let expected = "\
======== Autoscaler status: 2026-11-25 17:41:42.000005 ========
Node status
---------------------------------------------------------------
Active:
 1 node_ab
Pending:
 (no pending nodes)
Recent failures:
 spot: it was killed

Resources
---------------------------------------------------------------
Total Usage:
 1.5/4.0 CPU (0.5 used of 1.0 reserved in placement groups)
 0B/15.57GiB memory
 0B/100B object_store_memory

From request_resources:
 {'GPU': 1.0}: 2 from request_resources()
Pending Demands:
 {'CPU': 2.0}: 4+ pending tasks/actors
 {'CPU': 1.0} * 2 (SPREAD): 1+ pending placement groups
";
        let now = (1_795_628_502, 5);
        assert_eq!(draw(&state, false, now), expected.replace("node_ab", &format!("node_{living}")));
        let verbose = draw(&state, true, now);
        let verbose = verbose.replace(&living, "ab");
        assert!(verbose.ends_with("\nNode: ab (node_ab)\n Usage:\n  1.5/4.0 CPU (0.5 used of 1.0 reserved in placement groups)\n  0B/15.57GiB memory\n  0B/100B object_store_memory\n Activity:\n  Resources currently in use.\n"), "{verbose}");
    }

    #[test]
    fn replicas_that_have_joined_are_not_pending() {
        let counts = [("joined", 3), ("draining", 1), ("queued (Resources)", 1), ("requested", 2)];
        let counts = counts.map(|(state, count)| (state.to_owned(), count)).into();
        let group = GroupStatus { name: "gpu".into(), counts, ..GroupStatus::default() };
        let autoscaler = Some(AutoscalerState { groups: vec![group], ..AutoscalerState::default() });
        let drawn = draw(&ClusterState { autoscaler, ..ClusterState::default() }, false, (1, 0));
        let expected = "\nPending:\n gpu, 1 queued (Resources)\n gpu, 2 requested\nRecent failures:";
        assert!(drawn.contains(expected), "{drawn}");
    }

    #[test]
    fn it_is_told_as_rays_dashboard_does() {
        let state = ClusterState { totals: [("CPU".to_owned(), 4.0)].into(), ..ClusterState::default() };
        let formatted = answer(&state, true, (1, 0)).body;
        let begins = r#"{"result":true,"msg":"Got formatted cluster status.","data":{"clusterStatus":"======== Autoscaler status: 1970-01-01"#;
        assert!(formatted.starts_with(begins), "{formatted}");
        assert!(answer(&state, false, (1, 0)).body.contains(r#""loadMetricsReport":{"usage":{"CPU":[4.0,4.0]}}"#));
    }
}
