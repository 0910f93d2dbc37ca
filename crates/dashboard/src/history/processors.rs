//! Who held CPUs in a history, for clusters without devices: put together of the rows of tasks and of actors that were recorded (pure).
//!
//! - PROCESSORS-1: of tasks the [`TASKS_MAX`] that began last are looked at, and of actors as many.
//! - PROCESSORS-2: what a head that came back did not report again is over when that head began.

use super::past::Past;
use crate::page::cpus::CpuHolder;
use crate::page::holdings::Holder;
use oxiray_ids::{ActorId, JobId, NodeId, PlacementGroupId, WorkerId};
use oxiray_wire::state::TaskKind;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// How many tasks, and how many actors, are looked at.
const TASKS_MAX: usize = 50_000;

/// What rows of tasks and of actors have of it. Texts without a sign that JSON escapes are read where they stand.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cells<'past> {
    #[serde(borrow)]
    state: Cow<'past, str>,
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'past, str>>,
    #[serde(borrow)]
    name: Option<Cow<'past, str>>,
    #[serde(borrow)]
    class: Option<Cow<'past, str>>,
    #[serde(borrow)]
    node_id: Option<Cow<'past, str>>,
    #[serde(borrow)]
    worker_id: Option<Cow<'past, str>>,
    #[serde(borrow)]
    job_id: Option<Cow<'past, str>>,
    #[serde(borrow)]
    group: Option<Cow<'past, str>>,
    pid: Option<u32>,
    resources: Option<BTreeMap<String, f64>>,
    started_ms: u64,
    ended_ms: u64,
}

impl Cells<'_> {
    fn cpus(&self) -> f64 {
        self.resources.as_ref().and_then(|held| held.get("CPU")).copied().unwrap_or_default()
    }

    fn node(&self) -> Option<NodeId> {
        NodeId::from_hex(self.node_id.as_deref()?).ok()
    }

    fn holder(&self, name: &str, actor: Option<ActorId>) -> Holder {
        Holder {
            name: name.into(),
            worker: self.worker_id.as_deref().and_then(|id| WorkerId::from_hex(id).ok()),
            pid: self.pid.unwrap_or(0),
            job: self.job_id.as_deref().and_then(|id| JobId::from_hex(id).ok()),
            actor,
            group: self.group.as_deref().and_then(|id| PlacementGroupId::from_hex(id).ok()),
        }
    }
}

/// A version of a row: from when on it is so, and what it says; nothing where it is gone.
pub(crate) type Told<'past> = (u64, Option<&'past str>);

/// All who had CPUs until a moment.
pub(crate) fn holders(past: &Past, at_ms: u64) -> Vec<CpuHolder> {
    let tasks = past.stories("tasks", at_ms, TASKS_MAX);
    let actors = past.stories("actors", at_ms, TASKS_MAX);
    let ran = tasks.into_iter().filter_map(|(key, told)| of_task(key, &told));
    ran.chain(actors.into_iter().flat_map(|(key, told)| of_actor(key, &told))).collect()
}

fn read(cells: &str) -> Option<Cells<'_>> {
    serde_json::from_str(cells).ok()
}

