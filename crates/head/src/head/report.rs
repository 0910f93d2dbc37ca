//! How things are, for people and for `nodes()`.
//!
//! The detail is one JSON object: `nodes`, `devices`, `waiting`, `actors`, `placement_groups`, `workers`, `jobs`,
//! `autoscaler`, `requested`, `store`, `memory`, `worker_limits`, `daemon`.

use super::nodes::shown_use;
use super::workers::{Duty, Worker};
use super::{HeadCore, Key, amounts};
use crate::ActorState;
use oxiray_families::families_of;
use oxiray_ids::ActorId;
use oxiray_machine::Level;
use oxiray_resources::{Quantity, ResourceName};
use oxiray_wire::message::ClusterReport;
use serde::Serialize;
use serde_json::{Value as Json, json};

/// The most entries of each list in a report.
const LISTED_MAX: usize = 1000;

/// How long the turns of the daemon's loop took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TurnFigures {
    /// How many turns there were.
    pub count: u64,
    /// 999 of 1,000 took no longer than this many microseconds.
    pub p999_us: u64,
    /// The longest, in microseconds.
    pub longest_us: u64,
}

/// What the shell knows and the core does not.
#[derive(Debug, Clone, Default)]
pub struct StoreFigures {
    /// The daemon's process.
    pub pid: u32,
    /// The bound on the machine's memory that is the nearest.
    pub memory: Option<Level>,
    /// What limits the memory and the processes of workers, or why nothing does.
    pub limits: [String; 2],
    /// How long the turns of the daemon's loop took.
    pub turns: TurnFigures,
    /// Bytes of the store.
    pub capacity: u64,
    /// Bytes of segments that belong to objects.
    pub used: u64,
    /// Bytes of segments kept for the next object.
    pub pooled: u64,
    /// Bytes on disk.
    pub spilled: u64,
    /// Objects in it.
    pub objects: usize,
    /// Memory files, and files on disk that clients have mapped.
    pub files: usize,
}

impl HeadCore {
    /// The answer to a [`ClusterQuery`](oxiray_wire::message::ClusterQuery).
    pub(crate) fn report(&self, request: u64, store: &StoreFigures, resident_bytes: u64) -> ClusterReport {
        let (totals, available) = self.cluster_amounts();
        let detail = json!({
            "nodes": self.all_nodes(),
            "devices": self.own.devices().into_iter().take(LISTED_MAX).map(|(name, slot)| self.device(name, slot)).collect::<Vec<_>>(),
            "waiting": self.waiting(),
            "actors": self.actor_list(LISTED_MAX),
            "placement_groups": self.group_list(LISTED_MAX),
            "workers": self.worker_list(),
            "jobs": self.job_list(),
            "autoscaler": self.growth_shown(),
            "requested": self.standing(),
            "store": {
                "capacity": store.capacity, "used": store.used, "pooled": store.pooled, "spilled": store.spilled,
                "objects": store.objects, "files": store.files, "published": self.objects.known.len(),
            },
            "memory": store.memory,
            "worker_limits": {"memory": store.limits[0], "processes": store.limits[1]},
            "daemon": {
                "pid": store.pid, "resident_bytes": resident_bytes, "session": self.own.session(),
                "address": self.own.address(), "warnings": self.own.plan().warnings, "turns": store.turns,
            },
        });
        ClusterReport {
            request,
            totals: amounts(totals.iter().map(|(name, amount)| (name, *amount))),
            available: amounts(available.iter().map(|(name, amount)| (name, *amount))),
            detail: detail.to_string(),
        }
    }

    fn device(&self, name: &str, slot: u32) -> Json {
        let offer = self.own.plan().offer.of(name);
        let reason = self
            .own
            .ledger()
            .out_of_service()
            .find(|found| found.resource.as_str() == name && found.device == slot)
            .map(|found| found.reason.to_owned());
        let holders: Vec<Json> = self
            .holders_of(name, slot)
            .into_iter()
            .map(|(pid, label, share)| json!({"pid": pid, "name": label, "share": share.as_f64()}))
            .collect();
        let id = offer.map_or_else(|| slot.to_string(), |offer| offer.id(slot));
        let used = self.members.own().state.uses.iter().find(|used| used.resource == name && used.id == id.trim());
        let family = offer.map_or_else(|| families_of(name).next(), |offer| Some(offer.family));
        json!({
            "resource": name,
            "family": family.map(|family| family.key),
            "slot": slot,
            "id": id,
            "use": used.map(shown_use),
            "logical": offer.is_none_or(|offer| slot as usize >= offer.detected && offer.is_logical()),
            "state": if reason.is_some() { "quarantined" } else { "in service" },
            "reason": reason,
            "holders": holders,
        })
    }

