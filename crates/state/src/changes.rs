//! A copy of lists that follows their changes, as a visitor keeps it.

use crate::columns::Row;
use bytes::Bytes;
use oxiray_wire::message::{StateChanges, StateCursor};
use oxiray_wire::state::{ActorRow, EnvironmentRow, GroupRow, JobRow, NodeRow, StateKind, Tables, WorkerRow};
use std::collections::BTreeMap;

/// The lists that can be followed: those that the head makes without asking anybody.
pub const FOLLOWED: [StateKind; 6] = [
    StateKind::Actors,
    StateKind::Jobs,
    StateKind::Nodes,
    StateKind::PlacementGroups,
    StateKind::RuntimeEnvs,
    StateKind::Workers,
];

/// Rows by what names them.
pub type RowsByKey<R> = BTreeMap<Bytes, R>;

/// The lists that are followed, as they were at the cursor.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StateCopy {
    cursor: StateCursor,
    /// Actors.
    pub actors: RowsByKey<ActorRow>,
    /// Jobs.
    pub jobs: RowsByKey<JobRow>,
    /// Nodes.
    pub nodes: RowsByKey<NodeRow>,
    /// Placement groups.
    pub placement_groups: RowsByKey<GroupRow>,
    /// Runtime environments in use.
    pub runtime_envs: RowsByKey<EnvironmentRow>,
    /// Workers and drivers.
    pub workers: RowsByKey<WorkerRow>,
}

impl StateCopy {
    /// Up to where changes are known.
    pub fn cursor(&self) -> StateCursor {
        self.cursor
    }

    /// Takes in what changed since the cursor. Returns whether that is all that there was.
    pub fn apply(&mut self, changes: StateChanges) -> bool {
        if changes.is_fresh {
            *self = Self::default();
        }
        for gone in &changes.gone {
            match gone.kind {
                StateKind::Actors => drop(self.actors.remove(&gone.key)),
                StateKind::Jobs => drop(self.jobs.remove(&gone.key)),
                StateKind::Nodes => drop(self.nodes.remove(&gone.key)),
                StateKind::PlacementGroups => drop(self.placement_groups.remove(&gone.key)),
                StateKind::RuntimeEnvs => drop(self.runtime_envs.remove(&gone.key)),
                StateKind::Workers => drop(self.workers.remove(&gone.key)),
                // They are not followed.
                StateKind::Tasks
                | StateKind::Timeline
                | StateKind::Objects
                | StateKind::Explain
                | StateKind::Stacks => {}
            }
        }
        let Tables { actors, jobs, nodes, placement_groups, runtime_envs, workers, .. } =
            changes.tables.unwrap_or_default();
        keep(&mut self.actors, actors);
        keep(&mut self.jobs, jobs);
        keep(&mut self.nodes, nodes);
        keep(&mut self.placement_groups, placement_groups);
        keep(&mut self.runtime_envs, runtime_envs);
        keep(&mut self.workers, workers);
        self.cursor = changes.cursor.unwrap_or_default();
        !changes.has_more
    }
}

fn keep<R: Row>(rows: &mut RowsByKey<R>, changed: Vec<R>) {
    rows.extend(changed.into_iter().map(|row| (row.key(), row)));
}
