//! How clients, workers, templates and bundles are named within a daemon.

use oxiray_ids::{BundleNumber, PlacementGroupId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names a client's control stream, a worker before and after it has a process, and a store client; never reused.
pub type Key = u64;

/// Names a template process; never reused.
pub type TemplateKey = u32;

/// The resources whose devices somebody can be asked about.
pub type Monitored = BTreeSet<&'static str>;

/// A bundle: its group, and its place in it.
pub type BundleKey = (PlacementGroupId, BundleNumber);

/// Numbers that name nothing else in this daemon, for all who name something.
#[derive(Debug, Clone, Default)]
pub struct Numbers(Arc<AtomicU64>);

impl Numbers {
    /// A number that names nothing else.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// From here on they are larger than that.
    pub fn begin_at(&self, first: u64) {
        self.0.fetch_max(first, Ordering::Relaxed);
    }
}

/// The placement group that somebody runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupMembership {
    /// The group.
    pub group: PlacementGroupId,
    /// Whether what it makes runs there too.
    pub captures: bool,
}
