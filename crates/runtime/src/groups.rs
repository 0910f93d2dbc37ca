//! Placement groups: asked for, awaited, removed.

use crate::links::DAEMON;
use crate::objects::{copy, failed};
use crate::questions::Answer;
use crate::runtime::{Runtime, RuntimeError, unexpected};
use crate::state::State;
use oxiray_ids::{ActorId, ObjectId, PlacementGroupId};
use oxiray_wire::Message;
use oxiray_wire::message::{GroupAnswer, GroupAwait, GroupCreate, GroupQuery, GroupRemove, Value};

impl Runtime {
    /// Makes a group, which waits for room; `create` lacks its identifier and the number of the request.
    pub fn create_group(&self, mut create: GroupCreate) -> Result<PlacementGroupId, RuntimeError> {
        let id = self.shared.with(|state| PlacementGroupId::generate(state.identity.job, &mut state.unique));
        create.group = copy(id.as_bytes());
        match self.ask(|request| GroupCreate { request, ..create }.into())? {
            Answer::Group(mut answer) => {
                answer.failure.take().map_or(Ok(id), |failure| Err(RuntimeError::Failed(failure)))
            }
            _ => Err(unexpected()),
        }
    }

    /// An object that gets `value` when the group is created, and a failure where it is removed before. It has one
    /// reference.
    pub fn group_ready(&self, group: PlacementGroupId, value: Value) -> ObjectId {
        self.shared.with(|state| {
            let id = state.new_task(ActorId::nil_of(state.identity.job)).object(1);
            state.objects.expect(id);
            if let Some(failure) = state.lost.clone() {
                state.resolve(id, failed(failure), 0, 0);
                return id;
            }
            let request = state.questions.forget();
            state.awaited_groups.insert(request, (id, value));
            state.links.post_now(DAEMON, &GroupAwait { request, group: copy(group.as_bytes()) }.into());
            id
        })
    }

    /// Gives a group up; what runs within it is killed.
    pub fn remove_group(&self, group: PlacementGroupId) {
        let message = GroupRemove { group: copy(group.as_bytes()) }.into();
        self.shared.with(|state| state.links.post_now(DAEMON, &message));
    }

    /// What there is to know of one group, of the one with this name, or of all: a JSON array.
    pub fn groups(&self, group: Option<PlacementGroupId>, name: &str) -> Result<String, RuntimeError> {
        let group = group.map(|group| copy(group.as_bytes())).unwrap_or_default();
        match self.ask(|request| GroupQuery { request, group, name: name.to_owned() }.into())? {
            Answer::Groups(report) => Ok(report.groups),
            _ => Err(unexpected()),
        }
    }
}

impl State {
    /// The answer to a question about a group: for an object that stands for it, or for whoever asked.
    pub(crate) fn group_answered(&mut self, answer: GroupAnswer) {
        match self.awaited_groups.remove(&answer.request) {
            Some((id, value)) => self.resolve(id, answer.failure.map_or(value, failed), 0, 0),
            None => drop(self.questions.answer(Message::GroupAnswer(answer), None)),
        }
        self.news = true;
    }
}
