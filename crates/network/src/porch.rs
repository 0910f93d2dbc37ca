//! The porch: who asks a cluster over HTTP is heard here first, and whoever proves nothing is heard no further.
//!
//! One thread accepts, reads the head of a request, and looks at it by a function without a clock or a socket ([`PorchRules::judge`]).
//! It answers strangers itself, from constants. A peer that has proven itself is handed inwards with what it said so far; what
//! it asks later on its connection is to be judged by the same function.
//!
//! - PORCH-1: no byte of a peer passes inwards before a request of it named a host that is this one's and showed a secret, or
//!   asked to read one of the paths that a site tells everybody ([`PorchRules::public`]).
//! - PORCH-2: a head is at most [`HEAD_BYTES_MAX`] long, has [`HEAD_LIMIT`] to come, and is what every reader of HTTP takes it
//!   for: one end of lines, one `Host`, one way to say where the body ends.
//! - PORCH-3: whoever waits has one of few places; who comes when all are taken has that of who waited longest. A wrong
//!   secret is answered late, in places of its own, so that who guesses keeps nobody else waiting.
//! - PORCH-4: secrets are compared by their digests, in a time that says nothing of them, and have no form for debugging.

mod certificate;
mod door;
mod head;
mod keys;
mod rules;
mod stream;

pub use certificate::PorchTls;
pub use door::{OpenError, Porch, PorchOptions, PorchPlace, ProvenPeer, RefusedRequest, names_gzip};
pub use head::{HeadError, RequestHead, parse_head};
pub use keys::{KeyError, KeyKind, Keys, Right, new_secret};
pub use rules::{OpenPath, PorchRefusal, PorchRules, PorchVerdict, SESSION_PATH};
pub use stream::PorchStream;

use std::time::Duration;

/// What stands in the head of every answer: a page of this site loads nothing from elsewhere, and nobody else's page shows it.
pub const SECURITY_FIELDS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         frame-ancestors 'none'; base-uri 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
    ("cache-control", "no-store"),
];
/// The longest head of a request, in bytes.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// How long the head of a request may take to come.
pub const HEAD_LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
