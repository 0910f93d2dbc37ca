//! A situation as text: what the head says, what a file holds, and what tests plan for.
//!
//! YAML, or JSON, which is YAML. Amounts are numbers as programs write them.

use crate::groups::{GroupError, group_of};
use oxiray_ids::NodeId;
use oxiray_resources::{Demand, DemandError, Inventory, Quantity, QuantityError, ResourceName};
use oxiray_scheduler::{
    Bundle, Condition, Group, GroupSituation, GroupStrategy, GrowthNeed, MachineSituation, NodeView, Operator,
    Otherwise, Place, Replica, ReplicaState, ResourceRequest, Selector, Situation, Strategy, WaitingKind,
};
use oxiray_wire::state::{
    BundleRecord, ConditionRecord, MachineRecord, PlanRecord, ReplicaRecord, StandingRecord, WaitingRecord,
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
    /// A word that is not known.
    #[error("`{given}` is no {what}")]
    Word {
        /// What it was to be.
        what: &'static str,
        /// What was given.
        given: String,
    },
}

/// Reads a record.
pub fn read_record(text: &str) -> Result<PlanRecord, RecordError> {
    serde_saphyr::from_str(text).map_err(|error| RecordError::Syntax(error.to_string()))
}

/// What a record describes.
pub fn situation(record: &PlanRecord) -> Result<Situation, RecordError> {
    let groups = record.groups.iter().map(|entry| {
        Ok(GroupSituation { group: group_of(entry)?, set_aside: record.set_aside.get(&entry.name).cloned() })
    });
    Ok(Situation {
        groups: groups.collect::<Result<_, RecordError>>()?,
        replicas: record.replicas.iter().map(replica).collect::<Result<_, _>>()?,
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

fn replica(record: &ReplicaRecord) -> Result<Replica, RecordError> {
    let state = match record.state.as_str() {
        "coming" => ReplicaState::Coming,
        "in use" => ReplicaState::InUse,
        "idle" => ReplicaState::Idle((record.idle_s.max(0.0) * 1000.0) as u64),
        "leaving" => ReplicaState::Leaving,
        other => return Err(RecordError::Word { what: "state of a replica", given: other.to_owned() }),
    };
    Ok(Replica { name: record.name.clone(), group: record.group.clone(), state })
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
    }
    for (name, of) in &machine.free_devices {
        let shares = of.devices.iter().map(|device| device.free.map(|amount| quantity(name, amount)).transpose());
        view.free_devices.insert(resource(name, 0.0)?, shares.collect::<Result<_, _>>()?);
    }
    Ok(view)
}

fn kind(record: &WaitingRecord) -> Result<WaitingKind, RecordError> {
    let wanted = if let Some(name) = &record.strategy {
        let unknown = || RecordError::Word { what: "strategy of a placement group", given: name.clone() };
        let strategy = GroupStrategy::from_name(name).ok_or_else(unknown)?;
        let bundles = record.bundles.iter().map(bundle).collect::<Result<_, _>>()?;
        GrowthNeed::Group(Group { strategy, bundles, preferred: None })
    } else {
        let bound = Strategy::Node { node: NodeId::NIL, otherwise: Otherwise::Wait };
        let strategy = if record.is_bound { bound } else { Strategy::Default };
        let selectors = record.labels.iter().map(|one| selector(&one.conditions));
        let selectors = selectors.collect::<Result<_, _>>()?;
        GrowthNeed::ResourceRequest(ResourceRequest::new(demand(&record.resources)?, Place { strategy, selectors }))
    };
    Ok(WaitingKind { who: record.who.clone(), count: record.count, wanted })
}

fn bundle(record: &BundleRecord) -> Result<Bundle, RecordError> {
    Ok(Bundle { demand: demand(&record.resources)?, selector: selector(&record.labels)? })
}

fn standing(record: &StandingRecord) -> Result<(Bundle, u32), RecordError> {
    Ok((Bundle { demand: demand(&record.resources)?, selector: selector(&record.labels)? }, record.count))
}

fn selector(conditions: &[ConditionRecord]) -> Result<Selector, RecordError> {
    let conditions = conditions.iter().map(|one| {
        let operator = match one.operator {
            1 => Operator::In(one.values.clone()),
            2 => Operator::NotIn(one.values.clone()),
            3 => Operator::Exists,
            4 => Operator::Missing,
            other => return Err(RecordError::Word { what: "operator on labels", given: other.to_string() }),
        };
        Ok(Condition { key: one.key.clone(), operator })
    });
    Ok(Selector(conditions.collect::<Result<_, _>>()?))
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
