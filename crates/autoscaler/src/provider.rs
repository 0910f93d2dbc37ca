//! Where machines come from.

use oxiray_scheduler::NodeGroup;
use thiserror::Error;

/// Brings machines and takes them away.
///
/// - PROVIDER-1: no call waits for machines. It begins something and returns; what became of it shows in
///   [`Provider::instances`] and [`Provider::errors`].
/// - PROVIDER-2: a request may be made again under its name, since its answer may have been lost. It then brings only
///   what was never brought of it: what came and is gone again is not missing.
/// - PROVIDER-3: a replica is atomic. All of its hosts are brought, and all of them are taken away.
///
/// One that hears of changes by itself is made with a [`Waker`](crate::Waker) and calls it; any other is asked once a
/// second while something is under way.
pub trait Provider: Send {
    /// The groups as they are now. A group that is missing here, and was there before, is drained and taken away.
    fn groups(&mut self) -> Result<Vec<NodeGroup>, ProviderError>;

    /// Every machine that is not gone: those that only begin to come too.
    fn instances(&mut self) -> Result<Vec<Instance>, ProviderError>;

    /// Begins to bring `replicas` replicas of a group. `request` names the request (PROVIDER-2).
    fn launch(&mut self, group: &NodeGroup, replicas: u32, request: &str) -> Result<(), ProviderError>;

    /// Begins to take replicas away, all hosts of each; what is gone already is no error. Their nodes were drained.
    fn terminate(&mut self, replicas: &[String], request: &str) -> Result<(), ProviderError>;

    /// What failed since the last call, each once.
    fn errors(&mut self) -> Vec<Failed>;
}

/// One machine of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name, unique for all time. Its node has it as the label [`INSTANCE_LABEL`](crate::INSTANCE_LABEL).
    pub id: String,
    /// Its group.
    pub group: String,
    /// Its replica: the same for each of the replica's hosts, and for no other machine.
    pub replica: String,
    /// Which host of the replica it is, from 0.
    pub host: u32,
    /// The request that it came of, where the provider knows.
    pub request: Option<String>,
    /// How far it is.
    pub state: InstanceState,
    /// Why it is not further, in words, such as the reason for which it is queued; empty where there is nothing to say.
    pub detail: String,
}

/// How far a machine is. Whether its node has joined is the head's to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// It waits for its turn among others at its provider, for as long as that takes.
    Queued,
    /// It is being brought.
    Pending,
    /// It runs.
    Running,
    /// It runs, and its provider ends it before long: it is to be empty by then.
    Expiring,
    /// It is being taken away.
    Terminating,
}

/// What a provider began, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// Replicas that will not come, and of which no machine is listed.
    Launch {
        /// The group.
        group: String,
        /// The request that they were to come of.
        request: String,
        /// How many.
        replicas: u32,
        /// Why, for people: "the quota of 4 GPUs is used up".
        text: String,
    },
    /// A replica that is listed and will not come further, or that was and went by itself: what there is of it is taken
    /// away. One of which all nodes have joined is left alone.
    Stuck {
        /// The group.
        group: String,
        /// The replica.
        replica: String,
        /// Why, for people: "no node of Kubernetes has a GPU for it".
        text: String,
    },
    /// A replica that could not be taken away; it is tried again.
    Terminate {
        /// The replica.
        replica: String,
        /// Why.
        text: String,
    },
}

/// A provider could not be asked, or refused at once.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct ProviderError {
    /// What happened, and what to do about it.
    pub text: String,
    /// Whether the same may succeed later: it could not be reached, or has too much to do.
    pub is_passing: bool,
}
