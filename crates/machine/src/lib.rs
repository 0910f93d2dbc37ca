//! What one machine decides: its ledger, its workers, their templates and environments, its devices. The head of a cluster
//! orders, and the machine grants within its own ledger.
//!
//! Nothing here does I/O or reads a clock. Events go in through methods of [`NodeCore`]; what is to be done comes out as
//! [`Effect`]s, in order.

mod alarm;
mod baselines;
mod choice;
mod confinement;
mod device_checks;
mod device_health;
mod device_links;
mod device_memory;
mod devices;
mod effect;
mod encoding;
pub mod environments;
mod foreign_use;
mod isolation;
mod memory;
mod memory_tiers;
mod names;
mod node;
mod origin;
mod plan;
mod served_head;
mod settled;
mod templates;
mod validation;
mod worker;

pub use choice::choice_in_words;
pub use confinement::{Confinement, Exceeded, INTERPRETER_BYTES};
pub use device_checks::{ANY_OF_THE_DEAD, DeviceQuestion, DeviceSlot, Residue};
pub use device_health::{CheckOutcome, DeviceErrorSeen, HealthRecord};
pub use device_memory::{CAP, SHARE_VARIABLE};
pub use effect::{Effect, SubmissionOrder, Whereabouts};
pub use encoding::{amounts, demand};
pub use isolation::{DeviceFence, IsolationPlan};
pub use memory::Measured;
pub use memory_tiers::{AskedTier, DeviceMemoryLimit, MemoryPlan};
pub use names::{BundleKey, GroupMembership, Key, Monitored, Numbers, TemplateKey};
pub use node::NodeCore;
pub use node::ending::{DYING_LIMIT, LEAVING_LIMIT, VERDICT_LIMIT, does_not_die};
pub use node::open_nodes::{OpenNode, OpenNodes};
pub use origin::Origin;
pub use plan::{Level, Plan, Rules};
pub use settled::Settled;
pub use validation::{NAME_BYTES_MAX, check_name, cut};
