//! Waiting for all of many objects, and for some of them.
//!
//! Whoever waits for all hears of the first failure at once: the values still to come would not be returned.
//!
//! A program that acts on each result as it comes waits again and again, for ever fewer of the same objects, so a wait
//! must cost little more than reading what it was given: it looks at each object once, and after that only when a
//! value came, only at those that had none, and no further than the answer needs.

use crate::core::client::reading::Waitable;
use crate::core::contained::ScannedValue;
use crate::core::objects::{Objects, is_error};
use crate::lead::protocol::Unmet;
use crate::runtime::{Runtime, RuntimeError};
use crate::shell::State;
use oxiray_ids::ObjectId;
use std::time::Instant;

/// What came of a wait for all of many objects.
#[derive(Debug)]
pub enum Gathered {
    /// Every value, in order; none of them is an error.
    All(Vec<ScannedValue>),
    /// The first of the list that failed, as far as was known: its place, and the error.
    Failed(usize, ScannedValue),
}

/// What came of a wait for some of many.
#[derive(Debug)]
pub struct ReadyPlaces {
    /// The places of those that are there, in order.
    pub places: Vec<usize>,
    /// How many values had come, where enough were there already and nothing was waited for.
    pub at_once: Option<u64>,
}

/// A wait for all of `ids`.
struct WaitForAll<'ids> {
    ids: &'ids [ObjectId],
    /// The values at the beginning of the list, as far as they are there and none is an error: where there are many
    /// objects, they are in no cache, so each is looked at once where that can be.
    seen: Vec<ScannedValue>,
    /// The runtime's count of errors when this looked for them last; before the first error, there is none to look for.
    errors_seen: u64,
}

impl<'ids> WaitForAll<'ids> {
    fn new(ids: &'ids [ObjectId]) -> Self {
        Self { ids, seen: Vec::with_capacity(ids.len()), errors_seen: 0 }
    }

    /// All values, or a failure; `None` as long as some are missing and none failed.
    fn look(&mut self, objects: &mut Objects) -> Option<Gathered> {
        while let Some(id) = self.ids.get(self.seen.len())
            && let Some(value) = objects.value(*id).filter(|value| !is_error(value))
        {
            self.seen.push(ScannedValue::from(value));
        }
        if self.seen.len() == self.ids.len() {
            return Some(Gathered::All(std::mem::take(&mut self.seen)));
        }
        let errors = objects.errors_came();
        if std::mem::replace(&mut self.errors_seen, errors) == errors {
            return None;
        }
        let mut first = None;
        for (place, id) in self.ids.iter().enumerate().skip(self.seen.len()) {
            let Some(error) = objects.value(*id).filter(|value| is_error(value)) else { continue };
            first.get_or_insert_with(|| Gathered::Failed(place, ScannedValue::from(error)));
            // Whoever gets the first error does not have to be told of the others.
            objects.look_at(*id);
        }
        first
    }
}

/// A wait for `count` of `waitables`.
struct Wait<'all> {
    waitables: &'all [Waitable],
    count: usize,
    /// Places in `waitables` of those that were not there when they were looked at last; in no order.
    missing: Vec<usize>,
    /// The runtime's count of values when this looked last; `None` before the first look.
    values_seen: Option<u64>,
}

impl Wait<'_> {
    /// The first `count` that have their value, in order: as many as there are. Their user has heard of them.
    fn ready(&self, state: &mut State) -> Vec<usize> {
        let mut places = Vec::with_capacity(self.count);
        for (place, waitable) in self.waitables.iter().enumerate() {
            if places.len() == self.count {
                break;
            }
            if state.is_there(*waitable) {
                state.heard_of(*waitable);
                places.push(place);
            }
        }
        places
    }

    /// Whether enough have their value.
    fn is_met(&mut self, state: &State) -> bool {
        let values = state.objects.values_came();
        if self.values_seen.replace(values) == Some(values) {
            return false;
        }
        let may_miss = self.waitables.len() - self.count;
        let mut at = 0;
        while self.missing.len() > may_miss && at <= may_miss {
            if state.is_there(self.waitables[self.missing[at]]) {
                self.missing.swap_remove(at);
            } else {
                at += 1;
            }
        }
        self.missing.len() <= may_miss
    }
}

impl Runtime {
    /// Waits for every value, or until one of them is known to be an error.
    pub fn get(&self, ids: &[ObjectId], deadline: Option<Instant>) -> Result<Gathered, RuntimeError> {
        let mut wait = WaitForAll::new(ids);
        self.waiting((ids, true), deadline, |state| wait.look(&mut state.objects))
    }

