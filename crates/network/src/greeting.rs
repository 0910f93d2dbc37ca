//! What a peer says first within TLS, and all that is read of it before it is let in: fixed sizes, nothing to interpret.
//!
//! ```text
//! newcomer → head   1 · node (28) · predecessor (28) · public key (65) · proof (32)
//! head → newcomer   0 · now (8) · lifetime (4) · length (2) · the node's certificate   or  1 and higher: why it is refused
//! node → node       2 · ticket (32)
//! node → node       0: the stream begins   or  1: the ticket is another node's
//! ```
//!
//! The proof is an HMAC by the token's secret over what both sides of this very TLS connection know (its exporter) and
//! over the rest of the greeting: the secret itself does not travel, and a proof is worth nothing on another connection.
//! Numbers are little endian, times in seconds, the head's since 1970.

use crate::authority::PUBLIC_KEY_BYTES;
use crate::expectation::TICKET_BYTES;
use crate::token::{JoinToken, PART_BYTES};
use oxiray_ids::NodeId;
use ring::hmac;

/// The first byte of a greeting that shows the token's secret.
const JOIN: u8 = 1;
/// The first byte of a greeting that shows a ticket.
const TICKET: u8 = 2;
/// The answer to a peer that is let in.
pub(crate) const ADMITTED: u8 = 0;
/// The answer to a peer that is not.
pub(crate) const REFUSED: u8 = 1;
/// Bytes of the head's answer between the first one and the certificate.
pub(crate) const ANSWER_BYTES: usize = 8 + 4 + 2;

/// Bytes of what a newcomer says.
pub(crate) const JOIN_BYTES: usize = 1 + 2 * NodeId::BYTES + PUBLIC_KEY_BYTES + PROOF_BYTES;
/// Bytes of what a node says that has a ticket.
pub(crate) const STREAM_BYTES: usize = 1 + TICKET_BYTES;
/// The largest certificate that a newcomer reads.
pub(crate) const CERTIFICATE_BYTES_LIMIT: usize = 4096;

const PROOF_BYTES: usize = 32;
/// Names the exporter, by which the two sides of a TLS connection know what nobody else does (RFC 8446, 7.5).
pub(crate) const EXPORTER: &[u8] = b"EXPORTER-oxiray-join";

/// A greeting that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Greeting {
    Join(Box<JoinGreeting>),
    Stream([u8; TICKET_BYTES]),
}

/// What a newcomer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinGreeting {
    pub(crate) node: NodeId,
    /// Whom it was before it lost the head; nil for nobody.
    pub(crate) predecessor: NodeId,
    pub(crate) public_key: [u8; PUBLIC_KEY_BYTES],
    proof: [u8; PROOF_BYTES],
}

/// Why a newcomer is not let in. The numbers are those of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It has proven nothing.
    Secret = 1,
    /// Too many wrong secrets came from its address.
    Barred = 2,
    /// Its token holds no longer.
    Ended = 3,
    /// Its identity is another node's.
    Taken = 4,
    /// Its certificate was revoked.
    Revoked = 5,
    /// It cannot be written down that it was let in.
    Unwritten = 6,
}

impl Refusal {
    /// What a head says with this byte; one that is not known is a refusal like the first.
    pub(crate) fn of(byte: u8) -> Self {
        let known = [Self::Barred, Self::Ended, Self::Taken, Self::Revoked, Self::Unwritten];
        known.into_iter().find(|refusal| *refusal as u8 == byte).unwrap_or(Self::Secret)
    }

    /// In words, for the head's log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Secret => "its token is not this cluster's",
            Self::Barred => "too many wrong secrets came from its address",
            Self::Ended => "its token holds no longer",
            Self::Taken => "it wants to be another node, and has not shown that one's certificate",
            Self::Revoked => "its certificate was revoked",
            Self::Unwritten => "it cannot be written down that it is let in",
        }
    }
}

/// The bytes are no greeting, whatever follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoGreeting;

impl Greeting {
    /// What stands in the bytes; nothing yet where more must come. Bytes behind a ticket belong to the stream.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, NoGreeting> {
        match bytes.first() {
            None => Ok(None),
            Some(&JOIN) => {
                Ok(bytes.get(..JOIN_BYTES).map(|whole| (Self::Join(Box::new(JoinGreeting::read(whole))), JOIN_BYTES)))
            }
            Some(&TICKET) => Ok(bytes
                .get(1..STREAM_BYTES)
                .map(|ticket| (Self::Stream(ticket.try_into().expect("it has the ticket's length")), STREAM_BYTES))),
            Some(_) => Err(NoGreeting),
        }
    }
}

/// The bytes of a greeting with a ticket.
pub(crate) fn stream_greeting(ticket: &[u8; TICKET_BYTES]) -> [u8; STREAM_BYTES] {
    let mut bytes = [TICKET; STREAM_BYTES];
    bytes[1..].copy_from_slice(ticket);
    bytes
}

impl JoinGreeting {
    /// The greeting of a newcomer on a connection.
    pub(crate) fn new(
        node: NodeId,
        predecessor: NodeId,
        public_key: [u8; PUBLIC_KEY_BYTES],
        token: &JoinToken,
        exported: &[u8; PART_BYTES],
    ) -> Self {
        let mut greeting = Self { node, predecessor, public_key, proof: [0; PROOF_BYTES] };
        let tag = hmac::sign(&key(token), &greeting.proven(exported));
        greeting.proof = tag.as_ref().try_into().expect("an HMAC of SHA-256 has 32 bytes");
        greeting
    }

    /// Whether it comes from one who has the token's secret, on this connection. It takes the same time for every wrong
    /// proof.
    pub(crate) fn is_proven(&self, token: &JoinToken, exported: &[u8; PART_BYTES]) -> bool {
        hmac::verify(&key(token), &self.proven(exported), &self.proof).is_ok()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.unproven();
        bytes.extend_from_slice(&self.proof);
        bytes
    }

    fn unproven(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(JOIN_BYTES);
        bytes.push(JOIN);
        bytes.extend_from_slice(self.node.as_bytes());
        bytes.extend_from_slice(self.predecessor.as_bytes());
        bytes.extend_from_slice(&self.public_key);
        bytes
    }

    fn proven(&self, exported: &[u8; PART_BYTES]) -> Vec<u8> {
        let mut bytes = self.unproven();
        bytes.extend_from_slice(exported);
        bytes
    }

    fn read(bytes: &[u8]) -> Self {
        let (head, proof) = bytes.split_at(JOIN_BYTES - PROOF_BYTES);
        let (ids, public_key) = head[1..].split_at(2 * NodeId::BYTES);
        let node = |bytes| NodeId::from_slice(bytes).expect("it has an identifier's length");
        Self {
            node: node(&ids[..NodeId::BYTES]),
            predecessor: node(&ids[NodeId::BYTES..]),
            public_key: public_key.try_into().expect("it has a key's length"),
            proof: proof.try_into().expect("it has a proof's length"),
        }
    }
}

fn key(token: &JoinToken) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &token.secret)
}
