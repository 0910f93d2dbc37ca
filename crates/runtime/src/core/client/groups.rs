//! Placement groups: asked for, awaited, removed.

use crate::core::client::Client;
use crate::core::fresh_groups::Known;
use crate::core::io::{DAEMON, Io};
use crate::core::objects::failed;
use crate::core::questions::DaemonAnswer;
use oxiray_ids::{ActorId, ObjectId, PlacementGroupId};
use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_wire::message::{Failure, GroupAnswer, GroupAwait, GroupBundle, GroupCreate, GroupRemove, Value};

/// The most bundles of a group that is taken for granted.
const PLAIN_BUNDLES_MAX: usize = 64;

impl<I: Io> Client<I> {
    /// The identifier of a group that is to be made.
    pub fn name_group(&mut self) -> PlacementGroupId {
        PlacementGroupId::generate(self.identity.job, &mut self.calls.unique)
    }

    /// Makes a group that is taken for granted, named by [`Client::name_group`].
    pub fn create_plain_group(&mut self, group: PlacementGroupId, mut create: GroupCreate) -> Result<(), Failure> {
        if let Some(failure) = &self.daemon.lost {
            return Err(failure.clone());
        }
        create.tells_when_created = true;
        create.request = self.daemon.questions.forget();
        self.groups.fresh.asked(create.request, group);
        let (request, message) = (create.request, create.into());
        self.note_question(request, &message);
        self.io.send_soon(DAEMON, &message);
        Ok(())
    }

    /// An object that gets `value` when the group is created, and a failure where it is removed before. It has one
    /// reference.
    pub fn group_ready(&mut self, group: PlacementGroupId, value: Value) -> ObjectId {
        let id = self.new_task(ActorId::nil_of(self.identity.job)).object(1);
        self.objects.expect(id);
        if let Some(failure) = self.daemon.lost.clone() {
            return self.resolved(id, failed(failure));
        }
        let objects = &self.objects;
        let is_known = |object| objects.contains(object);
        let value = match self.groups.fresh.awaited(group, id, value, is_known) {
            Known::Created(value) => return self.resolved(id, value),
            Known::Refused(failure) => return self.resolved(id, failed(failure)),
            Known::Later => return id,
            Known::Nothing(value) => value,
        };
        let questions = &mut self.daemon.questions;
        if let Some(request) = self.groups.awaited.join(group, id, value, is_known, || questions.forget()) {
            let message = GroupAwait { request, group }.into();
            self.note_question(request, &message);
            self.io.send_now(DAEMON, &message);
        }
        id
    }

    /// Gives a group up; what runs within it is killed.
    pub fn remove_group(&mut self, group: PlacementGroupId) {
        self.groups.fresh.forget(group);
        self.groups.awaited.forget(group);
        self.demand(GroupRemove { group }.into());
    }

    /// The answer to a question about a group: for an object that stands for it, or for whoever asked.
    pub(crate) fn group_answered(&mut self, answer: GroupAnswer) {
        self.signals.changed = true;
        self.daemon.questions.settled(answer.request);
        let fresh = self.groups.fresh.answered(answer.request, answer.failure.as_ref());
        let Some(awaiting) = fresh.or_else(|| self.groups.awaited.answered(answer.request)) else {
            self.settle_question(answer.request, DaemonAnswer::Group(Box::new(answer)));
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
pub(crate) fn is_plain(create: &GroupCreate) -> bool {
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
