//! Answers: whole, or piece by piece.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use oxiray_network::porch::{PorchRefusal, SECURITY_FIELDS};
use oxiray_visitor::VisitError;
use serde::Serialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// How many pieces of an answer wait for who reads it (HTTP-2).
const PIECES_AHEAD: usize = 4;

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Content {
    /// All of it, once.
    Whole(Bytes),
    /// What comes, until nobody says anything more.
    Pieces(mpsc::Receiver<Bytes>),
}

/// An answer.
pub(crate) type Answer = Response<Content>;

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Pieces(pieces) => pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces(_) => SizeHint::default(),
        }
    }
}

/// An answer with this status, of this type.
pub(crate) fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    with(status, content_type, Content::Whole(body.into()))
}

/// A sentence.
pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    answer(status, "text/plain; charset=utf-8", text.into())
}

/// A value, as JSON.
pub(crate) fn json(value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(bytes) => answer(StatusCode::OK, "application/json; charset=utf-8", bytes),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("the answer cannot be written: {error}")),
    }
}

/// An answer in pieces, and where they go.
pub(crate) fn pieces(content_type: &'static str) -> (Answer, mpsc::Sender<Bytes>) {
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    (with(StatusCode::OK, content_type, Content::Pieces(receiver)), sender)
}

/// What Ray says of a path that there is not.
pub(crate) fn not_found() -> Answer {
    text(StatusCode::NOT_FOUND, "404: Not Found")
}

/// What the porch's rules say.
pub(crate) fn refused(refusal: &PorchRefusal) -> Answer {
    let status = StatusCode::from_u16(refusal.status.0).unwrap_or(StatusCode::FORBIDDEN);
    let mut answer = text(status, refusal.text);
    answer.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// What goes wrong with the daemon, as an answer.
pub(crate) fn unanswered(error: &VisitError) -> Answer {
    text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

fn with(status: StatusCode, content_type: &'static str, content: Content) -> Answer {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    let fields = answer.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    for (name, value) in SECURITY_FIELDS {
        fields.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    answer
}
