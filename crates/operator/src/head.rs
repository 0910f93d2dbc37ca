//! A head in its pod, as a visitor reaches it from elsewhere: over TLS, with the cluster's join token.

use oxiray_ids::NodeId;
use oxiray_network::{Gateway, JoinToken, Limits, Newcomer, join};
use oxiray_wire::frame::protocol;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long each step of a visit may take.
pub(crate) const STEP_LIMIT: Duration = Duration::from_secs(5);

/// A stream to the head, and the gateway that carries it for as long as that is kept. The token is proven, so that no other
/// secret lets in. Blocks for a few steps' time at most.
pub(crate) fn dial(address: SocketAddr, token: &JoinToken) -> Result<(Gateway, OwnedFd), String> {
    let (address, protocol) = (address.to_string(), protocol());
    let newcomer = Newcomer {
        address: &address,
        token,
        node: NodeId::generate(),
        predecessor: None,
        before: None,
        protocol: &protocol,
        limit: STEP_LIMIT,
    };
    let joined = join(&newcomer).map_err(|failure| format!("the head at {address}: {failure}"))?;
    Gateway::start_visiting(joined, protocol, Limits::default())
        .map_err(|error| format!("the stream to the head cannot be carried: {error}"))
}
