//! `oxiray stack`: where threads and asyncio tasks are, those that are in the same place together.

use crate::arguments::StackOptions;
use crate::{identifiers, say, visit};
use anyhow::bail;
use oxiray_ids::{ActorId, TaskId};
use oxiray_wire::message::{StateFilter, StateQuery};
use oxiray_wire::plain;
use oxiray_wire::state::StateKind;
use serde_json::Value as Json;
use std::fmt::Write as _;

/// Processes that are asked at once.
const PROCESSES_MAX: u32 = 1000;
/// The longest number of a process, in digits: a longer one is the beginning of an identifier.
const PID_DIGITS_MAX: usize = 7;
/// How many that are in one place are named.
const NAMED_MAX: usize = 8;
const EXPECT: &str = "writing to a string does not fail";

pub(crate) fn run(options: &StackOptions) -> anyhow::Result<()> {
    let address = options.address.as_deref();
    let filters = match options.target.as_deref() {
        Some(target) => meant(address, target)?,
        None if options.all => Vec::new(),
        None => vec![equal("node_id", &visit::find(address)?.description.node)],
    };
    let rows = rows(address, filters)?;
    if rows.is_empty() {
        let which =
            options.target.as_deref().map_or("there".to_owned(), |target| format!("there that `{target}` names"));
        bail!("no process of the cluster's is {which}: `oxiray list workers` shows those that there are");
    }
    if options.json {
        say(&serde_json::to_string_pretty(&rows)?);
    } else {
        say(text(&rows).trim_end());
    }
    Ok(())
}

fn rows(address: Option<&str>, filters: Vec<StateFilter>) -> anyhow::Result<Vec<Json>> {
    let asked = StateQuery { kind: StateKind::Stacks, filters, limit: PROCESSES_MAX, ..StateQuery::default() };
    Ok(visit::rows(address, &asked, visit::LIST_LIMIT)?.0)
}

/// The stacks of the processes that are meant, as they are printed.
pub(crate) fn told(address: Option<&str>, filters: Vec<StateFilter>) -> anyhow::Result<String> {
    let rows = rows(address, filters)?;
    if rows.is_empty() {
        bail!("no process of it runs now: it has no stack");
    }
    Ok(text(&rows))
}

fn equal(key: &str, value: &str) -> StateFilter {
    StateFilter { key: key.to_owned(), differs: false, value: value.to_owned() }
}

/// Which processes a number of a process means, or an identifier of a task, an actor or a worker, or the beginning of one.
pub(crate) fn meant(address: Option<&str>, target: &str) -> anyhow::Result<Vec<StateFilter>> {
    if target.len() <= PID_DIGITS_MAX && target.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(vec![equal("pid", target)]);
    }
    let id = identifiers::whole(address, &["actors", "tasks", "workers"], target)?;
    of_identifier(address, &id)
}

/// The process with that number on a node.
pub(crate) fn of_process(node: &str, pid: u32) -> Vec<StateFilter> {
    vec![equal("node_id", node), equal("pid", &pid.to_string())]
}

/// The process that a whole identifier of a task, an actor or a worker means.
pub(crate) fn of_identifier(address: Option<&str>, id: &str) -> anyhow::Result<Vec<StateFilter>> {
    if id.len() == 2 * ActorId::BYTES {
        return Ok(vec![equal("actor_id", id)]);
    }
    if id.len() != 2 * TaskId::BYTES {
        return Ok(vec![equal("worker_id", id)]);
    }
    let filters = vec![equal("task_id", id)];
    let asked = StateQuery { kind: StateKind::Tasks, filters, limit: 100, ..StateQuery::default() };
    let (attempts, _) = visit::rows(address, &asked, visit::LIST_LIMIT)?;
    let text = |row: &Json, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    if let Some(running) = attempts.iter().find(|row| row["state"] == "RUNNING") {
        return Ok(vec![equal("worker_id", &text(running, "worker_id"))]);
    }
    let state = attempts.last().map_or("gone".to_owned(), |row| text(row, "state"));
    bail!("task {id} is {state}: no process runs it now, so that it has no stack")
}

/// Stacks that are the same, and whose they are.
struct Alike<'a> {
    frames: &'a Json,
    is_task: bool,
    /// Whether one of them is that of a main thread.
    is_main: bool,
    holders: Vec<String>,
}

