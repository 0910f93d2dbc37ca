//! Brings machines for what waits, and takes away those that nobody uses.
//!
//! What is wanted comes from the head, machines come from a [`Provider`]; a *group* says what machines of a kind there
//! may be. The unit is the *replica*: so many machines as its group has hosts, which come, are drained and go together.

mod fleet;
mod groups;
mod life;
mod local;
mod provider;
mod record;
mod run;
mod slurm;
mod status;
mod words;

pub use fleet::{Act, Fleet, Limits, RoundView};
pub use groups::{GROUPS_MAX, GroupError, GroupsFile, REPLICAS_MAX, entry_of, group_of, read_file};
pub use life::{Happening, State};
pub use local::{Local, Recorded};
pub use oxiray_scheduler::NodeGroup;
pub use oxiray_threads::Waker;
pub use provider::{Failed, Instance, InstanceState, Provider, ProviderError};
pub use record::{RecordError, read_record, situation};
pub use run::{Contact, Head, Options, RunError, run};
pub use slurm::{JobError, JobSettings, Jobs, JoinedCluster, Slurm, SlurmError};
pub use status::record_of;
pub use words::in_words;

/// The label that names a machine's group, as in Ray.
pub const GROUP_LABEL: &str = "ray.io/node-group";
/// The label that says which of its provider's machines a node is: [`Instance::id`].
pub const INSTANCE_LABEL: &str = "oxiray.io/instance";
