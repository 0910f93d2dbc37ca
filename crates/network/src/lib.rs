//! Streams between machines: the cluster's authority, the join token, TLS, and the thread that carries them.
//!
//! ```text
//! process ── local socket ── daemon's thread ══ TLS ══ daemon's thread ── local socket ── process
//! ```
//!
//! A daemon and its clients know local sockets only, but for objects, which pass from memory to memory ([`Freight`]). The other half of such a socket pair is given to the
//! [`Gateway`], a thread of the daemon, which carries its bytes to another machine and back; so nothing but this crate
//! knows of TLS, and nothing a stranger sends is seen by anything but this crate.
//!
//! - NETWORK-1: no byte of a peer reaches a local socket before the peer has proven that it may speak: by the secret of
//!   the join token, or by a certificate of the cluster's authority and a ticket that the head gave out for this stream.
//! - NETWORK-2: what a peer may send before that has a fixed size, a deadline, and a bound on how many may try at once.
//! - NETWORK-3: both sides prove who they are: the head and every node by a certificate that names them.
//! - NETWORK-4: what waits for a peer that does not read is bounded: a stream is read no further than it is written.
//! - NETWORK-5: secrets have no text form but the token's and the authority's files, and no key leaves its process but
//!   the authority's, which whoever runs the head keeps for the next one.

mod admission;
mod authority;
mod carrier;
mod crowd;
mod exchange;
mod freight;
mod gateway;
mod greeting;
mod haul;
mod join;
mod look;
mod records;
mod socket;
mod tls;
mod token;

pub use authority::{Authority, AuthorityError, AuthorityParts, NoAuthority};
pub use freight::{Freight, Load, Memory};
pub use gateway::{Event, Expectation, Gateway, Limits, Local, Options, Ticket};
pub use join::{JoinFailure, Joined, Newcomer, join};
pub use tls::Credentials;
pub use token::{JoinToken, TokenError};

#[cfg(test)]
mod tests;
