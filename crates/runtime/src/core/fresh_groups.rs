//! Placement groups that this process made and nobody else knows of yet.
//!
//! What only the daemon can say of such a group, it says once and unasked: that it is created, or will never be. Until
//! then and until somebody else may have removed it, that answer is the truth, and whoever waits for the group needs to
//! ask nothing.
//!
//! - FRESH-1: "created" is told once, and only while nobody else was told of the group and it was not removed here;
//!   after that the daemon is asked.
//! - FRESH-2: what waits for a group gets one value: when the daemon answers, or when the process loses its daemon.

use crate::core::awaited_groups::Awaiting;
use oxiray_ids::{ObjectId, PlacementGroupId};
use oxiray_wire::message::{Failure, Value};
use rustc_hash::FxHashMap;

/// The most groups of which an answer is kept that nobody waited for; of further ones the daemon is asked.
const ANSWERS_KEPT_MAX: usize = 10_000;

#[derive(Debug)]
enum Fresh {
    /// The daemon has not answered; `is_private` as long as its answer would be the truth (FRESH-1).
    Asked {
        awaiting: Awaiting,
        is_private: bool,
    },
    Created,
    Refused(Failure),
}

/// What is known without asking of a group that somebody waits for.
#[derive(Debug, PartialEq)]
pub(crate) enum Known {
    /// It is created.
    Created(Value),
    /// It never will be.
    Refused(Failure),
    /// The object gets its value with the daemon's answer.
    Later,
    /// Nothing: the daemon is to be asked.
    Nothing(Value),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FreshGroups {
    groups: FxHashMap<PlacementGroupId, Fresh>,
    /// The groups that the daemon has not answered for, by the number of the question.
    questions: FxHashMap<u64, PlacementGroupId>,
}

impl FreshGroups {
    /// The daemon is asked to make the group.
    pub(crate) fn asked(&mut self, question: u64, group: PlacementGroupId) {
        self.questions.insert(question, group);
        self.groups.insert(group, Fresh::Asked { awaiting: Awaiting::default(), is_private: true });
    }

    /// The daemon's answer. Returns what waited for it; `None` where the question was about something else.
    pub(crate) fn answered(&mut self, question: u64, failure: Option<&Failure>) -> Option<Awaiting> {
        let group = self.questions.remove(&question)?;
        let Some(Fresh::Asked { awaiting, is_private }) = self.groups.remove(&group) else {
            return Some(Awaiting::default());
        };
        if is_private && awaiting.is_empty() && self.groups.len() < ANSWERS_KEPT_MAX {
            self.groups.insert(group, failure.cloned().map_or(Fresh::Created, Fresh::Refused));
        }
        Some(awaiting)
    }

    /// Somebody here waits for the group, by `object`, which is to get `value`.
    pub(crate) fn awaited(
        &mut self,
        group: PlacementGroupId,
        object: ObjectId,
        value: Value,
        is_known: impl Fn(ObjectId) -> bool,
    ) -> Known {
        match self.groups.get_mut(&group) {
            Some(Fresh::Asked { awaiting, is_private: true }) => {
                awaiting.push(object, value, is_known);
                Known::Later
            }
            Some(Fresh::Refused(failure)) => Known::Refused(failure.clone()),
            Some(Fresh::Created) => {
                self.groups.remove(&group);
                Known::Created(value)
            }
            Some(Fresh::Asked { is_private: false, .. }) | None => Known::Nothing(value),
        }
    }

    /// The group that an object waits for, and whether nobody else knows of it.
    pub(crate) fn group_of(&self, object: ObjectId) -> Option<(PlacementGroupId, bool)> {
        self.groups.iter().find_map(|(group, fresh)| match fresh {
            Fresh::Asked { awaiting, is_private } if awaiting.contains(object) => Some((*group, *is_private)),
            Fresh::Asked { .. } | Fresh::Created | Fresh::Refused(_) => None,
        })
    }

