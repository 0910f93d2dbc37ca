//! The tree of what runs: jobs, their actors, and the calls of each that are not over.

use super::recorded::Recorded;
use super::rows::{Cell, List, Row, Target, age, number};
use oxiray_state::state_name;
use oxiray_wire::message::TaskStage;
use oxiray_wire::state::{ActorPhase, ActorRow, JobRow, TaskKind, TaskRow};
use std::collections::{BTreeMap, BTreeSet};

/// A job is as deep as this, an actor of it one deeper, and a call of the actor one more.
const JOB: usize = 0;

/// Jobs that run or have something that runs, with their actors and calls.
pub(super) fn tree(recorded: &Recorded) -> List {
    let actors = recorded.cluster.actors.iter().filter(|actor| actor.state != ActorPhase::Dead);
    let mut actors_of: BTreeMap<String, Vec<&ActorRow>> = BTreeMap::new();
    for actor in actors {
        actors_of.entry(actor.job_id.hex()).or_default().push(actor);
    }
    let calls = recorded.live.iter().filter(|task| task.kind() != TaskKind::ActorCreation);
    let mut calls_of: BTreeMap<String, Vec<&TaskRow>> = BTreeMap::new();
    for task in calls {
        let owner = if task.kind() == TaskKind::Actor { task.task_id.actor().hex() } else { task.task_id.job().hex() };
        calls_of.entry(owner).or_default().push(task);
    }
    let jobs: BTreeMap<String, &JobRow> = recorded.jobs.iter().filter_map(|job| Some((job_of(job)?, job))).collect();
    let running = jobs.iter().filter(|(_, job)| job.ended_ms == 0).map(|(id, _)| id.clone());
    let of_calls = recorded.live.iter().map(|task| task.task_id.job().hex());
    let known: BTreeSet<String> = running.chain(actors_of.keys().cloned()).chain(of_calls).collect();
    let mut rows = Vec::new();
    for id in known {
        rows.push(job_row(recorded, &id, jobs.get(&id).copied()));
        rows.extend(calls_of.remove(&id).into_iter().flatten().map(|task| call_row(recorded, JOB + 1, task)));
        for actor in actors_of.remove(&id).unwrap_or_default() {
            let calls = calls_of.remove(&actor.actor_id.hex()).unwrap_or_default();
            rows.push(actor_row(actor));
            rows.extend(calls.into_iter().map(|task| call_row(recorded, JOB + 2, task)));
        }
    }
    let columns = vec![("JOB, ACTOR, TASK", 0), ("STATE", 24), ("PID", 8), ("RUNS FOR", 8), ("ID", 8)];
    List { columns, rows }
}

fn job_of(job: &JobRow) -> Option<String> {
    job.driver.as_ref().map(|driver| driver.job.hex())
}

/// A row so deep in the tree.
fn row(depth: usize, (name, id): (&str, &str), told: [Cell; 3], target: Target) -> Row {
    let [state, pid, ran] = told;
    let short = id[..8.min(id.len())].to_owned();
    let detail = vec![("name", name.to_owned()), ("id", id.to_owned()), ("state", state.text.clone())];
    let cells = vec![Cell::from(format!("{}{name}", "  ".repeat(depth))), state, pid, ran, Cell::from(short)];
    Row { cells, target, detail, depth, ..Row::default() }
}

fn pid(pid: Option<u32>) -> Cell {
    pid.map_or_else(Cell::default, |pid| number(pid.to_string(), f64::from(pid)))
}

fn job_row(recorded: &Recorded, id: &str, job: Option<&JobRow>) -> Row {
    let Some(job) = job else {
        let told = [Cell::default(), Cell::default(), Cell::default()];
        return row(JOB, ("job", id), told, Target::Nothing);
    };
    let ms = recorded.now_ms.saturating_sub(job.started_ms);
    let entrypoint = job.entrypoint.as_deref().unwrap_or_default();
    let name = if job.submission.is_empty() { format!("job {entrypoint}") } else { format!("job {}", job.submission) };
    let target = if job.submission.is_empty() { Target::Nothing } else { Target::Submission(job.submission.clone()) };
    let told =
        [Cell::from(job.state.name()), pid(job.driver.as_ref().map(|driver| driver.pid)), number(age(ms), ms as f64)];
    row(JOB, (name.trim_end(), id), told, target)
}

fn actor_row(actor: &ActorRow) -> Row {
    let name = if actor.name.is_empty() { actor.class.clone() } else { format!("{} `{}`", actor.class, actor.name) };
    let (id, told) = (actor.actor_id.hex(), [Cell::from(actor.state.name()), pid(actor.pid), Cell::default()]);
    row(JOB + 1, (&name, &id), told, Target::Actor(id.clone()))
}

fn call_row(recorded: &Recorded, depth: usize, task: &TaskRow) -> Row {
    let ms = recorded.now_ms.saturating_sub(task.started_us / 1_000);
    let ran = if task.started_us == 0 { Cell::default() } else { number(age(ms), ms as f64) };
    let process = pid(task.pid.filter(|_| task.stage == TaskStage::Runs));
    let id = task.task_id.hex();
    row(
        depth,
        (&task.name, &id),
        [Cell::from(state_name(task.task_id, task.stage)), process, ran],
        Target::Task(id.clone()),
    )
}
