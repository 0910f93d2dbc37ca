//! Whether a device has forgotten the processes that held it.

/// What the vendor's library says of a device after a grant's processes are dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residue {
    /// Nothing of them is left.
    Gone,
    /// The device still lists one of them.
    Held,
    /// Nobody can tell: the family has no such library, or the device exists in name only.
    Unknown,
}

/// Asks the vendor's library. Called once or more after the end of every grant that had devices.
pub trait DeviceCheck: std::fmt::Debug {
    /// Whether `resource`'s device in `slot` still holds memory for the dead process `pid`.
    fn residue(&mut self, resource: &str, slot: u32, pid: u32) -> Residue;
}

/// For families that cannot tell.
#[derive(Debug, Clone, Copy, Default)]
pub struct NobodyKnows;

impl DeviceCheck for NobodyKnows {
    fn residue(&mut self, _resource: &str, _slot: u32, _pid: u32) -> Residue {
        Residue::Unknown
    }
}