    /// Whether the group is known to be created, which is told once (FRESH-1).
    pub(crate) fn take_created(&mut self, group: PlacementGroupId) -> bool {
        let is_created = matches!(self.groups.get(&group), Some(Fresh::Created));
        if is_created {
            self.groups.remove(&group);
        }
        is_created
    }

    /// Others may know of the group from here on, or it was removed. Returns whether the daemon may not know of it yet.
    pub(crate) fn forget(&mut self, group: PlacementGroupId) -> bool {
        match self.groups.get_mut(&group) {
            Some(Fresh::Asked { is_private, .. }) => {
                *is_private = false;
                true
            }
            Some(Fresh::Created) => {
                self.groups.remove(&group);
                false
            }
            // The daemon does not know it, so nobody else will ever do anything with it.
            Some(Fresh::Refused(_)) | None => false,
        }
    }

    /// The daemon is lost: objects that wait are failed with all others (FRESH-2).
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::{ActorId, JobId, TaskId, Unique};
    use oxiray_wire::message::FailureCode;

    fn made(count: usize) -> (FreshGroups, Vec<PlacementGroupId>) {
        let (mut fresh, mut unique) = (FreshGroups::default(), Unique::new());
        let ids = (0..count).map(|_| PlacementGroupId::generate(JobId::NIL, &mut unique)).collect::<Vec<_>>();
        (1..).zip(&ids).for_each(|(question, id)| fresh.asked(question, *id));
        (fresh, ids)
    }

    fn object() -> ObjectId {
        TaskId::generate(ActorId::NIL, &mut Unique::new()).object(1)
    }

    fn failure() -> Failure {
        FailureCode::System.because("no")
    }

    #[test]
    fn created_is_told_once() {
        let (mut fresh, ids) = made(2);
        assert!(!fresh.take_created(ids[0]));
        assert_eq!(fresh.answered(1, None), Some(Awaiting::default()));
        assert!(fresh.take_created(ids[0]) && !fresh.take_created(ids[0]));
        assert_eq!(fresh.answered(2, None), Some(Awaiting::default()));
        assert_eq!(fresh.awaited(ids[1], object(), Value::default(), |_| true), Known::Created(Value::default()));
        assert_eq!(fresh.awaited(ids[1], object(), Value::default(), |_| true), Known::Nothing(Value::default()));
        assert_eq!(fresh.answered(3, None), None, "a question about something else");
    }

    #[test]
    fn what_waits_gets_the_answer_and_nothing_is_kept() {
        let (mut fresh, ids) = made(1);
        let waiting = object();
        assert_eq!(fresh.awaited(ids[0], waiting, Value::default(), |_| true), Known::Later);
        assert!(fresh.forget(ids[0]), "others may know of it now");
        assert_eq!(fresh.awaited(ids[0], object(), Value::default(), |_| true), Known::Nothing(Value::default()));
        assert_eq!(fresh.answered(1, None).map(Awaiting::into_objects), Some(vec![(waiting, Value::default())]));
        assert!(fresh.groups.is_empty() && fresh.questions.is_empty());
    }

    #[test]
    fn nothing_is_told_of_a_group_that_others_may_have_removed() {
        let (mut fresh, ids) = made(2);
        fresh.forget(ids[0]);
        fresh.answered(1, None);
        fresh.answered(2, None);
        assert!(!fresh.forget(ids[1]), "the daemon knows it");
        assert!(ids.iter().all(|id| !fresh.take_created(*id)));
    }

    #[test]
    fn a_refusal_is_told_every_time() {
        let (mut fresh, ids) = made(1);
        fresh.answered(1, Some(&failure()));
        fresh.forget(ids[0]);
        for _ in 0..2 {
            assert_eq!(fresh.awaited(ids[0], object(), Value::default(), |_| true), Known::Refused(failure()));
        }
    }

    #[test]
    fn answers_that_nobody_waits_for_are_bounded() {
        let (mut fresh, ids) = made(ANSWERS_KEPT_MAX + 1);
        (1..=ids.len() as u64).for_each(|question| drop(fresh.answered(question, None)));
        assert!(fresh.groups.len() <= ANSWERS_KEPT_MAX);
    }
}
