//! The head that a machine serves, and the orders of it that wait.

use crate::names::{BundleKey, Key};
use oxiray_resources::{BundleId, Grant};
use oxiray_wire::message::{NodeReport, NodeState, Place};
use std::collections::BTreeMap;

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
    /// What it was last told of the ledger, without the bundles.
    pub(crate) told: NodeState,
    pub(crate) bundles: SetAside,
    /// Orders that wait for their environments.
    pub(crate) held: BTreeMap<u64, Held>,
}

/// The bundles that are set aside for a head.
#[derive(Debug, Default)]
pub(crate) struct SetAside {
    by_key: BTreeMap<BundleKey, BundleId>,
    keys: BTreeMap<BundleId, BundleKey>,
    /// Those that are no more, which the head has not been told.
    dissolved: Vec<BundleKey>,
}

impl SetAside {
    pub(crate) fn insert(&mut self, key: BundleKey, bundle: BundleId) {
        let before = self.by_key.insert(key, bundle);
        assert!(before.is_none(), "LEDGER-6: a bundle of a group is set aside once");
        self.keys.insert(bundle, key);
    }

    pub(crate) fn remove(&mut self, key: BundleKey) -> Option<BundleId> {
        let bundle = self.by_key.remove(&key)?;
        self.keys.remove(&bundle);
        self.dissolved.push(key);
        Some(bundle)
    }

    pub(crate) fn get(&self, key: BundleKey) -> Option<BundleId> {
        self.by_key.get(&key).copied()
    }

    pub(crate) fn key_of(&self, bundle: BundleId) -> Option<BundleKey> {
        self.keys.get(&bundle).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (BundleKey, BundleId)> + '_ {
        self.by_key.iter().map(|(key, bundle)| (*key, *bundle))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Those that are no more; the head is about to be told.
    pub(crate) fn take_dissolved(&mut self) -> Vec<BundleKey> {
        std::mem::take(&mut self.dissolved)
    }
}

/// An order, and what was granted for it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) order: Place,
    pub(crate) grant: Grant,
}
