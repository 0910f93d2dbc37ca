//! The lists of each view: columns, rows, what is found and in which order.

use super::recorded::{DeviceKey, DeviceStory, Recorded, Span};
use super::screen::{Screen, View};
use super::tree::tree;
use crate::status::{asked_memory, foreign, isolated};
use oxiray_ids::NodeId;
use oxiray_wire::message::DeviceUse;
use oxiray_wire::state::{
    ActorPhase, DemandKind, DeviceHolder, DeviceIsolation, DeviceRow, DeviceTier, NodeRow, Severity,
};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Resources of devices that a node offers in whole numbers: each whole one is a device.
fn is_device(resource: &str) -> bool {
    oxiray_families::device_resource(resource).is_some()
}

/// What a row is of, for what is done with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    #[default]
    Nothing,
    Device(DeviceKey),
    Node(String),
    /// A job that was submitted under that name.
    Submission(String),
    Actor(String),
    Task(String),
    /// A process: its node, and its number there.
    Process(String, u32),
}

/// A cell: what is shown, and what it is sorted by where that is another thing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) number: Option<f64>,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, number: None }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

pub(super) fn number(text: impl Into<String>, number: f64) -> Cell {
    Cell { text: text.into(), number: Some(number) }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) cells: Vec<Cell>,
    pub(crate) target: Target,
    /// What is shown of it beside, line by line.
    pub(crate) detail: Vec<(&'static str, String)>,
    /// What the full layout shows beneath it.
    pub(crate) more: Vec<String>,
    /// How deep it is in a tree; rows that follow and are deeper are its own.
    pub(crate) depth: usize,
}

/// A list: its columns with their least widths, where 0 takes what is left; and its rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct List {
    pub(crate) columns: Vec<(&'static str, u16)>,
    pub(crate) rows: Vec<Row>,
}

/// What is shown in a view, filtered and sorted as was chosen.
pub(crate) fn list(recorded: &Recorded, screen: &Screen) -> List {
    let mut list = match screen.view {
        View::Devices => devices(recorded, screen.shows_detail),
        View::Nodes => nodes(recorded),
        View::Jobs => jobs(recorded),
        View::Tasks => tasks(recorded),
        View::Actors => actors(recorded),
        View::Waiting => waiting(recorded),
        View::Events => events(recorded),
        View::Tree => tree(recorded),
    };
    if !screen.filter.is_empty() || screen.sorted_by.is_some() || screen.is_inverted {
        let (wanted, columns) = (screen.filter.to_lowercase(), list.columns.len());
        let by = screen.sorted_by.filter(|column| *column < columns);
        list.rows = arranged(list.rows, &wanted, (by, screen.is_inverted));
    }
    list
}

/// The rows that have these letters, and those that they are beneath of or above; each level of a tree in order.
fn arranged(rows: Vec<Row>, wanted: &str, (by, is_inverted): (Option<usize>, bool)) -> Vec<Row> {
    let has = |row: &Row| row.cells.iter().any(|cell| cell.text.to_lowercase().contains(wanted));
    let mut branches: Vec<(Row, Vec<Row>)> = Vec::new();
    for row in rows {
        match branches.last_mut() {
            Some((above, beneath)) if row.depth > above.depth => beneath.push(row),
            _ => branches.push((row, Vec::new())),
        }
    }
    let kept = branches.into_iter().filter_map(|(row, beneath)| {
        let wanted = if has(&row) { "" } else { wanted };
        let beneath = arranged(beneath, wanted, (by, is_inverted));
        (wanted.is_empty() || !beneath.is_empty()).then_some((row, beneath))
    });
    let mut kept: Vec<(Row, Vec<Row>)> = kept.collect();
    if let Some(column) = by {
        kept.sort_by(|(one, _), (other, _)| compare(&one.cells[column], &other.cells[column]));
    }
    if is_inverted {
        kept.reverse();
    }
    kept.into_iter().flat_map(|(row, beneath)| std::iter::once(row).chain(beneath)).collect()
}

fn compare(one: &Cell, other: &Cell) -> Ordering {
    match (one.number, other.number) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        _ => one.text.cmp(&other.text),
    }
}

