//! What waits and cannot be placed, for the autoscaler; and what that may bring, for those who wait.
//!
//! - GROW-1: a demand that no node can meet and a group of the autoscaler could, waits for as long as the autoscaler is
//!   there, and is refused like any other from then on.
//! - GROW-2: the autoscaler is told at once when more or less waits, and in time when nodes become idle.
//! - GROW-3: a node whose machine is being taken away gets no work, whenever it joins.
//! - GROW-4: optional demand, for what a job would use and does not wait for, is published like pending requests, and ends with
//!   the job.

use crate::amounts::by_resource;
use crate::clock::{Due, Periodic};
use crate::demands::{Need, placement_strategy};
use crate::key_value::KeyValueStore;
use bytes::Bytes;
use oxiray_ids::JobId;
use oxiray_machine::Key;
use oxiray_resources::{FreeDevices, Inventory, Quantity, ResourceName};
use oxiray_scheduler::{
    Bundle, Condition, NodeGroup, NodeView, Operator, Otherwise, Place, ResourceRequest, Rule, Selector, Strategy,
    Verdict, verdicts,
};
use oxiray_wire::message::{Amount, GrowthGroup, GrowthReport, GrowthState, LabelCondition, LabelOperator, NodeJoin};
use oxiray_wire::state::{
    AutoscalerState, BundleRecord, FreeShare, FreeShares, GrowthView, MachineRecord, STATE_VERSION, SelectorRecord,
    SingleDevices, StandingRecord, WaitingRecord,
};
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How soon the autoscaler is told again when more or less waits, and when only nodes changed.
const PERIODS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// As good as for ever.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// The most kinds of requests that are told of.
pub(crate) const KINDS_MAX: usize = 10_000;
/// The label that names a machine as its provider does.
const INSTANCE_LABEL: &str = "oxiray.io/instance";
/// Where the standing request is kept.
const STANDING: (&[u8], &[u8]) = (b"autoscaler", b"standing");
/// In the same namespace, before a job's identifier: its optional demand.
const OPTIONAL: &str = "optional/";

/// The autoscaler, as the head knows it.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    by: Option<Key>,
    /// Since when there is none, where there was one.
    lost: Option<Instant>,
    groups: Vec<NodeGroup>,
    leaving: BTreeSet<String>,
    /// What it says of itself.
    state: Option<AutoscalerState>,
    /// What it was told last.
    told: Option<GrowthView>,
    /// How many waited, and on how many nodes, when it was told last.
    mark: Option<Mark>,
    is_urgent: bool,
    telling: Periodic,
}

/// How many wait, how many machines there are, and how many of them are being emptied.
pub(crate) type Mark = (usize, usize, usize);

/// What is new in the autoscaler's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct News {
    /// It is another one than before.
    pub(crate) is_new: bool,
    /// The key of the one before, where there is one.
    pub(crate) replaced: Option<Key>,
    /// It may bring other machines than before.
    pub(crate) brings_others: bool,
}

impl Growth {
    /// The autoscaler says what it may bring.
    pub(crate) fn heard(&mut self, from: Key, said: &GrowthState) -> News {
        let is_new = self.by != Some(from);
        let replaced = self.by.filter(|_| is_new);
        if is_new {
            (self.by, self.told, self.lost) = (Some(from), None, None);
        }
        let groups: Vec<NodeGroup> = said.groups.iter().filter_map(group_of).collect();
        let brings_others = is_new || groups != self.groups;
        self.groups = groups;
        self.leaving = said.leaving.iter().cloned().collect();
        self.state.clone_from(&said.state);
        self.is_urgent |= is_new;
        News { is_new, replaced, brings_others }
    }

    /// A visitor is gone. Returns whether that was the autoscaler.
    pub(crate) fn visitor_left(&mut self, key: Key, now: Instant) -> bool {
        if self.by != Some(key) {
            return false;
        }
        (self.by, self.lost) = (None, Some(now));
        self.leaving.clear();
        true
    }

    /// Whether the machine of a node is being taken away (GROW-3).
    pub(crate) fn takes_away(&self, node: &NodeJoin) -> bool {
        node.labels.get(INSTANCE_LABEL).is_some_and(|label| self.leaving.contains(label))
    }

