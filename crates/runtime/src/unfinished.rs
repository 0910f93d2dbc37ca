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
use crate::shell::State;
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

impl State {
    /// A stream was read as far as there was something: it is looked at later where that was in the midst of a frame.
    pub(crate) fn watch_progress(&mut self, token: Token) {
        let Some(since) = self.io.links.stalled_since(token) else { return };
        let Some(role) = self.peers.role(token) else { return };
        let is_known = self.io.unfinished.streams.iter().any(|begun| begun.token == token);
        if is_known || !matches!(role, Role::Lease(_) | Role::Actor(_)) {
            return;
        }
        self.io.unfinished.streams.push(Begun { token, role, since, looks: 0 });
        if self.io.unfinished.looks_at.is_none() {
            self.io.unfinished.looks_at = Some(Instant::now() + self.io.unfinished.period);
        }
    }

    /// Looks at them all, and ends those of which nothing has come for too long.
    pub(crate) fn look_at_unfinished(&mut self, now: Instant) {
        let mut late = Vec::new();
        let links = &self.io.links;
        self.io.unfinished.streams.retain_mut(|begun| {
            let Some(since) = links.stalled_since(begun.token) else { return false };
            begun.looks = if since == begun.since { begun.looks + 1 } else { 0 };
            begun.since = since;
            let is_late = begun.looks >= LOOKS;
            late.extend(is_late.then_some((begun.token, begun.role)));
            !is_late
        });
        // UNFINISHED-2, UNFINISHED-3.
        self.io.unfinished.looks_at =
            (!self.io.unfinished.streams.is_empty()).then_some(now + self.io.unfinished.period);
        for (token, role) in late {
            self.give_up_stalled(token, role);
        }
    }

    fn give_up_stalled(&mut self, token: Token, role: Role) {
        let why = format!(
            "it began to send something, and nothing more of it came for {} s, so that its stream was closed",
            (self.io.unfinished.period * LOOKS).as_secs_f64()
        );
        let who = match role {
            Role::Actor(actor) => format!("the process of actor {actor}"),
            _ => "a worker".to_owned(),
        };
        self.io.links.remove(token);
        self.stream_stalled(token, &who, why);
    }
}

#[cfg(test)]
mod tests;
