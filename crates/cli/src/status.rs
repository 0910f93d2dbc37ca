//! `oxiray status`.

use crate::arguments::StatusOptions;
use crate::show;
use crate::table::{Printing, short_identifiers, width, wrapped};
use crate::visit::{self, ANSWER_LIMIT};
use oxiray_ids::NodeId;
use oxiray_ray_api::cluster_status;
use oxiray_visitor::json;
use oxiray_wire::message::{ClusterQuery, DeviceUse};
use oxiray_wire::state::{
    ActorPhase, AutoscalerState, ClusterState, DeviceIsolation, DeviceMemory, DeviceRow, DeviceTier, ForeignUse,
    GroupRow, GroupState, MemoryTier, NodeIsolation, NodeRow, ReplicaLimits, Slots, WorkerDuty,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

const EXPECT: &str = "writing to a string does not fail";
const UNITS: f64 = 10_000.0;
const BAR_CELLS: f64 = 20.0;

pub(crate) fn run(options: &StatusOptions) -> anyhow::Result<()> {
    let found = visit::find(options.address.as_deref())?;
    let state = json::cluster(visit::begin(&found)?.ask(ClusterQuery::default(), ANSWER_LIMIT)?)?;
    let Printing { json, wide } = options.printing;
    let is_ray = options.ray || (crate::called::is_ray() && !json && !wide);
    if options.verbose && !is_ray {
        anyhow::bail!("--verbose is of use with --ray only: without it every node is shown anyway");
    }
    if json {
        crate::say(&serde_json::to_string_pretty(&json::value(&state)?)?);
    } else if is_ray {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let state = crate::show::plain_state(&state)?;
        crate::say(&cluster_status::draw(&state, options.verbose, (now.as_secs(), now.subsec_micros())));
    } else {
        crate::say(draw(&found.description.address, &state, width(wide))?.trim_end());
    }
    Ok(())
}

fn draw(address: &str, state: &ClusterState, limit: Option<usize>) -> anyhow::Result<String> {
    let state = show::plain_state(state)?;
    let mut text = format!("Cluster at {address}\n");
    for alert in state.daemon.iter().flat_map(|daemon| &daemon.alerts) {
        writeln!(text, "warning: {alert}").expect(EXPECT);
    }
    text.push_str("\nResources\n");
    let free = |name: &str| state.available.get(name).copied().unwrap_or(0.0);
    for (resource, total) in state.totals.iter().filter(|(resource, _)| !resource.starts_with("node:")) {
        let used = used(*total, free(resource));
        let line = match resource.as_str() {
            "memory" | "object_store_memory" => format!("{} of {} used", bytes(used), bytes(*total)),
            _ => format!("{used} of {total} used"),
        };
        writeln!(text, "  {resource:<24} {line}").expect(EXPECT);
    }
    if let Some(memory) = &state.memory {
        let (used, limit) = (bytes(memory.used as f64), bytes(memory.limit as f64));
        writeln!(text, "  {:<24} {used} of {limit} in use ({})", "main memory", memory.source).expect(EXPECT);
    }
    if let Some(limits) = &state.worker_limits {
        writeln!(text, "  {:<24} {}", "memory= of workers", limits.memory).expect(EXPECT);
        writeln!(text, "  {:<24} {}", "processes of workers", limits.processes).expect(EXPECT);
    }
    let names = node_names(&state.nodes, limit.is_some());
    draw_nodes(&mut text, &state.nodes, &names);
    draw_devices(&mut text, &state, &names);
    draw_groups(&mut text, &state.placement_groups);
    draw_autoscaler(&mut text, state.autoscaler.as_ref());
    let count = |duty| state.workers.iter().filter(|worker| worker.duty == duty).count();
    let living = state.actors.iter().filter(|actor| actor.state != ActorPhase::Dead).count();
    let daemon = state.daemon.unwrap_or_default();
    writeln!(
        text,
        "\nProcesses\n  daemon pid {}, {}; {} on tasks, {living} actor{}, {} idle, {} spare",
        daemon.pid,
        bytes(daemon.resident_bytes as f64),
        count(WorkerDuty::Task),
        if living == 1 { "" } else { "s" },
        count(WorkerDuty::Idle),
        count(WorkerDuty::Spare)
    )
    .expect(EXPECT);
    text.push_str("\nWaiting\n");
    if state.waiting.is_empty() {
        text.push_str("  nothing\n");
    }
    for waiting in &state.waiting {
        writeln!(text, "  {}", waiting.why).expect(EXPECT);
    }
    Ok(wrapped(&text, limit))
}

/// What is taken, in no finer parts than the ledger counts.
fn used(total: f64, free: f64) -> f64 {
    ((total - free).max(0.0) * UNITS).round() / UNITS
}

/// What nodes are called in listings: their identifiers, short where they can be.
fn node_names(nodes: &[NodeRow], is_short: bool) -> BTreeMap<NodeId, String> {
    let whole: Vec<String> = nodes.iter().map(|node| node.node_id.hex()).collect();
    let short = short_identifiers(&whole.iter().map(String::as_str).collect());
    let name = |(node, id): (&NodeRow, &String)| {
        let name = if is_short { short[id.as_str()].clone() } else { id.clone() };
        (node.node_id, name)
    };
    nodes.iter().zip(&whole).map(name).collect()
}

/// One line a node, where there is more than one.
fn draw_nodes(text: &mut String, nodes: &[NodeRow], names: &BTreeMap<NodeId, String>) {
    if nodes.len() < 2 {
        return;
    }
    text.push_str("\nNodes\n");
    for node in nodes {
        let id = &names[&node.node_id];
        let used = |(name, total): (&String, &f64)| {
            let is_shown = !name.starts_with("node:") && !name.ends_with("memory");
            let used = total - node.available.get(name).copied().unwrap_or(0.0);
            is_shown.then(|| format!("{used} of {total} {name}"))
        };
        let mut used: Vec<String> = node.resources.iter().filter_map(used).collect();
        let store = node.resources.get("object_store_memory").copied().unwrap_or(0.0);
        used.push(format!("{} of {} store", bytes(node.store_used as f64), bytes(store)));
        let state = if node.alive { used.join(", ") } else { "dead".to_owned() };
        writeln!(text, "  {id} {:<15} {state}", node.address).expect(EXPECT);
        if let Some(draining) = &node.draining {
            writeln!(text, "      {}", draining.words).expect(EXPECT);
        }
    }
}

/// The devices, by their nodes where there is more than one.
fn draw_devices(text: &mut String, state: &ClusterState, names: &BTreeMap<NodeId, String>) {
    if state.devices.is_empty() {
        return;
    }
    text.push_str("\nDevices\n");
    let head = state.nodes.iter().find(|node| node.head).map(|node| node.node_id);
    let (is_grouped, mut above) = (state.nodes.len() > 1, None);
    let kept = |node: Option<&NodeRow>| node.and_then(NodeRow::isolation).map(kept_apart);
    if let Some(kept) = kept(state.nodes.first()).filter(|_| !is_grouped) {
        writeln!(text, "  {kept}").expect(EXPECT);
    }
    for device in &state.devices {
        let node = device.node.or(head);
        if is_grouped && node.is_some() && above != node {
            let row = state.nodes.iter().find(|row| Some(row.node_id) == node);
            let address = row.map_or_else(String::new, |row| format!(" {}", row.address));
            let name = node.map(|node| names.get(&node).cloned().unwrap_or_else(|| node.hex())).unwrap_or_default();
            writeln!(text, "  on node {name}{address}").expect(EXPECT);
            if let Some(kept) = kept(row) {
                writeln!(text, "    {kept}").expect(EXPECT);
            }
            above = node;
        }
        draw_device(text, device, if is_grouped { "    " } else { "  " });
    }
    let more = left_out(state);
    if more > 0.0 {
        writeln!(text, "  and {more} more").expect(EXPECT);
    }
}

/// How a node keeps processes from devices, and memory of devices, that they were not granted.
fn kept_apart(isolation: &NodeIsolation) -> String {
    let words = |tiers: &[DeviceTier]| tiers.iter().map(|tier| mechanism(*tier)).collect::<Vec<_>>().join(", ");
    let in_force = match isolation.in_force {
        tier @ (DeviceTier::Variable | DeviceTier::Watched) => tier.name().to_owned(),
        tier => format!("fence by {}", mechanism(tier)),
    };
    let reason = if isolation.reason.is_empty() { String::new() } else { format!(", {}", isolation.reason) };
    let means = if isolation.means.is_empty() { "no fence".to_owned() } else { words(&isolation.means) };
    let watch = isolation.watch_period_s.map_or_else(String::new, |period| format!(", watched every {period} s"));
    let memory: Vec<&str> = isolation.memory_tiers.iter().map(|tier| tier.name()).collect();
    let memory = if memory.is_empty() { "none".to_owned() } else { memory.join(" + ") };
    let asked = isolation.asked;
    format!("isolation: {in_force} (asked: {asked}{reason}; possible here: {means}){watch}, memory: {memory}")
}

/// By what the kernel refuses devices.
fn mechanism(tier: DeviceTier) -> &'static str {
    match tier {
        DeviceTier::Cgroup => "cgroup v2",
        DeviceTier::Cgroup1 => "cgroup v1",
        DeviceTier::Landlock => "Landlock",
        DeviceTier::Variable | DeviceTier::Watched => "nothing",
    }
}

