//! Placement groups that somebody in this process waits for: one question to the daemon for each, however many wait.
//!
//! A wait that is given up leaves its object unreferred to; such objects are let go of when they are as many as those
//! that still wait, so that a group which is polled costs no more than one that is waited for.

use oxiray_ids::{ObjectId, PlacementGroupId};
use oxiray_wire::message::Value;
use rustc_hash::FxHashMap;

/// How many may wait for a group before it is looked whether they still do.
const UNCHECKED_MAX: usize = 16;

/// Objects that stand for a group, each with its value once the group is created.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Awaiting {
    objects: Vec<(ObjectId, Value)>,
    /// How many there may be before they are looked at again.
    unchecked: usize,
}

impl Awaiting {
    /// One more; those of which nobody knows any more are forgotten.
    pub(crate) fn push(&mut self, object: ObjectId, value: Value, is_known: impl Fn(ObjectId) -> bool) {
        if self.objects.len() >= self.unchecked.max(UNCHECKED_MAX) {
            self.objects.retain(|(object, _)| is_known(*object));
            self.unchecked = 2 * self.objects.len();
        }
        self.objects.push((object, value));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether this object stands for the group.
    pub(crate) fn contains(&self, object: ObjectId) -> bool {
        self.objects.iter().any(|(known, _)| *known == object)
    }

    pub(crate) fn into_objects(self) -> Vec<(ObjectId, Value)> {
        self.objects
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct AwaitedGroups {
    awaiting: FxHashMap<u64, (PlacementGroupId, Awaiting)>,
    /// The open question about each group, where its answer will do for whoever comes.
    questions: FxHashMap<PlacementGroupId, u64>,
}

impl AwaitedGroups {
    /// An object waits for the group. Returns the number of the question to ask, where none is open: `number` makes it.
    pub(crate) fn join(
        &mut self,
        group: PlacementGroupId,
        object: ObjectId,
        value: Value,
        is_known: impl Fn(ObjectId) -> bool,
        number: impl FnOnce() -> u64,
    ) -> Option<u64> {
        let asked = self.questions.get(&group).copied();
        let question = asked.unwrap_or_else(number);
        self.questions.insert(group, question);
        let (_, awaiting) = self.awaiting.entry(question).or_insert_with(|| (group, Awaiting::default()));
        awaiting.push(object, value, is_known);
        asked.is_none().then_some(question)
    }

    /// The daemon's answer. Returns what waited for it; `None` where the question was about something else.
    pub(crate) fn answered(&mut self, question: u64) -> Option<Awaiting> {
        let (group, awaiting) = self.awaiting.remove(&question)?;
        if self.questions.get(&group) == Some(&question) {
            self.questions.remove(&group);
        }
        Some(awaiting)
    }

    /// The group that an object waits for.
    pub(crate) fn group_of(&self, object: ObjectId) -> Option<PlacementGroupId> {
        self.awaiting.values().find(|(_, awaiting)| awaiting.contains(object)).map(|(group, _)| *group)
    }

    /// The group is being removed: an answer that is under way will not do for whoever comes later.
    pub(crate) fn forget(&mut self, group: PlacementGroupId) {
        self.questions.remove(&group);
    }

    /// The daemon is lost: objects that wait are failed with all others.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::{ActorId, JobId, TaskId, Unique};

    fn ids() -> (PlacementGroupId, Vec<ObjectId>) {
        let mut unique = Unique::new();
        let group = PlacementGroupId::generate(JobId::NIL, &mut unique);
        (group, (0..1000).map(|_| TaskId::generate(ActorId::NIL, &mut unique).object(1)).collect())
    }

    #[test]
    fn one_question_serves_all_who_wait() {
        let (mut awaited, (group, objects)) = (AwaitedGroups::default(), ids());
        assert_eq!(awaited.join(group, objects[0], Value::default(), |_| true, || 7), Some(7));
        assert_eq!(awaited.join(group, objects[1], Value::default(), |_| true, || 8), None);
        assert_eq!(awaited.answered(6), None);
        assert_eq!([0, 1, 2].map(|at| awaited.group_of(objects[at])), [Some(group), Some(group), None]);
        let answered = awaited.answered(7).expect("it was asked").into_objects();
        assert_eq!(answered.iter().map(|(object, _)| *object).collect::<Vec<_>>(), objects[..2]);
        assert_eq!(awaited.join(group, objects[2], Value::default(), |_| true, || 9), Some(9), "asked anew");
    }

    #[test]
    fn who_comes_after_a_removal_asks_anew() {
        let (mut awaited, (group, objects)) = (AwaitedGroups::default(), ids());
        awaited.join(group, objects[0], Value::default(), |_| true, || 1);
        awaited.forget(group);
        assert_eq!(awaited.join(group, objects[1], Value::default(), |_| true, || 2), Some(2));
        assert_eq!(awaited.answered(1).map(|awaiting| awaiting.into_objects().len()), Some(1));
        assert_eq!(awaited.answered(2).map(|awaiting| awaiting.into_objects().len()), Some(1));
        assert!(awaited.questions.is_empty() && awaited.awaiting.is_empty());
    }

    #[test]
    fn waits_that_were_given_up_do_not_pile_up() {
        let (mut awaited, (group, objects)) = (AwaitedGroups::default(), ids());
        for object in &objects {
            awaited.join(group, *object, Value::default(), |known| known == objects[0], || 1);
        }
        let left = awaited.answered(1).expect("it was asked").into_objects();
        assert!(left.len() <= 2 * UNCHECKED_MAX && left[0].0 == objects[0], "{}", left.len());
    }
}
