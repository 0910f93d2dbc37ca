//! Memory of a device that a process asked for, as its node, its process and people are told of it.

use super::words::MemoryTier;
use oxiray_fields::Fields;
use serde::{Deserialize, Serialize};

/// The memory of a device that a process asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceMemory {
    /// How much it asked for.
    #[field(1)]
    pub asked_bytes: u64,
    /// How much it was last seen to have; nothing where nobody tells.
    #[field(2)]
    pub used_bytes: Option<u64>,
    /// The strongest of what keeps it to that.
    #[field(3)]
    pub tier: MemoryTier,
    /// Whether it is ended where it is seen with more.
    #[field(4)]
    pub is_watched: bool,
}
