//! A situation as text: what the head says, what a file holds, and what tests plan for.
//!
//! YAML, or JSON, which is YAML. Amounts are numbers as programs write them.

use crate::groups::{GroupError, group_of};
use oxiray_ids::NodeId;
use oxiray_resources::{
    Capacity, Demand, DemandError, Inventory, Quantity, QuantityError, ResourceName, Room, memory_of,
};
use oxiray_scheduler::{
    Bundle, Condition, Group, GroupSituation, GroupStrategy, GrowthNeed, MachineSituation, NodeView, Operator,
    Otherwise, Place, Replica, ReplicaState, ResourceRequest, SeenDomains, Selector, Situation, Strategy, WaitingKind,
};
use oxiray_wire::message::{LabelCondition, LabelOperator, PlacementStrategy};
use oxiray_wire::state::{
    BundleRecord, MachineRecord, PlanRecord, ReplicaPhase, ReplicaRecord, StandingRecord, WaitingRecord,
};
use std::collections::BTreeMap;
use thiserror::Error;

/// Why a record says nothing.
#[derive(Debug, Error)]
pub enum RecordError {
    /// It is not written as it must be.
    #[error("the record cannot be read: {0}")]
    Syntax(String),
    /// A group cannot be.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// An amount is none, or a name.
    #[error("{what} is {given}: {why}")]
    Amount {
        /// The resource.
        what: String,
        /// What was given.
        given: f64,
        /// What is wrong with it.
        why: String,
    },
    /// Amounts that make no demand.
    #[error(transparent)]
    Demand(#[from] DemandError),
}

/// Reads a record.
pub fn read_record(text: &str) -> Result<PlanRecord, RecordError> {
    serde_saphyr::from_str(text).map_err(|error| RecordError::Syntax(error.to_string()))
}

/// What a record describes.
pub fn situation(record: &PlanRecord) -> Result<Situation, RecordError> {
    let groups = record.groups.iter().map(|entry| {
        let of_group = record.domains.iter().filter(|seen| seen.group == entry.name);
        let seen = of_group.map(|seen| {
            let values = seen.values.iter().cloned().collect();
            (seen.label.clone(), SeenDomains { values, is_unlabelled: seen.is_unlabelled })
        });
        Ok(GroupSituation {
            group: group_of(entry)?,
            set_aside: record.set_aside.get(&entry.name).cloned(),
            domains: seen.collect(),
        })
    });
    Ok(Situation {
        groups: groups.collect::<Result<_, RecordError>>()?,
        replicas: record.replicas.iter().map(replica).collect(),
        machines: record.machines.iter().map(|found| machine(record, found)).collect::<Result<_, _>>()?,
        waiting: record.waiting.iter().map(kind).collect::<Result<_, _>>()?,
        standing: record.standing.iter().map(standing).collect::<Result<_, _>>()?,
    })
}

fn machine(record: &PlanRecord, machine: &MachineRecord) -> Result<MachineSituation, RecordError> {
    let replica = machine.replica.as_ref();
    let replica = replica.and_then(|name| record.replicas.iter().position(|found| found.name == *name));
    Ok(MachineSituation { view: view(machine)?, replica, is_leaving: machine.is_leaving })
}

fn replica(record: &ReplicaRecord) -> Replica {
    let state = match record.state {
        ReplicaPhase::Coming => ReplicaState::Coming,
        ReplicaPhase::InUse => ReplicaState::InUse,
        ReplicaPhase::Idle => ReplicaState::Idle((record.idle_s.max(0.0) * 1000.0) as u64),
        ReplicaPhase::Leaving => ReplicaState::Leaving,
    };
    Replica { name: record.name.clone(), group: record.group.clone(), state }
}

/// A machine as the scheduler sees it.
fn view(machine: &MachineRecord) -> Result<NodeView, RecordError> {
    let named = machine.resources.iter().map(|(name, amount)| Ok((resource(name, *amount)?, *amount)));
    let inventory = Inventory::new(named.collect::<Result<Vec<_>, RecordError>>()?);
    let inventory = inventory.map_err(|error| RecordError::Syntax(error.to_string()))?;
    let node = NodeId::from_hex(&machine.node_id).unwrap_or(NodeId::NIL);
    let blank = NodeView {
        node,
        inventory,
        free: BTreeMap::new(),
        free_devices: BTreeMap::new(),
        labels: machine.labels.clone(),
    };
    let mut view = blank.emptied();
    if let Some(free) = &machine.free {
        for (name, left) in &mut view.free {
            let amount = free.by_name.get(name.as_str());
            *left = amount.map_or(Ok(Quantity::ZERO), |amount| quantity(name.as_str(), *amount))?;
        }
        // Of implicit resources a machine has one, whether or not it names them: what is left of it is told where some is used.
        for (name, amount) in &free.by_name {
            let implicit = resource(name, *amount)?;
            if implicit.is_implicit() {
                view.free.insert(implicit, quantity(name, *amount)?);
            }
        }
    }
    for (name, of) in &machine.free_devices {
        let mut sizes = view.inventory.device_memory(name).collect::<Vec<_>>().into_iter();
        let single = machine.single_devices.get(name);
        let rooms = (0..).zip(&of.devices).map(|(number, device)| {
            let size_bytes = sizes.next().unwrap_or(0);
            let Some(free) = device.free else { return Ok(None) };
            let share = quantity(name, free)?;
            let free = Capacity { share, memory_bytes: memory_of(share, size_bytes) };
            Ok(Some(Room { free, size_bytes, is_single: single.is_some_and(|of| of.numbers.contains(&number)) }))
        });
        let rooms = rooms.collect::<Result<_, RecordError>>()?;
        view.free_devices.insert(resource(name, 0.0)?, rooms);
    }
    Ok(view)
}

fn kind(record: &WaitingRecord) -> Result<WaitingKind, RecordError> {
    let wanted = if let Some(strategy) = record.strategy {
        let bundles = record.bundles.iter().map(bundle).collect::<Result<_, _>>()?;
        GrowthNeed::Group(Group {
            strategy: group_strategy(strategy),
            bundles,
            preferred: None,
            domain: record.domain.clone(),
        })
    } else {
        let bound = Strategy::Node { node: NodeId::NIL, otherwise: Otherwise::Wait };
        let strategy = if record.is_bound { bound } else { Strategy::Default };
        let selectors = record.labels.iter().map(|one| selector(&one.conditions)).collect();
        GrowthNeed::ResourceRequest(ResourceRequest::new(demand(&record.resources)?, Place { strategy, selectors }))
    };
    Ok(WaitingKind { who: record.who.clone(), count: record.count, wanted })
}

fn bundle(record: &BundleRecord) -> Result<Bundle, RecordError> {
    Ok(Bundle { demand: demand(&record.resources)?, selector: selector(&record.labels) })
}

fn standing(record: &StandingRecord) -> Result<(Bundle, u32), RecordError> {
    Ok((Bundle { demand: demand(&record.resources)?, selector: selector(&record.labels) }, record.count))
}

fn group_strategy(told: PlacementStrategy) -> GroupStrategy {
    match told {
        PlacementStrategy::Pack => GroupStrategy::Pack,
        PlacementStrategy::Spread => GroupStrategy::Spread,
        PlacementStrategy::StrictPack => GroupStrategy::StrictPack,
        PlacementStrategy::StrictSpread => GroupStrategy::StrictSpread,
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

fn demand(amounts: &BTreeMap<String, f64>) -> Result<Demand, RecordError> {
    let named = amounts.iter().map(|(name, amount)| Ok((resource(name, *amount)?, quantity(name, *amount)?)));
    Ok(Demand::new(named.collect::<Result<Vec<_>, RecordError>>()?)?)
}

fn resource(name: &str, amount: f64) -> Result<ResourceName, RecordError> {
    let wrong = |error: oxiray_resources::NameError| RecordError::Amount {
        what: name.to_owned(),
        given: amount,
        why: error.to_string(),
    };
    ResourceName::new(name).map_err(wrong)
}

fn quantity(name: &str, amount: f64) -> Result<Quantity, RecordError> {
    let wrong =
        |error: QuantityError| RecordError::Amount { what: name.to_owned(), given: amount, why: error.to_string() };
    Quantity::from_f64(amount).map_err(wrong)
}