    /// Waits until `count` of these are there, or `deadline`; finds the first `count` that are.
    ///
    /// An item of a call that comes, and a call's end, bring a value each, so values tell of those too.
    pub fn wait(
        &self,
        waitables: &[Waitable],
        count: usize,
        deadline: Option<Instant>,
    ) -> Result<ReadyPlaces, RuntimeError> {
        let count = count.min(waitables.len());
        let mut wait = Wait { waitables, count, missing: Vec::new(), values_seen: None };
        let (places, values) = self.shared.with(|state| (wait.ready(state), state.objects.values_came()));
        if places.len() == count {
            return Ok(ReadyPlaces { places, at_once: Some(values) });
        }
        wait.missing = (0..waitables.len()).collect();
        let objects: Vec<ObjectId> = waitables.iter().filter_map(Waitable::object).collect();
        let needs_all = count == objects.len() && objects.len() == waitables.len();
        let waited = self.waiting((&objects, needs_all), deadline, |state| wait.is_met(state).then_some(()));
        match waited {
            Ok(()) | Err(RuntimeError::Unmet(Unmet::TimedOut)) => {
                Ok(ReadyPlaces { places: self.shared.with(|state| wait.ready(state)), at_once: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until a value has come beside the `seen` ones, or `deadline`, or a signal.
    pub fn wait_for_value(&self, seen: u64, deadline: Instant) {
        // Whichever it was, the caller goes on.
        let _ = self.shared.wait(Some(deadline), |state| (state.objects.values_came() != seen).then_some(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::objects::{Effects, failed};
    use oxiray_ids::{ActorId, JobId, TaskId, Unique, WorkerId};
    use oxiray_wire::message::{Content, Failure, Value};

    fn expected(count: u32) -> (Objects, Vec<ObjectId>) {
        let task = TaskId::generate(ActorId::nil_of(JobId::from_number(1)), &mut Unique::new());
        let ids: Vec<ObjectId> = (1..=count).map(|index| task.object(index)).collect();
        let mut objects = Objects::new(WorkerId::generate(), false);
        for id in &ids {
            objects.expect(*id);
        }
        (objects, ids)
    }

    fn finish(objects: &mut Objects, id: ObjectId) {
        let value = Value { content: Some(Content::Inline(bytes::Bytes::from_static(b"v"))), contained: Vec::new() };
        objects.resolve(id, value, 0, 0, &mut Effects::default());
    }

    fn fail(objects: &mut Objects, id: ObjectId) {
        objects.resolve(id, failed(Failure::default()), 0, 0, &mut Effects::default());
    }

    #[test]
    fn the_first_failure_ends_a_wait_for_all() {
        let (mut objects, ids) = expected(3);
        let mut wait = WaitForAll::new(&ids);
        assert!(wait.look(&mut objects).is_none());
        finish(&mut objects, ids[0]);
        assert!(wait.look(&mut objects).is_none());
        fail(&mut objects, ids[2]);
        assert!(matches!(wait.look(&mut objects), Some(Gathered::Failed(2, _))), "the second is still to come");
    }

    #[test]
    fn of_several_failures_the_earliest_in_the_list_is_told() {
        let (mut objects, ids) = expected(4);
        fail(&mut objects, ids[3]);
        fail(&mut objects, ids[1]);
        assert!(matches!(WaitForAll::new(&ids).look(&mut objects), Some(Gathered::Failed(1, _))));
        let mut effects = Effects::default();
        for id in &ids {
            objects.release(*id, &mut effects);
        }
        assert!(effects.unseen.is_empty(), "the program heard that its list has failed");
    }

    #[test]
    fn an_error_of_something_else_ends_no_wait() {
        let (mut objects, ids) = expected(3);
        let mut wait = WaitForAll::new(&ids[..2]);
        fail(&mut objects, ids[2]);
        assert!(wait.look(&mut objects).is_none());
        finish(&mut objects, ids[0]);
        finish(&mut objects, ids[1]);
        assert!(matches!(wait.look(&mut objects), Some(Gathered::All(seen)) if seen.len() == 2));
    }

    #[test]
    fn a_value_that_is_freed_while_others_are_awaited_is_a_failure() {
        let (mut objects, ids) = expected(3);
        let mut wait = WaitForAll::new(&ids);
        finish(&mut objects, ids[2]);
        assert!(wait.look(&mut objects).is_none());
        objects.free(ids[2], Failure::default(), &mut Effects::default());
        assert!(matches!(wait.look(&mut objects), Some(Gathered::Failed(2, _))));
    }
}
