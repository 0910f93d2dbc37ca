//! Who held how many CPUs of which node, for clusters without devices: put together of the rows of tasks and of actors (pure).
//!
//! - CPUS-1: stretches of one node that overlap in time lie at different heights, as far as there is room. What a task lends while it
//!   waits for others is not told: it is drawn as if it had that.
//! - CPUS-2: of actors that are gone there are at most [`PAST_MAX`], the last ones; of tasks, what the head remembers.
//! - CPUS-3: the head lists at most [`LISTED_MAX`] actors, those that live first. Where it lists so many that live, one that it does not
//!   list may live as well, and keeps its CPUs as long as its node lives.

use super::holdings::{Holder, Stretch, Use, WHOLE};
use super::tables::amount;
use oxiray_ids::{ActorId, NodeId, WorkerId};
use oxiray_wire::state::{ActorPhase, ClusterState, TaskKind, TaskRow};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many actors that are gone are kept (CPUS-2).
const PAST_MAX: usize = 2_000;
/// How many actors the head lists when it says how the cluster is (CPUS-3).
const LISTED_MAX: usize = 1_000;
/// Where the head remembers more calls that ended, it may have forgotten others: it keeps 5,000 at most, and forgets up to 1,000 at once.
const REMEMBERED_WHOLE_MAX: usize = 4_000;
/// How many that overlap are looked at for a place: beyond those there is no room in any case.
const ABREAST_MAX: usize = 1_024;

/// Somebody who has or had CPUs of a node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CpuHolder {
    /// What the page calls it: `task:` or `actor:`, and what its row is called.
    pub(crate) key: String,
    /// The node.
    pub(crate) node: NodeId,
    /// How many.
    pub(crate) cpus: f64,
    /// From when on.
    pub(crate) from_ms: u64,
    /// Until when; nothing while it lasts.
    pub(crate) to_ms: Option<u64>,
    /// Who.
    pub(crate) holder: Holder,
}

/// The actors that have CPUs, and those that had some.
#[derive(Debug, Default)]
pub(crate) struct CpuActors {
    open: BTreeMap<(ActorId, NodeId, u32), CpuHolder>,
    past: VecDeque<CpuHolder>,
    /// Whether more may live than are listed (CPUS-3).
    is_cut: bool,
}

impl CpuActors {
    /// How the cluster is now.
    pub(crate) fn look(&mut self, state: &ClusterState, now_ms: u64) {
        let workers: BTreeMap<(NodeId, u32), (u64, WorkerId)> = state
            .workers
            .iter()
            .filter_map(|row| Some(((row.node?, row.pid?), (row.started_ms, row.worker_id))))
            .collect();
        let mut there = self.unlisted(state);
        for row in state.actors.iter().filter(|row| row.state != ActorPhase::Dead) {
            let cpus = row.resources.as_ref().map_or(0.0, |held| amount(&held.by_name, "CPU"));
            let (Some(node), Some(pid)) = (row.node_id, row.pid) else { continue };
            if cpus <= 0.0 {
                continue;
            }
            let key = (row.actor_id, node, pid);
            let known = self.open.remove(&key);
            let worker = workers.get(&(node, pid)).copied();
            let began = worker.map(|(started_ms, _)| started_ms).filter(|started_ms| *started_ms > 0);
            let holder = Holder {
                name: row.class.as_str().into(),
                worker: worker.map(|(_, worker)| worker),
                pid,
                job: Some(row.job_id),
                actor: Some(row.actor_id),
                group: None,
            };
            let from_ms = known.map_or_else(|| began.unwrap_or(now_ms), |known| known.from_ms);
            let (name, to_ms) = (format!("actor:{}", row.actor_id), None);
            there.insert(key, CpuHolder { key: name, node, cpus, from_ms, to_ms, holder });
        }
        let gone = std::mem::replace(&mut self.open, there);
        self.past.extend(gone.into_values().map(|one| CpuHolder { to_ms: Some(now_ms.max(one.from_ms)), ..one }));
        let surplus = self.past.len().saturating_sub(PAST_MAX);
        self.past.drain(..surplus);
    }

