//! Drivers and the command line on a member's machine: they connect to the member, and are clients of the head.
//!
//! What a proxied client says and is told travels in a [`Relay`](super::Relay) under the number that its node gave it.

use super::{Driver, Returning};
use oxiray_fields::Fields;
use oxiray_ids::WorkerNumber;

/// member → head: somebody was let in there. A driver is answered by a relayed [`Welcome`](super::Welcome).
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct ProxiedClientJoined {
    /// The proxied client, as its node counts.
    #[field(1)]
    pub proxied_client: WorkerNumber,
    /// What a driver told of itself; nothing for the command line.
    #[field(2)]
    pub driver: Option<Driver>,
    /// Who that driver is, where a head that is gone had let it in.
    #[field(3)]
    pub returning: Option<Returning>,
}

/// member → head: the proxied client is gone, with or without a word.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ProxiedClientLeft {
    /// The proxied client, as its node counts.
    #[field(1)]
    pub proxied_client: WorkerNumber,
}

/// head → member: close the proxied client's stream when everything is sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ProxiedClientClose {
    /// The proxied client, as its node counts.
    #[field(1)]
    pub proxied_client: WorkerNumber,
}
