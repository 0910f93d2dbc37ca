//! What is asked for: as it comes over the wire, and as the scheduler has it.

use oxiray_ids::{BundleNumber, ObjectId, PlacementGroupId};
use oxiray_machine::{GroupMembership, check_name};
use oxiray_resources::{Demand, Quantity, ResourceName, ResourceNeed};
use oxiray_scheduler::{
    Asks, BUNDLES_MAX, Bundle, Condition, Group, GroupStrategy, LARGE_BYTES_MIN, Operator, Otherwise, Place,
    ResourceRequest, Selector, Strategy,
};
use oxiray_wire::message::{
    Amount, ArgumentReference, Content, GroupBundle, GroupCreate, LabelCondition, LabelOperator, LargeArgument,
    PlacementStrategy, Strategy as Told, StrategyKind,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many objects of a request are looked for.
const LARGE_ARGUMENTS_MAX: usize = 16;

/// What a demand was refused for, in words.
pub(crate) type Refusal = String;

/// What an entry of the queue waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Need {
    /// Resources of a machine.
    ResourceRequest(ResourceRequest),
    /// Resources of a bundle, or of any bundle of the group.
    Within { group: PlacementGroupId, bundle: Option<BundleNumber>, demand: Demand },
    /// Room for a whole group.
    Group(Arc<Group>),
}

impl Asks for Need {
    /// Who waits within a group waits for none of what other jobs could have.
    fn demands(&self) -> impl Iterator<Item = &Demand> {
        let (one, bundles) = match self {
            Self::ResourceRequest(resource_request) => (Some(&resource_request.demand), &[][..]),
            Self::Within { .. } => (None, &[][..]),
            Self::Group(group) => (None, &group.bundles[..]),
        };
        one.into_iter().chain(bundles.iter().map(|bundle| &bundle.demand))
    }
}

impl Need {
    /// What it asks for, where that is one demand.
    pub(crate) fn demand(&self) -> Option<&Demand> {
        match self {
            Self::ResourceRequest(resource_request) => Some(&resource_request.demand),
            Self::Within { demand, .. } => Some(demand),
            Self::Group(_) => None,
        }
    }

    /// The group within which it is to be met.
    pub(crate) fn group(&self) -> Option<PlacementGroupId> {
        match self {
            Self::Within { group, .. } => Some(*group),
            Self::ResourceRequest(_) | Self::Group(_) => None,
        }
    }
}

/// The group that a strategy names.
pub(crate) fn home(strategy: Option<&Told>) -> Option<GroupMembership> {
    let told = strategy.filter(|told| told.kind == StrategyKind::Group)?;
    Some(GroupMembership { group: told.group?, captures: told.captures })
}

/// What is wished for. What is to run within a placement group is placed with that.
pub(crate) fn resource_request(demand: Demand, told: Option<&Told>) -> ResourceRequest {
    let Some(told) = told else { return demand.into() };
    let strategy = match told.kind {
        StrategyKind::Default | StrategyKind::Group => Strategy::Default,
        StrategyKind::Spread => Strategy::Spread,
        StrategyKind::Node => Strategy::Node { node: told.node.unwrap_or_default(), otherwise: otherwise(told) },
        StrategyKind::Labels => Strategy::Labels { hard: selector(&told.hard), soft: selector(&told.preferred) },
    };
    let selectors = told.selectors.iter().map(|one| selector(&one.conditions)).collect();
    ResourceRequest::new(demand, Place { strategy, selectors })
}

fn otherwise(told: &Told) -> Otherwise {
    match (told.soft, told.spill, told.fail) {
        (true, true, _) => Otherwise::Elsewhere,
        (true, false, _) => Otherwise::ElsewhereWhenGone,
        (false, _, true) => Otherwise::Fail,
        (false, _, false) => Otherwise::Wait,
    }
}

fn selector(conditions: &[LabelCondition]) -> Selector {
    let condition = |one: &LabelCondition| {
        let operator = match one.operator {
            LabelOperator::In => Operator::In(one.values.clone()),
            LabelOperator::NotIn => Operator::NotIn(one.values.clone()),
            LabelOperator::Exists => Operator::Exists,
            LabelOperator::Missing => Operator::Missing,
        };
        Condition { key: one.key.clone(), operator }
    };
    Selector(conditions.iter().map(condition).collect())
}

