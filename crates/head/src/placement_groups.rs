//! Placement groups: who made them, where their bundles are, who waits for them, and when they end.
//!
//! ```text
//!            placed              every machine prepared
//! Pending ───────────▶ Prepared ───────────────────────▶ Created ──▶ Removed
//!    ▲                    │ one refused                     │ a machine died
//!    └────────────────────┴──── Rescheduling ◀──────────────┘
//! ```
//!
//! - GROUPS-1: a group is created once every machine that was chosen has set its bundles aside; where one refuses, the
//!   others are told to give theirs back.
//! - GROUPS-2: a name belongs to one group that is not removed.
//! - GROUPS-3: a group is removed once, and whoever waits for it is told.

mod reservations;

use oxiray_ids::{ActorId, JobId, NodeId, PlacementGroupId, WorkerId};
use oxiray_scheduler::Group;
use oxiray_wire::state::GroupState;
pub(crate) use reservations::{GroupTable, Reservation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How many removed groups are remembered, with the reason.
pub(crate) const REMOVED_GROUPS_KEPT: usize = 1000;

/// With whom a group ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupOwner {
    /// The job that made it.
    Job(JobId),
    /// The detached actor that made it.
    Actor(ActorId),
    /// Nobody: it is detached.
    Nobody,
}

/// What is said of a group when it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupDescription {
    /// Which it is.
    pub id: PlacementGroupId,
    /// The job that made it.
    pub job: JobId,
    /// With whom it ends.
    pub owner: GroupOwner,
    /// Its name; empty for none.
    pub name: String,
    /// Where the name lives.
    pub namespace: String,
    /// What it asks for.
    pub group: Arc<Group>,
}

/// Where a group is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupPhase {
    /// It waits for room.
    Pending,
    /// Machines are chosen for these bundles; those that have not answered yet are named.
    Prepared {
        /// The bundles that were missing.
        offered: Vec<usize>,
        /// The machines that are asked.
        awaited: BTreeSet<NodeId>,
    },
    /// All its bundles are set aside.
    Created,
    /// It was created, and waits for room for bundles whose machine died.
    Rescheduling,
    /// For good, for this reason.
    Removed(String),
}

impl GroupPhase {
    /// How far a group is, for people and programs.
    pub(crate) fn state(&self) -> GroupState {
        match self {
            Self::Pending => GroupState::Pending,
            Self::Rescheduling => GroupState::Rescheduling,
            Self::Prepared { .. } => GroupState::Prepared,
            Self::Created => GroupState::Created,
            Self::Removed(_) => GroupState::Removed,
        }
    }
}

/// One group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacementGroup {
    /// What was said of it.
    pub description: GroupDescription,
    /// Where it is in its life.
    pub phase: GroupPhase,
    /// The machine of each bundle, where it has one.
    pub nodes: Vec<Option<NodeId>>,
    was_created: bool,
}

impl PlacementGroup {
    /// The bundles without a machine.
    pub(crate) fn missing(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|bundle| self.nodes[*bundle].is_none()).collect()
    }

    /// The machine of each bundle that was set aside for good: not of those that are being tried.
    pub(crate) fn kept_nodes(&self) -> Vec<Option<NodeId>> {
        let offered: &[usize] = match &self.phase {
            GroupPhase::Prepared { offered, .. } => offered,
            _ => &[],
        };
        let kept = self.nodes.iter().enumerate();
        kept.map(|(bundle, node)| node.filter(|_| !offered.contains(&bundle))).collect()
    }

    /// Whether it was ever created.
    pub(crate) fn was_created(&self) -> bool {
        self.was_created
    }

    fn waits_again(&mut self) {
        self.phase = if self.was_created { GroupPhase::Rescheduling } else { GroupPhase::Pending };
    }
}

/// What became of a request to make a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupCreated {
    /// It is made, and waits for room.
    New,
    /// Another has the name (GROUPS-2).
    NameTaken(PlacementGroupId),
    /// The identifier was used before.
    Duplicate,
}

/// What becomes of a request to hear that a group is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// It is.
    Now,
    /// When it is: [`PlacementGroups::prepared`] and [`PlacementGroups::remove`] name who waits.
    Later,
    /// Never: it was removed for this reason.
    Removed(String),
    /// Never: nobody made it, or it was removed so long ago that it is forgotten.
    Unknown,
}

/// A client, and the number of its question.
type Waiter = (WorkerId, u64);

/// All placement groups of a session.
#[derive(Debug, Default)]
pub(crate) struct PlacementGroups {
    by_id: BTreeMap<PlacementGroupId, PlacementGroup>,
    names: BTreeMap<(String, String), PlacementGroupId>,
    of_jobs: BTreeMap<JobId, BTreeSet<PlacementGroupId>>,
    of_actors: BTreeMap<ActorId, BTreeSet<PlacementGroupId>>,
    waiters: BTreeMap<PlacementGroupId, Vec<Waiter>>,
    removed: VecDeque<PlacementGroupId>,
    /// Those that came into another state, in order.
    moves: Vec<(PlacementGroupId, GroupState)>,
}

