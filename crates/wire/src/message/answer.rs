//! Answers to questions that clients ask the daemon.

use super::{ActorAnswer, Failure, KeptAnswer, Message, StateReport, SubmissionTold};
use crate::frame::{FrameError, MESSAGE_BYTES_LIMIT, body_limit};
use bytes::Bytes;

impl Message {
    /// Whether a frame can carry it, to a client of a member as well.
    pub fn check_size(&self) -> Result<(), FrameError> {
        let (kind, bytes, limit) = (self.kind(), self.body_bytes(), body_limit(self.kind()));
        if bytes > limit { Err(FrameError::Unsendable { kind, bytes, limit }) } else { Ok(()) }
    }

    /// What the asker is told in place of an answer that no frame can carry; nothing where it has no place for
    /// a failure.
    pub fn too_large(&self) -> Option<Self> {
        let text = format!(
            "the answer would have {} MiB, and has at most {}: ask for less, with filters, a smaller limit or a longer prefix",
            self.body_bytes() >> 20,
            MESSAGE_BYTES_LIMIT >> 20
        );
        let failure = |code: &str| Some(Failure { code: code.into(), text: text.clone(), cause: Bytes::new() });
        Some(match self {
            Self::KeptAnswer(said) => {
                KeptAnswer { request: said.request, failure: failure("invalid"), ..KeptAnswer::default() }.into()
            }
            Self::StateReport(said) => {
                StateReport { request: said.request, failure: failure("state"), ..StateReport::default() }.into()
            }
            Self::ActorAnswer(said) => {
                ActorAnswer { request: said.request, failure: failure("invalid"), ..ActorAnswer::default() }.into()
            }
            Self::SubmissionTold(said) => {
                let failure = failure("invalid");
                SubmissionTold { request: said.request, failure, ..SubmissionTold::default() }.into()
            }
            _ => return None,
        })
    }
}
