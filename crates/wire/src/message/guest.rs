//! Drivers and the command line on a member's machine: they connect to the member, and are clients of the head.
//!
//! What a guest says and is told travels in a [`Relay`](super::Relay) under the number that its node gave it.

use super::{Driver, Returning};

/// member → head: somebody was let in there. A driver is answered by a relayed [`Welcome`](super::Welcome).
#[derive(Clone, PartialEq, prost::Message)]
pub struct GuestJoined {
    /// The guest, as its node counts.
    #[prost(uint64, tag = "1")]
    pub guest: u64,
    /// What a driver told of itself; nothing for the command line.
    #[prost(message, optional, tag = "2")]
    pub driver: Option<Driver>,
    /// Who that driver is, where a head that is gone had let it in.
    #[prost(message, optional, tag = "3")]
    pub returning: Option<Returning>,
}

/// member → head: the guest is gone, with or without a word.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GuestLeft {
    /// The guest, as its node counts.
    #[prost(uint64, tag = "1")]
    pub guest: u64,
}

/// head → member: close the guest's stream when everything is sent.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GuestClose {
    /// The guest, as its node counts.
    #[prost(uint64, tag = "1")]
    pub guest: u64,
}