/// How many devices in service are not listed: of what nodes offer.
fn left_out(state: &ClusterState) -> f64 {
    let resources: BTreeSet<&String> = state.devices.iter().map(|device| &device.resource).collect();
    let listed = state.devices.iter().filter(|device| device.reason.is_none()).count();
    let of_node = |node: &NodeRow| {
        node.resources.iter().filter(|(name, _)| resources.contains(name)).map(|(_, of)| *of).sum::<f64>()
    };
    let offered: f64 = state.nodes.iter().map(of_node).sum();
    (offered - listed as f64).max(0.0).floor()
}

fn draw_device(text: &mut String, device: &DeviceRow, indent: &str) {
    let shared: f64 = device.holders.iter().map(|holder| holder.share).sum();
    let full = (shared * BAR_CELLS).round() as usize;
    let bar: String = (0..BAR_CELLS as usize).map(|cell| if cell < full { '#' } else { '.' }).collect();
    let visible = if device.id == device.slot.to_string() { String::new() } else { format!(" ({})", device.id.trim()) };
    let whose = if device.node.is_some() { "that" } else { "this" };
    let logical =
        if device.is_logical() { format!("  logical: {whose} machine has no such device") } else { String::new() };
    let used = device.used.as_ref().map_or_else(String::new, in_words);
    let since = device.since_ms.map_or_else(String::new, |since| format!(" since {} UTC", json::date(since)));
    let state = device.reason.as_ref().map_or_else(String::new, |reason| format!("  out of service{since}: {reason}"));
    let name = format!("{} {}{visible}", device.resource, device.slot);
    writeln!(text, "{indent}{name} [{bar}]{used}{logical}{state}").expect(EXPECT);
    for holder in &device.holders {
        let isolation = holder.isolation.as_ref().map_or_else(String::new, isolated);
        let part = holder.memory.as_ref().map_or_else(|| holder.share.to_string(), asked_memory);
        let process = if holder.pid == 0 { String::new() } else { format!(" (pid {})", holder.pid) };
        let ending = if holder.is_ending { ", which is ending" } else { "" };
        writeln!(text, "{indent}    {part} of it: {}{process}{ending}{isolation}", holder.name).expect(EXPECT);
    }
    for used in &device.foreign {
        writeln!(text, "{indent}    {}", foreign(used)).expect(EXPECT);
    }
    for note in &device.notes {
        writeln!(text, "{indent}    {note}").expect(EXPECT);
    }
    for violation in &device.violations {
        writeln!(text, "{indent}    violation: {violation}").expect(EXPECT);
    }
}

