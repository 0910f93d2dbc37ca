//! Placement groups over several nodes: bundles set aside on members, and given back.

use super::{Amount, DevicesFree};
use oxiray_fields::Fields;
use oxiray_ids::{BundleNumber, PlacementGroupId};

/// head → member: set these bundles aside, all or none. Answered by [`GroupPrepared`].
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct GroupPrepare {
    /// Names the order; later ones are larger.
    #[field(1)]
    pub order: u64,
    /// `PlacementGroupId`.
    #[field(2)]
    pub group: PlacementGroupId,
    /// What is wanted.
    #[field(3)]
    pub bundles: Vec<BundleAsked>,
}

/// A bundle that a member is to set aside, or what it is to grant out of one.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct BundleAsked {
    /// Its place in its group, from 0.
    #[field(1)]
    pub bundle: BundleNumber,
    /// Its resources, or the part of them.
    #[field(2)]
    pub demand: Vec<Amount>,
}

/// member → head: the bundles are set aside, or there is no room after all and none is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct GroupPrepared {
    /// The order.
    #[field(1)]
    pub order: u64,
    /// Whether there is no room.
    #[field(2)]
    pub is_refused: bool,
}

/// head → member: these bundles are given back; what runs within them is ended by orders of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct GroupRelease {
    /// `PlacementGroupId`.
    #[field(1)]
    pub group: PlacementGroupId,
    /// Their places in the group.
    #[field(2)]
    pub bundles: Vec<BundleNumber>,
}

/// A bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields)]
pub struct BundleName {
    /// `PlacementGroupId`.
    #[field(1)]
    pub group: PlacementGroupId,
    /// Its place in the group.
    #[field(2)]
    pub bundle: BundleNumber,
}

/// What is free within a bundle on a member.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct BundleFree {
    /// `PlacementGroupId`.
    #[field(1)]
    pub group: PlacementGroupId,
    /// Its place in the group.
    #[field(2)]
    pub bundle: BundleNumber,
    /// What is free of resources that are no devices; nothing at zero.
    #[field(3)]
    pub free: Vec<Amount>,
    /// What is free of devices.
    #[field(4)]
    pub devices: Vec<DevicesFree>,
}
