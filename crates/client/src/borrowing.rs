//! The references that a call's arguments bring to the thread that runs it: its owner is told of them with the answer.

use oxiray_ids::ObjectId;
use std::cell::{Cell, RefCell};

thread_local! {
    /// Whether references are noted that are made in this thread, and whether any were. Most calls bring none, and no list
    /// is looked at for those.
    static STATE: Cell<(bool, bool)> = const { Cell::new((false, false)) };
    static NOTED: RefCell<Vec<ObjectId>> = const { RefCell::new(Vec::new()) };
}

/// From here on, references that are made in this thread are noted.
pub fn begin() {
    end();
    STATE.set((true, false));
}

/// None is noted any more; those that were.
pub fn end() -> Vec<ObjectId> {
    let (_, has_any) = STATE.replace((false, false));
    if has_any { NOTED.take() } else { Vec::new() }
}

/// A reference was made in this thread.
pub fn note(id: ObjectId) {
    if STATE.get().0 {
        NOTED.with_borrow_mut(|ids| ids.push(id));
        STATE.set((true, true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_made_between_beginning_and_end_is_noted() {
        let [before, during, after] = [1, 2, 3].map(|number| ObjectId::new([number; ObjectId::BYTES]));
        note(before);
        begin();
        note(during);
        assert_eq!(end(), [during]);
        note(after);
        begin();
        note(before);
        // Whatever an earlier call left is none of this one's.
        begin();
        note(after);
        assert_eq!(end(), [after]);
    }
}
