//! Where references were made, for programs that asked to have that recorded.

use super::{ObjectId, Objects, Value};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Where objects' references were made.
#[derive(Debug, Default)]
pub(super) struct Sites {
    by_object: FxHashMap<ObjectId, Arc<str>>,
    is_recorded: bool,
}

impl Sites {
    pub(super) fn forget(&mut self, id: ObjectId) {
        if self.is_recorded {
            self.by_object.remove(&id);
        }
    }
}

impl Objects {
    /// Remembers where references to these, which are known, were made.
    pub(crate) fn record_site(&mut self, ids: &[ObjectId], site: &str) {
        self.sites.is_recorded = true;
        let site: Arc<str> = site.into();
        for id in ids {
            if self.known.contains_key(id) {
                self.sites.by_object.insert(*id, Arc::clone(&site));
            }
        }
    }

    /// Where the first reference to an object was made here, where that was recorded.
    pub(crate) fn site(&self, id: ObjectId) -> Option<&str> {
        self.sites.by_object.get(&id).map(|site| &**site)
    }

    /// Whether that is recorded in this process.
    pub(crate) fn records_sites(&self) -> bool {
        self.sites.is_recorded
    }

    /// Each object with whether this process owns it, its value where it is there, and its uses.
    pub(crate) fn all(&self) -> impl Iterator<Item = (ObjectId, bool, Option<&Value>, u32)> {
        self.known.iter().map(|(id, object)| (*id, object.owner == self.me, object.value.as_ref(), object.uses))
    }
}
