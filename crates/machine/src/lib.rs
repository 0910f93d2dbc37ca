//! What one machine decides: its ledger, its workers, their templates and environments, its devices. The head of a cluster
//! orders, and the machine grants within its own ledger.
//!
//! Nothing here does I/O or reads a clock. Events go in through methods of [`NodeCore`]; what is to be done comes out as
//! [`Effect`]s, in order.

mod device_checks;
mod door;
mod effect;
mod encoding;
pub mod environments;
mod names;
mod node;
mod plan;

pub use device_checks::{ANY_OF_THE_DEAD, DeviceQuestion, DeviceSlot, Residue};
pub use door::{NAME_BYTES_MAX, check_name, cut};
pub use effect::{Effect, SubmissionOrder, Whereabouts};
pub use encoding::{amounts, demand};
pub use names::{BundleKey, Home, Key, Monitored, Numbers, TemplateKey};
pub use node::NodeCore;
pub use node::ending::confined::{Confinement, Exceeded};
pub use node::ending::memory::Measured;
pub use node::ending::{DYING_LIMIT, LEAVING_LIMIT, does_not_die};
pub use node::templates::Origin;
pub use plan::{Level, Plan};
