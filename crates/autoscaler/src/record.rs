//! A situation as text: what the head says, what a file holds, and what tests plan for.
//!
//! YAML, or JSON, which is YAML. Amounts are numbers as programs write them.

use crate::groups::{GroupEntry, GroupError};
use oxiray_ids::NodeId;
use oxiray_resources::{Demand, DemandError, Inventory, Quantity, QuantityError, ResourceName};
use oxiray_scheduler::{
    Bundle, Condition, Group, GroupSituation, GroupStrategy, MachineSituation, NodeView, Operator, Otherwise, Place,
    Replica, ReplicaState, Selector, Situation, Strategy, WaitingKind, Wanted, Wish,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

type Amounts = BTreeMap<String, f64>;

/// All that a plan is made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// The groups.
    pub groups: Vec<GroupEntry>,
    /// Why a group is asked for nothing for a while, by its name.
    pub set_aside: BTreeMap<String, String>,
    /// Their replicas.
    pub replicas: Vec<ReplicaRecord>,
    /// The machines of the cluster.
    pub machines: Vec<MachineRecord>,
    /// What waits.
    pub waiting: Vec<WaitingRecord>,
    /// The standing request.
    pub standing: Vec<StandingRecord>,
}

/// A replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaRecord {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: String,
    /// `coming`, `in use`, `idle` or `leaving`.
    pub state: String,
    /// For how long it has been idle, in seconds.
    #[serde(default)]
    pub idle_s: f64,
}

/// A machine that is alive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineRecord {
    /// `NodeId` in hexadecimal digits; anything else counts as none.
    pub node_id: String,
    /// The replica that it is a host of.
    pub replica: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it offers.
    pub resources: Amounts,
    /// What is free, where that is less.
    pub free: Option<Amounts>,
    /// What each device has free, nothing where it is out of service, where that is less.
    pub free_devices: BTreeMap<String, Vec<Option<f64>>>,
    /// Whether it is being emptied.
    pub is_leaving: bool,
    /// Whether something is there that must not be lost: work, programs, bundles, objects without another copy.
    pub in_use: bool,
    /// Counts what was placed there.
    pub uses: u64,
}

/// Those that wait for the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitingRecord {
    /// One of them, in words.
    pub who: String,
    /// How many there are.
    #[serde(default = "one")]
    pub count: u32,
    /// What a task or actor asks for.
    #[serde(default)]
    pub resources: Amounts,
    /// On machines with these labels: the first under which there is room counts; any where it is left out.
    #[serde(default)]
    pub labels: Vec<Vec<ConditionRecord>>,
    /// Whether it waits for one machine in particular.
    #[serde(default)]
    pub is_bound: bool,
    /// Of a placement group: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
    #[serde(default)]
    pub strategy: Option<String>,
    /// Of a placement group.
    #[serde(default)]
    pub bundles: Vec<BundleRecord>,
}

/// What is to fit on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleRecord {
    /// The amounts.
    pub resources: Amounts,
    /// All of these hold of its machine.
    #[serde(default)]
    pub labels: Vec<ConditionRecord>,
}

/// A bundle of the standing request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandingRecord {
    /// The amounts.
    pub resources: Amounts,
    /// How many of them.
    #[serde(default = "one")]
    pub count: u32,
    /// All of these hold of its machine.
    #[serde(default)]
    pub labels: Vec<ConditionRecord>,
}

/// A condition on a label: 1: has one of the values; 2: is missing or has none of them; 3: exists; 4: is missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConditionRecord {
    /// The label.
    pub key: String,
    /// What must hold.
    pub operator: u32,
    /// The values.
    #[serde(default)]
    pub values: Vec<String>,
}

fn one() -> u32 {
    1
}

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

impl Record {
    /// Reads one.
    pub fn read(text: &str) -> Result<Self, RecordError> {
        serde_saphyr::from_str(text).map_err(|error| RecordError::Syntax(error.to_string()))
    }

