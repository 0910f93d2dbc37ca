//! References inside of values, taken together: a value may contain many thousands.

use crate::core::objects::Objects;
use oxiray_ids::ObjectId;
use oxiray_wire::message::{Content, Value};

/// A value as it is looked at. What it contains stays where it is, since copying that costs as much as it is long.
#[derive(Debug, Clone, Default)]
pub struct ScannedValue {
    /// What it is; `None` of a value that came without.
    pub content: Option<Content>,
    /// How many references are inside of it.
    pub contained: usize,
}

impl From<&Value> for ScannedValue {
    fn from(value: &Value) -> Self {
        Self { content: value.content.clone(), contained: value.contained.len() }
    }
}

impl Objects {
    /// One more use of each object that the value of this one contains: those, in the order in which it was written.
    pub(crate) fn use_contained(&mut self, id: ObjectId) -> Vec<ObjectId> {
        let contained = self.value(id).map(crate::core::objects::inner_ids).unwrap_or_default();
        for inner in &contained {
            self.retain(*inner);
        }
        contained
    }
}
