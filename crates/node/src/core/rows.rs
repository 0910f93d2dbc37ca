//! Actors, nodes, workers, jobs and environments as rows with Ray's column names.

use super::{Core, Duty, Key};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// The most rows of one kind that are looked at.
const ROWS_MAX: usize = 10_000;

impl Core {
    /// The rows of a kind that needs nobody else's word.
    pub(crate) fn rows_of(&self, kind: &str) -> Result<Vec<Json>, String> {
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
        let drivers = self.details.values().filter(|detail| !detail.is_over);
        let drivers = drivers.map(|detail| row(detail.driver, detail.driver_id.hex(), "DRIVER", Some(detail.told.pid)));
        let workers = self.workers.iter().filter(|(_, worker)| worker.duty != Duty::Spare);
        drivers
            .chain(workers.map(|(key, worker)| row(*key, worker.id.hex(), "WORKER", worker.pid)))
            .take(ROWS_MAX)
            .collect()
    }

    fn job_rows(&self) -> Vec<Json> {
        let row = |job: &oxiray_head::Job| {
            let detail = self.details.get(&job.id);
            let told = detail.map(|detail| &detail.told);
            let driver = detail.map_or(0, |detail| detail.driver);
            let (ip, node) = (self.ip_of(driver), self.node_of(driver));
            json!({
                "type": "DRIVER", "job_id": job.id.hex(), "submission_id": null,
                "driver_info": {"id": job.id.hex(), "node_ip_address": ip, "pid": job.pid.to_string()},
                "status": if job.ended { "SUCCEEDED" } else { "RUNNING" },
                "entrypoint": told.map(|told| told.entrypoint.clone()), "driver_node_id": node.hex(),
                "start_time": told.map(|told| told.started_ms).filter(|at| *at > 0),
                "metadata": told.and_then(|told| serde_json::from_str::<Json>(&told.metadata).ok()),
                "ray_namespace": job.namespace,
            })
        };
        self.jobs.iter().take(ROWS_MAX).map(row).collect()
    }

    fn environment_rows(&self) -> Vec<Json> {
        let mut uses: BTreeMap<_, usize> = BTreeMap::new();
        for worker in self.workers.values().filter(|worker| !worker.environment.variables.is_empty()) {
            *uses.entry(&worker.environment).or_default() += 1;
        }
        let row = |(environment, count): (&super::Environment, usize)| {
            let variables: serde_json::Map<String, Json> =
                environment.variables.iter().map(|one| (one.name.clone(), json!(one.value))).collect();
            json!({
                "runtime_env": {"env_vars": variables}, "success": true, "node_id": self.plan.node.hex(), "ref_cnt": count,
            })
        };
        uses.into_iter().take(ROWS_MAX).map(row).collect()
    }
}

fn actor_row(actor: &Json) -> Json {
    let state = match actor["state"].as_str().unwrap_or_default() {
        "alive" => "ALIVE",
        "dead" => "DEAD",
        "restarting" => "RESTARTING",
        _ => "PENDING_CREATION",
    };
    json!({
        "actor_id": actor["actor_id"], "class_name": actor["class"], "state": state, "job_id": actor["job_id"],
        "name": actor["name"], "node_id": actor["node_id"],
        "pid": actor["pid"].as_u64().unwrap_or(0), "ray_namespace": actor["namespace"],
        "death_cause": if actor["cause"].is_null() { Json::Null } else { json!({"error_message": actor["cause"]}) },
        "is_detached": actor["detached"], "num_restarts": actor["restarts"].as_u64().unwrap_or(0),
        "required_resources": actor["resources"],
    })
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