/// The memory that a process asked for, and what it has.
pub(crate) fn asked_memory(memory: &DeviceMemory) -> String {
    let used = memory.used_bytes;
    let used =
        used.map_or_else(|| "what it uses is not known".to_owned(), |used| format!("it uses {}", bytes(used as f64)));
    format!("{} ({}; {used})", bytes(memory.asked_bytes as f64), kept(memory))
}

/// What keeps a process to its memory.
fn kept(memory: &DeviceMemory) -> String {
    let watched = if memory.is_watched && memory.tier != MemoryTier::Watched { ", watched" } else { "" };
    match memory.tier {
        MemoryTier::None => "kept by nothing".to_owned(),
        MemoryTier::Interposer => format!("kept by a library{watched}"),
        MemoryTier::Mps => format!("kept by MPS{watched}"),
        MemoryTier::Dmem => "kept by the kernel (dmem)".to_owned(),
        MemoryTier::Mig => "kept by its MIG instance".to_owned(),
        tier @ (MemoryTier::Framework | MemoryTier::Watched) => format!("{tier}{watched}"),
    }
}

/// Who has memory of a device that its node did not start.
pub(crate) fn foreign(used: &ForeignUse) -> String {
    let name = if used.name.is_empty() { String::new() } else { format!(" ({})", used.name) };
    let whose = if used.is_of_other_node { "which another Oxiray node started" } else { "not Oxiray's" };
    let size = used.used_bytes.map_or_else(String::new, |used| format!(": {}", bytes(used as f64)));
    format!("also used by pid {}{name}, {whose}{size}", used.pid)
}

