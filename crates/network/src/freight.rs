//! What is too large for a stream's local socket: it goes from a file of this node into a file of the other's.
//!
//! A stream between two nodes is cut into parcels: of what its local socket gave, and of *loads*, which the gateway reads
//! from a file itself and writes into the *hold* that the other side has opened under the same tag.
//!
//! - FREIGHT-1: a load is behind what was written to the local socket before it, and before what was written after it.
//! - FREIGHT-2: a hold is written only while it is open and only within its size; a load is read only until it is
//!   recalled. Once [`Freight::close`] or [`Freight::recall`] has returned, the file is touched no more.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a parcel's header: the tag, or 0 for bytes of the local socket; the offset; and the length.
pub(crate) const HEADER_BYTES: usize = 20;

/// Bytes of a file that are to be sent.
#[derive(Debug)]
pub struct Load {
    /// Names the other side's hold; never 0.
    pub tag: u64,
    /// Where the bytes are, which stay as they are until they are sent or recalled.
    pub file: Arc<File>,
    /// Where they begin, in the file and in the hold.
    pub offset: u64,
    /// How many they are.
    pub bytes: u64,
}

#[derive(Debug)]
struct Hold {
    file: Arc<File>,
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
pub struct Freight {
    ledger: Mutex<Ledger>,
}

impl Freight {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a load behind the first `position` bytes that are written to the local socket. Something must be written
    /// there afterwards: by that the gateway is woken.
    pub fn load(&self, position: u64, load: Load) {
        self.ledger().loads.push_back((position, load, false));
    }

    /// Reads no more for this tag (FREIGHT-2). What the other side still gets under it are zeros.
    pub fn recall(&self, tag: u64) {
        for (_, load, is_recalled) in &mut self.ledger().loads {
            *is_recalled |= load.tag == tag;
        }
    }

    /// Has loads with this tag written into the file, which has room for `size` bytes.
    pub fn open(&self, tag: u64, file: Arc<File>, size: u64) {
        self.ledger().holds.insert(tag, Hold { file, size });
    }

    /// Whether the hold is open, which also means that all that came for it is written.
    pub fn is_open(&self, tag: u64) -> bool {
        self.ledger().holds.contains_key(&tag)
    }

    /// Writes no more for this tag (FREIGHT-2).
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

    fn write(&self, tag: u64, offset: u64, bytes: &[u8]) {
        let mut ledger = self.ledger();
        let Some(hold) = ledger.holds.get(&tag) else { return };
        let fits = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= hold.size);
        if !fits || hold.file.write_all_at(bytes, offset).is_err() {
            // Whoever opened it finds it closed, and knows that it is not whole.
            ledger.holds.remove(&tag);
        }
    }
}

/// The gateway's side: how far a stream's parcels are, both ways.
#[derive(Debug)]
pub(crate) struct Parcels {
    freight: Arc<Freight>,
    /// How many bytes of the local socket went out.
    sent: u64,
    /// Bytes of the local socket that were read and go out behind a load.
    held: Vec<u8>,
    header: Vec<u8>,
    /// Of the parcel that comes: its tag, where its next byte belongs, and how many are to come.
    coming: (u64, u64, usize),
}

impl Parcels {
    pub(crate) fn new(freight: Arc<Freight>) -> Self {
        Self { freight, sent: 0, held: Vec::new(), header: Vec::with_capacity(HEADER_BYTES), coming: (0, 0, 0) }
    }

    /// The next parcel of a load that is due: its header, and its bytes in `room`.
    pub(crate) fn due(&self, room: &mut [u8]) -> io::Result<Option<([u8; HEADER_BYTES], usize)>> {
        let mut ledger = self.freight.ledger();
        let Some((position, load, is_recalled)) = ledger.loads.front_mut() else { return Ok(None) };
        if *position > self.sent {
            return Ok(None);
        }
        let count = load.bytes.min(room.len() as u64) as usize;
        if *is_recalled {
            room[..count].fill(0);
        } else {
            load.file.read_exact_at(&mut room[..count], load.offset)?;
        }
        let header = header(load.tag, load.offset, count);
        load.offset += count as u64;
        load.bytes -= count as u64;
        if load.bytes == 0 {
            ledger.loads.pop_front();
        }
        Ok(Some((header, count)))
    }

    /// Bytes of the local socket that were held back.
    pub(crate) fn take_held(&mut self) -> Option<Vec<u8>> {
        (!self.held.is_empty()).then(|| std::mem::take(&mut self.held))
    }

    /// Of bytes of the local socket those that go out now, with their header; the others are held back.
    pub(crate) fn pack<'bytes>(&mut self, bytes: &'bytes [u8]) -> ([u8; HEADER_BYTES], &'bytes [u8]) {
        let next = self.freight.ledger().loads.front().map(|(position, ..)| position.saturating_sub(self.sent));
        let count = next.map_or(bytes.len(), |next| next.min(bytes.len() as u64) as usize);
        let (now, later) = bytes.split_at(count);
        self.held.extend_from_slice(later);
        self.sent += count as u64;
        (header(0, 0, count), now)
    }

    /// Takes in what the peer sent: loads into their holds, the rest to `local`.
    pub(crate) fn unpack(&mut self, mut bytes: &[u8], local: &mut Vec<u8>) -> io::Result<()> {
        while !bytes.is_empty() {
            let (tag, offset, left) = self.coming;
            if left == 0 {
                let wanted = (HEADER_BYTES - self.header.len()).min(bytes.len());
                self.header.extend_from_slice(&bytes[..wanted]);
                bytes = &bytes[wanted..];
                if self.header.len() == HEADER_BYTES {
                    self.coming = parse(&self.header)?;
                    self.header.clear();
                }
                continue;
            }
            let (now, rest) = bytes.split_at(left.min(bytes.len()));
            match tag {
                0 => local.extend_from_slice(now),
                tag => self.freight.write(tag, offset, now),
            }
            self.coming = (tag, offset.saturating_add(now.len() as u64), left - now.len());
            bytes = rest;
        }
        Ok(())
    }
}

fn header(tag: u64, offset: u64, count: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&tag.to_le_bytes());
    header[8..16].copy_from_slice(&offset.to_le_bytes());
    header[16..].copy_from_slice(&(count as u32).to_le_bytes());
    header
}

fn parse(header: &[u8]) -> io::Result<(u64, u64, usize)> {
    let number = |at: usize| header.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let count = header.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    match (number(0), number(8), count) {
        (Some(tag), Some(offset), Some(count)) => Ok((tag, offset, count as usize)),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "a parcel's header is not whole")),
    }
}

#[cfg(test)]
mod tests;
