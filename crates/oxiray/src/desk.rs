//! What a thread that runs calls knows for itself.

use crate::error::{Error, Result};
use crate::registry::{self, Entry};
use bytes::Bytes;
use rustc_hash::FxHashMap;

/// A function that was called here.
struct Known {
    hash: Bytes,
    entry: &'static Entry,
    calls: u32,
}

/// What a thread that runs calls knows for itself: others have no part in it, so that it costs no lock.
#[derive(Default)]
pub(crate) struct Desk {
    /// Why nothing can run here: what it was to have around it is not there.
    pub(crate) unfit: Option<Error>,
    label: String,
    known: Vec<Known>,
    places: FxHashMap<Bytes, usize>,
    /// Where the function stands that was called last.
    last: usize,
}

impl Desk {
    pub(crate) fn fit(&self) -> Result<()> {
        self.unfit.clone().map_or(Ok(()), Err)
    }

    /// Labels the output that follows.
    pub(crate) fn label(&mut self, name: &str) {
        if self.label != name {
            name.clone_into(&mut self.label);
            oxiray_runtime::label_output(name);
        }
    }

    /// The function of that hash, which is called once more; `code` names it where it is not known yet.
    pub(crate) fn function(&mut self, hash: &Bytes, code: impl FnOnce() -> Bytes) -> Result<&'static Entry> {
        if self.known.get(self.last).is_none_or(|known| known.hash != *hash) {
            self.last = match self.places.get(hash) {
                Some(place) => *place,
                None => self.learn(hash, &code())?,
            };
        }
        let known = &mut self.known[self.last];
        known.calls += 1;
        Ok(known.entry)
    }

    fn learn(&mut self, hash: &[u8], code: &[u8]) -> Result<usize> {
        let entry = registry::find(&String::from_utf8_lossy(code))?;
        // What came with other bytes is not to keep those.
        let hash = Bytes::copy_from_slice(hash);
        self.places.insert(hash.clone(), self.known.len());
        self.known.push(Known { hash, entry, calls: 0 });
        Ok(self.known.len() - 1)
    }

    /// How often a function was called here.
    pub(crate) fn calls(&self, hash: &Bytes) -> u32 {
        // A function that could not even be found has run as far as its limit is concerned.
        self.places.get(hash).map_or(u32::MAX, |place| self.known[*place].calls)
    }
}
