//! Actors, nodes, workers, jobs and environments as rows with Ray's column names.

use super::{HeadCore, Key};
use crate::JobEnd;
use oxiray_ids::NodeId;
use oxiray_wire::message::{Environment, Submission, SubmissionState};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// The most rows of one kind that are looked at.
const ROWS_MAX: usize = 10_000;

impl HeadCore {
    /// The rows of a kind that needs nobody else's word.
    pub(super) fn rows_of(&self, kind: &str) -> Result<Vec<Json>, String> {
        Ok(match kind {
            "actors" => self.actor_list(ROWS_MAX).iter().map(actor_row).collect(),
            "nodes" => self.all_nodes().iter().map(node_row).collect(),
            "workers" => self.worker_rows(),
            "jobs" => self.job_rows(),
            "runtime_envs" => self.environment_rows(),
            "placement_groups" => self.group_list(ROWS_MAX).iter().map(group_row).collect(),
            other => {
                let kinds = "actors, jobs, nodes, objects, placement_groups, runtime_envs, tasks, workers";
                return Err(format!("there is no list of `{other}` in this version: there are {kinds}"));
            }
        })
    }

    fn worker_rows(&self) -> Vec<Json> {
        let row = |key: Key, id: String, kind: &str, pid: Option<u32>| {
            let ip = self.ip_of(key);
            json!({
                "worker_id": id, "is_alive": true, "worker_type": kind, "node_id": self.node_of(key).hex(),
                "ip": ip, "pid": pid,
            })
        };
        let drivers = self.jobs.details.values().filter(|detail| !detail.is_over);
        let drivers = drivers.map(|detail| row(detail.driver, detail.driver_id.hex(), "DRIVER", Some(detail.told.pid)));
        drivers
            .chain(self.workers.by_key.iter().map(|(key, worker)| row(*key, worker.id.hex(), "WORKER", worker.pid)))
            .take(ROWS_MAX)
            .collect()
    }

    /// Submitted jobs, each with the driver that its entrypoint connected, and the drivers that nobody submitted.
    fn job_rows(&self) -> Vec<Json> {
        let submissions = self.jobs.submitted.jobs.all();
        let mut driver_of: BTreeMap<String, Json> = BTreeMap::new();
        let mut rows = Vec::new();
        for job in self.jobs.known.iter() {
            let row = driver_row(job);
            match submission_of(&row["metadata"]) {
                Some((_, true)) => {}
                Some((id, false)) if submissions.iter().any(|submission| submission.id == id) => {
                    // Of several drivers that one entrypoint connects, the last one stands for the job, as in Ray.
                    driver_of.insert(id.to_owned(), row);
                }
                _ => rows.push(row),
            }
        }
        rows.extend(submissions.iter().map(|submission| submission_row(submission, driver_of.get(&submission.id))));
        rows.truncate(ROWS_MAX);
        rows
    }

    fn environment_rows(&self) -> Vec<Json> {
        let mut uses: BTreeMap<_, usize> = BTreeMap::new();
        for (key, worker) in self.workers.by_key.iter().filter(|(_, worker)| !worker.environment.variables.is_empty()) {
            *uses.entry((self.node_of(*key), &worker.environment)).or_default() += 1;
        }
        let row = |((node, environment), count): ((NodeId, &Environment), usize)| {
            let variables: serde_json::Map<String, Json> =
                environment.variables.iter().map(|one| (one.name.clone(), json!(one.value))).collect();
            json!({
                "runtime_env": {"env_vars": variables}, "success": true, "node_id": node.hex(), "ref_cnt": count,
            })
        };
        uses.into_iter().take(ROWS_MAX).map(row).collect()
    }
}

/// The submitted job that a driver belongs to, by what it says of itself; and whether it is the one that runs the
/// entrypoint, which is no driver of the user's.
fn submission_of(metadata: &Json) -> Option<(&str, bool)> {
    let id = metadata["job_submission_id"].as_str()?;
    Some((id, !metadata["oxiray_runs_entrypoint"].is_null()))
}

fn driver_row(job: &crate::Job) -> Json {
    let (status, message) = match &job.end {
        None => ("RUNNING", None),
        Some(JobEnd::Succeeded) => ("SUCCEEDED", None),
        Some(JobEnd::Failed(text)) => ("FAILED", Some(text)),
    };
    let facts = &job.facts;
    json!({
        "type": "DRIVER", "job_id": job.id.hex(), "submission_id": null,
        "driver_info": {"id": job.id.hex(), "node_ip_address": facts.ip, "pid": job.pid.to_string()},
        "status": status, "message": message, "entrypoint": facts.entrypoint, "driver_node_id": facts.node.hex(),
        "start_time": (facts.started_ms > 0).then_some(facts.started_ms),
        "end_time": (job.ended_ms > 0).then_some(job.ended_ms),
        "metadata": serde_json::from_str::<Json>(&facts.metadata).ok(), "ray_namespace": job.namespace,
    })
}