/// What keeps a process from other devices.
pub(crate) fn isolated(isolation: &DeviceIsolation) -> String {
    let by = match isolation.tier {
        DeviceTier::Variable => "by variables alone",
        DeviceTier::Watched => "by variables, and watched",
        DeviceTier::Landlock => "by the kernel (Landlock)",
        DeviceTier::Cgroup1 => "by the kernel (cgroup v1)",
        DeviceTier::Cgroup => "by the kernel (cgroup v2)",
    };
    let reason = if isolation.reason.is_empty() { String::new() } else { format!(": {}", isolation.reason) };
    format!(", kept from others {by}{reason}")
}

fn in_words(used: &DeviceUse) -> String {
    let busy = used.busy_percent.map(|percent| format!("{percent}% busy"));
    let memory = used.used_bytes.zip(used.total_bytes);
    let memory = memory.map(|(taken, all)| format!("{} of {} of memory", bytes(taken as f64), bytes(all as f64)));
    let told: Vec<String> = busy.into_iter().chain(memory).collect();
    format!("  {}", told.join(", "))
}

fn draw_groups(text: &mut String, groups: &[GroupRow]) {
    let there: Vec<&GroupRow> = groups.iter().filter(|group| group.state != GroupState::Removed).collect();
    if there.is_empty() {
        return;
    }
    text.push_str("\nPlacement groups\n");
    for group in there {
        let name = if group.name.is_empty() { group.placement_group_id.hex() } else { group.name.clone() };
        let state = group.state.name().to_lowercase();
        let reason = group.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        writeln!(text, "  {name} ({}) {state}{reason}", group.strategy).expect(EXPECT);
        for (index, bundle) in group.bundles.iter().enumerate() {
            let amounts: Vec<String> =
                bundle.resources.iter().map(|(resource, amount)| format!("{resource}: {amount}")).collect();
            let slots = |slots: &Slots| slots.numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let held: Vec<String> =
                bundle.devices.iter().map(|(resource, devices)| format!("{resource} {}", slots(devices))).collect();
            let on = if held.is_empty() { String::new() } else { format!(" on {}", held.join("; ")) };
            writeln!(text, "      bundle {index}: {{{}}}{on}", amounts.join(", ")).expect(EXPECT);
        }
    }
}