    /// GROW-1: until when a request that no node can meet waits for the autoscaler, or for another one.
    pub(crate) fn awaited_until(
        &self,
        resource_request: &ResourceRequest,
        now: Instant,
        node_wait: Duration,
    ) -> Option<Instant> {
        self.group_for(resource_request)?;
        match (self.by, self.lost) {
            (Some(_), _) => Some(now + FOR_EVER),
            (None, Some(lost)) => Some(lost + node_wait),
            (None, None) => None,
        }
    }

    /// Whether machines may be brought, by an autoscaler that is there or may come back.
    pub(crate) fn may_bring(&self) -> bool {
        self.by.is_some() || self.lost.is_some()
    }

    /// Whether machines may be brought.
    pub(crate) fn has_autoscaler(&self) -> bool {
        self.by.is_some()
    }

    /// A group of which a machine could meet the request.
    pub(crate) fn group_for(&self, resource_request: &ResourceRequest) -> Option<&str> {
        let selectors = allowed(resource_request)?;
        let serves = |group: &&NodeGroup| group.why_not(&resource_request.demand, &selectors).is_none();
        self.groups.iter().find(serves).map(|group| group.name.as_str())
    }

    /// How far the machines of a group are, in words to add; empty where there is nothing to say.
    pub(crate) fn how_far(&self, group: &str) -> String {
        let mut groups = self.state.iter().flat_map(|state| &state.groups);
        let Some(status) = groups.find(|status| status.name == group) else { return String::new() };
        let counts = status.counts.iter().map(|(state, count)| format!("{count} {state}"));
        let told: Vec<String> = counts.chain(status.set_aside.iter().map(|why| format!("set aside: {why}"))).collect();
        if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) }
    }

    /// Why the autoscaler leaves them waiting whom it knows by these words; nothing where it does not say so.
    pub(crate) fn why_left_waiting(&self, who: &str) -> Option<&str> {
        let mut unmet = self.state.iter().filter(|_| self.by.is_some()).flat_map(|state| &state.unmet);
        unmet.find_map(|one| {
            let (_, of) = one.split_once(" x ")?;
            of.strip_prefix(who)?.split_once(": ").map(|(_, why)| why)
        })
    }

    /// Why no group could meet the request, in words to add to a reason; empty where there is no autoscaler.
    pub(crate) fn why_no_group(&self, resource_request: &ResourceRequest) -> String {
        let Some(selectors) = allowed(resource_request).filter(|_| self.by.is_some()) else {
            return String::new();
        };
        let reasons = self.groups.iter().filter_map(|group| {
            group.why_not(&resource_request.demand, &selectors).map(|why| format!("group `{}` {why}", group.name))
        });
        let reasons: Vec<String> = reasons.collect();
        let reasons = if reasons.is_empty() { "it has no groups".to_owned() } else { reasons.join("; ") };
        format!(". The autoscaler cannot bring such a machine either: {reasons}")
    }

    /// Why no machine that is there or that a group brings will ever do; empty where one could, and without an autoscaler.
    pub(crate) fn never_brought(&self, views: &[NodeView], need: &Need) -> String {
        let is_hopeless = |resource_request: &ResourceRequest| {
            let could = |verdict: &Verdict| verdict.failed.as_ref().is_none_or(|(rule, _)| *rule == Rule::Busy);
            self.group_for(resource_request).is_none() && !verdicts(views, resource_request).iter().any(could)
        };
        let hopeless = match need {
            Need::ResourceRequest(resource_request) => Some(resource_request.clone()).filter(is_hopeless),
            Need::Group(group) => group.bundles.iter().map(resource_request_for).find(is_hopeless),
            Need::Within { .. } => None,
        };
        hopeless.map(|resource_request| self.why_no_group(&resource_request)).unwrap_or_default()
    }

    /// Whether the autoscaler has what is needed brought, if not all of it at once.
    pub(crate) fn is_brought(&self, views: &[NodeView], need: &Need) -> bool {
        self.by.is_some() && self.never_brought(views, need).is_empty()
    }

    /// A kept value of that namespace changed: perhaps what was asked to fit into the cluster for good.
    pub(crate) fn kept_changed(&mut self, namespace: &Bytes) {
        self.is_urgent |= namespace == STANDING.0;
    }

    /// A job is over (GROW-4). Returns the names of kept values that are gone with it.
    pub(crate) fn withdraw_optional_demand(&mut self, kept: &mut KeyValueStore, job: JobId) -> Vec<(Bytes, Bytes)> {
        let namespace = Bytes::from_static(STANDING.0);
        let of_job = Bytes::from(format!("{OPTIONAL}{}/", job.hex()));
        let gone = kept.delete(&namespace, &of_job, true);
        self.is_urgent |= !gone.is_empty();
        gone.into_iter().map(|(key, _)| (namespace.clone(), key)).collect()
    }

    /// Whether the autoscaler is to be told how the cluster stands (GROW-2).
    pub(crate) fn due(&mut self, mark: Mark, now: Instant) -> Due {
        if self.by.is_none() {
            return Due::Later;
        }
        let is_urgent = self.is_urgent || self.mark != Some(mark);
        self.telling.due(if is_urgent { PERIODS.0 } else { PERIODS.1 }, now)
    }

    /// The cluster stands like this. Returns what the autoscaler is to be told, where it was told something else last.
    pub(crate) fn tell(&mut self, view: GrowthView, mark: Mark, now: Instant) -> Option<(Key, GrowthReport)> {
        let by = self.by?;
        self.telling.done(now);
        (self.mark, self.is_urgent) = (Some(mark), false);
        let view = Some(view);
        if view == self.told {
            return None;
        }
        self.told.clone_from(&view);
        Some((by, GrowthReport { view, version: STATE_VERSION, ..GrowthReport::default() }))
    }

    pub(crate) fn alarm_rang(&mut self) {
        self.telling.alarm_rang();
    }

    /// What it said of itself last.
    pub(crate) fn state(&self) -> Option<AutoscalerState> {
        self.state.clone()
    }

    /// What the autoscaler says of itself, for `oxiray status`.
    pub(crate) fn shown(&self) -> Option<AutoscalerState> {
        match (self.by, self.lost) {
            (Some(_), _) => self.state.clone(),
            (None, Some(_)) => {
                let absence = "it is gone: nothing is brought or taken away until there is another one".to_owned();
                Some(AutoscalerState { absence, ..AutoscalerState::default() })
            }
            (None, None) => None,
        }
    }
}

