//! Schema, framing, handshake and the one connection type of every socket.
//!
//! ```text
//! driver ──control── daemon ──control── worker        who may do what: leases, actors, objects
//!    └──────────────stream──────────────┘             the work itself: calls and replies
//!                    daemon ──control── template      forks workers, reaps their process trees
//! ```
//!
//! Only the daemon listens, on a unix socket in its 0700 session directory. Every other stream is one
//! half of a socket pair that the daemon made and handed to both sides, so a worker needs neither a
//! name nor a secret, and nobody but the two named by the daemon can hold either end. Between machines it is a connection
//! that the two daemons have made, sealed by the processes themselves ([`Connection::introduced`]).
//!
//! - WIRE-1: nothing but [`Hello`](message::Hello) is read from a peer that has not been let in, and
//!   at most [`frame::HELLO_BYTES_LIMIT`] of it.
//! - WIRE-2: a frame that breaks the format ends its connection; it never panics. A body has at most as many bytes as its
//!   kind may have ([`frame::body_limit`]), and takes memory in proportion to them ([`shape`]).
//! - WIRE-4: a message that no frame can carry is never sent: it ends the connection, which both ends hear of.
//! - WIRE-3: frames of a kind that the reader does not know are skipped, so that a newer peer may say more.
//! - WIRE-5: a message goes in the directions that name it ([`message::Direction`]), and ends a stream of any other.
//! - WIRE-6: one of a closed set of alternatives is read into its enum; a number or a word that stands for none of them is a
//!   refused frame.

mod body;
pub mod connection;
mod far;
mod field;
pub mod frame;
pub mod labels;
pub mod message;
mod plain;
pub mod ring;
pub mod session;
pub mod shape;
pub mod state;
mod words;

pub use body::{Body, CallFrame, ReplyFrame};
pub use connection::{Connection, Received};
pub use frame::FrameError;
pub use message::Message;
pub use plain::{plain, plain_lines};
