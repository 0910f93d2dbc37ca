//! Streams between machines: the cluster's authority, the join token, TLS, and the thread that carries them.
//!
//! ```text
//! daemon ── local socket ── its thread ══ TLS ══ a thread ── local socket ── daemon      orders, objects
//! process ═════════════════════════════ TLS ════════════════════════════════ process     calls
//! ```
//!
//! The [`Gateway`], a thread of the daemon, makes every connection, and nothing a stranger sends is seen by anything
//! else. Of those between daemons it carries the bytes, from and to one half of a socket pair; objects pass from memory to
//! memory ([`DirectTransfer`]). Those between processes it gives away when both sides have proven who they are ([`Way::Given`]).
//!
//! - NETWORK-1: no byte of a peer reaches a local socket before the peer has proven that it may speak: to the head by the
//!   secret of a join token or by a certificate of the cluster's authority, of which the daemon has said that it holds; or
//!   by such a certificate and a ticket that the head gave out for this stream.
//! - NETWORK-2: what a peer may send before that has a fixed size, a deadline, and a bound on how many may try at once.
//! - NETWORK-3: both sides prove who they are: the head and every node by a certificate that names them.
//! - NETWORK-4: what waits for a peer that does not read is bounded: a stream is read no further than it is written.
//! - NETWORK-5: secrets have no text form but the token's and the authority's files, and no key leaves its process but
//!   the authority's, which whoever runs the head keeps for the next one, and those of a connection that is given away.

mod admission;
mod authority;
mod carrier;
mod clock;
mod direct_transfer;
mod exchange;
mod expectation;
mod failed_proofs;
mod gateway;
mod greeting;
mod join;
mod mailbox;
mod object_stream;
mod options;
pub mod porch;
mod record_boundary;
mod renewal;
mod socket;
mod stream_side;
mod tls;
mod token;

pub use authority::{Authority, AuthorityError, AuthorityParts, Certified, NoAuthority, SiteCertificate};
pub use direct_transfer::{DirectTransfer, Load, Memory};
pub use expectation::{Expectation, Local, Ticket, Way};
pub use gateway::Gateway;
pub use greeting::Refusal;
pub use join::{JoinFailure, Joined, Newcomer, join};
pub use mailbox::Event;
pub use options::{Limits, Options};
pub use renewal::{Renewal, RenewalError};
pub use tls::{Credentials, LastCertificate};
pub use token::{JoinToken, TokenError};

#[cfg(test)]
mod tests;