/// The optional demand of all jobs, as they published it.
pub(crate) fn optional_demand(kept: &KeyValueStore) -> impl Iterator<Item = WaitingRecord> {
    let (namespace, all) = (Bytes::from_static(STANDING.0), Bytes::from_static(OPTIONAL.as_bytes()));
    let told = kept.list(&namespace, &all).filter_map(|key| kept.get(&(namespace.clone(), key.clone())));
    let told: Vec<GrowthView> = told.filter_map(|rows| GrowthView::decode(&**rows).ok()).collect();
    told.into_iter().flat_map(|told| told.waiting).filter(|waiting| are_amounts(&waiting.resources))
}

/// What is to fit into the cluster for good, as `request_resources` wrote it down.
pub(crate) fn standing(kept: &KeyValueStore) -> Vec<StandingRecord> {
    let written = kept.get(&(Bytes::from_static(STANDING.0), Bytes::from_static(STANDING.1)));
    let written = written.and_then(|value| GrowthView::decode(&**value).ok());
    let mut standing = written.map(|written| written.standing).unwrap_or_default();
    standing.retain(|bundle| are_amounts(&bundle.resources));
    standing
}

/// Programs may write anything there, and what is no number is never equal to what was told before.
fn are_amounts(resources: &BTreeMap<String, f64>) -> bool {
    resources.values().all(|amount| amount.is_finite())
}

