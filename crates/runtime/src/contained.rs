//! References inside of values, taken together: a value may contain many thousands.

use crate::objects::{Effects, Objects};
use crate::runtime::Runtime;
use oxiray_ids::ObjectId;
use oxiray_wire::message::{Content, Reference, Value};

/// A value as it is looked at. What it contains stays where it is, since copying that costs as much as it is long.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// What it is; `None` of a value that came without.
    pub content: Option<Content>,
    /// How many references are inside of it.
    pub contained: usize,
}

impl From<&Value> for Seen {
    fn from(value: &Value) -> Self {
        Self { content: value.content.clone(), contained: value.contained.len() }
    }
}

impl Objects {
    /// One more use of each object that the value of this one contains: those, in the order in which it was written.
    fn use_contained(&mut self, id: ObjectId) -> Vec<ObjectId> {
        let contained = self.value(id).map(crate::objects::inner_ids).unwrap_or_default();
        for inner in &contained {
            self.retain(*inner);
        }
        contained
    }
}

impl Runtime {
    /// One more use of each object inside of the value of `id`: those, in the order in which it was written. None where
    /// the value is not here.
    pub fn use_contained(&self, id: ObjectId) -> Vec<ObjectId> {
        self.shared.with(|state| state.objects.use_contained(id))
    }

    /// One more use of each of these, which are known here.
    pub fn retain_all(&self, ids: &[ObjectId]) {
        if !ids.is_empty() {
            self.shared.with(|state| ids.iter().for_each(|id| state.objects.retain(*id)));
        }
    }

    /// One use less of each of these.
    pub fn release_all(&self, ids: &[ObjectId]) {
        if ids.is_empty() {
            return;
        }
        self.shared.with(|state| {
            let mut effects = Effects::default();
            for id in ids {
                state.objects.release(*id, &mut effects);
            }
            state.apply(effects);
        });
    }

    /// These objects as they travel.
    pub fn references(&self, ids: &[ObjectId]) -> Vec<Reference> {
        self.shared.with(|state| ids.iter().map(|id| state.objects.reference(*id)).collect())
    }
}
