//! Streams to those who run this process's calls, where a frame was begun and does not end.

use crate::core::{Role, Token};
use crate::shell::State;
use std::time::Instant;

impl State {
    /// A stream was read as far as there was something: it is looked at later where that was in the midst of a frame.
    pub(crate) fn watch_progress(&mut self, token: Token) {
        if let Some(since) = self.io.links.stalled_since(token)
            && let Some(role) = self.peers.role(token)
        {
            self.io.unfinished.watch(token, role, since);
        }
    }

    /// Looks at them all, and ends those of which nothing has come for too long.
    pub(crate) fn look_at_unfinished(&mut self, now: Instant) {
        let links = &self.io.links;
        for (token, role) in self.io.unfinished.look(now, |token| links.stalled_since(token)) {
            self.give_up_stalled(token, role);
        }
    }

    fn give_up_stalled(&mut self, token: Token, role: Role) {
        let why = format!(
            "it began to send something, and nothing more of it came for {} s, so that its stream was closed",
            self.io.unfinished.limit().as_secs_f64()
        );
        let who = match role {
            Role::Actor(actor) => format!("the process of actor {actor}"),
            _ => "a worker".to_owned(),
        };
        self.io.links.remove(token);
        self.stream_stalled(token, &who, why);
    }
}