/// The demand that the amounts make.
pub(crate) fn demand_of(amounts: &[Amount], label: &str) -> Result<Demand, Refusal> {
    let named = amounts.iter().map(|amount| {
        let name = ResourceName::new(&amount.resource).map_err(|error| format!("{label}: {error}"))?;
        Ok((name, Quantity::from_units(amount.units)))
    });
    Demand::new(named.collect::<Result<Vec<_>, Refusal>>()?).map_err(|error| format!("{label}: {error}"))
}

/// What is needed to place an actor is at least what it holds later.
pub(crate) fn at_least(placement: &Demand, running: &Demand) -> Demand {
    let mut most: BTreeMap<ResourceName, Quantity> = BTreeMap::new();
    for (name, amount) in placement.iter().chain(running.iter()) {
        let entry = most.entry(name.clone()).or_default();
        *entry = amount.max(*entry);
    }
    Demand::new(most).unwrap_or_else(|_| running.clone())
}

/// Whether a bundle of this size could grant the demand with nothing running in it.
pub(crate) fn holds(bundle: &Demand, demand: &Demand) -> bool {
    let has = |(name, amount): (&ResourceName, Quantity)| match ResourceNeed::of(name, amount) {
        _ if amount <= bundle.get(name.as_str()) => true,
        // How much of a device that is, its machine knows.
        ResourceNeed::Memory(_) => !bundle.get(name.source().as_str()).is_zero(),
        ResourceNeed::Amount(share) => {
            share < Quantity::ONE && matches!(bundle.asked_of(name), ResourceNeed::Memory(_))
        }
    };
    demand.iter().all(has)
}

/// What a group asks for, checked.
pub(crate) fn group_of(asked: &GroupCreate) -> Result<Group, Refusal> {
    if asked.bundles.is_empty() || asked.bundles.len() > BUNDLES_MAX {
        let count = asked.bundles.len();
        return Err(format!("a placement group has from 1 to {BUNDLES_MAX} bundles, and {count} were given"));
    }
    let bundles = asked.bundles.iter().enumerate().map(|(index, GroupBundle { demand, conditions })| {
        let demand = demand_of(demand, &format!("bundle {index}"))?;
        if demand.is_nothing() {
            return Err(format!("bundle {index} asks for nothing; give it a resource, as in {{\"CPU\": 1}}"));
        }
        Ok(Bundle { demand, selector: selector(conditions) })
    });
    let bundles = bundles.collect::<Result<_, String>>()?;
    let domain = Some(asked.domain.clone()).filter(|label| !label.is_empty());
    if let Some(label) = &domain {
        check_name("a topology's label", label)?;
    }
    Ok(Group { strategy: group_strategy(asked.strategy), bundles, preferred: asked.preferred, domain })
}

fn group_strategy(told: PlacementStrategy) -> GroupStrategy {
    match told {
        PlacementStrategy::Pack => GroupStrategy::Pack,
        PlacementStrategy::Spread => GroupStrategy::Spread,
        PlacementStrategy::StrictPack => GroupStrategy::StrictPack,
        PlacementStrategy::StrictSpread => GroupStrategy::StrictSpread,
    }
}

/// How a group's bundles are spread, as it is told.
pub(crate) fn placement_strategy(strategy: GroupStrategy) -> PlacementStrategy {
    match strategy {
        GroupStrategy::Pack => PlacementStrategy::Pack,
        GroupStrategy::Spread => PlacementStrategy::Spread,
        GroupStrategy::StrictPack => PlacementStrategy::StrictPack,
        GroupStrategy::StrictSpread => PlacementStrategy::StrictSpread,
    }
}

/// The large objects that a request names, and their bytes.
pub(crate) fn large(arguments: &[LargeArgument]) -> Vec<(ObjectId, u64)> {
    arguments.iter().take(LARGE_ARGUMENTS_MAX).map(|argument| (argument.object, argument.bytes)).collect()
}

/// The arguments that lie in a store, and their bytes.
pub(crate) fn stored_among(references: &[ArgumentReference]) -> Vec<(ObjectId, u64)> {
    let stored = |argument: &ArgumentReference| match argument.value.as_ref()?.content.as_ref()? {
        Content::Stored(bytes) if *bytes >= LARGE_BYTES_MIN => Some((argument.reference.as_ref()?.object, *bytes)),
        _ => None,
    };
    references.iter().filter_map(stored).take(LARGE_ARGUMENTS_MAX).collect()
}
