//! Where records end, for who reads no further than that: who takes over there must find the next one whole.

use std::io::{self, Read};

/// What a record begins with: what it says it is; a version; and its length.
const HEADER_BYTES: usize = 5;

/// How far a reader is from the next border.
#[derive(Debug, Default)]
pub(crate) struct RecordBoundary {
    header: [u8; HEADER_BYTES],
    begun: usize,
    left: usize,
}

impl RecordBoundary {
    /// Whether what was read ends with a record.
    pub(crate) fn is_reached(&self) -> bool {
        self.begun == 0
    }

    /// Reads to the next border, or not so far.
    pub(crate) fn reader<'border>(&'border mut self, source: &'border mut impl Read) -> impl Read + 'border {
        Bounded { border: self, source }
    }
}

struct Bounded<'border, Source> {
    border: &'border mut RecordBoundary,
    source: &'border mut Source,
}

impl<Source: Read> Read for Bounded<'_, Source> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let RecordBoundary { header, begun, left } = &mut *self.border;
        let is_header = *begun < HEADER_BYTES;
        let wanted = if is_header { HEADER_BYTES - *begun } else { *left };
        let wanted = wanted.min(room.len());
        let count = self.source.read(&mut room[..wanted])?;
        if is_header {
            header[*begun..*begun + count].copy_from_slice(&room[..count]);
            *begun += count;
            *left = usize::from(u16::from_be_bytes([header[3], header[4]]));
        } else {
            *left -= count;
        }
        if *begun == HEADER_BYTES && *left == 0 {
            *begun = 0;
        }
        Ok(count)
    }
}
