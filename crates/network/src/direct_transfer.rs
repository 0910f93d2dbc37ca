//! What is too large for a stream's local socket: it goes from memory of this node into memory of the other's.
//!
//! A stream between two nodes is cut into parcels: of what its local socket gave, and of *loads*, which the gateway reads
//! from memory itself and writes into the *hold* that the other side has opened under the same tag.
//!
//! - DIRECT_TRANSFER-1: a load is behind what was written to the local socket before it, and before what was written after it.
//! - DIRECT_TRANSFER-2: a hold is written only while it is open and only within its size; a load is read only until it is
//!   recalled. Once [`DirectTransfer::close`] or [`DirectTransfer::recall`] has returned, the memory is touched no more.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory that loads are read from and holds are written to.
pub trait Memory: fmt::Debug + Send + Sync {
    /// Lets `with` read or write these bytes; it is not called where there are no such bytes.
    fn edit(&self, range: Range<usize>, with: &mut dyn FnMut(&mut [u8]));
}

/// Bytes that are to be sent.
#[derive(Debug)]
pub struct Load {
    /// Names the other side's hold; never 0.
    pub tag: u64,
    /// Where the bytes are, which stay as they are until they are sent or recalled.
    pub memory: Arc<dyn Memory>,
    /// Where they begin, in the memory and in the hold.
    pub offset: u64,
    /// How many they are.
    pub bytes: u64,
}

#[derive(Debug)]
struct Hold {
    memory: Arc<dyn Memory>,
    size: u64,
}

#[derive(Debug, Default)]
struct Ledger {
    /// Loads, behind how many bytes of the local socket each goes, and whether it was recalled.
    loads: VecDeque<(u64, Load, bool)>,
    holds: BTreeMap<u64, Hold>,
}

/// What the daemon and the gateway share of one stream between nodes.
#[derive(Debug, Default)]
pub struct DirectTransfer {
    ledger: Mutex<Ledger>,
}

/// What of a load goes next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    pub(crate) tag: u64,
    pub(crate) offset: u64,
    /// How many bytes of it there are to go.
    pub(crate) left: u64,
}

impl DirectTransfer {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a load behind the first `position` bytes that are written to the local socket. Something must be written
    /// there afterwards: by that the gateway is woken.
    pub fn load(&self, position: u64, load: Load) {
        self.ledger().loads.push_back((position, load, false));
    }

    /// Reads no more for this tag (DIRECT_TRANSFER-2). What the other side still gets under it are zeros.
    pub fn recall(&self, tag: u64) {
        for (_, load, is_recalled) in &mut self.ledger().loads {
            *is_recalled |= load.tag == tag;
        }
    }

    /// Has loads with this tag written into the memory, which has room for `size` bytes.
    pub fn open(&self, tag: u64, memory: Arc<dyn Memory>, size: u64) {
        self.ledger().holds.insert(tag, Hold { memory, size });
    }

    /// Whether the hold is open, which also means that all that came for it is written.
    pub fn is_open(&self, tag: u64) -> bool {
        self.ledger().holds.contains_key(&tag)
    }

    /// Writes no more for this tag (DIRECT_TRANSFER-2).
    pub fn close(&self, tag: u64) {
        self.ledger().holds.remove(&tag);
    }

    /// The stream is over: nothing more is read or written.
    pub fn end(&self) {
        let mut ledger = self.ledger();
        ledger.holds.clear();
        for (_, _, is_recalled) in &mut ledger.loads {
            *is_recalled = true;
        }
    }

    /// The first load, and behind how many bytes of the local socket it goes.
    pub(crate) fn next(&self) -> Option<(u64, Due)> {
        let ledger = self.ledger();
        let (position, load, _) = ledger.loads.front()?;
        Some((*position, Due { tag: load.tag, offset: load.offset, left: load.bytes }))
    }

    /// Gives `with` the next bytes of the first load, which are sent by that; whether there were that many.
    pub(crate) fn send(&self, count: usize, with: &mut dyn FnMut(&[u8])) -> bool {
        let mut ledger = self.ledger();
        let Some((_, load, is_recalled)) = ledger.loads.front_mut().filter(|(_, load, _)| load.bytes >= count as u64)
        else {
            return false;
        };
        let mut is_given = *is_recalled;
        if *is_recalled {
            with(&vec![0; count]);
        } else if let Some(range) = range(load.offset, count) {
            load.memory.edit(range, &mut |bytes| {
                with(bytes);
                is_given = true;
            });
        }
        load.offset += count as u64;
        load.bytes -= count as u64;
        if load.bytes == 0 {
            ledger.loads.pop_front();
        }
        is_given
    }

    /// Lets `with` write this part of a hold; whether it did.
    pub(crate) fn receive(&self, tag: u64, offset: u64, count: usize, with: &mut dyn FnMut(&mut [u8])) -> bool {
        let mut ledger = self.ledger();
        let Some(hold) = ledger.holds.get(&tag) else { return false };
        let mut is_written = false;
        if let Some(range) = range(offset, count).filter(|range| range.end as u64 <= hold.size) {
            hold.memory.edit(range, &mut |bytes| {
                with(bytes);
                is_written = true;
            });
        }
        if !is_written {
            // Whoever opened it finds it closed, and knows that it is not whole.
            ledger.holds.remove(&tag);
        }
        is_written
    }
}

fn range(offset: u64, count: usize) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    Some(start..start.checked_add(count)?)
}

#[cfg(test)]
pub(crate) mod tests;
