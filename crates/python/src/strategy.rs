//! Strategies as Python tells them (`_strategies.told`), for the wire.

use oxiray_ids::{NodeId, PlacementGroupId};
use oxiray_wire::message::{LabelCondition, LabelSelector, Strategy};

pub(crate) type Condition = (String, u32, Vec<String>);

/// Kind, node, soft, spill, fail, hard conditions, preferred conditions, selectors; placement group, bundle, captures.
pub(crate) type StrategyTuple =
    (u32, Vec<u8>, bool, bool, bool, Vec<Condition>, Vec<Condition>, Vec<Vec<Condition>>, Vec<u8>, u32, bool);

/// The strategy as it travels.
pub(crate) fn from_told(
    (kind, node, soft, spill, fail, hard, preferred, selectors, group, bundle, captures): StrategyTuple,
) -> Strategy {
    Strategy {
        kind,
        node: NodeId::from_slice(&node),
        soft,
        spill,
        fail,
        hard: conditions(hard),
        preferred: conditions(preferred),
        selectors: selectors.into_iter().map(|one| LabelSelector { conditions: conditions(one) }).collect(),
        group: PlacementGroupId::from_slice(&group),
        bundle,
        captures,
    }
}

pub(crate) fn conditions(given: Vec<Condition>) -> Vec<LabelCondition> {
    given.into_iter().map(|(key, operator, values)| LabelCondition { key, operator, values }).collect()
}
