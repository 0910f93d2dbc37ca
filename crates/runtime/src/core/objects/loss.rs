//! Values that are lost or freed, and the task specifications that results are users of.

use super::{Content, Effects, Failure, Object, ObjectId, Objects, Value, failed, inner_ids};

impl Objects {
    /// How often the object's value was lost: whoever reports a loss tells which one it saw.
    pub(crate) fn losses(&self, id: ObjectId) -> u32 {
        self.known.get(&id).map_or(0, |object| object.losses)
    }

    /// Whether the object, if it is known at all, is this process's own.
    pub(crate) fn is_own(&self, id: ObjectId) -> bool {
        self.known.get(&id).is_some_and(|object| !object.elsewhere)
    }

    /// Whether others were promised the object.
    pub(crate) fn is_promised(&self, id: ObjectId) -> bool {
        self.known.get(&id).is_some_and(|object| object.promised)
    }

    /// The stored bytes of the object are gone: it has no value from here on. `false` where it has none that could be
    /// lost, or where the loss is an earlier one.
    pub(crate) fn lose(&mut self, id: ObjectId, seen: u32, effects: &mut Effects) -> bool {
        let is_lost = |object: &Object| {
            object.losses == seen && matches!(object.value, Some(Value { content: Some(Content::Stored(_)), .. }))
        };
        let Some(object) = self.known.get_mut(&id).filter(|object| is_lost(object)) else { return false };
        object.losses += 1;
        (object.subscribed, object.is_fetched) = (false, false);
        let contained = object.value.take().map(|value| inner_ids(&value)).unwrap_or_default();
        for inner in contained {
            self.release(inner, effects);
        }
        true
    }

    /// The user freed the object: its value, where there is one, is an error from here on.
    pub(crate) fn free(&mut self, id: ObjectId, failure: Failure, effects: &mut Effects) {
        let Some(object) = self.known.get_mut(&id) else { return };
        object.looked_at = true;
        let Some(value) = &mut object.value else { return };
        let freed = std::mem::replace(value, failed(failure));
        self.errors_came += 1;
        for inner in inner_ids(&freed) {
            self.release(inner, effects);
        }
    }

    /// Whether the value lies in the store, where it can be lost, or was lost already.
    pub(crate) fn may_be_lost(&self, id: ObjectId) -> bool {
        let is_stored = |value: &Value| matches!(value.content, Some(Content::Stored(_)));
        self.known.get(&id).is_some_and(|object| object.value.as_ref().is_none_or(is_stored))
    }

    /// Counts a stored result as a user of its task's task specification; `false` where it is counted, or nobody refers to it.
    pub(crate) fn take_task_spec_on(&mut self, id: ObjectId) -> bool {
        self.known.get_mut(&id).is_some_and(|object| !std::mem::replace(&mut object.has_task_spec, true))
    }

    /// The object is no user of a task specification, since there is none.
    pub(crate) fn without_task_spec(&mut self, id: ObjectId) {
        if let Some(object) = self.known.get_mut(&id) {
            object.has_task_spec = false;
        }
    }
}
