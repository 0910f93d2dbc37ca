//! Waiting for some of many objects.
//!
//! A program that acts on each result as it comes waits again and again, for ever fewer of the same objects, so a wait
//! must cost little more than reading what it was given: it looks at each object once, and after that only when a
//! value came, only at those that had none, and no further than the answer needs.

use crate::lead::Unmet;
use crate::reading::Waitable;
use crate::runtime::{Runtime, RuntimeError};
use crate::state::State;
use oxiray_ids::ObjectId;
use std::time::Instant;

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
    /// Waits until `count` of these are there, or `deadline`; the places of the first `count` that are.
    ///
    /// An item of a call that comes, and a call's end, bring a value each, so values tell of those too.
    pub fn wait(
        &self,
        waitables: &[Waitable],
        count: usize,
        deadline: Option<Instant>,
    ) -> Result<Vec<usize>, RuntimeError> {
        let count = count.min(waitables.len());
        let mut wait = Wait { waitables, count, missing: Vec::new(), values_seen: None };
        let ready = self.shared.with(|state| wait.ready(state));
        if ready.len() == count {
            return Ok(ready);
        }
        wait.missing = (0..waitables.len()).collect();
        let objects: Vec<ObjectId> = waitables.iter().filter_map(Waitable::object).collect();
        let waited = self.waiting(&objects, deadline, |state| wait.is_met(state).then_some(()));
        match waited {
            Ok(()) | Err(RuntimeError::Unmet(Unmet::TimedOut)) => Ok(self.shared.with(|state| wait.ready(state))),
            Err(error) => Err(error),
        }
    }
}
