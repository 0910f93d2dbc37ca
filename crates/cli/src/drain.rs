//! `oxiray drain`: empties a node ahead of its end.

use crate::arguments::DrainOptions;
use crate::visit;
use crate::{list, say};
use anyhow::bail;
use oxiray_wire::message::{ClusterQuery, DrainAsked};
use serde_json::Value as Json;
use std::time::Duration;

/// Ray's name for the end of a node that nobody uses: it is refused where somebody does.
const IF_IDLE: &str = "DRAIN_NODE_REASON_IDLE_TERMINATION";
/// How often it is looked whether the node is gone.
const LOOK_PERIOD: Duration = Duration::from_millis(200);

pub(crate) fn run(options: &DrainOptions) -> anyhow::Result<()> {
    let Some(node) = options.node.clone().or_else(|| options.node_id.clone()) else {
        bail!("which node? Name it by its identifier, its name or its address: see `oxiray list nodes`");
    };
    let deadline_ms = match options.deadline {
        Some(seconds) if !(0.0..1e9).contains(&seconds) => {
            bail!("--deadline is {seconds}; it is a number of seconds from now, such as 120")
        }
        seconds => seconds.map(|seconds| (seconds * 1000.0) as u64),
    };
    let reason = options.reason.clone().unwrap_or_default();
    let asked = DrainAsked {
        node,
        deadline_ms,
        only_if_idle: reason == IF_IDLE,
        reason: options.reason_message.clone().unwrap_or(reason),
        undo: options.undo,
        ..DrainAsked::default()
    };
    let found = visit::find(options.address.as_deref())?;
    let report = visit::state(&mut visit::begin(&found)?, asked, list::ANSWER_LIMIT)?;
    let row: Json = serde_json::from_str(&report.rows)?;
    let id = row["node_id"].as_str().unwrap_or_default();
    if row["draining"] == false {
        say(&format!("Node {id} is not drained any more."));
        return Ok(());
    }
    let left: Vec<String> = row["left"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, count)| count.as_u64() != Some(0))
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    let left = if left.is_empty() { "nothing".to_owned() } else { left.join(", ") };
    say(&format!("Node {id} is being drained; still there: {left}."));
    if options.wait {
        wait_for_the_end(options, id)?;
        say(&format!("Node {id} is gone."));
    }
    Ok(())
}

fn wait_for_the_end(options: &DrainOptions, id: &str) -> anyhow::Result<()> {
    let found = visit::find(options.address.as_deref())?;
    let mut visitor = visit::begin(&found)?;
    loop {
        let detail: Json = serde_json::from_str(&visitor.ask(ClusterQuery::default(), visit::ANSWER_LIMIT)?.detail)?;
        let is_it = |node: &&Json| node["node_id"] == id && node["alive"] == true;
        let Some(node) = detail["nodes"].as_array().into_iter().flatten().find(is_it) else { return Ok(()) };
        if node["draining"].is_null() {
            bail!("node {id} is kept after all");
        }
        visit::stay(&mut visitor, LOOK_PERIOD)?;
    }
}
