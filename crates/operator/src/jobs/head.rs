//! What is asked of the head of a job's cluster.

use crate::head::{STEP_LIMIT, dial};
use oxiray_network::JoinToken;
use oxiray_visitor::{VisitError, Visitor};
use oxiray_wire::message::{Failure, SubmissionAction, SubmissionAnswer, SubmissionAsked};
use std::net::SocketAddr;

/// Asks one question: what the head answers, or with what failure it refused, or why it was not reached. Blocks for a few
/// steps' time at most.
pub(super) fn ask(
    address: SocketAddr,
    token: &str,
    asked: SubmissionAsked,
) -> Result<Result<SubmissionAnswer, Failure>, String> {
    let token = JoinToken::parse(token).map_err(|error| error.to_string())?;
    let (_gateway, stream) = dial(address, &token)?;
    match Visitor::greet(stream, String::new()).and_then(|mut visitor| visitor.ask(asked, STEP_LIMIT)) {
        Ok(told) => Ok(Ok(told)),
        Err(VisitError::Failed(failure)) => Ok(Err(failure)),
        Err(error) => Err(format!("the head at {address}: {error}")),
    }
}

/// A question about one job.
pub(super) fn about(action: SubmissionAction, id: &str) -> SubmissionAsked {
    SubmissionAsked { action, id: id.to_owned(), ..SubmissionAsked::default() }
}
