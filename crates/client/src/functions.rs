//! The functions that a worker has run, by the hashes of their code, and how often each of them.

use bytes::Bytes;
use rustc_hash::FxHashMap;

/// The most functions that are kept; with one more, all are learnt anew, and their calls counted anew.
const KEPT_MAX: usize = 1_000;

#[derive(Debug)]
struct Known<F> {
    hash: Bytes,
    function: F,
    calls: u32,
}

/// Functions as a language has them, by the hashes of their code.
#[derive(Debug)]
pub struct Functions<F> {
    known: Vec<Known<F>>,
    places: FxHashMap<Bytes, usize>,
    /// Where the function stands that was called last.
    last: usize,
}

impl<F> Default for Functions<F> {
    fn default() -> Self {
        Self { known: Vec::new(), places: FxHashMap::default(), last: 0 }
    }
}

impl<F> Functions<F> {
    /// The function of that hash, which is called once more; `None` where it is to be learnt.
    pub fn called(&mut self, hash: &Bytes) -> Option<&F> {
        if self.known.get(self.last).is_none_or(|known| known.hash != *hash) {
            self.last = *self.places.get(hash)?;
        }
        let known = &mut self.known[self.last];
        known.calls += 1;
        Some(&known.function)
    }

    /// Learns a function, which is called for the first time. Those that are forgotten for it are returned: what they hold
    /// goes where nothing is locked.
    #[must_use = "what is forgotten may run a program's code when it goes"]
    pub fn learn(&mut self, hash: &[u8], function: F) -> Vec<F> {
        // Another thread may have been faster.
        if let Some(place) = self.places.get(hash) {
            self.last = *place;
            self.known[*place].calls += 1;
            return vec![function];
        }
        let mut forgotten = Vec::new();
        if self.known.len() >= KEPT_MAX {
            self.places.clear();
            forgotten.extend(self.known.drain(..).map(|known| known.function));
        }
        // What came with other bytes is not to keep those.
        let hash = Bytes::copy_from_slice(hash);
        self.last = self.known.len();
        self.places.insert(hash.clone(), self.last);
        self.known.push(Known { hash, function, calls: 1 });
        forgotten
    }

    /// How often a function was called here.
    pub fn calls(&self, hash: &Bytes) -> u32 {
        // One that could not even be learnt has run as far as its limit is concerned.
        self.places.get(hash).map_or(u32::MAX, |place| self.known[*place].calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: usize) -> Bytes {
        Bytes::from(number.to_string())
    }

    #[test]
    fn calls_are_counted_for_each_function() {
        let mut functions = Functions::default();
        assert_eq!(functions.called(&hash(1)), None);
        assert!(functions.learn(&hash(1), "one").is_empty());
        assert!(functions.learn(&hash(2), "two").is_empty());
        assert_eq!(functions.called(&hash(1)), Some(&"one"));
        assert_eq!(functions.called(&hash(1)), Some(&"one"));
        assert_eq!(functions.called(&hash(2)), Some(&"two"));
        assert_eq!((functions.calls(&hash(1)), functions.calls(&hash(2))), (3, 2));
        assert_eq!(functions.calls(&hash(3)), u32::MAX);
    }

    #[test]
    fn a_function_that_two_threads_learn_is_counted_once_for_each() {
        let mut functions = Functions::default();
        assert!(functions.learn(&hash(1), "first").is_empty());
        assert_eq!(functions.learn(&hash(1), "second"), ["second"]);
        assert_eq!(functions.calls(&hash(1)), 2);
        assert_eq!(functions.called(&hash(1)), Some(&"first"));
    }

    #[test]
    fn all_are_forgotten_where_there_are_too_many() {
        let mut functions = Functions::default();
        for number in 0..KEPT_MAX {
            assert!(functions.learn(&hash(number), number).is_empty());
        }
        assert_eq!(functions.learn(&hash(KEPT_MAX), KEPT_MAX), (0..KEPT_MAX).collect::<Vec<_>>());
        assert_eq!(functions.called(&hash(0)), None);
        assert_eq!(functions.calls(&hash(KEPT_MAX)), 1);
        assert_eq!(functions.called(&hash(KEPT_MAX)), Some(&KEPT_MAX));
    }
}