fn text(rows: &[Json]) -> String {
    let mut text = String::new();
    for alike in grouped(rows) {
        let count = alike.holders.len();
        let kind = if alike.is_task { "asyncio task" } else { "thread" };
        let plural = if count == 1 { "" } else { "s" };
        let frames: Vec<String> = alike.frames.as_array().into_iter().flatten().map(frame).collect();
        let place = frames.first().map_or("no Python code", String::as_str);
        writeln!(text, "{count} {kind}{plural} in {place}").expect(EXPECT);
        let more = count.saturating_sub(NAMED_MAX);
        let and_more = if more == 0 { String::new() } else { format!(", and {more} more") };
        let named = &alike.holders[..count.min(NAMED_MAX)];
        writeln!(text, "  {}{and_more}", named.join(", ")).expect(EXPECT);
        for frame in &frames {
            writeln!(text, "    {frame}").expect(EXPECT);
        }
        text.push('\n');
    }
    for row in rows.iter().filter(|row| row["note"].as_str().is_some_and(|note| !note.is_empty())) {
        writeln!(text, "{}: {}", process(row), plain(row["note"].as_str().unwrap_or_default())).expect(EXPECT);
    }
    text
}

/// Main threads first, and of the others those that most are alike.
fn grouped(rows: &[Json]) -> Vec<Alike<'_>> {
    let mut groups: Vec<Alike<'_>> = Vec::new();
    for row in rows {
        for stack in row["stacks"].as_array().into_iter().flatten() {
            let (frames, is_task) = (&stack["frames"], stack["is_task"] == true);
            let name = stack["name"].as_str().unwrap_or_default();
            let holder = format!("{} {}", process(row), plain(name));
            let is_main = !is_task && name == "MainThread";
            match groups.iter_mut().find(|known| known.is_task == is_task && known.frames == frames) {
                Some(known) => {
                    known.is_main |= is_main;
                    known.holders.push(holder);
                }
                None => groups.push(Alike { frames, is_task, is_main, holders: vec![holder] }),
            }
        }
    }
    groups.sort_by_key(|group| (!group.is_main, std::cmp::Reverse(group.holders.len())));
    groups
}

fn process(row: &Json) -> String {
    let word = |key: &str| plain(row[key].as_str().unwrap_or_default()).into_owned();
    let name = if row["worker_type"] == "DRIVER" { " (driver)".to_owned() } else { format!(" `{}`", word("name")) };
    format!("pid {} on {}{name}", row["pid"], word("ip"))
}

fn frame(frame: &Json) -> String {
    let word = |key: &str| plain(frame[key].as_str().unwrap_or_default()).into_owned();
    format!("{} ({}:{})", word("function"), word("file"), frame["line"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(pid: u32, name: &str, function: &str) -> Json {
        let frames = json!([{"function": function, "file": "/a.py", "line": 3}]);
        let stacks = json!([{"name": "MainThread", "is_task": false, "frames": frames}]);
        json!({"pid": pid, "ip": "10.0.0.1", "name": name, "worker_type": "WORKER", "note": "", "stacks": stacks})
    }

    #[test]
    fn stacks_that_are_the_same_stand_together() {
        let mut rows: Vec<Json> = (1..=10).map(|pid| row(pid, "Rank", "all_reduce")).collect();
        rows.insert(3, row(17, "Rank", "next_batch"));
        rows.push(json!({
            "pid": 30, "ip": "10.0.0.2", "worker_type": "DRIVER", "note": "", "stacks": [
                {"name": "Task-1", "is_task": true, "frames": [{"function": "all_reduce", "file": "/a.py", "line": 3}]},
                {"name": "thread 0x1", "is_task": false, "frames": []},
            ],
        }));
        rows.push(json!({"pid": 31, "ip": "10.0.0.2", "name": "r", "worker_type": "WORKER", "note": "a\x1b[0m", "stacks": []}));
        let named: Vec<String> = (1..=8).map(|pid| format!("pid {pid} on 10.0.0.1 `Rank` MainThread")).collect();
        let expected = [
            "10 threads in all_reduce (/a.py:3)".to_owned(),
            format!("  {}, and 2 more", named.join(", ")),
            "    all_reduce (/a.py:3)\n".to_owned(),
            "1 thread in next_batch (/a.py:3)".to_owned(),
            "  pid 17 on 10.0.0.1 `Rank` MainThread".to_owned(),
            "    next_batch (/a.py:3)\n".to_owned(),
            "1 asyncio task in all_reduce (/a.py:3)".to_owned(),
            "  pid 30 on 10.0.0.2 (driver) Task-1".to_owned(),
            "    all_reduce (/a.py:3)\n".to_owned(),
            "1 thread in no Python code".to_owned(),
            "  pid 30 on 10.0.0.2 (driver) thread 0x1\n".to_owned(),
            format!("pid 31 on 10.0.0.2 `r`: {}", plain("a\x1b[0m")),
        ];
        assert_eq!(text(&rows).trim_end(), expected.join("\n"));
    }
}