/// Seconds, minutes, hours or days.
pub(crate) fn age(ms: u64) -> String {
    match ms / 1_000 {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m{:02}", seconds / 60, seconds % 60),
        seconds @ 3_600..86_400 => format!("{}h{:02}", seconds / 3_600, seconds / 60 % 60),
        seconds => format!("{}d{:02}", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A moment of a day, by UTC.
pub(crate) fn clock(ms: u64) -> String {
    let seconds = ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

fn gib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1_u32 << 30))
}

/// How heavy a share of a whole is: the mark says it where no colour does.
pub(crate) fn weight(percent: u64) -> char {
    match percent {
        0..50 => ' ',
        50..85 => '+',
        _ => '!',
    }
}

/// All devices: those that living nodes offer, and those of which something is told.
fn devices(recorded: &Recorded, has_detail: bool) -> List {
    let nodes: BTreeMap<_, &NodeRow> = recorded.cluster.nodes.iter().map(|node| (node.node_id, node)).collect();
    let of_node = |node: &&NodeRow| {
        let (id, offered) = (node.node_id, node.resources.iter().filter(|(name, _)| is_device(name)));
        let slots = offered.flat_map(|(name, count)| (0..*count as u32).map(move |slot| (name.clone(), slot)));
        slots.map(|(name, slot)| (id, name, slot)).collect::<Vec<_>>()
    };
    let mut keys: BTreeSet<DeviceKey> = nodes.values().filter(|node| node.alive).flat_map(of_node).collect();
    let is_told = |(_, story): &(&DeviceKey, &DeviceStory)| story.out.is_some() || story.holders().next().is_some();
    keys.extend(recorded.devices.iter().filter(is_told).map(|(key, _)| key.clone()));
    let (unknown, told) = (DeviceStory::default(), told_devices(recorded));
    let rows = keys.into_iter().map(|key| {
        let story = recorded.devices.get(&key).unwrap_or(&unknown);
        let told = told.get(&(key.0, key.1.as_str(), key.2)).copied();
        let mut row = device(recorded, key.clone(), (nodes.get(&key.0).copied(), told), story);
        if has_detail {
            row.detail = device_detail(recorded, &key, &row.cells[0].text, story);
            row.detail.extend(told.into_iter().flat_map(remarks));
        }
        row
    });
    let columns = vec![
        ("DEVICE", 16),
        ("HELD", 12),
        ("BUSY", 5),
        ("MEMORY GiB", 10),
        ("HOLDER", 14),
        ("AGE", 6),
        ("LAST 60 s", 0),
    ];
    List { columns, rows: rows.collect() }
}

/// What the state says of devices.
fn told_devices(recorded: &Recorded) -> BTreeMap<(NodeId, &str, u32), &DeviceRow> {
    let head = recorded.cluster.nodes.iter().find(|node| node.head).map(|node| node.node_id);
    let rows = recorded.cluster.devices.iter();
    rows.filter_map(|row| Some(((row.node.or(head)?, row.resource.as_str(), row.slot), row))).collect()
}

/// What is to be known of a device besides who has it: what is used without a grant, what its driver says, and what keeps those
/// who have it to their part.
fn remarks(told: &DeviceRow) -> Vec<(&'static str, String)> {
    let violations = told.violations.iter().map(|text| ("violation", text.clone()));
    let foreign = told.foreign.iter().map(|used| ("foreign use", foreign(used)));
    let notes = told.notes.iter().map(|text| ("note", text.clone()));
    let is_kept = |of: &DeviceIsolation| of.tier != DeviceTier::Variable || !of.reason.is_empty();
    let is_told = |holder: &&DeviceHolder| holder.memory.is_some() || holder.isolation.as_ref().is_some_and(is_kept);
    let kept = told.holders.iter().filter(is_told).map(|holder| {
        let memory = holder.memory.as_ref().map_or_else(String::new, |memory| format!(", {}", asked_memory(memory)));
        let isolation = holder.isolation.as_ref().map_or_else(String::new, isolated);
        ("kept", format!("{} (pid {}){memory}{isolation}", holder.name, holder.pid))
    });
    violations.chain(foreign).chain(notes).chain(kept).collect()
}

fn device(
    recorded: &Recorded,
    key: DeviceKey,
    (node, told): (Option<&NodeRow>, Option<&DeviceRow>),
    story: &DeviceStory,
) -> Row {
    let used = node.and_then(|node| use_of(node, &key));
    let place = node.map_or_else(|| key.0.hex()[..8].to_owned(), title);
    let name = format!("{place} {}{}", key.1, key.2);
    let held = story.held();
    let bar = if story.out.is_some() { "out".to_owned() } else { bar(held) };
    let busy = used.and_then(|used| used.busy_percent);
    let memory = used.and_then(|used| Some((used.used_bytes?, used.total_bytes?)));
    let holders: Vec<&str> = story.holders().map(|span| span.name.as_str()).collect();
    let holder = match (&story.out, holders.len()) {
        (Some((_, why)), _) => format!("x {why}"),
        (None, 0) => String::new(),
        (None, 1) => mark_of(story).to_owned() + holders[0],
        (None, count) => format!("{}{} +{}", mark_of(story), holders[0], count - 1),
    };
    let holder = format!("{}{holder}", told.filter(|_| story.out.is_none()).map_or("", warning_of));
    let since = story.out.as_ref().map(|(at, _)| *at).or_else(|| story.holders().map(|span| span.from_ms).min());
    let age_ms = since.map(|since| recorded.now_ms.saturating_sub(since));
    let cells = vec![
        Cell::from(name),
        number(bar, held as f64),
        busy.map_or_else(
            || number("-", -1.0),
            |busy| number(format!("{busy}%{}", weight(u64::from(busy))), f64::from(busy)),
        ),
        memory.map_or_else(
            || number("-", -1.0),
            |(used, total)| number(format!("{}/{}", gib(used), gib(total)), used as f64),
        ),
        Cell::from(holder),
        age_ms.map_or_else(|| number("", -1.0), |ms| number(age(ms), ms as f64)),
        Cell::default(),
    ];
    let several = if holders.len() > 1 { holder_lines(recorded, story) } else { Vec::new() };
    let lines = several.into_iter().map(|(kind, text)| format!("{kind} {text}"));
    let remarks = told.into_iter().flat_map(remarks).map(|(kind, text)| format!("{kind}: {text}"));
    let more = lines.chain(remarks).collect();
    Row { cells, target: Target::Device(key), more, ..Row::default() }
}

/// What stands before who holds a device of which there is something to be known.
fn warning_of(told: &DeviceRow) -> &'static str {
    match (told.violations.is_empty(), told.notes.is_empty() && told.foreign.is_empty()) {
        (false, _) => "! ",
        (true, false) => "? ",
        (true, true) => "",
    }
}

