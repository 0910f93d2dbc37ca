//! Placement groups: asked for, awaited, removed.

use crate::fresh_groups::Known;
use crate::links::DAEMON;
use crate::objects::{copy, failed};
use crate::questions::Answer;
use crate::runtime::{Runtime, RuntimeError, unexpected};
use crate::state::State;
use oxiray_ids::{ActorId, ObjectId, PlacementGroupId};
use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_wire::Message;
use oxiray_wire::message::{GroupAnswer, GroupAwait, GroupBundle, GroupCreate, GroupQuery, GroupRemove, Value};

/// The most bundles of a group that is taken for granted.
const PLAIN_BUNDLES_MAX: usize = 64;

impl Runtime {
    /// Makes a group, which waits for room; `create` lacks its identifier and the number of the request.
    ///
    /// Whether a name is free only the daemon knows, and a detached group must reach it whatever becomes of this process:
    /// those are waited for. A plain one is taken for granted; where the daemon refuses it after all, whoever waits for
    /// the group is told.
    pub fn create_group(&self, mut create: GroupCreate) -> Result<PlacementGroupId, RuntimeError> {
        let id = self.shared.with(|state| PlacementGroupId::generate(state.identity.job, &mut state.unique));
        create.group = copy(id.as_bytes());
        if is_plain(&create) {
            create.tells_when_created = true;
            return self.shared.with(|state| {
                if let Some(failure) = &state.lost {
                    return Err(RuntimeError::Failed(failure.clone()));
                }
                create.request = state.questions.forget();
                state.fresh_groups.asked(create.request, id);
                let (request, message) = (create.request, create.into());
                state.note_question(request, &message);
                state.links.post_soon(DAEMON, &message);
                Ok(id)
            });
        }
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
            let State { objects, fresh_groups, awaited_groups, questions, .. } = state;
            let value = match fresh_groups.awaited(group, id, value, |object| objects.contains(object)) {
                Known::Created(value) => return state.resolved(id, value),
                Known::Refused(failure) => return state.resolved(id, failed(failure)),
                Known::Later => return id,
                Known::Nothing(value) => value,
            };
            let is_known = |object| objects.contains(object);
            if let Some(request) = awaited_groups.join(group, id, value, is_known, || questions.forget()) {
                let message = GroupAwait { request, group: copy(group.as_bytes()) }.into();
                state.note_question(request, &message);
                state.links.post_now(DAEMON, &message);
            }
            id
        })
    }

    /// Gives a group up; what runs within it is killed.
    pub fn remove_group(&self, group: PlacementGroupId) {
        let message = GroupRemove { group: copy(group.as_bytes()) }.into();
        self.shared.with(|state| {
            state.fresh_groups.forget(group);
            state.awaited_groups.forget(group);
            state.demand(message);
        });
    }

    /// Whether the group is known to be created, without asking; that is told once.
    pub fn take_created(&self, group: PlacementGroupId) -> bool {
        self.shared.with(|state| state.fresh_groups.take_created(group))
    }

    /// Others are about to be told of the group: the daemon knows of it before they do.
    pub fn share_group(&self, group: PlacementGroupId) {
        if self.shared.with(|state| state.fresh_groups.forget(group)) {
            // The daemon answers in order, so that any answer will do. Without a daemon nobody can be told anything.
            drop(self.groups(Some(group), ""));
        }
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
        self.news = true;
        self.questions.settled(answer.request);
        let fresh = self.fresh_groups.answered(answer.request, answer.failure.as_ref());
        let Some(awaiting) = fresh.or_else(|| self.awaited_groups.answered(answer.request)) else {
            drop(self.questions.answer(Message::GroupAnswer(answer), None));
            return;
        };
        for (id, value) in awaiting.into_objects() {
            if self.objects.contains(id) {
                self.resolve(id, answer.failure.clone().map_or(value, failed), 0, 0);
            }
        }
    }

    fn resolved(&mut self, id: ObjectId, value: Value) -> ObjectId {
        self.resolve(id, value, 0, 0);
        id
    }
}

/// Whether nothing but the end of its job keeps the daemon from taking the group on.
fn is_plain(create: &GroupCreate) -> bool {
    let is_sound = |bundle: &GroupBundle| {
        let named = bundle
            .demand
            .iter()
            .map(|amount| ResourceName::new(&amount.resource).map(|name| (name, Quantity::from_units(amount.units))));
        let demand = named.collect::<Result<Vec<_>, _>>().ok().and_then(|named| Demand::new(named).ok());
        demand.is_some_and(|demand| !demand.is_nothing())
    };
    let count = create.bundles.len();
    create.name.is_empty()
        && !create.detached
        && (1..=PLAIN_BUNDLES_MAX).contains(&count)
        && create.bundles.iter().all(is_sound)
}
