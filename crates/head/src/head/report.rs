//! How the cluster is, for people and for `nodes()`.

use super::HeadCore;
use super::device_rows::HoldersFound;
use super::explain::FULLY_NAMED_MAX;
use crate::actors::{Actor, ActorState};
use crate::amounts::by_name;
use crate::growth::standing;
use crate::jobs::Job;
use oxiray_ids::ActorId;
use oxiray_machine::Level;
use oxiray_wire::message::{ClusterReport, Failure};
use oxiray_wire::state::{
    ActorRow, ActorSurroundings, Amounts, ClusterState, ConnectedJob, DaemonState, STATE_VERSION, StoreState,
    TurnFigures, WaitingRow, WorkerDuty, WorkerLimits, WorkerRow,
};

/// The most entries of each list in a report.
const LISTED_MAX: usize = 1000;

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
        let (totals, available) = self.members.cluster_amounts();
        let [memory_limit, processes_limit] = store.limits.clone();
        let state = ClusterState {
            totals: by_name(totals.iter().map(|(name, amount)| (name, *amount))),
            available: by_name(available.iter().map(|(name, amount)| (name, *amount))),
            nodes: self.all_nodes(),
            devices: self.device_rows(LISTED_MAX),
            waiting: self.waiting(),
            actors: self.actor_list(LISTED_MAX),
            placement_groups: self.group_list(LISTED_MAX),
            workers: self.worker_list(),
            jobs: self.job_list(),
            autoscaler: self.growth.shown(),
            requested: standing(&self.durable.kept),
            store: Some(store.shown(self.objects.known.len() as u64)),
            memory: store.memory.clone(),
            worker_limits: Some(WorkerLimits { memory: memory_limit, processes: processes_limit }),
            daemon: Some(DaemonState {
                pid: store.pid,
                resident_bytes,
                session: self.own.session().to_owned(),
                address: self.own.address().to_owned(),
                warnings: self.own.plan().warnings.clone(),
                turns: Some(store.turns),
                alerts: self.members.alerts(self.clock.now),
            }),
        };
        ClusterReport { request, version: STATE_VERSION, state: Some(state) }
    }

    fn waiting(&self) -> Vec<WaitingRow> {
        let holders = HoldersFound::default();
        let classes = self.pending.queue.waiting().take(LISTED_MAX).enumerate().filter_map(|(place, waiting)| {
            let wanted = self.pending.wanted.get(waiting.oldest)?;
            Some(WaitingRow {
                name: wanted.label.clone(),
                kind: wanted.want.kind(),
                demand: waiting.resource_request.demand().map(|demand| by_name(demand.iter()).into()),
                count: waiting.count as u64,
                overtaken: waiting.overtaken,
                seconds: self.clock.now.saturating_duration_since(wanted.since).as_secs_f64(),
                why: self.why_it_waits(
                    wanted,
                    waiting.resource_request,
                    waiting.count,
                    (place < FULLY_NAMED_MAX).then_some(&holders),
                ),
            })
        });
        classes.collect()
    }

    /// What an actor holds, by the resource's name; nothing once it is dead.
    pub(super) fn actor_resources(&self, id: ActorId) -> Option<Amounts> {
        self.actors.making.get(&id).map(|making| by_name(making.running().iter()).into())
    }

    pub(super) fn actor_list(&self, most: usize) -> Vec<ActorRow> {
        let (living, dead): (Vec<_>, Vec<_>) =
            self.actors.known.iter().partition(|actor| !matches!(actor.state, ActorState::Dead(_)));
        living.into_iter().chain(dead).take(most).map(|actor| self.shown_actor(actor)).collect()
    }

    fn shown_actor(&self, actor: &Actor<Failure>) -> ActorRow {
        let worker = actor.worker().and_then(|worker| self.clients.keys.get(&worker)).copied();
        let pid = worker.and_then(|key| self.workers.pid_of(key));
        let node = worker.filter(|_| pid.is_some()).map(|key| self.members.node_of(key));
        let (cause, death) = match &actor.state {
            ActorState::Dead(failure) => (Some(failure.text.clone()), failure.actor_death()),
            _ => (None, None),
        };
        let description = &actor.description;
        ActorRow {
            actor_id: description.id,
            class: description.class_name.clone(),
            name: description.name.clone(),
            namespace: description.namespace.clone(),
            job_id: description.job,
            detached: description.detached,
            state: actor.state.phase(),
            cause,
            pid: pid.or_else(|| death.as_ref().map(|death| death.pid).filter(|pid| *pid > 0)),
            restarts: u64::from(actor.restarts),
            node_id: node.or_else(|| death.as_ref()?.node),
            resources: self.actor_resources(description.id),
            never_ran: death.as_ref().is_some_and(|death| death.never_ran),
            surroundings: Some(ActorSurroundings {
                group: worker.and_then(|key| self.workers.by_key.get(&key)?.home).map(|home| home.group),
                repr_name: actor.said.repr_name.clone(),
                environment: actor.said.environment.clone(),
                moves: u64::from(actor.moves),
            }),
            ip: death.map(|death| death.ip),
        }
    }

    fn worker_list(&self) -> Vec<WorkerRow> {
        let ours = self.workers.by_key.iter().map(|(key, worker)| self.worker_row(*key, worker));
        let spare = self.own.spares().map(|(id, pid)| WorkerRow {
            worker_id: id,
            pid,
            duty: WorkerDuty::Spare,
            ..WorkerRow::default()
        });
        ours.chain(spare).take(LISTED_MAX).collect()
    }

    fn job_list(&self) -> Vec<ConnectedJob> {
        let one = |job: &Job| ConnectedJob {
            job_id: job.id,
            pid: job.pid,
            namespace: job.namespace.clone(),
            ended: job.end.is_some(),
        };
        self.jobs.known.iter().take(LISTED_MAX).map(one).collect()
    }
}

impl StoreFigures {
    fn shown(&self, published: u64) -> StoreState {
        StoreState {
            capacity: self.capacity,
            used: self.used,
            pooled: self.pooled,
            spilled: self.spilled,
            objects: self.objects as u64,
            files: self.files as u64,
            published,
        }
    }
}