/// All that is known of a device.
fn device_detail(recorded: &Recorded, key: &DeviceKey, name: &str, story: &DeviceStory) -> Vec<(&'static str, String)> {
    let mut detail = vec![("device", name.to_owned()), ("id", story.id.clone()), ("node", key.0.hex())];
    if let Some((at, why)) = &story.out {
        detail.push(("out of service", format!("since {}: {why}", clock(*at))));
    }
    detail.extend(holder_lines(recorded, story));
    detail
}

/// Who holds a device, one a line.
fn holder_lines(recorded: &Recorded, story: &DeviceStory) -> Vec<(&'static str, String)> {
    let line = |span: &Span| {
        let state = span.returning_ms.map_or(String::new(), |at| format!(", being given back since {}", clock(at)));
        let share = span.share as f64 / 10_000.0;
        let since = age(recorded.now_ms.saturating_sub(span.from_ms));
        (word(span.kind), format!("{} (pid {}): {share} for {since}{state}", span.name, span.pid))
    };
    story.holders().map(line).collect()
}

fn word(kind: DemandKind) -> &'static str {
    match kind {
        DemandKind::Task => "task",
        DemandKind::Actor => "actor",
        DemandKind::Group => "placement group",
    }
}

/// Whether all that is held of it is being given back.
fn mark_of(story: &DeviceStory) -> &'static str {
    if story.holders().all(|span| span.returning_ms.is_some()) { "~ " } else { "" }
}

fn use_of<'a>(node: &'a NodeRow, (_, resource, slot): &DeviceKey) -> Option<&'a DeviceUse> {
    node.devices.iter().find(|used| used.resource == *resource && used.slot == *slot)
}

/// Ten cells for a whole device.
fn bar(held: u64) -> String {
    let full = (held.min(10_000) / 1_000) as usize;
    let part = if held > 0 && full == 0 { 1 } else { full };
    format!("{}{}", "#".repeat(part), ".".repeat(10 - part))
}

