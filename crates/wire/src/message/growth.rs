//! Growing and shrinking: what waits, and who brings machines for it.

use super::Amount;
use std::collections::BTreeMap;

/// autoscaler → head: what may be brought, and what is on its way. Whoever says so is the cluster's autoscaler, until
/// its stream ends or another says so; the head tells it what waits ([`GrowthTold`]), whenever that changes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GrowthState {
    /// The groups.
    #[prost(message, repeated, tag = "1")]
    pub groups: Vec<GrowthGroup>,
    /// Machines that are being taken away, by their provider's name: a node of theirs that joins is emptied at once.
    #[prost(string, repeated, tag = "2")]
    pub leaving: Vec<String>,
    /// How things are, for people and for a plan elsewhere: JSON.
    #[prost(string, tag = "3")]
    pub detail: String,
}

/// Machines of one kind that may be brought.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GrowthGroup {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The most replicas; with none it serves nobody.
    #[prost(uint32, tag = "2")]
    pub max: u32,
    /// What each machine offers.
    #[prost(message, repeated, tag = "3")]
    pub totals: Vec<Amount>,
    /// What the first machine of each replica offers besides.
    #[prost(message, repeated, tag = "4")]
    pub first_host: Vec<Amount>,
    /// The machines' labels.
    #[prost(btree_map = "string, string", tag = "5")]
    pub labels: BTreeMap<String, String>,
}

/// head → autoscaler, head → command line: machines, what waits, and the standing request.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GrowthTold {
    /// The question; 0 where nobody asked.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// JSON; see docs/autoscaling.md.
    #[prost(string, tag = "2")]
    pub detail: String,
    /// What the autoscaler said last; for others than itself.
    #[prost(string, tag = "3")]
    pub state: String,
}

/// command line → head: what would the autoscaler be told? Answered by [`GrowthTold`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GrowthQuery {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
}
