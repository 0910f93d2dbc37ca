//! Placement groups, as the language front uses them.

use crate::core::client::groups::is_plain;
use crate::core::questions::DaemonAnswer;
use crate::runtime::{Runtime, RuntimeError, unexpected};
use crate::shell::State;
use oxiray_ids::{ObjectId, PlacementGroupId};
use oxiray_wire::message::{GroupCreate, GroupQuery, Value};
use oxiray_wire::state::GroupRow;

impl Runtime {
    /// Makes a group, which waits for room; `create` lacks its identifier and the number of the request.
    ///
    /// Whether a name is free only the daemon knows, and a detached group must reach it whatever becomes of this process:
    /// those are waited for. A plain one is taken for granted; where the daemon refuses it after all, whoever waits for
    /// the group is told.
    pub fn create_group(&self, mut create: GroupCreate) -> Result<PlacementGroupId, RuntimeError> {
        let id = self.shared.with(State::name_group);
        create.group = id;
        if is_plain(&create) {
            let asked = self.shared.with_time(|state| state.create_plain_group(id, create));
            return asked.map(|()| id).map_err(RuntimeError::Failed);
        }
        match self.ask(|request| GroupCreate { request, ..create }.into())? {
            DaemonAnswer::Group(mut answer) => {
                answer.failure.take().map_or(Ok(id), |failure| Err(RuntimeError::Failed(failure)))
            }
            _ => Err(unexpected()),
        }
    }

    /// An object that gets `value` when the group is created, and a failure where it is removed before. It has one
    /// reference.
    pub fn group_ready(&self, group: PlacementGroupId, value: Value) -> ObjectId {
        self.shared.with(|state| state.group_ready(group, value))
    }

    /// Gives a group up; what runs within it is killed.
    pub fn remove_group(&self, group: PlacementGroupId) {
        self.shared.with_time(|state| state.remove_group(group));
    }

    /// Whether the group is known to be created, without asking; that is told once.
    pub fn take_created(&self, group: PlacementGroupId) -> bool {
        self.shared.with(|state| state.groups.fresh.take_created(group))
    }

    /// Others are about to be told of the group: the daemon knows of it before they do.
    pub fn share_group(&self, group: PlacementGroupId) {
        if self.shared.with(|state| state.groups.fresh.forget(group)) {
            // The daemon answers in order, so that any answer will do. Without a daemon nobody can be told anything.
            drop(self.groups(Some(group), ""));
        }
    }

    /// What there is to know of one group, of the one with this name, or of all.
    pub fn groups(&self, group: Option<PlacementGroupId>, name: &str) -> Result<Vec<GroupRow>, RuntimeError> {
        match self.ask(|request| GroupQuery { request, group, name: name.to_owned() }.into())? {
            DaemonAnswer::Groups(report) => Ok(report.groups),
            _ => Err(unexpected()),
        }
    }
}