    fn waiting(&self) -> Vec<Json> {
        let classes = self.pending.queue.waiting().take(LISTED_MAX).filter_map(|waiting| {
            let wanted = self.pending.wanted.get(waiting.oldest)?;
            Some(json!({
                "name": wanted.label,
                "kind": wanted.want.kind(),
                "demand": waiting.wish.demand().map_or(Json::Null, |demand| by_name(demand.iter())),
                "count": waiting.count,
                "overtaken": waiting.overtaken,
                "seconds": self.clock.now.saturating_duration_since(wanted.since).as_secs_f64(),
                "why": self.why_it_waits(wanted, waiting.wish, waiting.count),
            }))
        });
        classes.collect()
    }

    /// What an actor holds, by the resource's name; null once it is dead.
    pub(super) fn actor_resources(&self, id: ActorId) -> Json {
        self.actors.making.get(&id).map_or(Json::Null, |making| by_name(making.running().iter()))
    }

    pub(super) fn actor_list(&self, most: usize) -> Vec<Json> {
        let one = |actor: &crate::Actor<oxiray_wire::message::Failure>| {
            let worker = actor.worker().and_then(|worker| self.clients.keys.get(&worker)).copied();
            let pid = worker.and_then(|key| self.workers.by_key.get(&key)?.pid);
            let node = worker.filter(|_| pid.is_some()).map(|key| self.node_of(key).hex());
            let (cause, death) = match &actor.state {
                ActorState::Dead(failure) => (Some(&failure.text), failure.actor_death()),
                _ => (None, None),
            };
            let pid = pid.or_else(|| death.as_ref().map(|death| death.pid).filter(|pid| *pid > 0));
            let last_node = || Some(death.as_ref()?.node?.hex());
            let node = node.or_else(last_node);
            let ip = death.as_ref().map(|death| &death.ip);
            let never_ran = death.as_ref().is_some_and(|death| death.never_ran);
            let description = &actor.description;
            json!({
                "actor_id": description.id.hex(), "class": description.class_name, "name": description.name,
                "namespace": description.namespace, "job_id": description.job.hex(), "detached": description.detached,
                "state": state_of(&actor.state), "cause": cause, "pid": pid, "restarts": actor.restarts,
                "node_id": node, "resources": self.actor_resources(description.id), "ip": ip, "never_ran": never_ran,
            })
        };
        let (living, dead): (Vec<_>, Vec<_>) =
            self.actors.known.iter().partition(|actor| !matches!(actor.state, ActorState::Dead(_)));
        living.into_iter().chain(dead).take(most).map(one).collect()
    }

    fn worker_list(&self) -> Vec<Json> {
        let one = |(key, worker): (&Key, &Worker)| {
            let duty = match worker.duty {
                Duty::Idle => "idle",
                Duty::Leased(_) => "task",
                Duty::Actor(_) => "actor",
                Duty::Ending => "ending",
            };
            json!({
                "worker_id": worker.id.hex(), "pid": worker.pid, "duty": duty, "name": worker.label,
                "job_id": worker.job.hex(), "resources": by_name(self.own.held_by(*key)),
            })
        };
        let spare = self.own.spares().map(|(id, pid)| {
            json!({"worker_id": id.hex(), "pid": pid, "duty": "spare", "name": "", "job_id": null, "resources": {}})
        });
        self.workers.by_key.iter().map(one).chain(spare).take(LISTED_MAX).collect()
    }

    fn job_list(&self) -> Vec<Json> {
        let one = |job: &crate::Job| json!({"job_id": job.id.hex(), "pid": job.pid, "namespace": job.namespace, "ended": job.end.is_some()});
        self.jobs.known.iter().take(LISTED_MAX).map(one).collect()
    }
}

/// The word for an actor's state.
pub(super) fn state_of<C>(state: &ActorState<C>) -> &'static str {
    match state {
        ActorState::Waiting => "waiting",
        ActorState::Starting(_) => "starting",
        ActorState::Alive(_) => "alive",
        ActorState::Restarting => "restarting",
        ActorState::Dead(_) => "dead",
    }
}

pub(super) fn by_name<'a>(amounts: impl Iterator<Item = (&'a ResourceName, Quantity)>) -> Json {
    amounts.map(|(name, amount)| (name.to_string(), json!(amount.as_f64()))).collect::<serde_json::Map<_, _>>().into()
}