    /// Takes those that may live though the head does not list them (CPUS-3).
    fn unlisted(&mut self, state: &ClusterState) -> BTreeMap<(ActorId, NodeId, u32), CpuHolder> {
        self.is_cut = state.actors.iter().filter(|row| row.state != ActorPhase::Dead).count() >= LISTED_MAX;
        if !self.is_cut {
            return BTreeMap::new();
        }
        let listed: BTreeSet<ActorId> = state.actors.iter().map(|row| row.actor_id).collect();
        let living: BTreeSet<NodeId> = state.nodes.iter().filter(|node| node.alive).map(|node| node.node_id).collect();
        let may_live = |(actor, node, _): &(ActorId, NodeId, u32)| !listed.contains(actor) && living.contains(node);
        let (unlisted, others) = std::mem::take(&mut self.open).into_iter().partition(|(key, _)| may_live(key));
        self.open = others;
        unlisted
    }

    /// What is missing, for people.
    pub(crate) fn note(&self) -> Option<String> {
        self.is_cut.then(|| format!("The CPUs of {LISTED_MAX} actors are told; there may be more actors."))
    }

    /// All of them.
    fn all(&self) -> impl Iterator<Item = &CpuHolder> {
        self.past.iter().chain(self.open.values())
    }
}

/// All who have or had CPUs, as these rows of tasks and what is known of actors say.
pub(crate) fn holders(tasks: &[TaskRow], actors: &CpuActors) -> Vec<CpuHolder> {
    let ran = tasks.iter().filter(|row| row.kind() == TaskKind::Normal && row.started_us > 0).filter_map(|row| {
        let cpus = row.resources.as_ref().map_or(0.0, |needed| amount(&needed.by_name, "CPU"));
        let holder = Holder {
            name: row.name.as_str().into(),
            worker: row.worker_id,
            pid: row.pid.unwrap_or(0),
            job: Some(row.task_id.job()),
            actor: None,
            group: row.surroundings.as_ref().and_then(|around| around.group),
        };
        (cpus > 0.0).then_some(CpuHolder {
            key: format!("task:{}:{}", row.task_id, row.attempt),
            node: row.node_id?,
            cpus,
            from_ms: row.started_us / 1_000,
            to_ms: (row.ended_us > 0).then_some(row.ended_us / 1_000),
            holder,
        })
    });
    ran.chain(actors.all().cloned()).collect()
}

/// From when on all is known that these rows of tasks tell: from the cluster's begin where the head has forgotten nothing.
pub(crate) fn begun_ms(tasks: &[TaskRow], cluster_begun_ms: u64) -> u64 {
    let ended = || tasks.iter().map(|row| row.ended_us).filter(|ended_us| *ended_us > 0);
    if ended().count() <= REMEMBERED_WHOLE_MAX {
        return cluster_begun_ms;
    }
    ended().min().unwrap_or_default() / 1_000
}

/// Holders by their nodes, each with its place among all.
pub(crate) fn by_node(holders: &[CpuHolder]) -> BTreeMap<NodeId, Vec<(usize, &CpuHolder)>> {
    let mut found: BTreeMap<NodeId, Vec<(usize, &CpuHolder)>> = BTreeMap::new();
    for (place, one) in holders.iter().enumerate() {
        found.entry(one.node).or_default().push((place, one));
    }
    found
}

