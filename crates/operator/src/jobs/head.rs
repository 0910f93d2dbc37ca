//! What is asked of the head of a job's cluster: over TLS, with the cluster's join token, as a visitor.

use oxiray_ids::NodeId;
use oxiray_network::{Gateway, JoinToken, Limits, Newcomer, join};
use oxiray_wire::frame::protocol;
use oxiray_wire::message::{Hello, SubmissionAction, SubmissionAsked, SubmissionTold};
use oxiray_wire::{Connection, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long each step of a visit may take.
const STEP_LIMIT: Duration = Duration::from_secs(5);

/// Asks one question. Blocks for a few steps' time at most.
pub(super) fn ask(address: SocketAddr, token: &str, asked: &SubmissionAsked) -> Result<SubmissionTold, String> {
    let token = JoinToken::parse(token).map_err(|error| error.to_string())?;
    let (address, protocol) = (address.to_string(), protocol());
    let newcomer = Newcomer {
        address: &address,
        token: &token,
        node: NodeId::generate(),
        predecessor: None,
        before: None,
        protocol: &protocol,
        limit: STEP_LIMIT,
    };
    let joined = join(&newcomer).map_err(|failure| format!("the head at {address}: {failure}"))?;
    // It carries the stream for as long as it is kept.
    let (_gateway, stream) = Gateway::start_visiting(joined, protocol, Limits::default())
        .map_err(|error| format!("the stream to the head cannot be carried: {error}"))?;
    let mut connection = Connection::new(stream).map_err(|error| error.to_string())?;
    connection.send(&Hello::default());
    connection.send(asked);
    let (until, mut inbox) = (Instant::now() + STEP_LIMIT, Vec::new());
    loop {
        let is_sent = connection.flush().map_err(|error| error.to_string())?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("the head at {address} does not answer"));
        }
        let wanted = if is_sent { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        poll(&mut [PollFd::new(&connection, wanted)], Some(&limit)).map_err(|error| error.to_string())?;
        let result = connection.receive(&mut inbox);
        for received in inbox.drain(..) {
            match received.message {
                Message::SubmissionTold(told) => return Ok(*told),
                Message::Refused(refused) => return Err(refused.text),
                _ => {}
            }
        }
        result.map_err(|error| format!("the head at {address}: {error}"))?;
    }
}

/// A question about one job.
pub(super) fn about(action: SubmissionAction, id: &str) -> SubmissionAsked {
    SubmissionAsked { request: 1, action: action.into(), id: id.to_owned(), ..SubmissionAsked::default() }
}