    /// What it describes.
    pub fn situation(&self) -> Result<Situation, RecordError> {
        let groups = self.groups.iter().map(|entry| {
            Ok(GroupSituation { group: entry.group()?, set_aside: self.set_aside.get(&entry.name).cloned() })
        });
        Ok(Situation {
            groups: groups.collect::<Result<_, RecordError>>()?,
            replicas: self.replicas.iter().map(ReplicaRecord::replica).collect::<Result<_, _>>()?,
            machines: self.machines.iter().map(|machine| self.machine(machine)).collect::<Result<_, _>>()?,
            waiting: self.waiting.iter().map(WaitingRecord::kind).collect::<Result<_, _>>()?,
            standing: self.standing.iter().map(StandingRecord::bundle).collect::<Result<_, _>>()?,
        })
    }

    fn machine(&self, machine: &MachineRecord) -> Result<MachineSituation, RecordError> {
        let replica = machine.replica.as_ref();
        let replica = replica.and_then(|name| self.replicas.iter().position(|found| found.name == *name));
        Ok(MachineSituation { view: machine.view()?, replica, is_leaving: machine.is_leaving })
    }
}

impl ReplicaRecord {
    fn replica(&self) -> Result<Replica, RecordError> {
        let state = match self.state.as_str() {
            "coming" => ReplicaState::Coming,
            "in use" => ReplicaState::InUse,
            "idle" => ReplicaState::Idle((self.idle_s.max(0.0) * 1000.0) as u64),
            "leaving" => ReplicaState::Leaving,
            other => return Err(RecordError::Word { what: "state of a replica", given: other.to_owned() }),
        };
        Ok(Replica { name: self.name.clone(), group: self.group.clone(), state })
    }
}

impl MachineRecord {
    /// The machine as the scheduler sees it.
    pub fn view(&self) -> Result<NodeView, RecordError> {
        let named = self.resources.iter().map(|(name, amount)| Ok((resource(name, *amount)?, *amount)));
        let inventory = Inventory::new(named.collect::<Result<Vec<_>, RecordError>>()?);
        let inventory = inventory.map_err(|error| RecordError::Syntax(error.to_string()))?;
        let node = NodeId::from_hex(&self.node_id).unwrap_or(NodeId::NIL);
        let blank = NodeView {
            node,
            inventory,
            free: BTreeMap::new(),
            free_devices: BTreeMap::new(),
            labels: self.labels.clone(),
        };
        let mut view = blank.emptied();
        if let Some(free) = &self.free {
            for (name, left) in &mut view.free {
                *left =
                    free.get(name.as_str()).map_or(Ok(Quantity::ZERO), |amount| quantity(name.as_str(), *amount))?;
            }
        }
        for (name, devices) in &self.free_devices {
            let shares = devices.iter().map(|free| free.map(|amount| quantity(name, amount)).transpose());
            view.free_devices.insert(resource(name, 0.0)?, shares.collect::<Result<_, _>>()?);
        }
        Ok(view)
    }
}

impl WaitingRecord {
    fn kind(&self) -> Result<WaitingKind, RecordError> {
        let wanted = if let Some(name) = &self.strategy {
            let unknown = || RecordError::Word { what: "strategy of a placement group", given: name.clone() };
            let strategy = GroupStrategy::from_name(name).ok_or_else(unknown)?;
            let bundles = self.bundles.iter().map(BundleRecord::bundle).collect::<Result<_, _>>()?;
            Wanted::Group(Group { strategy, bundles, preferred: None })
        } else {
            let bound = Strategy::Node { node: NodeId::NIL, otherwise: Otherwise::Wait };
            let strategy = if self.is_bound { bound } else { Strategy::Default };
            let selectors = self.labels.iter().map(|conditions| selector(conditions));
            let selectors = selectors.collect::<Result<_, _>>()?;
            Wanted::Wish(Wish::new(demand(&self.resources)?, Place { strategy, selectors }))
        };
        Ok(WaitingKind { who: self.who.clone(), count: self.count, wanted })
    }
}

impl BundleRecord {
    fn bundle(&self) -> Result<Bundle, RecordError> {
        Ok(Bundle { demand: demand(&self.resources)?, selector: selector(&self.labels)? })
    }
}

impl StandingRecord {
    fn bundle(&self) -> Result<(Bundle, u32), RecordError> {
        Ok((Bundle { demand: demand(&self.resources)?, selector: selector(&self.labels)? }, self.count))
    }
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

fn demand(amounts: &Amounts) -> Result<Demand, RecordError> {
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
