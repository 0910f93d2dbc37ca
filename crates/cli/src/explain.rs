//! `oxiray explain`: why something waits, node by node.

use crate::arguments::ExplainOptions;
use crate::table::{Table, width, wrapped};
use crate::{identifiers, say, visit};
use oxiray_ids::{ActorId, PlacementGroupId, TaskId};
use oxiray_wire::message::{StateFilter, StateQuery};
use oxiray_wire::plain;
use oxiray_wire::state::StateKind;
use serde_json::{Value as Json, json};

/// How many digits whole identifiers of actors, placement groups and tasks have.
const LENGTHS: [usize; 3] = [2 * ActorId::BYTES, 2 * PlacementGroupId::BYTES, 2 * TaskId::BYTES];
const COLUMNS: [&str; 4] = ["node", "address", "rule", "why"];

pub(crate) fn run(options: &ExplainOptions) -> anyhow::Result<()> {
    let address = options.address.as_deref();
    // A task that nobody lists any more may still be explained: by its whole identifier.
    let id = match identifiers::whole(address, &["tasks", "actors", "placement_groups"], &options.id) {
        Ok(whole) => whole,
        Err(_) if LENGTHS.contains(&options.id.len()) => options.id.clone(),
        Err(error) => return Err(error),
    };
    let filters = vec![StateFilter { key: "id".into(), differs: false, value: id }];
    let asked = StateQuery { kind: StateKind::Explain, filters, limit: 1, ..StateQuery::default() };
    let (told, _) = visit::list(address, &asked, visit::LIST_LIMIT)?;
    if options.printing.json {
        say(&serde_json::to_string_pretty(&told)?);
    } else {
        say(text(&told, width(options.printing.wide)).trim_end());
    }
    Ok(())
}

/// For people.
pub(crate) fn text(told: &Json, limit: Option<usize>) -> String {
    let word = |name: &str| plain(told[name].as_str().unwrap_or_default()).into_owned();
    let name = if word("name").is_empty() { String::new() } else { format!(" `{}`", word("name")) };
    let heading = format!("{}{name} {}: {}\n{}", word("kind"), word("id"), word("state"), word("reason"));
    let devices = told["devices"].as_array().into_iter().flatten();
    let heading = devices.fold(heading, |heading, of| format!("{heading}\n{}", chosen(of)));
    let heading = wrapped(&heading, limit);
    let rows: Vec<Json> = told["nodes"].as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return heading;
    }
    format!("{heading}\n\n{}", Table::new(&COLUMNS, &rows).within(limit).with_sentences_last().draw())
}

/// Which devices it has or would get on a machine, and why those.
fn chosen(of: &Json) -> String {
    let word = |name: &str| plain(of[name].as_str().unwrap_or_default()).into_owned();
    let slots: Vec<String> = of["slots"].as_array().into_iter().flatten().map(Json::to_string).collect();
    let who = of["bundle"].as_u64().map_or_else(|| "it".to_owned(), |bundle| format!("bundle {bundle}"));
    let has = if of["is_held"].as_bool().unwrap_or_default() { "has" } else { "would get" };
    let on = if word("address").is_empty() { String::new() } else { format!(" on {}", word("address")) };
    let why = if word("why").is_empty() { String::new() } else { format!(": {}", word("why")) };
    format!("{who} {has} {} {}{on}{why}", word("resource"), slots.join(", "))
}

fn row(node: &Json) -> Json {
    let bundle = node["bundle"].as_u64().map(|bundle| format!("bundle {bundle}"));
    json!({
        "node": node["node_id"].as_str().unwrap_or_default(),
        "address": node["address"].as_str().map(str::to_owned).or(bundle),
        "rule": node["rule"].as_str().unwrap_or("-"),
        "why": node["why"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_shown_node_by_node() {
        let told = json!({
            "kind": "task", "id": "ab", "name": "f", "state": "PENDING_NODE_ASSIGNMENT", "reason": "it waits",
            "nodes": [{"node_id": "01", "address": "127.0.0.1", "rule": "busy", "why": "0 of 1 free"},
                      {"node_id": "02", "address": null, "bundle": 1, "rule": null, "why": "it has room"}],
        });
        let lines = [
            "task `f` ab: PENDING_NODE_ASSIGNMENT",
            "it waits",
            "",
            "NODE  ADDRESS    RULE  WHY",
            "01    127.0.0.1  busy  0 of 1 free",
            "02    bundle 1   -     it has room",
        ];
        assert_eq!(text(&told, None).trim_end(), lines.join("\n"));
    }

    #[test]
    fn devices_are_shown_that_it_has_or_would_get() {
        let why = "the nearest to each other that were free (one NUMA node, 4 direct links between each two)";
        let told = json!({
            "kind": "task", "id": "ab", "name": "f", "state": "RUNNING", "reason": "it runs", "nodes": [],
            "devices": [{"address": "10.0.0.2", "resource": "GPU", "slots": [2, 3], "is_held": true, "why": why},
                        {"address": "10.0.0.3", "resource": "GPU", "slots": [0], "is_held": false, "why": "no other is free"},
                        {"address": "", "resource": "GPU", "slots": [1], "bundle": 4, "is_held": true, "why": ""}],
        });
        let lines = [
            "task `f` ab: RUNNING",
            "it runs",
            "it has GPU 2, 3 on 10.0.0.2: the nearest to each other that were free (one NUMA node, 4 direct links between each two)",
            "it would get GPU 0 on 10.0.0.3: no other is free",
            "bundle 4 has GPU 1",
        ];
        assert_eq!(text(&told, None).trim_end(), lines.join("\n"));
    }
}
