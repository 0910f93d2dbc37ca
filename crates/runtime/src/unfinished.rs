//! Frames that workers began to send to this process and have not finished.
//!
//! A worker whose stream a program of its own has written into may have announced more than ever comes. Whatever waits on
//! that stream would wait for ever, and so would the tasks that the worker is given later.
//!
//! - UNFINISHED-1: a stream ends where nothing more of a frame has come within [`LOOKS`] looks, [`PERIOD`] apart. Each byte
//!   that comes begins them anew, so that a peer or a network that is slow is never hit.
//! - UNFINISHED-2: of the time in which this process did not look, since it or its machine was stopped, no more counts than
//!   one period.
//! - UNFINISHED-3: while no frame is unfinished, there is no timer.
//!
//! Only the streams to those who run this process's calls are looked at. On one from a client nobody waits for the frame but
//! the client itself; its end and the daemon's are heard of by other means.

use crate::core::{Role, Token};
use std::time::{Duration, Instant};

/// How long from one look to the next.
const PERIOD: Duration = Duration::from_secs(30);
/// After so many looks that have found nothing new, the stream ends: 120 s, as at the daemon. Frames are written whole, so
/// that only a process that is stopped in the midst of one, or lies about its length, takes longer.
const LOOKS: u32 = 4;

#[derive(Debug)]
struct Begun {
    token: Token,
    role: Role,
    /// When the last bytes came.
    since: Instant,
    looks: u32,
}

/// The streams that are looked at.
#[derive(Debug)]
pub(crate) struct Unfinished {
    period: Duration,
    streams: Vec<Begun>,
    /// When they are looked at next.
    pub(crate) looks_at: Option<Instant>,
}

impl Default for Unfinished {
    fn default() -> Self {
        Self { period: PERIOD, streams: Vec::new(), looks_at: None }
    }
}

impl Unfinished {
    /// A stream was read to the midst of a frame whose last bytes came then.
    pub(crate) fn watch(&mut self, token: Token, role: Role, since: Instant) {
        let is_known = self.streams.iter().any(|begun| begun.token == token);
        if is_known || !matches!(role, Role::Lease(_) | Role::Actor(_)) {
            return;
        }
        self.streams.push(Begun { token, role, since, looks: 0 });
        if self.looks_at.is_none() {
            self.looks_at = Some(Instant::now() + self.period);
        }
    }

    /// Looks at all; `stalled_since` says of a stream when the last bytes of an unfinished frame came. Returns those of which
    /// nothing has come for too long.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        stalled_since: impl Fn(Token) -> Option<Instant>,
    ) -> Vec<(Token, Role)> {
        let mut late = Vec::new();
        self.streams.retain_mut(|begun| {
            let Some(since) = stalled_since(begun.token) else { return false };
            begun.looks = if since == begun.since { begun.looks + 1 } else { 0 };
            begun.since = since;
            let is_late = begun.looks >= LOOKS;
            late.extend(is_late.then_some((begun.token, begun.role)));
            !is_late
        });
        // UNFINISHED-2, UNFINISHED-3.
        self.looks_at = (!self.streams.is_empty()).then_some(now + self.period);
        late
    }

    /// For how long nothing has come of a stream that ends.
    pub(crate) fn limit(&self) -> Duration {
        self.period * LOOKS
    }
}

#[cfg(test)]
mod tests;