fn submission_row(submission: &Submission, driver: Option<&Json>) -> Json {
    let of_driver = |column: &str| driver.map_or(Json::Null, |row| row[column].clone());
    let spec = submission.spec.as_ref();
    let time = |at: u64| (at > 0).then_some(at);
    let has_failed = submission.state == SubmissionState::Failed;
    json!({
        "type": "SUBMISSION", "job_id": of_driver("job_id"), "submission_id": submission.id,
        "driver_info": of_driver("driver_info"), "status": submission.state.name(), "message": submission.message,
        "error_type": (has_failed && submission.exit_code.is_some()).then_some("JOB_ENTRYPOINT_COMMAND_ERROR"),
        "entrypoint": spec.map(|spec| &spec.entrypoint), "driver_node_id": of_driver("driver_node_id"),
        "start_time": time(submission.submitted_ms), "end_time": time(submission.ended_ms),
        "metadata": spec.map(|spec| &spec.metadata), "driver_exit_code": submission.exit_code,
        "runtime_env": spec.and_then(|spec| serde_json::from_str::<Json>(&spec.runtime_env).ok()),
        "ray_namespace": of_driver("ray_namespace"),
    })
}

/// Ray's name for the word for an actor's state.
pub(super) fn ray_state(word: &str) -> &'static str {
    match word {
        "alive" => "ALIVE",
        "dead" => "DEAD",
        "restarting" => "RESTARTING",
        _ => "PENDING_CREATION",
    }
}

fn actor_row(actor: &Json) -> Json {
    let state = ray_state(actor["state"].as_str().unwrap_or_default());
    json!({
        "actor_id": actor["actor_id"], "class_name": actor["class"], "state": state, "job_id": actor["job_id"],
        "name": actor["name"], "node_id": actor["node_id"],
        "pid": actor["pid"].as_u64().unwrap_or(0), "ray_namespace": actor["namespace"],
        "death_cause": death_cause(actor),
        "is_detached": actor["detached"], "num_restarts": actor["restarts"].as_u64().unwrap_or(0),
        "required_resources": actor["resources"],
    })
}

/// Why an actor is dead, in Ray's fields.
fn death_cause(actor: &Json) -> Json {
    let Some(text) = actor["cause"].as_str() else { return Json::Null };
    // The words are those that the head itself gives as the cause.
    let reasons = [
        ("killed by `ray.kill`", "RAY_KILL"),
        ("references to the actor were removed", "OUT_OF_SCOPE"),
        ("its process", "WORKER_DIED"),
        ("node", "NODE_DIED"),
    ];
    let reason = reasons.iter().find(|(words, _)| text.contains(words)).map_or("UNSPECIFIED", |(_, reason)| reason);
    let context = json!({
        "error_message": text, "reason": reason, "pid": actor["pid"].as_u64().unwrap_or(0),
        "node_ip_address": actor["ip"], "never_started": actor["never_ran"], "name": actor["name"],
        "ray_namespace": actor["namespace"], "class_name": actor["class"], "actor_id": actor["actor_id"],
    });
    json!({"actor_died_error_context": context})
}

fn group_row(group: &Json) -> Json {
    json!({
        "placement_group_id": group["placement_group_id"], "name": group["name"], "creator_job_id": group["job_id"],
        "state": group["state"], "bundles": group["bundles"], "is_detached": group["detached"], "stats": group["stats"],
    })
}

/// Why it ended, or how it is being emptied.
fn node_message(node: &Json) -> Option<&str> {
    let told = [&node["death"], &node["draining"]["words"]];
    told.into_iter().filter_map(Json::as_str).find(|text| !text.is_empty())
}

fn node_row(node: &Json) -> Json {
    let is_alive = node["alive"].as_bool().unwrap_or(true);
    json!({
        "node_id": node["node_id"], "node_ip": node["address"], "is_head_node": node["head"].as_bool().unwrap_or(true),
        "state": if is_alive { "ALIVE" } else { "DEAD" }, "state_message": node_message(node),
        "node_name": if node["name"].is_string() { node["name"].clone() } else { node["address"].clone() },
        "resources_total": node["resources"], "labels": node["labels"],
    })
}
