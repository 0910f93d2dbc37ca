//! Shared memory that the leading thread looks at, beside the sockets that the kernel looks at.

use crate::core::Token;
use oxiray_wire::ring::Watch;
use std::sync::Arc;

/// What was noticed of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// There is something to read in its socket, or its end.
    Readable,
    /// The same, or there is room to write.
    Writable,
    /// There is something to read in its shared memory.
    InMemory,
}

/// A stream and what was noticed of it.
pub(crate) type Noticed = (Token, Sign);

/// The memory of streams that are in use: in that of all others nothing comes without the bell (LINKS-1).
#[derive(Debug, Default, Clone)]
pub(crate) struct Watched(Arc<Vec<(Token, Watch)>>);

impl Watched {
    pub(crate) fn add(&mut self, token: Token, watch: Watch) {
        if !self.0.iter().any(|(other, _)| *other == token) {
            Arc::make_mut(&mut self.0).push((token, watch));
        }
    }

    pub(crate) fn remove(&mut self, token: Token) {
        if self.0.iter().any(|(other, _)| *other == token) {
            Arc::make_mut(&mut self.0).retain(|(other, _)| *other != token);
        }
    }

    /// Those whose peers were asked to ring the bell, and did not yet, need no look.
    pub(crate) fn leave_sleeping(&mut self) {
        if self.0.iter().any(|(_, watch)| watch.sleeps()) {
            Arc::make_mut(&mut self.0).retain(|(_, watch)| !watch.sleeps());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds where there is something to read; whether there is any.
    pub(crate) fn notice(&self, noticed: &mut Vec<Noticed>) -> bool {
        noticed.extend(self.0.iter().filter(|(_, watch)| watch.has_more()).map(|(token, _)| (*token, Sign::InMemory)));
        !noticed.is_empty()
    }

    /// Has the bells rung for whatever comes from now on; adds where there is something to read already.
    pub(crate) fn sleep(&self, noticed: &mut Vec<Noticed>) {
        noticed.extend(self.0.iter().filter(|(_, watch)| !watch.sleep()).map(|(token, _)| (*token, Sign::InMemory)));
    }
}
