//! Code that the calls of one stream name by its hash.
//!
//! Sender and receiver each keep one of these for a stream. A program may define functions without end, so both forget
//! by the same rule, at the same message, and nothing has to be said about it.
//!
//! - CODE-1: what the sender takes for known is known to the receiver: both see the same bodies in the same order.
//! - CODE-2: a call that was received keeps its code, whatever is forgotten after.

use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The most functions that one stream's ends remember.
const FUNCTIONS_LIMIT: usize = 1_000;
/// The most bytes of code that they remember, unless one function alone has more.
const BYTES_LIMIT: usize = 64 << 20;

/// What was sent on one stream.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    known: FxHashMap<Bytes, Arc<Bytes>>,
    bytes: usize,
    /// What was asked for last, by its hash: calls of one function come one behind the other.
    last: Option<(Bytes, Arc<Bytes>)>,
}

impl Codes {
    pub(crate) fn knows(&self, hash: &Bytes) -> bool {
        self.known.contains_key(hash)
    }

    /// The code, where it was received and not forgotten since.
    pub(crate) fn get(&mut self, hash: &Bytes) -> Option<Arc<Bytes>> {
        if self.last.as_ref().is_none_or(|(last, _)| last != hash) {
            let (hash, code) = self.known.get_key_value(hash)?;
            self.last = Some((hash.clone(), Arc::clone(code)));
        }
        self.last.as_ref().map(|(_, code)| Arc::clone(code))
    }

    /// A body of `size` goes over the stream; `body` is what is kept of it.
    pub(crate) fn note(&mut self, hash: Bytes, size: usize, body: Bytes) {
        if self.known.len() >= FUNCTIONS_LIMIT || self.bytes + size > BYTES_LIMIT {
            *self = Self::default();
        }
        self.bytes += size;
        self.last = None;
        self.known.insert(hash, Arc::new(body));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_know_the_same_and_never_more_than_so_many() {
        let (mut sender, mut receiver) = (Codes::default(), Codes::default());
        let mut sent = 0;
        for number in (0..5_000_u32).chain(4_990..5_000).chain(0..10) {
            let hash = Bytes::copy_from_slice(&number.to_le_bytes());
            let body = Bytes::from(vec![0; if number % 100 == 0 { 5 << 20 } else { 10 }]);
            if !sender.knows(&hash) {
                sender.note(hash.clone(), body.len(), Bytes::new());
                receiver.note(hash.clone(), body.len(), body.clone());
                sent += 1;
            }
            assert_eq!(receiver.get(&hash).as_deref(), Some(&body));
            assert!(receiver.known.len() <= FUNCTIONS_LIMIT && receiver.bytes <= BYTES_LIMIT);
        }
        assert!(sent <= 5_010, "what was sent lately is not sent again");
    }
}
