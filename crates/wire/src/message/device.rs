//! Devices that are taken out of service, checked, and put back.

use oxiray_fields::Fields;

/// command line → head: what is to become of a device. Answered by a [`StateReport`](super::StateReport) with what was ordered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DeviceAsked {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// Its node, as in [`DrainAsked`](super::DrainAsked).
    #[field(2)]
    pub node: String,
    /// Its number among the GPUs there, or `RESOURCE:NUMBER`, or its UUID or the beginning of that.
    #[field(3)]
    pub device: String,
    /// What is to be done.
    #[field(4)]
    pub action: DeviceAction,
    /// Why, for people.
    #[field(5)]
    pub reason: String,
    /// Puts it back without a check.
    #[field(6)]
    pub is_forced: bool,
    /// Means all devices that are out of service, of that node or, where none is named, of the cluster: `Undrain` alone.
    #[field(7)]
    pub is_all: bool,
}

/// head → member: the same of a device that it has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct DeviceOrder {
    /// The resource.
    #[field(1)]
    pub resource: String,
    /// Its number among those.
    #[field(2)]
    pub slot: u32,
    /// What is to be done.
    #[field(3)]
    pub action: DeviceAction,
    /// Why, for people.
    #[field(4)]
    pub reason: String,
    /// Puts it back without a check.
    #[field(5)]
    pub is_forced: bool,
}

/// What is done with a device. A question that does not say changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum DeviceAction {
    /// Keep it in service though its node found it ill: the head's alone.
    Keep = 4,
    /// Give it to nobody any more.
    Drain = 1,
    /// Give it to people again, when it has passed the check.
    Undrain = 2,
    /// Check it, where nobody has it.
    Check = 3,
    /// Give it to nobody before it has passed a check, since what ran on it failed: the head's alone.
    Suspect = 5,
    /// Only note that what ran on it failed: the head's alone.
    Note = 6,
}
