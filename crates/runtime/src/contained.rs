//! References inside of values, as the language front uses them.

use crate::core::objects::Effects;
use crate::runtime::Runtime;
use oxiray_ids::ObjectId;
use oxiray_wire::message::Reference;

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
