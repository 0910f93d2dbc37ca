//! How a worker's output says whose it is.
//!
//! Names travel within standard output and standard error, since nothing else keeps the order of names and text. A mark
//! of 128 random bits, which the worker writes as the first line of both before any code of the user's runs, tells a name
//! from text: a program can print whatever it likes, and prints no mark.
//!
//! - LABELS-1: the first line of a stream is the mark.
//! - LABELS-2: a name is the mark, the name and a newline, written in one piece that the kernel does not divide. What
//!   precedes it and has no newline is a line of its own.

/// A mark begins with this byte; what follows are hexadecimal digits.
pub const MARK_BYTE: u8 = 0x1e;

/// The length of a mark.
pub const MARK_BYTES: usize = 33;

/// The letters of a name at most.
pub const NAME_LETTERS_MAX: usize = 512;

/// The bytes that these take at most: with mark and newline they are less than `PIPE_BUF`.
pub const NAME_BYTES_MAX: usize = 4 * NAME_LETTERS_MAX;

/// A mark made of these random bits.
pub fn mark(chance: u128) -> String {
    format!("{}{chance:032x}", char::from(MARK_BYTE))
}

/// Whether these bytes can be a mark.
pub fn is_mark(bytes: &[u8]) -> bool {
    bytes.len() == MARK_BYTES && bytes[0] == MARK_BYTE && bytes[1..].iter().all(u8::is_ascii_hexdigit)
}