/// The stretches of a node with so many CPUs, each with the place of its holder as its number (CPUS-1).
pub(crate) fn stretches(of_node: &[(usize, &CpuHolder)], cpus: f64) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = of_node
        .iter()
        .filter(|_| cpus > 0.0)
        .map(|(place, one)| Stretch {
            number: *place as u64,
            from_ms: one.from_ms,
            to_ms: one.to_ms,
            used: Use::Held,
            offset: 0,
            share: ((one.cpus / cpus * f64::from(WHOLE)).round() as u32).clamp(1, WHOLE),
            holder: one.holder.clone(),
        })
        .collect();
    all.sort_by_key(|one| (one.from_ms, one.number));
    // Those that last when the next one begins: from where to where they lie, and until when.
    let mut abreast: Vec<(u32, u32, u64)> = Vec::new();
    for one in &mut all {
        abreast.retain(|(.., end)| *end > one.from_ms);
        one.offset = room(&abreast, one.share);
        if abreast.len() < ABREAST_MAX {
            let place = abreast.partition_point(|(offset, ..)| *offset <= one.offset);
            abreast.insert(place, (one.offset, one.offset + one.share, one.to_ms.unwrap_or(u64::MAX)));
        }
    }
    all
}

/// The lowest place with room for that much between these, which are in order; the bottom where there is none.
fn room(taken: &[(u32, u32, u64)], share: u32) -> u32 {
    let mut from = 0;
    for (offset, top, _) in taken {
        if offset.saturating_sub(from) >= share {
            return from;
        }
        from = from.max(*top);
    }
    if from + share <= WHOLE { from } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::TaskId;
    use oxiray_wire::state::{ActorRow, Amounts, WorkerRow};

    const NODE: NodeId = NodeId::new([1; 28]);
    /// One of no actor.
    const TASK: TaskId = TaskId::new([0xff; 24]);

    fn cpus(amount: f64) -> Amounts {
        BTreeMap::from([("CPU".to_owned(), amount)]).into()
    }

    fn task(name: &str, amount: f64, from_ms: u64, to_ms: u64) -> TaskRow {
        TaskRow {
            task_id: TASK,
            name: name.into(),
            node_id: Some(NODE),
            resources: Some(cpus(amount)),
            started_us: from_ms * 1_000,
            ended_us: to_ms * 1_000,
            ..TaskRow::default()
        }
    }

    #[test]
    fn tasks_lie_above_each_other_and_rooms_are_used_again() {
        let waits = TaskRow { started_us: 0, ..task("waits", 1.0, 0, 0) };
        let elsewhere = TaskRow { node_id: Some(NodeId::new([2; 28])), ..task("elsewhere", 1.0, 1, 0) };
        let rows = [
            task("a", 1.0, 10, 20),
            task("b", 2.0, 15, 0),
            task("c", 1.0, 20, 30),
            task("none", 0.0, 10, 20),
            task("d", 4.0, 25, 30),
            waits,
            elsewhere,
        ];
        let holders = holders(&rows, &CpuActors::default());
        let told: Vec<_> = stretches(&by_node(&holders)[&NODE], 4.0)
            .into_iter()
            .map(|one| (one.holder.name.to_string(), one.from_ms, one.to_ms, one.offset, one.share))
            .collect();
        let expected = [
            ("a", 10, Some(20), 0, 2_500),
            ("b", 15, None, 2_500, 5_000),
            ("c", 20, Some(30), 0, 2_500),
            // More than there is, since others lend theirs: it lies over them.
            ("d", 25, Some(30), 0, 10_000),
        ];
        assert_eq!(told, expected.map(|(name, from, to, offset, share)| (name.to_owned(), from, to, offset, share)));
        assert_eq!(holders[0].key, format!("task:{TASK}:0"));
    }

    #[test]
    fn an_actor_has_its_cpus_until_its_process_is_gone() {
        let row = ActorRow {
            actor_id: ActorId::default(),
            class: "Counter".into(),
            node_id: Some(NODE),
            pid: Some(7),
            resources: Some(cpus(0.5)),
            state: ActorPhase::Alive,
            ..ActorRow::default()
        };
        let worker = WorkerRow { node: Some(NODE), pid: Some(7), started_ms: 40, ..WorkerRow::default() };
        let state =
            |actors: Vec<ActorRow>| ClusterState { actors, workers: vec![worker.clone()], ..ClusterState::default() };
        let mut actors = CpuActors::default();
        let told = |actors: &CpuActors| -> Vec<(u64, Option<u64>, Option<u32>)> {
            holders(&[], actors).iter().map(|one| (one.from_ms, one.to_ms, Some(one.holder.pid))).collect()
        };
        actors.look(&state(vec![row.clone()]), 100);
        actors.look(&state(vec![row.clone()]), 200);
        assert_eq!(told(&actors), [(40, None, Some(7))]);
        // It is made anew elsewhere, and dies.
        actors.look(&state(vec![ActorRow { pid: Some(8), ..row.clone() }]), 300);
        assert_eq!(told(&actors), [(40, Some(300), Some(7)), (300, None, Some(8))]);
        actors.look(&state(vec![ActorRow { state: ActorPhase::Dead, ..row.clone() }]), 400);
        assert_eq!(told(&actors)[1], (300, Some(400), Some(8)));
        for pid in 0..2 * PAST_MAX as u32 {
            actors.look(&state(vec![ActorRow { pid: Some(pid), ..row.clone() }]), 500);
        }
        assert_eq!(told(&actors).len(), PAST_MAX + 1);
    }

    #[test]
    fn an_actor_that_is_beyond_what_the_head_lists_keeps_its_cpus() {
        use oxiray_wire::state::NodeRow;
        let row = |number: u32| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            ActorRow {
                actor_id: ActorId::new(id),
                node_id: Some(NODE),
                pid: Some(number),
                resources: Some(cpus(0.5)),
                state: ActorPhase::Alive,
                ..ActorRow::default()
            }
        };
        let state = |numbers: std::ops::Range<u32>, alive| ClusterState {
            actors: numbers.map(row).collect(),
            nodes: vec![NodeRow { node_id: NODE, alive, ..NodeRow::default() }],
            ..ClusterState::default()
        };
        let mut actors = CpuActors::default();
        let held = |actors: &CpuActors| (actors.open.len(), actors.past.len(), actors.note().is_some());
        let most = LISTED_MAX as u32;
        actors.look(&state(0..most - 1, true), 100);
        assert_eq!(held(&actors), (LISTED_MAX - 1, 0, false));
        // Others come before the first ten, which are not listed any more.
        actors.look(&state(10..most + 10, true), 200);
        assert_eq!(held(&actors), (LISTED_MAX + 10, 0, true));
        let mut moved = state(10..most + 10, true);
        moved.actors[0].pid = Some(9);
        actors.look(&moved, 300);
        assert_eq!(held(&actors), (LISTED_MAX + 10, 1, true), "one that is listed is where the list says");
        actors.look(&state(10..most + 10, false), 400);
        assert_eq!(held(&actors), (LISTED_MAX, 12, true), "their node is gone");
        actors.look(&state(20..30, true), 500);
        assert_eq!((actors.open.len(), actors.note()), (10, None));
    }

    #[test]
    fn what_the_head_has_forgotten_is_not_known() {
        let few: Vec<TaskRow> = (1..10).map(|at| task("f", 1.0, at, at + 1)).collect();
        assert_eq!(begun_ms(&few, 3), 3);
        let many = |count: usize| (0..count as u64).map(|at| task("f", 1.0, 100 + at, 101 + at)).collect::<Vec<_>>();
        assert_eq!(begun_ms(&many(REMEMBERED_WHOLE_MAX), 3), 3);
        assert_eq!(begun_ms(&many(REMEMBERED_WHOLE_MAX + 1), 3), 101);
    }

    #[test]
    fn a_great_many_at_once_are_placed_in_bounded_time() {
        let rows: Vec<TaskRow> = (1..=5 * ABREAST_MAX as u64).map(|at| task("f", 1.0, at, 0)).collect();
        let holders = holders(&rows, &CpuActors::default());
        let all = stretches(&by_node(&holders)[&NODE], 4.0);
        assert_eq!(all.len(), rows.len());
        assert!(all[..4].iter().map(|one| one.offset).eq([0, 2_500, 5_000, 7_500]));
        assert!(all.iter().all(|one| one.offset + one.share <= WHOLE));
    }
}
