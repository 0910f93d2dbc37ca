//! A stream that has direct transfer, between its local socket and its connection: parcels in records of TLS.
//!
//! What is sent is copied once, from memory into the records that the kernel is given. What comes is read by the kernel
//! into the memory that it is for, opened there, and moved together over the headers between.
//!
//! - OBJECT_STREAM-1: between two calls, what is not opened is in no hold's memory but here: a hold may close at any time, and the
//!   records behind it are still to be read.
//! - OBJECT_STREAM-2: what waits here is bounded: [`BATCH_BYTES`] that go, and as many that came (NETWORK-4).

use crate::direct_transfer::DirectTransfer;
use oxiray_records::{CONTENT_MAX, Handover, Kind, OVERHEAD, Opener, RECORD_MAX, Sealer};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

/// Bytes of a parcel's header: the tag, or 0 for bytes of the local socket; the offset; and the length.
const HEADER_BYTES: usize = 20;
/// Content sealed at once.
const BATCH_CONTENT: usize = 8 * CONTENT_MAX;
/// The same with what is around it; read at once.
const BATCH_BYTES: usize = 8 * (CONTENT_MAX + OVERHEAD);
/// The most bytes of a load in one parcel. Messages go between two of them.
const PARCEL_BYTES: u64 = 4 << 20;
/// Of a load under way so many bytes are awaited at once: to wake a thread for each batch costs both sides more than the
/// ciphers do.
const AWAITED_BYTES: usize = 512 << 10;
/// How a peer says that it sends no more: a warning, and that it closes.
const CLOSE: [u8; 2] = [1, 0];
/// A ticket to resume the session with; this stream does not.
const NEW_SESSION_TICKET: u8 = 4;

/// What reading from the peer came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// So many bytes, where there was room for so many.
    Bytes(usize, usize),
    Ended,
}

/// How far a stream's parcels are, both ways.
#[derive(Debug)]
pub(crate) struct ObjectStream {
    direct_transfer: Arc<DirectTransfer>,
    sealer: Sealer,
    opener: Opener,
    /// Records that go out, and how much of them the kernel has.
    out: Vec<u8>,
    sent: usize,
    /// How many bytes of the local socket went out.
    packed: u64,
    /// Bytes of the local socket that were read and go out behind a load.
    held: Vec<u8>,
    /// How many bytes of a parcel under way are to be sent.
    going: usize,
    /// What came and is not opened; only ever the beginning of a record.
    inbox: Box<[u8]>,
    filled: usize,
    header: Vec<u8>,
    /// Of the parcel that comes: its tag, where its next byte belongs, and how many are to come.
    coming: (u64, u64, usize),
    has_ended: bool,
}

impl ObjectStream {
    /// What came early is for [`ObjectStream::unpack`].
    pub(crate) fn new(direct_transfer: Arc<DirectTransfer>, handover: Handover) -> io::Result<Self> {
        let Handover { sealing, opening, unsent, .. } = handover;
        Ok(Self::with(direct_transfer, Sealer::new(&sealing)?, Opener::new(&opening)?, unsent))
    }

    fn with(direct_transfer: Arc<DirectTransfer>, sealer: Sealer, opener: Opener, out: Vec<u8>) -> Self {
        Self {
            direct_transfer,
            sealer,
            opener,
            out,
            sent: 0,
            packed: 0,
            held: Vec::new(),
            going: 0,
            inbox: vec![0; BATCH_BYTES].into(),
            filled: 0,
            header: Vec::with_capacity(HEADER_BYTES),
            coming: (0, 0, 0),
            has_ended: false,
        }
    }

    // --- out ---

    /// Whether there is something that the kernel has no room for.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Sends once what is sealed; how much the kernel took.
    pub(crate) fn send(&mut self, tcp: &mut impl Write) -> io::Result<usize> {
        let count = tcp.write(&self.out[self.sent..])?;
        self.sent += count;
        if !self.has_unsent() {
            self.out.clear();
            self.sent = 0;
        }
        Ok(count)
    }

    /// Seals some of what is due before the local socket is read; whether anything was.
    pub(crate) fn pack_due(&mut self) -> io::Result<bool> {
        let due = self.direct_transfer.next().filter(|(position, _)| *position <= self.packed);
        if let Some((_, due)) = due {
            if self.going == 0 {
                self.going = due.left.min(PARCEL_BYTES) as usize;
                let header = header(due.tag, due.offset, self.going);
                self.sealer.seal(Kind::Data, &header, &[], &mut self.out)?;
            }
            let count = self.going.min(BATCH_CONTENT);
            let Self { direct_transfer, sealer, out, .. } = self;
            let mut sealed = Ok(());
            if !direct_transfer.send(count, &mut |bytes| sealed = sealer.seal(Kind::Data, bytes, &[], out)) {
                return Err(io::Error::new(ErrorKind::NotFound, "a load is not where it is said to be"));
            }
            sealed?;
            self.going -= count;
            return Ok(true);
        }
        if self.held.is_empty() {
            return Ok(false);
        }
        let held = std::mem::take(&mut self.held);
        self.pack(&held)?;
        Ok(true)
    }

