//! Strategies as they come over the wire, for the scheduler.

use oxiray_resources::Demand;
use oxiray_scheduler::{Condition, Operator, Otherwise, Place, ResourceRequest, Selector, Strategy};
use oxiray_wire::message::{LabelCondition, Strategy as CallReport};

/// What is wished for. A kind from a newer build is taken for the default.
pub(super) fn resource_request(demand: Demand, told: Option<&CallReport>) -> ResourceRequest {
    let Some(told) = told else { return demand.into() };
    let strategy = match told.kind {
        1 => Strategy::Spread,
        2 => Strategy::Node { node: told.node.unwrap_or_default(), otherwise: otherwise(told) },
        3 => Strategy::Labels { hard: selector(&told.hard), soft: selector(&told.preferred) },
        _ => Strategy::Default,
    };
    let selectors = told.selectors.iter().map(|one| selector(&one.conditions)).collect();
    ResourceRequest::new(demand, Place { strategy, selectors })
}

fn otherwise(told: &CallReport) -> Otherwise {
    match (told.soft, told.spill, told.fail) {
        (true, true, _) => Otherwise::Elsewhere,
        (true, false, _) => Otherwise::ElsewhereWhenGone,
        (false, _, true) => Otherwise::Fail,
        (false, _, false) => Otherwise::Wait,
    }
}

pub(super) fn selector(conditions: &[LabelCondition]) -> Selector {
    let condition = |one: &LabelCondition| {
        let operator = match one.operator {
            1 => Operator::In(one.values.clone()),
            2 => Operator::NotIn(one.values.clone()),
            3 => Operator::Exists,
            _ => Operator::Missing,
        };
        Condition { key: one.key.clone(), operator }
    };
    Selector(conditions.iter().map(condition).collect())
}
