//! Strategies as Python tells them (`_strategies.told`), for the wire.

use oxiray_ids::{BundleNumber, NodeId, PlacementGroupId};
use oxiray_wire::message::{LabelCondition, LabelOperator, LabelSelector, Strategy, StrategyKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub(crate) type Condition = (String, i32, Vec<String>);

/// Kind, node, soft, spill, fail, hard conditions, preferred conditions, selectors; placement group, bundle (counted from 1,
/// 0 for any), captures.
pub(crate) type StrategyTuple =
    (i32, Vec<u8>, bool, bool, bool, Vec<Condition>, Vec<Condition>, Vec<Vec<Condition>>, Vec<u8>, u32, bool);

/// The strategy as it travels.
pub(crate) fn from_told(
    (kind, node, soft, spill, fail, hard, preferred, selectors, group, bundle, captures): StrategyTuple,
) -> PyResult<Strategy> {
    let selector = |one| Ok(LabelSelector { conditions: conditions(one)? });
    Ok(Strategy {
        kind: StrategyKind::try_from(kind).map_err(|error| PyValueError::new_err(error.to_string()))?,
        node: NodeId::from_slice(&node),
        soft,
        spill,
        fail,
        hard: conditions(hard)?,
        preferred: conditions(preferred)?,
        selectors: selectors.into_iter().map(selector).collect::<PyResult<_>>()?,
        group: PlacementGroupId::from_slice(&group),
        bundle: bundle.checked_sub(1).map(BundleNumber),
        captures,
    })
}

pub(crate) fn conditions(given: Vec<Condition>) -> PyResult<Vec<LabelCondition>> {
    let condition = |(key, operator, values): Condition| {
        let operator = LabelOperator::try_from(operator).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(LabelCondition { key, operator, values })
    };
    given.into_iter().map(condition).collect()
}
