//! `oxiray status`.

use crate::arguments::StatusOptions;
use crate::show;
use crate::visit::{self, ANSWER_LIMIT};
use oxiray_wire::message::{Amount, ClusterQuery, ClusterReport};
use oxiray_wire::plain;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const EXPECT: &str = "writing to a string does not fail";
const UNITS: f64 = 10_000.0;
const BAR_CELLS: f64 = 20.0;

pub(crate) fn run(options: &StatusOptions) -> anyhow::Result<()> {
    let found = visit::find(options.address.as_deref())?;
    let report = visit::begin(&found)?.ask(ClusterQuery::default(), ANSWER_LIMIT)?;
    let is_ray = options.ray || (crate::called::is_ray() && !options.json);
    if options.verbose && !is_ray {
        anyhow::bail!("--verbose is of use with --ray only: without it every node is shown anyway");
    }
    if options.json {
        crate::say(&as_json(&report)?);
    } else if is_ray {
        crate::say(&crate::ray_status::draw(&report, options.verbose, std::time::SystemTime::now())?);
    } else {
        crate::say(draw(&found.description.address, &report)?.trim_end());
    }
    Ok(())
}

fn as_json(report: &ClusterReport) -> anyhow::Result<String> {
    let mut all: serde_json::Value = serde_json::from_str(&report.detail)?;
    let amounts = |amounts: &[Amount]| -> BTreeMap<String, f64> {
        amounts.iter().map(|amount| (amount.resource.clone(), amount.units as f64 / UNITS)).collect()
    };
    all["totals"] = serde_json::to_value(amounts(&report.totals))?;
    all["available"] = serde_json::to_value(amounts(&report.available))?;
    Ok(serde_json::to_string_pretty(&all)?)
}

/// What is read of a report's detail; the rest is for programs.
#[derive(Deserialize)]
struct Detail {
    #[serde(default)]
    memory: Option<Memory>,
    #[serde(default)]
    worker_limits: Option<WorkerLimits>,
    #[serde(default)]
    nodes: Vec<Node>,
    devices: Vec<Device>,
    waiting: Vec<Waiting>,
    actors: Vec<Actor>,
    #[serde(default)]
    placement_groups: Vec<Group>,
    #[serde(default)]
    autoscaler: Option<oxiray_autoscaler::Status>,
    workers: Vec<Worker>,
    daemon: Daemon,
}

#[derive(Deserialize)]
struct Node {
    #[serde(rename = "node_id")]
    id: String,
    address: String,
    alive: bool,
    resources: BTreeMap<String, f64>,
    available: BTreeMap<String, f64>,
    #[serde(default)]
    store_used: u64,
    #[serde(default)]
    draining: Option<Draining>,
}

#[derive(Deserialize)]
struct Draining {
    words: String,
}

#[derive(Deserialize)]
struct Device {
    resource: String,
    slot: u32,
    id: String,
    logical: bool,
    reason: Option<String>,
    #[serde(default, rename = "use")]
    used: Option<Use>,
    holders: Vec<Holder>,
}

#[derive(Deserialize)]
struct Use {
    busy_percent: Option<u32>,
    used_bytes: Option<u64>,
    total_bytes: Option<u64>,
}

#[derive(Deserialize)]
struct Holder {
    pid: u32,
    name: String,
    share: f64,
}

#[derive(Deserialize)]
struct Waiting {
    why: String,
}

#[derive(Deserialize)]
struct Actor {
    state: String,
}

#[derive(Deserialize)]
struct Group {
    placement_group_id: String,
    name: String,
    strategy: String,
    state: String,
    reason: Option<String>,
    bundles: Vec<Bundle>,
}

#[derive(Deserialize)]
struct Bundle {
    resources: BTreeMap<String, f64>,
    devices: BTreeMap<String, Vec<u32>>,
}

#[derive(Deserialize)]
struct Worker {
    duty: String,
}

/// What bounds the memory of the head's machine.
#[derive(Deserialize)]
struct Memory {
    source: String,
    limit: u64,
    used: u64,
}

/// What limits the workers of the head's machine, or why nothing does.
#[derive(Deserialize)]
struct WorkerLimits {
    memory: String,
    processes: String,
}

#[derive(Deserialize)]
struct Daemon {
    pid: u32,
    resident_bytes: u64,
}

