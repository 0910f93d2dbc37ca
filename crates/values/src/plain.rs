//! Values of Python's built-in types, piece by piece. A container is followed by its items, a dictionary by key, value,
//! key, value and so on.
//!
//! ```text
//! piece:  code │ what the code says
//! ```
//!
//! - PLAIN-1: an object that the value holds in several places is written once, with [`SHARED`] in its code, and
//!   afterwards as [`Piece::Again`] with its number. Numbers count the shared objects from 0: lists, dictionaries and
//!   sets where they begin, everything else where it ends.
//! - PLAIN-2: reading never trusts a length: a container has no more items than there are bytes behind it.

use crate::ValueError;

/// The bit in a piece's code that gives its object a number.
const SHARED: u8 = 0x80;

/// A value, or the beginning of one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Piece<'blob> {
    /// `None`.
    Null,
    /// `True` or `False`.
    Bool(bool),
    /// An `int` of 64 bits.
    Int(i64),
    /// Any other `int`, as `hex()` writes it.
    LongInt(&'blob [u8]),
    /// A `float`.
    Float(f64),
    /// A `str` as UTF-8, which may contain lone surrogates.
    Text(&'blob [u8]),
    /// `bytes`.
    Bytes(&'blob [u8]),
    /// A `bytearray`.
    ByteArray(&'blob [u8]),
    /// `bytes` that are the buffer of this number.
    BytesBeside(usize),
    /// A `bytearray` that is the buffer of this number.
    ByteArrayBeside(usize),
    /// A `tuple` of so many items.
    Tuple(usize),
    /// A `list` of so many items.
    List(usize),
    /// A `dict` of so many entries.
    Dict(usize),
    /// A `set` of so many items.
    Set(usize),
    /// A `frozenset` of so many items.
    FrozenSet(usize),
    /// The shared object of this number.
    Again(usize),
}

/// Appends a piece; `is_shared` gives its object a number.
#[inline]
pub fn write(body: &mut Vec<u8>, piece: Piece<'_>, is_shared: bool) {
    let mark = if is_shared { SHARED } else { 0 };
    let mut number = |code: u8, number: u64| {
        body.push(code | mark);
        write_number(body, number);
    };
    match piece {
        Piece::Null => body.push(0),
        Piece::Bool(false) => body.push(1),
        Piece::Bool(true) => body.push(2),
        Piece::Int(int) => number(3, ((int << 1) ^ (int >> 63)) as u64),
        Piece::LongInt(digits) => write_bytes(body, 4, digits),
        Piece::Float(float) => {
            body.push(5);
            body.extend_from_slice(&float.to_bits().to_le_bytes());
        }
        Piece::Text(text) => write_bytes(body, 6 | mark, text),
        Piece::Bytes(bytes) => write_bytes(body, 7 | mark, bytes),
        Piece::ByteArray(bytes) => write_bytes(body, 8 | mark, bytes),
        Piece::BytesBeside(index) => number(9, index as u64),
        Piece::ByteArrayBeside(index) => number(10, index as u64),
        Piece::Tuple(count) => number(11, count as u64),
        Piece::List(count) => number(12, count as u64),
        Piece::Dict(count) => number(13, count as u64),
        Piece::Set(count) => number(14, count as u64),
        Piece::FrozenSet(count) => number(15, count as u64),
        Piece::Again(index) => number(16, index as u64),
    }
}

#[inline]
fn write_bytes(body: &mut Vec<u8>, code: u8, bytes: &[u8]) {
    body.push(code);
    write_number(body, bytes.len() as u64);
    body.extend_from_slice(bytes);
}

/// Seven bits a byte, the lowest first, the highest bit set in all bytes but the last.
#[inline]
fn write_number(body: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        body.push(number as u8 | 0x80);
        number >>= 7;
    }
    body.push(number as u8);
}

/// Reads pieces one after the other.
#[derive(Debug)]
pub struct Pieces<'blob> {
    rest: &'blob [u8],
}

impl<'blob> Pieces<'blob> {
    /// The pieces of a body.
    pub fn new(body: &'blob [u8]) -> Self {
        Self { rest: body }
    }

    /// The next piece, and whether its object has a number.
    #[inline]
    pub fn take(&mut self) -> Result<(Piece<'blob>, bool), ValueError> {
        let code = self.byte()?;
        let piece = match code & !SHARED {
            0 => Piece::Null,
            1 => Piece::Bool(false),
            2 => Piece::Bool(true),
            3 => {
                let number = self.number()?;
                Piece::Int((number >> 1) as i64 ^ -((number & 1) as i64))
            }
            4 => Piece::LongInt(self.bytes()?),
            5 => {
                let (bits, rest) = self.rest.split_first_chunk().ok_or(ValueError::Malformed)?;
                self.rest = rest;
                Piece::Float(f64::from_bits(u64::from_le_bytes(*bits)))
            }
            6 => Piece::Text(self.bytes()?),
            7 => Piece::Bytes(self.bytes()?),
            8 => Piece::ByteArray(self.bytes()?),
            9 => Piece::BytesBeside(self.number()? as usize),
            10 => Piece::ByteArrayBeside(self.number()? as usize),
            11 => Piece::Tuple(self.count(1)?),
            12 => Piece::List(self.count(1)?),
            13 => Piece::Dict(self.count(2)?),
            14 => Piece::Set(self.count(1)?),
            15 => Piece::FrozenSet(self.count(1)?),
            16 => Piece::Again(self.number()? as usize),
            _ => return Err(ValueError::Malformed),
        };
        Ok((piece, code & SHARED != 0))
    }

    /// Whether every piece was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, ValueError> {
        let (byte, rest) = self.rest.split_first().ok_or(ValueError::Malformed)?;
        self.rest = rest;
        Ok(*byte)
    }

    #[inline]
    fn number(&mut self) -> Result<u64, ValueError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(ValueError::Malformed)
    }

    #[inline]
    fn bytes(&mut self) -> Result<&'blob [u8], ValueError> {
        let length = usize::try_from(self.number()?).map_err(|_| ValueError::Malformed)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(ValueError::Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// How many items follow, each of so many pieces (PLAIN-2).
    #[inline]
    fn count(&mut self, pieces: usize) -> Result<usize, ValueError> {
        let count = usize::try_from(self.number()?).map_err(|_| ValueError::Malformed)?;
        if count > self.rest.len() / pieces { Err(ValueError::Malformed) } else { Ok(count) }
    }
}
