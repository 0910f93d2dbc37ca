//! Placement groups whose machines are all to be in one domain: to have one value of a label.
//!
//! A machine that is there says which domain it is in. One that is to come is in the domain that its group's label names, or
//! else in that of the group's machines so far, where they all are in one. Where none has come yet, those of one group are
//! taken for a domain of their own; where they came in several domains, or outside of any, more of them are no answer
//! (GROWTH-6).

use std::collections::{BTreeMap, BTreeSet};

use super::{GroupSituation, GrowthNeed, Planning, Situation};
use crate::strategy::{Condition, Operator, Selector};
use crate::{Group, NodeGroup};

/// How many domains are named.
const NAMED_MAX: usize = 4;

/// In which domains of a label the machines of a group have come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenDomains {
    /// The label's values.
    pub values: BTreeSet<String>,
    /// Whether machines without the label have come.
    pub is_unlabelled: bool,
}

/// In which domain further machines of a group are.
#[derive(Debug, PartialEq, Eq)]
enum Further {
    In(String),
    /// In one domain of their own, as far as is known.
    Unknown,
    /// In one that cannot be counted on: why, in words.
    Anywhere(String),
}

impl Further {
    fn of(group: &NodeGroup, label: &str, seen: &SeenDomains) -> Self {
        if let Some(value) = group.labels.get(label) {
            return Self::In(value.clone());
        }
        let mut values = seen.values.iter();
        match (values.next(), values.next(), seen.is_unlabelled) {
            (None, None, false) => Self::Unknown,
            (Some(value), None, false) => Self::In(value.clone()),
            (None, _, true) => Self::Anywhere(format!("has brought machines without the label `{label}`")),
            _ => {
                let named: Vec<String> = seen.values.iter().take(NAMED_MAX).map(|one| format!("`{one}`")).collect();
                let more = if seen.values.len() > NAMED_MAX { " and others" } else { "" };
                let none = if seen.is_unlabelled { " and without that label" } else { "" };
                Self::Anywhere(format!(
                    "has brought machines with different values of `{label}` ({}{more}{none}), and may again: give the \
                     group that label where all its machines have one value",
                    named.join(", ")
                ))
            }
        }
    }
}

/// The key by which machines of a plan know their domain. No label has such a name, so that only those who ask for a domain
/// count on what is not known of a machine yet.
pub(super) fn domain_key(label: &str) -> String {
    format!("in domain of {label}")
}

/// What is asked of a machine of a domain.
pub(super) fn within(selector: &Selector, label: &str, value: &str) -> Selector {
    let domain = Condition { key: domain_key(label), operator: Operator::In(vec![value.to_owned()]) };
    Selector(selector.0.iter().cloned().chain([domain]).collect())
}

impl Situation {
    /// The labels whose values are domains that somebody waits for.
    pub(super) fn domain_labels(&self) -> BTreeSet<&str> {
        let wanted = self.waiting.iter().filter_map(|waiting| match &waiting.wanted {
            GrowthNeed::Group(group) => group.domain.as_deref(),
            GrowthNeed::ResourceRequest(_) => None,
        });
        wanted.collect()
    }

    /// What a machine that is to come knows of its domains.
    pub(super) fn domains_to_come(&self, of: &GroupSituation) -> BTreeMap<String, String> {
        let domains = self.domain_labels().into_iter().filter_map(|label| match self.further(of, label) {
            Further::In(value) => Some((domain_key(label), value)),
            Further::Unknown => Some((domain_key(label), format!("new machines of `{}`", of.group.name))),
            Further::Anywhere(_) => None,
        });
        domains.collect()
    }

    fn further(&self, of: &GroupSituation, label: &str) -> Further {
        let mut seen = of.domains.get(label).cloned().unwrap_or_default();
        let is_of = |replica: usize| self.replicas.get(replica).is_some_and(|one| one.group == of.group.name);
        let machines = self.machines.iter().filter(|machine| machine.replica.is_some_and(is_of));
        for machine in machines {
            match machine.view.labels.get(label) {
                Some(value) => drop(seen.values.insert(value.clone())),
                None => seen.is_unlabelled = true,
            }
        }
        Further::of(&of.group, label, &seen)
    }
}

impl Planning<'_> {
    /// Why no machines of one domain will ever have room for all bundles; nothing where they may.
    pub(super) fn why_no_domain(&self, group: &Group) -> Option<String> {
        let label = group.domain.as_deref()?;
        let views = self.situation.machines.iter().filter(|machine| !machine.is_leaving);
        let emptied: Vec<crate::NodeView> = views.map(|machine| machine.view.emptied()).collect();
        if matches!(crate::place_group(&emptied, group), crate::GroupPlacement::On(_)) {
            return None;
        }
        let mut reasons = Vec::new();
        for of in &self.situation.groups {
            let why_not =
                |bundle: &crate::Bundle| of.group.why_not(&bundle.demand, std::slice::from_ref(&bundle.selector));
            let none = group.bundles.iter().map(why_not).reduce(Option::and).flatten();
            let why = none.or_else(|| match self.situation.further(of, label) {
                Further::Anywhere(why) => Some(why),
                Further::In(_) | Further::Unknown => None,
            })?;
            reasons.push(format!("`{}` {why}", of.group.name));
        }
        Some(format!("{}, and no group brings such machines: {}", one_value(label), listed(&reasons)))
    }

    /// What keeps the groups from bringing more of one domain.
    pub(super) fn what_is_left_of(&self, label: &str) -> String {
        let groups = self.situation.groups.iter().zip(&self.room);
        let reasons = groups.map(|(of, room)| {
            let name = &of.group.name;
            match self.situation.further(of, label) {
                Further::Anywhere(why) => format!("`{name}` {why}"),
                _ if of.set_aside.is_some() || *room == 0 => of.what_is_left(*room),
                Further::In(value) => format!("`{name}` may have {room} more, with the value `{value}`"),
                Further::Unknown => format!("`{name}` may have {room} more"),
            }
        });
        let reasons: Vec<String> = reasons.collect();
        format!("{}, and the groups cannot bring so much of one value: {}", one_value(label), listed(&reasons))
    }
}

fn one_value(label: &str) -> String {
    format!("all of its bundles are to be on machines with one value of `{label}`")
}

fn listed(reasons: &[String]) -> String {
    if reasons.is_empty() { "there are no groups".to_owned() } else { reasons.join("; ") }
}
