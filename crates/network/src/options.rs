//! How the thread that carries streams is to work.

use crate::authority::Authority;
use crate::tls::Credentials;
use crate::token::JoinToken;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How the thread is to work.
#[derive(Debug)]
pub struct Options {
    /// By what this node is known.
    pub credentials: Credentials,
    /// On the head: what certifies newcomers, and the tokens that let them in.
    pub authority: Option<(Arc<Authority>, Vec<JoinToken>)>,
    /// Where to listen; port 0 for any.
    pub listen: SocketAddr,
    /// Names the version of what is spoken.
    pub protocol: Vec<u8>,
    /// How long is waited for others.
    pub limits: Limits,
}

/// How long is waited for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For a stranger to prove that it may speak.
    pub proving: Duration,
    /// For the bearer of a ticket to come, for the ticket of a bearer to be known, and for a node that is dialled.
    pub ticket: Duration,
    /// For a peer that answers nothing at all, before its streams are given up.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { proving: Duration::from_secs(5), ticket: Duration::from_secs(10), silence: Duration::from_secs(10) }
    }
}