fn title(node: &NodeRow) -> String {
    let name = if node.name.is_empty() || node.name == node.address { &node.hostname } else { &node.name };
    if name.is_empty() { node.address.clone() } else { name.clone() }
}

fn nodes(recorded: &Recorded) -> List {
    let rows = recorded.cluster.nodes.iter().map(|node| {
        let state = match (&node.draining, node.alive) {
            (_, false) => format!("dead: {}", node.death),
            (Some(drain), true) => format!("draining: {}", drain.reason),
            (None, true) => "alive".to_owned(),
        };
        let used = |name: &str| {
            let (total, free) = (node.resources.get(name), node.available.get(name));
            let (total, free) = (total.copied().unwrap_or(0.0), free.copied().unwrap_or(0.0));
            let text = if total > 0.0 { format!("{}/{total}", total - free) } else { "-".to_owned() };
            number(text, total - free)
        };
        let devices = node.resources.keys().find(|name| is_device(name)).map_or("GPU", |name| name.as_str());
        let memory = node.resources.get("memory").copied().unwrap_or(0.0) as u64;
        let cells = vec![
            Cell::from(title(node)),
            Cell::from(node.address.clone()),
            used("CPU"),
            used(devices),
            number(gib(memory), memory as f64),
            number(gib(node.store_used), node.store_used as f64),
            Cell::from(state.clone()),
        ];
        let detail = vec![
            ("node", node.node_id.hex()),
            ("address", node.address.clone()),
            ("state", state),
            ("offers", amounts(&node.resources)),
            ("free", amounts(&node.available)),
        ];
        let target = if node.alive { Target::Node(node.node_id.hex()) } else { Target::Nothing };
        Row { cells, target, detail, ..Row::default() }
    });
    let columns = vec![
        ("NODE", 14),
        ("ADDRESS", 13),
        ("CPU", 9),
        ("DEVICES", 8),
        ("MEMORY GiB", 10),
        ("STORE GiB", 9),
        ("STATE", 0),
    ];
    List { columns, rows: rows.collect() }
}

fn amounts(all: &BTreeMap<String, f64>) -> String {
    let all = all.iter().map(|(name, amount)| format!("{name} {amount}"));
    all.collect::<Vec<_>>().join(", ")
}

fn jobs(recorded: &Recorded) -> List {
    let rows = recorded.jobs.iter().map(|job| {
        let id = job.driver.as_ref().map_or(String::new(), |driver| driver.job.hex());
        let until = if job.ended_ms > 0 { job.ended_ms } else { recorded.now_ms };
        let ran = until.saturating_sub(job.started_ms);
        let entrypoint = job.entrypoint.clone().unwrap_or_default();
        let message = job.message.clone().unwrap_or_default();
        let cells = vec![
            Cell::from(id.clone()),
            Cell::from(job.submission.clone()),
            Cell::from(job.state.name()),
            number(age(ran), ran as f64),
            Cell::from(entrypoint.clone()),
        ];
        let detail = vec![
            ("job", id),
            ("submission", job.submission.clone()),
            ("state", job.state.name().to_owned()),
            ("message", message),
            ("entrypoint", entrypoint),
            ("began", clock(job.started_ms)),
        ];
        let is_submitted = !job.submission.is_empty();
        let target = if is_submitted { Target::Submission(job.submission.clone()) } else { Target::Nothing };
        Row { cells, target, detail, ..Row::default() }
    });
    let columns = vec![("JOB", 9), ("SUBMISSION", 20), ("STATE", 10), ("RAN", 7), ("ENTRYPOINT", 0)];
    List { columns, rows: rows.collect() }
}

fn tasks(recorded: &Recorded) -> List {
    let rows = recorded.tasks.iter().map(|of| {
        let sum = |states: &[&str]| states.iter().filter_map(|state| of.states.get(*state)).sum::<u64>();
        let count = |count: u64| number(count.to_string(), count as f64);
        let all: u64 = of.states.values().sum();
        let (finished, failed, runs) = (sum(&["FINISHED"]), sum(&["FAILED"]), sum(&["RUNNING"]));
        let cells = vec![
            Cell::from(of.name.clone()),
            Cell::from(of.kind.clone()),
            count(runs),
            count(all - finished - failed - runs),
            count(finished),
            count(failed),
        ];
        let states = of.states.iter().map(|(state, count)| format!("{state} {count}"));
        let detail = vec![("name", of.name.clone()), ("states", states.collect::<Vec<_>>().join(", "))];
        Row { cells, detail, ..Row::default() }
    });
    let columns = vec![("NAME", 0), ("KIND", 19), ("RUNNING", 8), ("WAITING", 8), ("FINISHED", 9), ("FAILED", 7)];
    List { columns, rows: rows.collect() }
}