fn draw_autoscaler(text: &mut String, autoscaler: Option<&AutoscalerState>) {
    let Some(status) = autoscaler else { return };
    text.push_str("\nAutoscaler\n");
    for group in &status.groups {
        let resources: Vec<String> =
            group.resources.iter().map(|(resource, amount)| format!("{resource}: {amount}")).collect();
        let counts: Vec<String> = group.counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
        let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
        let hosts = if group.hosts > 1 { format!(" x {} hosts", group.hosts) } else { String::new() };
        let ReplicaLimits { min, max } = group.limits.unwrap_or_default();
        writeln!(text, "  {} {{{}}}{hosts}, {min} to {max}: {counts}", group.name, resources.join(", ")).expect(EXPECT);
        if let Some(why) = &group.set_aside {
            writeln!(text, "      set aside: {why}").expect(EXPECT);
        }
    }
    for unmet in &status.unmet {
        writeln!(text, "  not served: {unmet}").expect(EXPECT);
    }
    if !status.absence.is_empty() {
        writeln!(text, "  {}", status.absence).expect(EXPECT);
    }
    if !status.trouble.is_empty() {
        writeln!(text, "  its provider cannot be asked: {}", status.trouble).expect(EXPECT);
    }
}

fn bytes(count: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = if count < 1024.0 { 0 } else { (count.log2() / 10.0).floor().min(4.0) as i32 };
    let shown = count / 1024_f64.powi(power);
    if power == 0 { format!("{shown} B") } else { format!("{shown:.1} {}", UNITS[power as usize]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_drawn() {
        let state = r#"{"totals": {"CPU": 4.0, "memory": 109951162.7776, "node:10.0.0.1": 1.0}, "available": {"CPU": 2.5},
            "nodes": [{"head": true, "alive": true, "isolation": {"asked": "watch", "in_force": "variable", "reason": "nobody tells which number /dev/nvidia0 has"}}],
            "devices": [
            {"resource": "GPU", "slot": 0, "id": "1", "logical": false, "reason": null,
             "use": {"resource": "GPU", "id": "1", "busy_percent": 87, "used_bytes": 1073741824, "total_bytes": 2147483648},
             "holders": [{"pid": 7, "name": "train", "share": 0.5}],
             "foreign": [{"pid": 4711, "name": "python3", "used_bytes": 3221225472}, {"pid": 8, "is_of_other_node": true}]},
            {"resource": "GPU", "slot": 1, "id": "3", "logical": true, "reason": "stuck", "holders": []}],
            "placement_groups": [
            {"name": "train", "strategy": "PACK", "state": "CREATED", "reason": null,
             "bundles": [{"resources": {"CPU": 1.0, "GPU": 2.0}, "devices": {"GPU": [0, 3]}}]},
            {"placement_group_id": "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd", "name": "", "strategy": "SPREAD", "state": "PENDING", "reason": "no room",
             "bundles": [{"resources": {"CPU": 9.5}, "devices": {}}]},
            {"name": "gone", "strategy": "PACK", "state": "REMOVED", "reason": "x",
             "bundles": []}],
            "waiting": [{"why": "task `f` waits"}], "actors": [{"state": "alive"}, {"state": "dead"}],
            "memory": {"source": "/sys/fs/cgroup/memory.max", "limit": 2147483648, "used": 1073741824, "shared": 0, "stalled": null},
            "workers": [{"duty": "task"}], "daemon": {"pid": 3, "resident_bytes": 1048576, "alerts": ["devices are kept"]}}"#;
        let state: ClusterState = serde_json::from_str(state).expect("a state");
        let expected = "\
Cluster at 10.0.0.1:6379
warning: devices are kept

Resources
  CPU                      1.5 of 4 used
  memory                   104.9 MiB of 104.9 MiB used
  main memory              1.0 GiB of 2.0 GiB in use (/sys/fs/cgroup/memory.max)

Devices
  isolation: variable (asked: watch, nobody tells which number /dev/nvidia0 has; possible here: no fence), memory: none
  GPU 0 (1) [##########..........]  87% busy, 1.0 GiB of 2.0 GiB of memory
      0.5 of it: train (pid 7)
      also used by pid 4711 (python3), not Oxiray's: 3.0 GiB
      also used by pid 8, which another Oxiray node started
  GPU 1 (3) [....................]  logical: this machine has no such device  out of service: stuck

Placement groups
  train (PACK) created
      bundle 0: {CPU: 1, GPU: 2} on GPU 0, 3
  cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd (SPREAD) pending: no room
      bundle 0: {CPU: 9.5}

Processes
  daemon pid 3, 1.0 MiB; 1 on tasks, 1 actor, 0 idle, 0 spare

Waiting
  task `f` waits
";
        assert_eq!(draw("10.0.0.1:6379", &state, None).expect("drawn"), expected);
    }
    #[test]
    fn devices_of_several_nodes_are_drawn_by_their_nodes() {
        let (head, member) = ("01".repeat(28), "02".repeat(28));
        let state = format!(
            r#"{{"nodes": [
            {{"node_id": "{head}", "address": "10.0.0.1", "head": true, "alive": true, "resources": {{"CPU": 4.0, "GPU": 1.0}}}},
            {{"node_id": "{member}", "address": "10.0.0.2", "alive": true, "resources": {{"CPU": 4.0, "GPU": 5.0}},
              "isolation": {{"asked": "fence", "means": ["cgroup", "landlock"], "in_force": "cgroup", "watch_period_s": 2,
                             "memory_tiers": ["framework", "watched"]}}}}],
            "devices": [
            {{"resource": "GPU", "slot": 0, "id": "0"}},
            {{"resource": "GPU", "slot": 0, "id": "GPU-a", "node": "{member}", "logical": true, "notes": ["Xid 31"],
              "violations": ["g has it open"], "holders": [
              {{"pid": 7, "name": "train", "share": 0.25, "isolation": {{"tier": "cgroup"}},
                "memory": {{"asked_bytes": 1073741824, "used_bytes": 1048576, "tier": "framework", "is_watched": true}}}},
              {{"pid": 0, "name": "placement group `g`, bundle 1, unused", "share": 0.5}}]}},
            {{"resource": "GPU", "slot": 1, "id": "GPU-b", "node": "{member}", "reason": "stuck", "since_ms": 1795000000000, "holders": [
              {{"pid": 9, "name": "f", "share": 1.0, "is_ending": true}}]}}]}}"#
        );
        let state: ClusterState = serde_json::from_str(&state).expect("a state");
        let drawn = draw("10.0.0.1:6379", &state, Some(200)).expect("drawn");
        let devices = drawn.split("\n\n").find(|part| part.starts_with("Devices")).expect("devices");
        let expected = "\
Devices
  on node 01010101 10.0.0.1
    GPU 0 [....................]
  on node 02020202 10.0.0.2
    isolation: fence by cgroup v2 (asked: fence; possible here: cgroup v2, Landlock), watched every 2 s, memory: framework + watched
    GPU 0 (GPU-a) [###############.....]  logical: that machine has no such device
        1.0 GiB (framework, watched; it uses 1.0 MiB) of it: train (pid 7), kept from others by the kernel (cgroup v2)
        0.5 of it: placement group `g`, bundle 1, unused
        Xid 31
        violation: g has it open
    GPU 1 (GPU-b) [####################]  out of service since 2026-11-18 11:06:40 UTC: stuck
        1 of it: f (pid 9), which is ending
  and 4 more";
        assert_eq!(devices, expected);
    }
}