impl PlacementGroups {
    /// Makes a group.
    pub(crate) fn create(&mut self, description: GroupDescription) -> GroupCreated {
        let id = description.id;
        if self.by_id.contains_key(&id) {
            return GroupCreated::Duplicate;
        }
        if !description.name.is_empty() {
            let name = (description.namespace.clone(), description.name.clone());
            match self.names.get(&name) {
                Some(holder) => return GroupCreated::NameTaken(*holder),
                None => self.names.insert(name, id),
            };
        }
        match description.owner {
            GroupOwner::Job(job) => drop(self.of_jobs.entry(job).or_default().insert(id)),
            GroupOwner::Actor(actor) => drop(self.of_actors.entry(actor).or_default().insert(id)),
            GroupOwner::Nobody => {}
        }
        let nodes = vec![None; description.group.bundles.len()];
        self.by_id.insert(id, PlacementGroup { description, phase: GroupPhase::Pending, nodes, was_created: false });
        self.moves.push((id, GroupState::Pending));
        GroupCreated::New
    }

    /// A group as another head knew it, with the machines of the bundles that it still has. `false` where it has a bundle
    /// without one, or was never created: then it waits for room.
    pub(crate) fn restore(
        &mut self,
        description: GroupDescription,
        nodes: Vec<Option<NodeId>>,
        was_created: bool,
    ) -> bool {
        let id = description.id;
        self.create(description);
        self.moves.pop();
        let Some(group) = self.by_id.get_mut(&id) else { return true };
        let is_whole = was_created && nodes.iter().all(Option::is_some);
        (group.nodes, group.was_created) = (nodes, was_created);
        group.waits_again();
        if is_whole {
            group.phase = GroupPhase::Created;
        }
        is_whole
    }

    /// There is room: `chosen` are the machines for its missing bundles, in their order. Returns the machines that are to
    /// set bundles aside; none where the group does not wait.
    ///
    /// # Panics
    /// Where there is not one machine for each missing bundle.
    pub(crate) fn placed(&mut self, id: PlacementGroupId, chosen: &[NodeId]) -> BTreeSet<NodeId> {
        let Some(group) = self.by_id.get_mut(&id) else { return BTreeSet::new() };
        if !matches!(group.phase, GroupPhase::Pending | GroupPhase::Rescheduling) {
            return BTreeSet::new();
        }
        let offered = group.missing();
        assert_eq!(offered.len(), chosen.len(), "GROUPS-1: each bundle has a machine");
        for (bundle, node) in offered.iter().zip(chosen) {
            group.nodes[*bundle] = Some(*node);
        }
        let awaited: BTreeSet<NodeId> = chosen.iter().copied().collect();
        group.phase = GroupPhase::Prepared { offered, awaited: awaited.clone() };
        awaited
    }

    /// A machine has set its bundles aside. With the last of them the group is created: returns who waits for that;
    /// `None` where it is not, or not waited for that machine.
    pub(crate) fn prepared(&mut self, id: PlacementGroupId, node: NodeId) -> Option<Vec<Waiter>> {
        let group = self.by_id.get_mut(&id)?;
        let GroupPhase::Prepared { awaited, .. } = &mut group.phase else { return None };
        if !awaited.remove(&node) || !awaited.is_empty() {
            return None;
        }
        group.phase = GroupPhase::Created;
        group.was_created = true;
        self.moves.push((id, GroupState::Created));
        Some(self.waiters.remove(&id).unwrap_or_default())
    }

    /// A machine has no room after all: the group waits again. Returns the machines that are to give back what they set
    /// aside for it, or will.
    pub(crate) fn refused(&mut self, id: PlacementGroupId, node: NodeId) -> BTreeSet<NodeId> {
        let Some(group) = self.by_id.get_mut(&id) else { return BTreeSet::new() };
        let GroupPhase::Prepared { offered, .. } = &group.phase else { return BTreeSet::new() };
        let offered = offered.clone();
        let asked: BTreeSet<NodeId> = offered.iter().filter_map(|bundle| group.nodes[*bundle].take()).collect();
        group.waits_again();
        asked.into_iter().filter(|asked| *asked != node).collect()
    }

    /// The group's bundles leave a machine, whole: the group waits for others in their place. Returns which.
    pub(crate) fn moved(&mut self, id: PlacementGroupId, node: NodeId) -> Vec<usize> {
        let Some(group) = self.by_id.get_mut(&id) else { return Vec::new() };
        if !matches!(group.phase, GroupPhase::Created | GroupPhase::Rescheduling) {
            return Vec::new();
        }
        let of_node = group.nodes.iter_mut().enumerate().filter(|(_, on)| **on == Some(node));
        let moved = of_node.map(|(bundle, on)| (bundle, on.take()).0).collect();
        group.waits_again();
        self.moves.push((id, group.phase.state()));
        moved
    }

