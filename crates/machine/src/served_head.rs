//! The head that a machine serves, and the orders of it that wait.

use crate::names::{BundleKey, Key};
use oxiray_resources::{BundleId, Grant};
use oxiray_wire::message::{NodeReport, NodeState, Place};
use std::collections::BTreeMap;
use std::time::Instant;

/// By what way a node and its head talk.
#[derive(Debug)]
pub(crate) enum Link {
    /// The head is in the same process, and takes what it is told from here.
    InProcess(Vec<NodeReport>),
    /// At the other end of a stream. It is far where the head is on another machine, or treated as if it were.
    Stream { key: Key, is_far: bool },
}

impl Link {
    pub(crate) fn is_far(&self) -> bool {
        matches!(self, Self::Stream { is_far: true, .. })
    }
}

/// The head that this node serves.
#[derive(Debug)]
pub(crate) struct ServedHead {
    pub(crate) link: Link,
    /// The last order taken.
    pub(crate) order: u64,
    pub(crate) told: NodeState,
    /// The bundles that are set aside for it.
    pub(crate) bundles: BTreeMap<BundleKey, BundleId>,
    /// Orders that wait for their environments.
    pub(crate) held: BTreeMap<u64, Held>,
    /// Until when this node is being emptied at the latest, and why, where it is.
    pub(crate) draining: Option<(Option<Instant>, String)>,
}

/// An order, and what was granted for it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) order: Place,
    pub(crate) grant: Grant,
}
