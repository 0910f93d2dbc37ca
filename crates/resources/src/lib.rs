//! Quantities, demands, device inventories and the ledger that grants and takes back shares.
//!
//! ```text
//! Inventory   what a machine offers          {CPU: 4, GPU: 2}
//! Demand      what a task or actor asks for  {CPU: 1, GPU: 0.25}
//! Ledger      inventory - grants             one account per device, one per other resource
//! Grant       exact devices and shares       GPU 0: 0.25
//! Bundle      a grant to grant from          GPU 0 and 3 of a placement group
//! ```
//!
//! Everything here is arithmetic: no clock, no socket, no file, no thread and no random source, so
//! that any order of events can be replayed and tested.

mod accounts;
mod capacity;
mod choice;
mod demand;
mod devices;
mod grant;
mod inventory;
mod ledger;
mod memory;
mod name;
mod packing;
mod quantity;
mod shortage;
mod topology;

pub use capacity::{Capacity, ResourceNeed, Room, memory_of};
pub use choice::DeviceChoice;
pub use demand::{DEMAND_RESOURCES_MAX, Demand, DemandError};
pub use grant::{BundleId, DeviceShare, DeviceShares, Grant, GrantId};
pub use inventory::{DEVICES_MAX, Inventory, InventoryError};
pub use ledger::{Ledger, NoSuchDevice, OutOfService};
pub use memory::MemoryShares;
pub use name::{ACCELERATOR_TYPE_PREFIX, NameError, RESOURCE_NAME_BYTES_MAX, ResourceName};
pub use packing::{FreeDevices, NoPacking};
pub use quantity::{Quantity, QuantityError};
pub use shortage::{Busy, KeptBack, Never, Shortage, amount_in_words, size_from_text, size_in_words};
pub use topology::{ChoiceRule, Topology};

#[cfg(test)]
mod tests;