    /// A machine is gone, and bundles with it. Returns the groups that wait again because of that, each with the machines
    /// that are to give back what they set aside and did not keep.
    pub(crate) fn machine_died(&mut self, node: NodeId) -> Vec<(PlacementGroupId, BTreeSet<NodeId>)> {
        let hit = self
            .by_id
            .iter()
            .filter(|(_, group)| !matches!(group.phase, GroupPhase::Removed(_)) && group.nodes.contains(&Some(node)));
        let mut again = Vec::new();
        for id in hit.map(|(id, _)| *id).collect::<Vec<_>>() {
            let undone = self.refused(id, node);
            let group = self.by_id.get_mut(&id).expect("it was just looked at");
            group.nodes.iter_mut().filter(|on| **on == Some(node)).for_each(|on| *on = None);
            group.waits_again();
            self.moves.push((id, group.phase.state()));
            again.push((id, undone));
        }
        again
    }

    /// The group is no more. Returns who waited for it; `None` where there is none, or it was removed before (GROUPS-3).
    pub(crate) fn remove(&mut self, id: PlacementGroupId, why: &str) -> Option<Vec<Waiter>> {
        let group = self.by_id.get_mut(&id).filter(|group| !matches!(group.phase, GroupPhase::Removed(_)))?;
        group.phase = GroupPhase::Removed(why.to_owned());
        self.moves.push((id, GroupState::Removed));
        let description = &group.description;
        if !description.name.is_empty() {
            self.names.remove(&(description.namespace.clone(), description.name.clone()));
        }
        match description.owner {
            GroupOwner::Job(job) => forget(&mut self.of_jobs, job, id),
            GroupOwner::Actor(actor) => forget(&mut self.of_actors, actor, id),
            GroupOwner::Nobody => {}
        }
        self.removed.push_back(id);
        if self.removed.len() > REMOVED_GROUPS_KEPT
            && let Some(forgotten) = self.removed.pop_front()
        {
            self.by_id.remove(&forgotten);
        }
        Some(self.waiters.remove(&id).unwrap_or_default())
    }

    /// A client wants to hear when the group is there.
    pub(crate) fn await_created(&mut self, id: PlacementGroupId, client: WorkerId, question: u64) -> Awaited {
        match self.by_id.get(&id).map(|group| &group.phase) {
            None => Awaited::Unknown,
            Some(GroupPhase::Removed(why)) => Awaited::Removed(why.clone()),
            Some(GroupPhase::Created) => Awaited::Now,
            Some(GroupPhase::Pending | GroupPhase::Prepared { .. } | GroupPhase::Rescheduling) => {
                self.waiters.entry(id).or_default().push((client, question));
                Awaited::Later
            }
        }
    }

    /// A client is gone; nobody tells it anything.
    pub(crate) fn client_died(&mut self, client: WorkerId) {
        self.waiters.values_mut().for_each(|waiters| waiters.retain(|(waiting, _)| *waiting != client));
        self.waiters.retain(|_, waiters| !waiters.is_empty());
    }

    /// Which came into which state since this was last called, in order.
    pub(crate) fn take_moves(&mut self) -> Vec<(PlacementGroupId, GroupState)> {
        std::mem::take(&mut self.moves)
    }

    /// The groups that end with this job.
    pub(crate) fn of_job(&self, job: JobId) -> Vec<PlacementGroupId> {
        self.of_jobs.get(&job).into_iter().flatten().copied().collect()
    }

    /// The groups that end with this actor.
    pub(crate) fn of_actor(&self, actor: ActorId) -> Vec<PlacementGroupId> {
        self.of_actors.get(&actor).into_iter().flatten().copied().collect()
    }

    /// The group of that name that is not removed.
    pub(crate) fn lookup(&self, namespace: &str, name: &str) -> Option<&PlacementGroup> {
        self.names.get(&(namespace.to_owned(), name.to_owned())).and_then(|id| self.by_id.get(id))
    }

    /// The group, where it is there or remembered.
    pub(crate) fn get(&self, id: PlacementGroupId) -> Option<&PlacementGroup> {
        self.by_id.get(&id)
    }

    /// All groups that are there or remembered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PlacementGroup> {
        self.by_id.values()
    }

    /// How many clients wait for a group.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.values().map(Vec::len).sum()
    }
}

fn forget<K: Ord + Copy>(index: &mut BTreeMap<K, BTreeSet<PlacementGroupId>>, key: K, id: PlacementGroupId) {
    if let Some(ids) = index.get_mut(&key) {
        ids.remove(&id);
        if ids.is_empty() {
            index.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
