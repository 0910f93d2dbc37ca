//! The page's own paths, below `/ox/v1/`: the exchange of a one-time key for a session's, and what its views ask.
//!
//! Whoever opens the page has a key from `oxiray dashboard`, which the page's address carries in its fragment: a browser neither sends
//! nor stores that. The page exchanges it for the key of a session, and sends that with every request.

use crate::answer::{Answer, json, text};
use crate::routes::{Answers, BodyError, Request, Route, route};
use http::StatusCode;
use oxiray_network::porch::Right;
use serde_json::{Value as Json, json};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a one-time key opens an exchange.
const KEY_LIFETIME: Duration = Duration::from_secs(60);
/// How long a session's key opens the page.
const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// The longest body of a request of the page, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// The page's paths. What its views ask is added here.
pub(crate) const ROUTES: &[Route] =
    &[route!("POST", "/ox/v1/keys", lend_key), route!("POST", "/ox/v1/session", begin_session)];

/// A key that opens one exchange, for the command line, which has the token.
pub(crate) async fn lend_key<S: Answers>(site: Rc<S>, request: Request) -> Answer {
    if request.right != Right::All {
        return text(StatusCode::FORBIDDEN, "Forbidden: this token only reads");
    }
    lent(&*site, Right::Trade, KEY_LIFETIME)
}

/// A session's key, for the page, which has a one-time key.
pub(crate) async fn begin_session<S: Answers>(site: Rc<S>, request: Request) -> Answer {
    let shown = request.head.headers.get("authorization").map(http::HeaderValue::as_bytes);
    let key = shown.and_then(|value| value.strip_prefix(b"Bearer ")).unwrap_or_default();
    if request.right != Right::Trade || !site.rules().keys.use_up(key, Instant::now()) {
        return text(
            StatusCode::FORBIDDEN,
            "Forbidden: this key was used, or is none: `oxiray dashboard` makes another",
        );
    }
    lent(&*site, Right::All, SESSION_LIFETIME)
}

fn lent(site: &impl Answers, right: Right, lifetime: Duration) -> Answer {
    match site.rules().keys.lend(right, Instant::now(), lifetime) {
        Ok(key) => json(&json!({"key": key, "seconds": lifetime.as_secs()})),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// The body of a request that changes something: JSON, and said to be. A page of another site cannot say so without being asked about
/// it first.
pub(crate) async fn body(request: &mut Request) -> Result<Json, Answer> {
    let said = request.head.headers.get("content-type").map(http::HeaderValue::as_bytes);
    if said.is_none_or(|said| !said.starts_with(b"application/json")) {
        return Err(text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body is to be JSON, and Content-Type is to say so"));
    }
    let bytes = request.read(BODY_BYTES_MAX).await.map_err(|error| match error {
        BodyError::TooLong => text(StatusCode::PAYLOAD_TOO_LARGE, format!("a body may have {BODY_BYTES_MAX} bytes")),
        BodyError::Gone => text(StatusCode::BAD_REQUEST, "the body did not come"),
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| text(StatusCode::BAD_REQUEST, format!("the body is no JSON: {error}")))
}