fn draw(address: &str, report: &ClusterReport) -> anyhow::Result<String> {
    let detail: Detail = serde_json::from_value(show::plain_texts(serde_json::from_str(&report.detail)?))?;
    let mut text = format!("Cluster at {address}\n\nResources\n");
    let free =
        |name: &str| report.available.iter().find(|amount| amount.resource == name).map_or(0, |amount| amount.units);
    for total in report.totals.iter().filter(|total| !total.resource.starts_with("node:")) {
        let used = total.units.saturating_sub(free(&total.resource)) as f64 / UNITS;
        let total_amount = total.units as f64 / UNITS;
        let line = match total.resource.as_str() {
            "memory" | "object_store_memory" => format!("{} of {} used", bytes(used), bytes(total_amount)),
            _ => format!("{used} of {total_amount} used"),
        };
        writeln!(text, "  {:<24} {line}", plain(&total.resource)).expect(EXPECT);
    }
    if let Some(memory) = &detail.memory {
        let (used, limit) = (bytes(memory.used as f64), bytes(memory.limit as f64));
        writeln!(text, "  {:<24} {used} of {limit} in use ({})", "main memory", memory.source).expect(EXPECT);
    }
    if let Some(limits) = &detail.worker_limits {
        writeln!(text, "  {:<24} {}", "memory= of workers", limits.memory).expect(EXPECT);
        writeln!(text, "  {:<24} {}", "processes of workers", limits.processes).expect(EXPECT);
    }
    draw_nodes(&mut text, &detail.nodes);
    draw_devices(&mut text, &detail.devices);
    draw_groups(&mut text, &detail.placement_groups);
    draw_autoscaler(&mut text, detail.autoscaler.as_ref());
    let count = |duty: &str| detail.workers.iter().filter(|worker| worker.duty == duty).count();
    let living = detail.actors.iter().filter(|actor| actor.state != "dead").count();
    writeln!(
        text,
        "\nProcesses\n  daemon pid {}, {}; {} on tasks, {living} actor{}, {} idle, {} spare",
        detail.daemon.pid,
        bytes(detail.daemon.resident_bytes as f64),
        count("task"),
        if living == 1 { "" } else { "s" },
        count("idle"),
        count("spare")
    )
    .expect(EXPECT);
    text.push_str("\nWaiting\n");
    if detail.waiting.is_empty() {
        text.push_str("  nothing\n");
    }
    for waiting in &detail.waiting {
        writeln!(text, "  {}", waiting.why).expect(EXPECT);
    }
    Ok(text)
}

/// One line a node, where there is more than one.
fn draw_nodes(text: &mut String, nodes: &[Node]) {
    if nodes.len() < 2 {
        return;
    }
    text.push_str("\nNodes\n");
    for node in nodes {
        let used = |(name, total): (&String, &f64)| {
            let is_shown = !name.starts_with("node:") && !name.ends_with("memory");
            let used = total - node.available.get(name).copied().unwrap_or(0.0);
            is_shown.then(|| format!("{used} of {total} {name}"))
        };
        let mut used: Vec<String> = node.resources.iter().filter_map(used).collect();
        let store = node.resources.get("object_store_memory").copied().unwrap_or(0.0);
        used.push(format!("{} of {} store", bytes(node.store_used as f64), bytes(store)));
        let state = if node.alive { used.join(", ") } else { "dead".to_owned() };
        writeln!(text, "  {} {:<15} {state}", node.id, node.address).expect(EXPECT);
        if let Some(draining) = &node.draining {
            writeln!(text, "      {}", draining.words).expect(EXPECT);
        }
    }
}

fn draw_devices(text: &mut String, devices: &[Device]) {
    if devices.is_empty() {
        return;
    }
    text.push_str("\nDevices\n");
    for device in devices {
        let shared: f64 = device.holders.iter().map(|holder| holder.share).sum();
        let full = (shared * BAR_CELLS).round() as usize;
        let bar: String = (0..BAR_CELLS as usize).map(|cell| if cell < full { '#' } else { '.' }).collect();
        let visible =
            if device.id == device.slot.to_string() { String::new() } else { format!(" ({})", device.id.trim()) };
        let logical = if device.logical { "  logical: this machine has no such device" } else { "" };
        let used = device.used.as_ref().map_or_else(String::new, in_words);
        let state = device.reason.as_ref().map_or_else(String::new, |reason| format!("  out of service: {reason}"));
        writeln!(text, "  {} {}{visible} [{bar}]{used}{logical}{state}", device.resource, device.slot).expect(EXPECT);
        for holder in &device.holders {
            writeln!(text, "      {} of it: {} (pid {})", holder.share, holder.name, holder.pid).expect(EXPECT);
        }
    }
}

fn in_words(used: &Use) -> String {
    let busy = used.busy_percent.map(|percent| format!("{percent}% busy"));
    let memory = used.used_bytes.zip(used.total_bytes);
    let memory = memory.map(|(taken, all)| format!("{} of {} of memory", bytes(taken as f64), bytes(all as f64)));
    let told: Vec<String> = busy.into_iter().chain(memory).collect();
    format!("  {}", told.join(", "))
}