fn actors(recorded: &Recorded) -> List {
    let rows = recorded.cluster.actors.iter().map(|actor| {
        let name = if actor.name.is_empty() { String::new() } else { actor.name.clone() };
        let pid = actor.pid.map_or(String::new(), |pid| pid.to_string());
        let cause = actor.cause.clone().unwrap_or_default();
        let holds = actor.resources.as_ref().map_or(String::new(), |of| amounts(&of.by_name));
        let last = if actor.state == ActorPhase::Dead { cause.clone() } else { holds.clone() };
        let cells = vec![
            Cell::from(actor.class.clone()),
            Cell::from(name.clone()),
            Cell::from(actor.state.name()),
            Cell::from(pid.clone()),
            number(actor.restarts.to_string(), actor.restarts as f64),
            Cell::from(actor.job_id.hex()),
            Cell::from(last),
        ];
        let node = actor.node_id.map_or(String::new(), |node| node.hex());
        let detail = vec![
            ("actor", actor.actor_id.hex()),
            ("class", actor.class.clone()),
            ("name", name),
            ("state", actor.state.name().to_owned()),
            ("process", pid),
            ("node", node),
            ("holds", holds),
            ("cause", cause),
        ];
        Row { cells, target: Target::Actor(actor.actor_id.hex()), detail, ..Row::default() }
    });
    let columns = vec![
        ("CLASS", 16),
        ("NAME", 12),
        ("STATE", 10),
        ("PID", 8),
        ("RESTARTS", 8),
        ("JOB", 8),
        ("HOLDS, OR WHY IT DIED", 0),
    ];
    List { columns, rows: rows.collect() }
}

fn waiting(recorded: &Recorded) -> List {
    let rows = recorded.cluster.waiting.iter().map(|row| {
        let asks = row.demand.as_ref().map_or(String::new(), |demand| amounts(&demand.by_name));
        let ms = (row.seconds * 1_000.0) as u64;
        let cells = vec![
            Cell::from(row.name.clone()),
            Cell::from(row.kind.name()),
            number(row.count.to_string(), row.count as f64),
            number(age(ms), row.seconds),
            Cell::from(asks.clone()),
            Cell::from(row.why.clone()),
        ];
        let detail = vec![
            ("name", row.name.clone()),
            ("kind", row.kind.name().to_owned()),
            ("asks", asks),
            ("alike", row.count.to_string()),
            ("waits", age(ms)),
            ("why", row.why.clone()),
        ];
        Row { cells, detail, ..Row::default() }
    });
    let columns = vec![("NAME", 16), ("KIND", 8), ("COUNT", 6), ("WAITS", 7), ("ASKS", 14), ("WHY", 0)];
    List { columns, rows: rows.collect() }
}

fn events(recorded: &Recorded) -> List {
    // The latest is what people look for.
    let rows = recorded.events.iter().rev().map(|entry| {
        let severity = match entry.event.severity() {
            Severity::Info => "",
            Severity::Warning => "+",
            Severity::Error => "!",
        };
        let message = oxiray_visitor::json::said(entry);
        let cells = vec![
            number(clock(entry.at_ms), entry.at_ms as f64),
            Cell::from(severity),
            Cell::from(entry.event.name()),
            Cell::from(message.clone()),
        ];
        let detail = vec![
            ("event", entry.event.name().to_owned()),
            ("number", entry.number.to_string()),
            ("time", clock(entry.at_ms)),
            ("message", message),
            ("node", entry.node.map_or(String::new(), |node| node.hex())),
        ];
        Row { cells, detail, ..Row::default() }
    });
    let columns = vec![("UTC", 8), (" ", 1), ("EVENT", 26), ("MESSAGE", 0)];
    List { columns, rows: rows.collect() }
}