/// A machine, for the autoscaler.
pub(crate) fn machine_record(view: &NodeView, in_use: bool, is_leaving: bool, uses: u64) -> MachineRecord {
    let shares = |free: &FreeDevices| FreeShares {
        devices: free.shares().map(|free| FreeShare { free: free.map(Quantity::as_f64) }).collect(),
    };
    let single = |free: &FreeDevices| SingleDevices {
        numbers: free.in_service().filter(|(_, room)| room.is_single).map(|(number, _)| number).collect(),
    };
    let single = view.free_devices.iter().map(|(name, free)| (name.to_string(), single(free)));
    MachineRecord {
        single_devices: single.filter(|(_, of)| !of.numbers.is_empty()).collect(),
        node_id: view.node.hex(),
        replica: None,
        labels: view.labels.clone(),
        resources: view.inventory.offers().map(|(name, amount)| (name.to_string(), amount.as_f64())).collect(),
        free: Some(by_resource(view.free.iter().map(|(name, free)| (name, *free))).into()),
        free_devices: view.free_devices.iter().map(|(name, free)| (name.to_string(), shares(free))).collect(),
        is_leaving,
        in_use,
        uses,
    }
}

/// Those that wait for the same; nothing where no machine could help.
pub(crate) fn waiting_record(need: &Need, who: String, count: u32) -> Option<WaitingRecord> {
    let record = WaitingRecord { who, count, ..WaitingRecord::default() };
    match need {
        Need::ResourceRequest(resource_request) => {
            let selectors = allowed(resource_request);
            Some(WaitingRecord {
                resources: by_resource(resource_request.demand.iter()),
                is_bound: selectors.is_none(),
                labels: selectors.unwrap_or_default().iter().map(selector).collect(),
                ..record
            })
        }
        Need::Group(group) => {
            let bundle = |bundle: &Bundle| BundleRecord {
                resources: by_resource(bundle.demand.iter()),
                labels: selector(&bundle.selector).conditions,
            };
            Some(WaitingRecord {
                strategy: Some(placement_strategy(group.strategy)),
                bundles: group.bundles.iter().map(bundle).collect(),
                domain: group.domain.clone(),
                ..record
            })
        }
        Need::Within { .. } => None,
    }
}

/// What a bundle asks for, as if it were a task's.
fn resource_request_for(bundle: &Bundle) -> ResourceRequest {
    let selectors = if bundle.selector.0.is_empty() { Vec::new() } else { vec![bundle.selector.clone()] };
    ResourceRequest::new(bundle.demand.clone(), Place { selectors, ..Place::default() })
}

/// The labels under any of which a request may be met, none for all; nothing where it names a machine.
fn allowed(resource_request: &ResourceRequest) -> Option<Vec<Selector>> {
    let Some(place) = resource_request.place.as_deref() else { return Some(Vec::new()) };
    match &place.strategy {
        Strategy::Node { otherwise: Otherwise::Wait | Otherwise::Fail, .. } => None,
        Strategy::Node { .. } | Strategy::Default | Strategy::Spread => Some(place.selectors.clone()),
        Strategy::Labels { hard, .. } if place.selectors.is_empty() => Some(vec![hard.clone()]),
        Strategy::Labels { hard, .. } => {
            let both = |one: &Selector| Selector(one.0.iter().chain(&hard.0).cloned().collect());
            Some(place.selectors.iter().map(both).collect())
        }
    }
}

fn selector(selector: &Selector) -> SelectorRecord {
    let one = |condition: &Condition| {
        let (operator, values): (LabelOperator, &[String]) = match &condition.operator {
            Operator::In(values) => (LabelOperator::In, values),
            Operator::NotIn(values) => (LabelOperator::NotIn, values),
            Operator::Exists => (LabelOperator::Exists, &[]),
            Operator::Missing => (LabelOperator::Missing, &[]),
        };
        LabelCondition { key: condition.key.clone(), operator, values: values.to_vec() }
    };
    SelectorRecord { conditions: selector.0.iter().map(one).collect() }
}

fn group_of(told: &GrowthGroup) -> Option<NodeGroup> {
    Some(NodeGroup {
        name: told.name.clone(),
        min: 0,
        max: told.max,
        hosts: 1,
        resources: inventory(&told.totals)?,
        first_host: inventory(&told.first_host)?,
        labels: told.labels.clone(),
        priority: 0,
        idle_timeout_ms: 0,
    })
}

fn inventory(amounts: &[Amount]) -> Option<Inventory> {
    let named = amounts
        .iter()
        .map(|amount| Some((ResourceName::new(&amount.resource).ok()?, Quantity::from_units(amount.units).as_f64())));
    Inventory::new(named.collect::<Option<Vec<_>>>()?).ok()
}
