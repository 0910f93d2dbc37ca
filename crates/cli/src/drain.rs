//! `oxiray drain`: empties a node ahead of its end.

use crate::arguments::DrainOptions;
use crate::say;
use crate::visit;
use anyhow::bail;
use oxiray_state::StateCopy;
use oxiray_visitor::json;
use oxiray_wire::message::DrainAsked;
use oxiray_wire::state::StateKind;
use std::time::Duration;

/// Ray's name for the end of a node that nobody uses: it is refused where somebody does.
const IF_IDLE: &str = "DRAIN_NODE_REASON_IDLE_TERMINATION";
/// How long a change of the nodes is waited for at a time.
const LOOK_LIMIT: Duration = Duration::from_secs(60);

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
    let report = visit::state(&mut visit::begin(&found)?, asked, visit::LIST_LIMIT)?;
    let row = json::drained(&report)?;
    let id = row["node_id"].as_str().unwrap_or_default();
    if options.printing.json {
        say(&serde_json::to_string_pretty(&row)?);
        return if options.wait && row["draining"] != false { wait_for_the_end(options, id) } else { Ok(()) };
    }
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
    let mut nodes = StateCopy::default();
    loop {
        let is_whole = visitor.follow(&mut nodes, &[StateKind::Nodes], LOOK_LIMIT)?;
        match nodes.nodes.values().find(|node| node.alive && node.node_id.hex() == id) {
            Some(node) if node.draining.is_none() => bail!("node {id} is kept after all"),
            None if is_whole => return Ok(()),
            Some(_) | None => {}
        }
    }
}
