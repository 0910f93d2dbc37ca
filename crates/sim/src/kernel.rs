//! Which devices the kernel lets each process open: a model of cgroups, of rulesets of Landlock, and of open descriptors.
//!
//! User code opens whatever it can, and templates have devices open at times which whoever is forked of them inherits.
//!
//! - KERNEL-1: who is told to be fenced can open its realm and nothing else, and has nothing else open, from before its
//!   first user code on until it is killed (invariant 9).
//! - KERNEL-2: nothing is told to a worker whose fence could not be made.

use oxiray_accelerators::{DeviceNode, NodeNumber, Offer, SlotDevice};
use oxiray_machine::DeviceFence;
use oxiray_wire::message::Fence;
use std::collections::BTreeSet;

/// The driver's number of all GPUs; the number of each is that of its slot.
const MAJOR: u32 = 195;

/// What the kernel knows of one process, and what the process was told.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// It was born in a cgroup that can refuse it devices.
    is_in_cgroup: bool,
    refused_by_cgroup: BTreeSet<u32>,
    /// For good.
    refused_by_ruleset: BTreeSet<u32>,
    open: BTreeSet<u32>,
    /// What it was told to be kept from.
    told: Option<BTreeSet<u32>>,
    /// It has read what it was told.
    has_begun: bool,
    /// Its cgroup did not take its fence.
    has_failed: bool,
}

impl Access {
    /// Of a process that is forked, with what its template has open.
    pub(crate) fn at_birth(is_in_cgroup: bool, refused: BTreeSet<u32>, open: BTreeSet<u32>) -> Self {
        Self { is_in_cgroup, refused_by_cgroup: refused, open, ..Self::default() }
    }

    /// What its cgroup refuses is exchanged, where it is in one that works; whether it is.
    pub(crate) fn exchange(&mut self, told: &DeviceFence, is_broken: bool) -> bool {
        self.has_failed = is_broken || !self.is_in_cgroup;
        if !self.has_failed {
            self.refused_by_cgroup = told.denied.rules().iter().filter_map(|rule| rule.minor).collect();
        }
        !self.has_failed
    }

    /// KERNEL-2: whether it is to be told nothing.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Its node tells it what it is kept from: all but its realm at that time. A placement group that is removed later takes
    /// nothing back from who leaves just then.
    pub(crate) fn is_told(&mut self, denied: Option<BTreeSet<u32>>) {
        self.told = denied;
    }

    /// It reads that, before anything of a user's runs in it.
    pub(crate) fn takes_on(&mut self, fence: Option<&Fence>) {
        self.has_begun = true;
        let Some(fence) = fence else { return };
        let denied = denied_by(fence);
        self.open.retain(|device| !denied.contains(device));
        if !fence.paths.is_empty() {
            self.refused_by_ruleset = denied;
        }
    }

    /// User code opens what it can.
    pub(crate) fn open_all(&mut self, devices: &BTreeSet<u32>) {
        self.open.extend(self.can_open(devices));
    }

    /// KERNEL-1.
    pub(crate) fn check(&self, devices: &BTreeSet<u32>, own: &BTreeSet<u32>) {
        let Some(denied) = self.told.as_ref().filter(|_| self.has_begun) else { return };
        let realm = &devices.difference(denied).copied().collect();
        let (can_open, open) = (self.can_open(devices), &self.open);
        assert!(can_open.is_subset(realm), "KERNEL-1: it can open {can_open:?}, and its realm is {realm:?}");
        assert!(open.is_subset(realm), "KERNEL-1: it has {open:?} open, and its realm is {realm:?}");
        assert!(own.is_subset(&can_open), "KERNEL-1: it can open {can_open:?}, and was granted {own:?}");
    }

    fn can_open(&self, devices: &BTreeSet<u32>) -> BTreeSet<u32> {
        let refused =
            |device: &&u32| self.refused_by_cgroup.contains(*device) || self.refused_by_ruleset.contains(*device);
        devices.iter().filter(|device| !refused(device)).copied().collect()
    }
}

/// The devices that a fence refuses.
pub(crate) fn denied_by(fence: &Fence) -> BTreeSet<u32> {
    fence.denied.iter().map(|number| number.minor).collect()
}

/// A machine's offer where each GPU has a device node.
pub(crate) fn with_nodes(mut offer: Offer) -> Offer {
    let node = |slot: u32| DeviceNode {
        path: format!("/dev/nvidia{slot}"),
        number: Some(NodeNumber { major: MAJOR, minor: slot }),
    };
    for offered in &mut offer.devices {
        let slot = |index: usize| {
            let (memory_bytes, uuid, numa_node, pci_address) = (None, None, None, None);
            let nodes = vec![node(index as u32)];
            Some(SlotDevice { index, is_part: false, nodes, memory_bytes, uuid, numa_node, pci_address })
        };
        offered.slots = (0..offered.count).map(slot).collect();
        offer.device_nodes.extend((0..offered.count as u32).map(node));
    }
    offer
}