    /// Seals bytes of the local socket that go out now; the others are held back.
    pub(crate) fn pack(&mut self, bytes: &[u8]) -> io::Result<()> {
        let next = self.direct_transfer.next().map(|(position, _)| position.saturating_sub(self.packed));
        let count = next.map_or(bytes.len(), |next| next.min(bytes.len() as u64) as usize);
        let (now, later) = bytes.split_at(count);
        self.held.extend_from_slice(later);
        self.packed += count as u64;
        if now.is_empty() {
            return Ok(());
        }
        self.sealer.seal(Kind::Data, &header(0, 0, count), now, &mut self.out)
    }

    /// Says that nothing more is sent.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.sealer.seal(Kind::Alert, &CLOSE, &[], &mut self.out)
    }

    // --- in ---

    /// Reads once what the peer sent: loads into their holds, the rest to `local`.
    pub(crate) fn receive(&mut self, tcp: &mut impl Read, local: &mut Vec<u8>) -> io::Result<Came> {
        let landed = self.land(tcp)?;
        let came = match landed {
            Some(came) => came,
            None => self.fill_inbox(tcp)?,
        };
        self.open_inbox(local)?;
        Ok(if self.has_ended { Came::Ended } else { came })
    }

    /// How many bytes there should be before the next are read: more than one only where that many are sure to come.
    pub(crate) fn awaited(&self) -> usize {
        let (tag, _, left) = self.coming;
        if tag != 0 && left > 2 * AWAITED_BYTES { AWAITED_BYTES } else { 1 }
    }

    /// Reads into the hold that the parcel under way is for, and opens there what is whole. Nothing where the hold is not
    /// open, or what is left of the parcel may be too little for a record as it comes.
    fn land(&mut self, tcp: &mut impl Read) -> io::Result<Option<Came>> {
        let (tag, offset, left) = self.coming;
        if tag == 0 || left <= RECORD_MAX {
            return Ok(None);
        }
        let direct_transfer = self.direct_transfer.clone();
        let mut landed = None;
        direct_transfer
            .receive(tag, offset, left.min(BATCH_BYTES), &mut |place| landed = Some(self.land_in(place, tcp)));
        landed.transpose()
    }

    fn land_in(&mut self, place: &mut [u8], tcp: &mut impl Read) -> io::Result<Came> {
        let begun = self.filled;
        let room = place.len() - begun;
        place[..begun].copy_from_slice(&self.inbox[..begun]);
        let count = tcp.read(&mut place[begun..])?;
        let (mut opened, mut from, end) = (0, 0, begun + count);
        while let Some(length) = Opener::length(&place[from..end])?.filter(|length| from + length <= end) {
            let (kind, content) = self.opener.open(&mut place[opened..from + length], from - opened)?;
            match kind {
                Kind::Data => opened += content,
                other => self.heed(other, &place[opened..opened + content])?,
            }
            from += length;
        }
        self.filled = end - from;
        self.inbox[..self.filled].copy_from_slice(&place[from..end]);
        self.coming.1 += opened as u64;
        self.coming.2 -= opened;
        Ok(if count == 0 { Came::Ended } else { Came::Bytes(count, room) })
    }

    fn fill_inbox(&mut self, tcp: &mut impl Read) -> io::Result<Came> {
        let (tag, _, left) = self.coming;
        // Of a load no more than its end, so that what follows may land.
        let wanted = if tag != 0 && left <= RECORD_MAX {
            (left + OVERHEAD).saturating_sub(self.filled).max(1)
        } else {
            BATCH_BYTES
        };
        let end = BATCH_BYTES.min(self.filled.saturating_add(wanted));
        let room = &mut self.inbox[self.filled..end];
        let count = tcp.read(room)?;
        let came = Came::Bytes(count, room.len());
        self.filled += count;
        Ok(if count == 0 { Came::Ended } else { came })
    }

    fn open_inbox(&mut self, local: &mut Vec<u8>) -> io::Result<()> {
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut from = 0;
        while let Some(length) =
            Opener::length(&inbox[from..self.filled])?.filter(|length| from + length <= self.filled)
        {
            let (kind, content) = self.opener.open(&mut inbox[from..from + length], 0)?;
            let content = &inbox[from..from + content];
            match kind {
                Kind::Data => self.unpack(content, local)?,
                other => self.heed(other, content)?,
            }
            from += length;
        }
        inbox.copy_within(from..self.filled, 0);
        self.filled -= from;
        self.inbox = inbox;
        Ok(())
    }

    /// What TLS says itself.
    fn heed(&mut self, kind: Kind, content: &[u8]) -> io::Result<()> {
        match (kind, content.first()) {
            (Kind::Alert, _) => self.has_ended = true,
            (Kind::Handshake, Some(&NEW_SESSION_TICKET)) => {}
            _ => {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "the peer asks for what a stream without direct transfer has not",
                ));
            }
        }
        Ok(())
    }

    /// Takes in content: loads into their holds, the rest to `local`.
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
            if tag == 0 {
                local.extend_from_slice(now);
            } else {
                // Where the hold is closed, nobody wants them.
                self.direct_transfer.receive(tag, offset, now.len(), &mut |place| place.copy_from_slice(now));
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
