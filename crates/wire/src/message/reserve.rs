//! Placement groups over several nodes: bundles set aside on members, and given back.

use super::{Amount, DevicesFree};
use bytes::Bytes;

/// head → member: set these bundles aside, all or none. Answered by [`GroupPrepared`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct GroupPrepare {
    /// Names the order; later ones are larger.
    #[prost(uint64, tag = "1")]
    pub order: u64,
    /// `PlacementGroupId`.
    #[prost(bytes = "bytes", tag = "2")]
    pub group: Bytes,
    /// What is wanted.
    #[prost(message, repeated, tag = "3")]
    pub bundles: Vec<BundleAsked>,
}

/// A bundle that a member is to set aside.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BundleAsked {
    /// Its place in its group, from 0.
    #[prost(uint32, tag = "1")]
    pub bundle: u32,
    /// Its resources.
    #[prost(message, repeated, tag = "2")]
    pub demand: Vec<Amount>,
}

/// member → head: the bundles are set aside, or there is no room after all and none is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GroupPrepared {
    /// The order.
    #[prost(uint64, tag = "1")]
    pub order: u64,
    /// Whether there is no room.
    #[prost(bool, tag = "2")]
    pub is_refused: bool,
}

/// head → member: these bundles are given back; what runs within them is ended by orders of its own.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GroupRelease {
    /// `PlacementGroupId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub group: Bytes,
    /// Their places in the group.
    #[prost(uint32, repeated, tag = "2")]
    pub bundles: Vec<u32>,
}

/// What is free within a bundle on a member.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BundleFree {
    /// `PlacementGroupId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub group: Bytes,
    /// Its place in the group.
    #[prost(uint32, tag = "2")]
    pub bundle: u32,
    /// What is free of resources that are no devices; nothing at zero.
    #[prost(message, repeated, tag = "3")]
    pub free: Vec<Amount>,
    /// What is free of devices.
    #[prost(message, repeated, tag = "4")]
    pub devices: Vec<DevicesFree>,
}
