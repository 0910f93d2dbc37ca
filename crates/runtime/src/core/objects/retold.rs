//! What a head that came back is told of the objects.

use super::{Failure, ObjectId, Objects, Reference, Value, failed};
use crate::core::slack::shed_map;

/// Where the objects stand.
#[derive(Debug, Default)]
pub(crate) struct Retold {
    /// Objects that will be or were published.
    pub(crate) promised: Vec<ObjectId>,
    /// Each as often as this process is counted for it, but for once where it is promised.
    pub(crate) held: Vec<ObjectId>,
    /// Those of the promised that have their value.
    pub(crate) published: Vec<ObjectId>,
    /// Published values that nobody here refers to any more.
    pub(crate) kept: Vec<(ObjectId, Value)>,
    /// Those of others whose value is awaited.
    pub(crate) wanted: Vec<Reference>,
}

impl Objects {
    pub(crate) fn retold(&self) -> Retold {
        let mut told = Retold::default();
        for (id, object) in self.known.iter() {
            let besides = object.holds - u32::from(object.promised);
            told.held.extend((0..besides).map(|_| *id));
            if object.promised {
                told.promised.push(*id);
                if object.value.is_some() {
                    told.published.push(*id);
                }
            }
            if object.subscribed && object.value.is_none() {
                told.wanted.push(self.reference(*id));
            }
        }
        told.kept = self.kept.iter().map(|(id, value)| (*id, value.clone())).collect();
        told
    }

    /// A published value that nobody here refers to any more.
    pub(crate) fn kept(&self, id: ObjectId) -> Option<&Value> {
        self.kept.get(&id)
    }

    /// Nobody anywhere refers to it, or it is to be published anew.
    pub(crate) fn keep_no_longer(&mut self, id: ObjectId) {
        self.kept.remove(&id);
        shed_map(&mut self.kept);
    }

    /// What was published is freed.
    pub(crate) fn free_kept(&mut self, id: ObjectId, failure: Failure) {
        if let Some(value) = self.kept.get_mut(&id) {
            *value = failed(failure);
        }
    }
}
