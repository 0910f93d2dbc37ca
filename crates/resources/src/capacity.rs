//! How much of a device there is, is free, is asked for or is held, in each dimension that is counted.

use std::fmt;

use crate::Quantity;

/// An amount of one device: a share of it, and bytes of its memory.
///
/// What asks for no memory is given no account of it: the share alone decides then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capacity {
    /// The share, at most [`Quantity::ONE`] of one device; in a demand the number of whole devices, or a share of one.
    pub share: Quantity,
    /// Bytes of its memory, of each device where several are asked for; zero where nobody counts them.
    pub memory_bytes: u64,
}

impl Capacity {
    /// A whole device of which the memory is not counted.
    pub const WHOLE: Self = Self { share: Quantity::ONE, memory_bytes: 0 };

    /// Whether it is enough for `asked` of one device.
    pub fn covers(self, asked: Self) -> bool {
        self.share >= asked.share && self.memory_bytes >= asked.memory_bytes
    }

    /// The sum; `None` where it cannot be represented.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match (self.share.checked_add(other.share), self.memory_bytes.checked_add(other.memory_bytes)) {
            (Some(share), Some(memory_bytes)) => Some(Self { share, memory_bytes }),
            _ => None,
        }
    }

    /// The difference; `None` where `other` is larger in any dimension.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match (self.share.checked_sub(other.share), self.memory_bytes.checked_sub(other.memory_bytes)) {
            (Some(share), Some(memory_bytes)) => Some(Self { share, memory_bytes }),
            _ => None,
        }
    }
}

/// A share whose memory is not counted.
impl From<Quantity> for Capacity {
    fn from(share: Quantity) -> Self {
        Self { share, memory_bytes: 0 }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.memory_bytes {
            0 => write!(f, "{}", self.share),
            bytes => write!(f, "{} with {bytes} bytes each", self.share),
        }
    }
}
