//! A stream to another node that is to be: the ticket for it, who is at the other end, and how they speak.

use crate::direct_transfer::DirectTransfer;
use oxiray_ids::NodeId;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes of a ticket.
pub(crate) const TICKET_BYTES: usize = 32;

/// The right to one stream to one node, once. The head makes it and tells both sides. It is not printed (NETWORK-5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) [u8; TICKET_BYTES]);

impl Ticket {
    /// One that nobody else has.
    pub fn generate() -> Self {
        Self(oxiray_ids::random())
    }

    /// The ticket in a message; nothing where it is not whole.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Its bytes, for a message to one of the two.
    pub fn as_bytes(&self) -> &[u8; TICKET_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(…)")
    }
}

/// A stream that is to be.
#[derive(Debug)]
pub struct Expectation {
    /// What the other side shows, or is shown.
    pub ticket: Ticket,
    /// Who the other side is.
    pub node: NodeId,
    /// What the stream is joined to.
    pub local: Local,
}

/// This node's end of a stream.
#[derive(Debug)]
pub struct Local {
    /// To or from whoever speaks.
    pub socket: OwnedFd,
    /// How that speaks to the peer. It is the same on both nodes.
    pub way: Way,
}

/// How whoever has a local socket speaks to the peer.
#[derive(Debug, Clone)]
pub enum Way {
    /// What is written to the socket is carried to the peer, and what that says is written to it.
    Carried,
    /// The same, and this besides.
    DirectTransfer(Arc<DirectTransfer>),
    /// The connection itself is given to whoever has the other end of the socket, which is of packets: as one packet, a
    /// [`Handover`](oxiray_records::Handover) with the descriptor. Calls would otherwise wake a thread of each node on the way and on the way back.
    Given,
}

impl From<OwnedFd> for Local {
    fn from(socket: OwnedFd) -> Self {
        Self { socket, way: Way::Carried }
    }
}
