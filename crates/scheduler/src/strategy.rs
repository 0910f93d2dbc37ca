//! Where someone wants to run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use oxiray_ids::NodeId;
use oxiray_resources::Demand;

use crate::{Asks, NodeView};

/// What someone waits for: a demand, and where it may be met. A clone costs no allocation, and two requests are equal
/// exactly where they ask for the same at the same places.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceRequest {
    /// The resources.
    pub demand: Demand,
    /// Where; nothing for the default strategy on any machine.
    pub place: Option<Arc<Place>>,
}

impl From<Demand> for ResourceRequest {
    fn from(demand: Demand) -> Self {
        Self { demand, place: None }
    }
}

impl ResourceRequest {
    /// The request for `demand` at `place`.
    pub fn new(demand: Demand, place: Place) -> Self {
        let place = (place != Place::default()).then(|| Arc::new(place));
        Self { demand, place }
    }

    /// Whether it may be met on the machine, now or once that is empty. A request for one machine is not looked at elsewhere
    /// while that one could meet it.
    pub fn may_be_met_on(&self, view: &NodeView) -> bool {
        let is_allowed = self.place.as_deref().is_none_or(|place| place.allows(view));
        is_allowed && view.inventory.could_ever(&self.demand).is_ok()
    }
}

impl Asks for ResourceRequest {
    fn demands(&self) -> impl Iterator<Item = &Demand> {
        self.demand.demands()
    }
}

impl Place {
    /// Whether a machine may be chosen, whatever it has free.
    pub fn allows(&self, view: &NodeView) -> bool {
        let matches = |selector: &Selector| selector.matches(&view.labels);
        let is_named = match &self.strategy {
            Strategy::Node { node, otherwise: Otherwise::Wait | Otherwise::Fail | Otherwise::ElsewhereWhenGone } => {
                *node == view.node
            }
            Strategy::Labels { hard, .. } => matches(hard),
            Strategy::Node { .. } | Strategy::Default | Strategy::Spread => true,
        };
        is_named && (self.selectors.is_empty() || self.selectors.iter().any(matches))
    }
}

/// Which machines may be chosen, and how among those.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// How to choose.
    pub strategy: Strategy,
    /// Each narrows the machines down to those it matches; the first under which the demand has a place counts. None
    /// at all is any machine.
    pub selectors: Vec<Selector>,
}

/// How a machine is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Machine after machine until each is half used, then the least used one; work without accelerators keeps off
    /// machines that have some while others have room.
    #[default]
    Default,
    /// The least used machine; among equals each in turn.
    Spread,
    /// One machine.
    Node {
        /// Which.
        node: NodeId,
        /// What happens where it cannot.
        otherwise: Otherwise,
    },
    /// Machines with these labels.
    Labels {
        /// What must hold.
        hard: Selector,
        /// What is preferred among those.
        soft: Selector,
    },
}

/// What happens where the machine of [`Strategy::Node`] is gone, too small or busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Otherwise {
    /// Gone or too small: never. Busy: wait for it.
    Wait,
    /// Never, even where it is only busy.
    Fail,
    /// Gone or too small: elsewhere. Busy: wait for it.
    ElsewhereWhenGone,
    /// Elsewhere, even where it is only busy.
    Elsewhere,
}

/// Conditions on a machine's labels; all must hold. Without any, every machine matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector(pub Vec<Condition>);

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// The label.
    pub key: String,
    /// What must hold of it.
    pub operator: Operator,
}

/// What must hold of a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// It has one of these values.
    In(Vec<String>),
    /// It is missing, or has none of these values.
    NotIn(Vec<String>),
    /// It is there.
    Exists,
    /// It is missing.
    Missing,
}

impl Condition {
    /// Whether it holds of a machine with these labels.
    pub fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.contains(value)),
            Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::Missing => value.is_none(),
        }
    }
}

impl Selector {
    /// Whether every condition holds of a machine with these labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|condition| condition.holds(labels))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator } = self;
        match operator {
            Operator::In(values) => write!(f, "`{key}` in ({})", values.join(", ")),
            Operator::NotIn(values) => write!(f, "`{key}` not in ({})", values.join(", ")),
            Operator::Exists => write!(f, "`{key}` exists"),
            Operator::Missing => write!(f, "`{key}` does not exist"),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, condition) in self.0.iter().enumerate() {
            let and = if index == 0 { "" } else { " and " };
            write!(f, "{and}{condition}")?;
        }
        Ok(())
    }
}