fn of_task(key: &str, told: &[Told<'_>]) -> Option<CpuHolder> {
    let (since_ms, cells) = told.iter().rev().find_map(|(since_ms, cells)| Some((*since_ms, read((*cells)?)?)))?;
    let is_task = cells.kind.as_deref() == Some(TaskKind::Normal.name());
    let (cpus, from_ms) = (cells.cpus(), cells.started_ms);
    if !is_task || from_ms == 0 || cpus <= 0.0 {
        return None;
    }
    let gone_ms = told.last().filter(|(_, cells)| cells.is_none()).map(|(gone_ms, _)| *gone_ms);
    let to_ms = match (cells.ended_ms, cells.state.as_ref()) {
        (0, "UNKNOWN") => Some(since_ms),
        (0, _) => gone_ms,
        (ended_ms, _) => Some(ended_ms),
    };
    let holder = cells.holder(cells.name.as_deref().unwrap_or_default(), None);
    Some(CpuHolder { key: format!("task:{key}"), node: cells.node()?, cpus, from_ms, to_ms, holder })
}

/// An actor has its CPUs as long as its process is there: one that is made anew elsewhere has others.
fn of_actor(key: &str, told: &[Told<'_>]) -> Vec<CpuHolder> {
    let actor = ActorId::from_hex(key).ok();
    let mut found: Vec<CpuHolder> = Vec::new();
    for (since_ms, cells) in told {
        let cells = cells.and_then(read).filter(|cells| !matches!(cells.state.as_ref(), "DEAD" | "UNKNOWN"));
        let holds = cells.as_ref().and_then(|cells| Some((cells, cells.node()?, cells.pid?, cells.cpus())));
        let holds = holds.filter(|(.., cpus)| *cpus > 0.0);
        let open = found.last_mut().filter(|last| last.to_ms.is_none());
        let is_same = |last: &CpuHolder| {
            holds.as_ref().is_some_and(|(_, node, pid, _)| (last.node, last.holder.pid) == (*node, *pid))
        };
        match open {
            Some(last) if is_same(last) => continue,
            Some(last) => last.to_ms = Some(*since_ms),
            None => {}
        }
        if let Some((cells, node, _, cpus)) = holds {
            let holder = cells.holder(cells.class.as_deref().unwrap_or_default(), actor);
            found.push(CpuHolder { key: format!("actor:{key}"), node, cpus, from_ms: *since_ms, to_ms: None, holder });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(number: u8) -> String {
        NodeId::new([number; 28]).to_string()
    }

    fn told(versions: &[(u64, Option<serde_json::Value>)]) -> Vec<(u64, Option<String>)> {
        versions.iter().map(|(at, cells)| (*at, cells.as_ref().map(ToString::to_string))).collect()
    }

    fn lent(versions: &[(u64, Option<String>)]) -> Vec<Told<'_>> {
        versions.iter().map(|(at, cells)| (*at, cells.as_deref())).collect()
    }

    #[test]
    fn a_task_has_its_cpus_from_its_begin_to_its_end() {
        let row = |state: &str, started: u64, ended: u64| {
            Some(
                json!({"state": state, "type": "NORMAL_TASK", "name": "f \"x\"", "node_id": node(1), "pid": 7, "started_ms": started,
                "ended_ms": ended, "resources": {"CPU": 2.0}, "job_id": "01000000", "worker_id": null, "class": null}),
            )
        };
        let of = |versions: &[(u64, Option<serde_json::Value>)]| {
            of_task("t:0", &lent(&told(versions)))
                .map(|one| (one.from_ms, one.to_ms, one.cpus, one.holder.name.to_string()))
        };
        let name = || "f \"x\"".to_owned();
        assert_eq!(of(&[(1, row("PENDING_NODE_ASSIGNMENT", 0, 0))]), None);
        assert_eq!(of(&[(1, row("RUNNING", 5, 0))]), Some((5, None, 2.0, name())));
        assert_eq!(of(&[(1, row("RUNNING", 5, 0)), (9, row("FINISHED", 5, 8))]), Some((5, Some(8), 2.0, name())));
        assert_eq!(
            of(&[(1, row("RUNNING", 5, 0)), (9, row("UNKNOWN", 5, 0))]),
            Some((5, Some(9), 2.0, name())),
            "PROCESSORS-2"
        );
        assert_eq!(of(&[(1, row("RUNNING", 5, 0)), (9, None)]), Some((5, Some(9), 2.0, name())));
        let mut method = row("RUNNING", 5, 0).expect("a row");
        method["type"] = "ACTOR_TASK".into();
        assert_eq!(of(&[(1, Some(method))]), None, "its actor has them");
    }

    #[test]
    fn an_actor_has_its_cpus_until_its_process_is_gone() {
        let row = |state: &str, on: u8, pid: Option<u32>, cpus: f64| {
            Some(
                json!({"state": state, "class": "Counter", "name": null, "node_id": node(on), "pid": pid, "resources": {"CPU": cpus}}),
            )
        };
        let versions = told(&[
            (1, row("PENDING_CREATION", 1, None, 0.5)),
            (2, row("ALIVE", 1, Some(7), 0.5)),
            (3, row("ALIVE", 1, Some(7), 0.5)),
            (4, row("RESTARTING", 1, None, 0.5)),
            (6, row("ALIVE", 2, Some(8), 0.5)),
            (8, row("ALIVE", 2, Some(9), 0.5)),
            (9, row("DEAD", 2, Some(9), 0.5)),
        ]);
        let id = ActorId::new([5; 16]).hex();
        let found = of_actor(&id, &lent(&versions));
        let spans: Vec<(u64, Option<u64>, u32)> =
            found.iter().map(|one| (one.from_ms, one.to_ms, one.holder.pid)).collect();
        assert_eq!(spans, [(2, Some(4), 7), (6, Some(8), 8), (8, Some(9), 9)]);
        assert_eq!(
            (&*found[0].holder.name, found[0].holder.actor, &found[0].key),
            ("Counter", Some(ActorId::new([5; 16])), &format!("actor:{id}"))
        );
        assert_eq!(of_actor(&id, &lent(&told(&[(1, row("ALIVE", 1, Some(7), 0.0))]))), []);
        let lasts = of_actor(&id, &lent(&told(&[(1, row("ALIVE", 1, Some(7), 1.0))])));
        assert_eq!(lasts[0].to_ms, None);
    }
}
