//! What every message has that the table of numbers names.

/// A message with a number of its own.
pub trait Numbered: Sized {
    /// The number that stands for it in a frame's header.
    const KIND: u16;
    /// How an enum of messages holds it: itself, or boxed where it is large.
    type Held: From<Self>;
}