fn draw_groups(text: &mut String, groups: &[Group]) {
    let there: Vec<&Group> = groups.iter().filter(|group| group.state != "REMOVED").collect();
    if there.is_empty() {
        return;
    }
    text.push_str("\nPlacement groups\n");
    for group in there {
        let name = if group.name.is_empty() { &group.placement_group_id } else { &group.name };
        let state = group.state.to_lowercase();
        let reason = group.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        writeln!(text, "  {name} ({}) {state}{reason}", group.strategy).expect(EXPECT);
        for (index, bundle) in group.bundles.iter().enumerate() {
            let amounts: Vec<String> =
                bundle.resources.iter().map(|(resource, amount)| format!("{resource}: {amount}")).collect();
            let slots = |slots: &[u32]| slots.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let held: Vec<String> =
                bundle.devices.iter().map(|(resource, devices)| format!("{resource} {}", slots(devices))).collect();
            let on = if held.is_empty() { String::new() } else { format!(" on {}", held.join("; ")) };
            writeln!(text, "      bundle {index}: {{{}}}{on}", amounts.join(", ")).expect(EXPECT);
        }
    }
}

fn draw_autoscaler(text: &mut String, autoscaler: Option<&oxiray_autoscaler::Status>) {
    let Some(status) = autoscaler else { return };
    text.push_str("\nAutoscaler\n");
    for group in &status.groups {
        let resources: Vec<String> =
            group.resources.iter().map(|(resource, amount)| format!("{resource}: {amount}")).collect();
        let counts: Vec<String> = group.counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
        let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
        let hosts = if group.hosts > 1 { format!(" x {} hosts", group.hosts) } else { String::new() };
        let (min, max) = group.limits;
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
        let amount = |resource: &str, units| Amount { resource: resource.into(), units };
        let detail = r#"{"devices": [
            {"resource": "GPU", "slot": 0, "id": "1", "logical": false, "reason": null,
             "use": {"resource": "GPU", "id": "1", "busy_percent": 87, "used_bytes": 1073741824, "total_bytes": 2147483648},
             "holders": [{"pid": 7, "name": "train", "share": 0.5}]},
            {"resource": "GPU", "slot": 1, "id": "3", "logical": true, "reason": "stuck", "holders": []}],
            "placement_groups": [
            {"placement_group_id": "ab", "name": "train", "strategy": "PACK", "state": "CREATED", "reason": null,
             "bundles": [{"resources": {"CPU": 1.0, "GPU": 2.0}, "devices": {"GPU": [0, 3]}}]},
            {"placement_group_id": "cd", "name": "", "strategy": "SPREAD", "state": "PENDING", "reason": "no room",
             "bundles": [{"resources": {"CPU": 9.5}, "devices": {}}]},
            {"placement_group_id": "ef", "name": "gone", "strategy": "PACK", "state": "REMOVED", "reason": "x",
             "bundles": []}],
            "waiting": [{"why": "task `f` waits"}], "actors": [{"state": "alive"}, {"state": "dead"}],
            "memory": {"source": "/sys/fs/cgroup/memory.max", "limit": 2147483648, "used": 1073741824, "shared": 0, "stalled": null},
            "workers": [{"duty": "task"}], "daemon": {"pid": 3, "resident_bytes": 1048576}}"#;
        let report = ClusterReport {
            request: 1,
            totals: vec![amount("CPU", 40_000), amount("memory", 1 << 40), amount("node:10.0.0.1", 10_000)],
            available: vec![amount("CPU", 25_000)],
            detail: detail.into(),
        };
        let expected = "\
Cluster at 10.0.0.1:6379

Resources
  CPU                      1.5 of 4 used
  memory                   104.9 MiB of 104.9 MiB used
  main memory              1.0 GiB of 2.0 GiB in use (/sys/fs/cgroup/memory.max)

Devices
  GPU 0 (1) [##########..........]  87% busy, 1.0 GiB of 2.0 GiB of memory
      0.5 of it: train (pid 7)
  GPU 1 (3) [....................]  logical: this machine has no such device  out of service: stuck

Placement groups
  train (PACK) created
      bundle 0: {CPU: 1, GPU: 2} on GPU 0, 3
  cd (SPREAD) pending: no room
      bundle 0: {CPU: 9.5}

Processes
  daemon pid 3, 1.0 MiB; 1 on tasks, 1 actor, 0 idle, 0 spare

Waiting
  task `f` waits
";
        assert_eq!(draw("10.0.0.1:6379", &report).expect("drawn"), expected);
    }
}
