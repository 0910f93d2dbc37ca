//! Growing and shrinking: what waits, and who brings machines for it.

use super::Amount;
use crate::state::{AutoscalerState, GrowthView};
use oxiray_fields::Fields;
use std::collections::BTreeMap;

/// autoscaler → head: what may be brought, and what is on its way. Whoever says so is the cluster's autoscaler, until
/// its stream ends or another says so; the head tells it what waits ([`GrowthReport`]), whenever that changes.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct GrowthState {
    /// The groups.
    #[field(1)]
    pub groups: Vec<GrowthGroup>,
    /// Machines that are being taken away, by their provider's name: a node of theirs that joins is emptied at once.
    #[field(2)]
    pub leaving: Vec<String>,
    /// How things are, for people and for a plan elsewhere.
    #[field(4)]
    pub state: Option<AutoscalerState>,
}

/// Machines of one kind that may be brought.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct GrowthGroup {
    /// Its name.
    #[field(1)]
    pub name: String,
    /// The most replicas; with none it serves nobody.
    #[field(2)]
    pub max: u32,
    /// What each machine offers.
    #[field(3)]
    pub totals: Vec<Amount>,
    /// What the first machine of each replica offers besides.
    #[field(4)]
    pub first_host: Vec<Amount>,
    /// The machines' labels.
    #[field(5)]
    pub labels: BTreeMap<String, String>,
}

/// head → autoscaler, head → command line: machines, what waits, and the standing request.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct GrowthReport {
    /// The question; 0 where nobody asked.
    #[field(1)]
    pub request: u64,
    /// All of that.
    #[field(4)]
    pub view: Option<GrowthView>,
    /// What the autoscaler said last; for others than itself.
    #[field(5)]
    pub state: Option<AutoscalerState>,
    /// The version of these types ([`STATE_VERSION`](crate::state::STATE_VERSION)).
    #[field(6)]
    pub version: u32,
}

/// command line → head: what would the autoscaler be told? Answered by [`GrowthReport`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct GrowthQuery {
    /// Names the question.
    #[field(1)]
    pub request: u64,
}
