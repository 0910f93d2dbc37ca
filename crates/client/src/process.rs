//! The one runtime of this process.

use oxiray_runtime::Runtime;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

static CURRENT: RwLock<Option<Runtime>> = RwLock::new(None);

/// Counts the connections of this process.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The runtime, where there is one.
#[inline]
pub fn current() -> Option<Runtime> {
    CURRENT.read().clone()
}

/// Takes the place of the runtime there was, which is returned.
pub fn set(runtime: Option<Runtime>) -> Option<Runtime> {
    let mut current = CURRENT.write();
    GENERATION.fetch_add(1, Ordering::Relaxed);
    std::mem::replace(&mut *current, runtime)
}

/// A number that is another for each connection of this process: what was prepared on an earlier one is prepared anew.
#[inline]
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}
