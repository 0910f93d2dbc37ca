//! What waits and cannot be placed, for the autoscaler; and what that may bring, for those who wait.
//!
//! - GROW-1: a demand that no node can meet and a group of the autoscaler could, waits for as long as the autoscaler is
//!   there, and is refused like any other from then on.
//! - GROW-2: the autoscaler is told at once when more or less waits, and in time when nodes become idle.
//! - GROW-3: a node whose machine is being taken away gets no work, whenever it joins.
//! - GROW-4: what a job hopes for, and would use without waiting for it, is told like what waits, and ends with the job.

use super::groups::Need;
use super::records::Row;
use super::report::by_name;
use super::{HeadCore, Key};
use bytes::Bytes;
use oxiray_ids::JobId;
use oxiray_resources::{FreeDevices, Inventory, Quantity, ResourceName};
use oxiray_scheduler::{
    Bundle, Condition, NodeGroup, NodeView, Operator, Otherwise, Place, ResourceRequest, Rule, Selector, Strategy,
    Verdict, verdicts,
};
use oxiray_wire::message::{Amount, GrowthGroup, GrowthReport, GrowthState, Refused};
use oxiray_wire::state::{
    AutoscalerState, BundleRecord, ConditionRecord, FreeShare, FreeShares, GrowthView, MachineRecord, STATE_VERSION,
    SelectorRecord, StandingRecord, WaitingRecord,
};
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How soon the autoscaler is told again when more or less waits, and when only nodes changed.
const PERIODS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// As good as for ever.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// The most kinds of requests that are told of.
const KINDS_MAX: usize = 10_000;
/// The label that names a machine as its provider does.
const INSTANCE_LABEL: &str = "oxiray.io/instance";
/// Where the standing request is kept.
const STANDING: (&[u8], &[u8]) = (b"autoscaler", b"standing");
/// In the same namespace, before a job's identifier: what it hopes for.
const HOPED: &str = "hoped/";

/// The autoscaler, as the head knows it.
#[derive(Debug, Default)]
pub(super) struct Growth {
    by: Option<Key>,
    /// Since when there is none, where there was one.
    lost: Option<Instant>,
    groups: Vec<NodeGroup>,
    leaving: BTreeSet<String>,
    /// What it says of itself.
    state: Option<AutoscalerState>,
    /// What it was told last.
    told: Option<GrowthView>,
    told_at: Option<Instant>,
    /// How many waited, and on how many nodes, when it was told last.
    mark: Option<(usize, usize, usize)>,
    is_urgent: bool,
    alarm: Option<Instant>,
}

impl HeadCore {
    /// The autoscaler says what it may bring.
    pub(crate) fn growth_state(&mut self, from: Key, state: &GrowthState) {
        let is_new = self.growth.by != Some(from);
        if is_new {
            self.log(format!("client {from} is the autoscaler, with {} groups", state.groups.len()));
            if let Some(before) = self.growth.by {
                self.send(before, Refused { text: "another autoscaler has taken its place".to_owned() });
            }
            (self.growth.by, self.growth.told, self.growth.lost) = (Some(from), None, None);
        }
        let groups: Vec<NodeGroup> = state.groups.iter().filter_map(group_of).collect();
        if is_new || groups != self.growth.groups {
            self.growth.groups = groups;
            self.look_at_all_shortages();
        }
        self.growth.leaving = state.leaving.iter().cloned().collect();
        self.growth.state.clone_from(&state.state);
        self.growth.is_urgent |= is_new;
        for key in self.members.others().map(|(key, _)| *key).collect::<Vec<Key>>() {
            self.drain_leaving(key);
        }
    }

    /// A visitor is gone: perhaps the autoscaler.
    pub(crate) fn visitor_left(&mut self, key: Key) {
        self.follower_left(key);
        if self.growth.by == Some(key) {
            self.log("the autoscaler is gone: no machines are brought or taken away".to_owned());
            (self.growth.by, self.growth.lost) = (None, Some(self.clock.now));
            self.growth.leaving.clear();
            self.look_at_all_shortages();
        }
    }

    /// The command line asks what the autoscaler would be told.
    pub(crate) fn growth_query(&mut self, from: Key, request: u64) {
        let (view, state) = (Some(self.growth_view()), self.growth.state.clone());
        self.send(from, GrowthReport { request, view, state, version: STATE_VERSION });
    }

    /// GROW-3.
    pub(super) fn drain_leaving(&mut self, key: Key) {
        let label = self.members.by_key.get(&key).and_then(|member| member.told.labels.get(INSTANCE_LABEL));
        let is_leaving = label.is_some_and(|label| self.growth.leaving.contains(label));
        if is_leaving && !self.members.drains.contains_key(&key) {
            self.drain_for(key, "its machine is being taken away");
        }
    }

    /// GROW-1: until when a request that no node can meet waits for the autoscaler.
    pub(super) fn growth_awaited_until(&self, resource_request: &ResourceRequest) -> Option<Instant> {
        self.group_for(resource_request)?;
        match (self.growth.by, self.growth.lost) {
            (Some(_), _) => Some(self.clock.now + FOR_EVER),
            (None, Some(lost)) => Some(lost + self.own.plan().node_wait),
            (None, None) => None,
        }
    }

    /// A group of which a machine could meet the request.
    pub(super) fn group_for(&self, resource_request: &ResourceRequest) -> Option<&str> {
        let selectors = allowed(resource_request)?;
        let serves = |group: &&NodeGroup| group.why_not(&resource_request.demand, &selectors).is_none();
        self.growth.groups.iter().find(serves).map(|group| group.name.as_str())
    }

    /// Why no group could meet the request, in words to add to a reason; empty where there is no autoscaler.
    pub(super) fn why_no_group(&self, resource_request: &ResourceRequest) -> String {
        let Some(selectors) = allowed(resource_request).filter(|_| self.growth.by.is_some()) else {
            return String::new();
        };
        let reasons = self.growth.groups.iter().filter_map(|group| {
            group.why_not(&resource_request.demand, &selectors).map(|why| format!("group `{}` {why}", group.name))
        });
        let reasons: Vec<String> = reasons.collect();
        let reasons = if reasons.is_empty() { "it has no groups".to_owned() } else { reasons.join("; ") };
        format!(". The autoscaler cannot bring such a machine either: {reasons}")
    }

    /// What was asked to fit into the cluster for good changed.
    pub(super) fn kept_changed(&mut self, namespace: &Bytes) {
        self.growth.is_urgent |= namespace == STANDING.0;
    }

    /// Why no machine that is there or that a group brings will ever do; empty where one could, and without an autoscaler.
    pub(super) fn never_brought(&self, need: &Need) -> String {
        let views = self.all_views();
        let is_hopeless = |resource_request: &ResourceRequest| {
            let could = |verdict: &Verdict| verdict.failed.as_ref().is_none_or(|(rule, _)| *rule == Rule::Busy);
            self.group_for(resource_request).is_none() && !verdicts(&views, resource_request).iter().any(could)
        };
        let hopeless = match need {
            Need::ResourceRequest(resource_request) => Some(resource_request.clone()).filter(is_hopeless),
            Need::Group(group) => group.bundles.iter().map(resource_request_for).find(is_hopeless),
            Need::Within { .. } => None,
        };
        hopeless.map(|resource_request| self.why_no_group(&resource_request)).unwrap_or_default()
    }

    /// Whether the autoscaler has what is needed brought, if not all of it at once.
    pub(super) fn is_brought(&self, need: &Need) -> bool {
        self.growth.by.is_some() && self.never_brought(need).is_empty()
    }

    /// GROW-4.
    pub(super) fn hopes_end(&mut self, job: JobId) {
        let namespace = Bytes::from_static(STANDING.0);
        let of_job = Bytes::from(format!("{HOPED}{}/", job.hex()));
        for (key, _) in self.durable.kept.delete(&namespace, &of_job, true) {
            self.growth.is_urgent = true;
            self.touch(Row::KeyValueStore(namespace.clone(), key));
        }
    }

    /// What jobs hope for, as they told it.
    fn hopes(&self) -> impl Iterator<Item = WaitingRecord> {
        let (namespace, all) = (Bytes::from_static(STANDING.0), Bytes::from_static(HOPED.as_bytes()));
        let told = self
            .durable
            .kept
            .list(&namespace, &all)
            .filter_map(|key| self.durable.kept.get(&(namespace.clone(), key.clone())));
        let told: Vec<GrowthView> = told.filter_map(|rows| GrowthView::decode(&**rows).ok()).collect();
        told.into_iter().flat_map(|told| told.waiting).filter(|waiting| are_amounts(&waiting.resources))
    }

    /// GROW-2; to be called after each batch of events.
    pub(super) fn tell_growth(&mut self) {
        let Some(by) = self.growth.by.filter(|_| self.durable.resumption.is_none()) else { return };
        let mark = (self.pending.queue.len(), self.members.by_key.len(), self.members.drains.len());
        let is_urgent = self.growth.is_urgent || self.growth.mark != Some(mark);
        let period = if is_urgent { PERIODS.0 } else { PERIODS.1 };
        let due = self.growth.told_at.map_or(self.clock.now, |at| at + period);
        if self.clock.now < due {
            if self.growth.alarm.is_none_or(|alarm| due < alarm) {
                self.growth.alarm = Some(due);
                self.alarm_at(due, super::Alarm::Growth);
            }
            return;
        }
        let view = Some(self.growth_view());
        (self.growth.told_at, self.growth.mark, self.growth.is_urgent) = (Some(self.clock.now), Some(mark), false);
        if view != self.growth.told {
            self.growth.told.clone_from(&view);
            self.send(by, GrowthReport { view, version: STATE_VERSION, ..GrowthReport::default() });
        }
    }

    pub(super) fn growth_alarm(&mut self) {
        self.growth.alarm = None;
    }

    /// What the autoscaler says of itself, for `oxiray status`.
    pub(super) fn growth_shown(&self) -> Option<AutoscalerState> {
        match (self.growth.by, self.growth.lost) {
            (Some(_), _) => self.growth.state.clone(),
            (None, Some(_)) => {
                let absence = "it is gone: nothing is brought or taken away until there is another one".to_owned();
                Some(AutoscalerState { absence, ..AutoscalerState::default() })
            }
            (None, None) => None,
        }
    }

    fn look_at_all_shortages(&mut self) {
        self.pending.shortages.clear();
        self.pending.is_due = true;
    }

    /// What is to fit into the cluster for good, as `request_resources` wrote it down.
    pub(super) fn standing(&self) -> Vec<StandingRecord> {
        let written = self.durable.kept.get(&(Bytes::from_static(STANDING.0), Bytes::from_static(STANDING.1)));
        let written = written.and_then(|value| GrowthView::decode(&**value).ok());
        let mut standing = written.map(|written| written.standing).unwrap_or_default();
        standing.retain(|bundle| are_amounts(&bundle.resources));
        standing
    }

    fn growth_view(&self) -> GrowthView {
        let own = machine(&self.members.own().view, true, false, 0);
        let holders = self.objects.locations.only_holders(|member| self.members.takes(*member));
        let members = self.members.others().filter(|(_, member)| !member.is_silent).map(|(key, member)| {
            let is_in_use = holders.contains(key) || self.work_on(*key).is_in_use();
            machine(&member.view, is_in_use, self.members.drains.contains_key(key), member.state.order)
        });
        let waiting = self.pending.queue.waiting().take(KINDS_MAX).filter_map(|waiting| {
            let wanted = self.pending.wanted.get(waiting.oldest)?;
            let who = format!("{} `{}`", wanted.want.kind(), wanted.label);
            demand(waiting.resource_request, who, u32::try_from(waiting.count).unwrap_or(u32::MAX))
        });
        GrowthView {
            machines: std::iter::once(own).chain(members).collect(),
            waiting: waiting.chain(self.hopes()).take(KINDS_MAX).collect(),
            standing: self.standing(),
        }
    }
}

/// Programs may write anything there, and what is no number is never equal to what was told before.
fn are_amounts(resources: &BTreeMap<String, f64>) -> bool {
    resources.values().all(|amount| amount.is_finite())
}

fn machine(view: &NodeView, in_use: bool, is_leaving: bool, uses: u64) -> MachineRecord {
    let shares = |free: &FreeDevices| FreeShares {
        devices: free.shares().map(|free| FreeShare { free: free.map(Quantity::as_f64) }).collect(),
    };
    MachineRecord {
        node_id: view.node.hex(),
        replica: None,
        labels: view.labels.clone(),
        resources: by_name(view.inventory.totals()),
        free: Some(by_name(view.free.iter().map(|(name, free)| (name, *free))).into()),
        free_devices: view.free_devices.iter().map(|(name, free)| (name.to_string(), shares(free))).collect(),
        is_leaving,
        in_use,
        uses,
    }
}

/// Those that wait for the same; nothing where no machine could help.
fn demand(need: &Need, who: String, count: u32) -> Option<WaitingRecord> {
    let record = WaitingRecord { who, count, ..WaitingRecord::default() };
    match need {
        Need::ResourceRequest(resource_request) => {
            let selectors = allowed(resource_request);
            Some(WaitingRecord {
                resources: by_name(resource_request.demand.iter()),
                is_bound: selectors.is_none(),
                labels: selectors.unwrap_or_default().iter().map(selector).collect(),
                ..record
            })
        }
        Need::Group(group) => {
            let bundle = |bundle: &Bundle| BundleRecord {
                resources: by_name(bundle.demand.iter()),
                labels: selector(&bundle.selector).conditions,
            };
            Some(WaitingRecord {
                strategy: Some(group.strategy.name().to_owned()),
                bundles: group.bundles.iter().map(bundle).collect(),
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
        let (operator, values): (u32, &[String]) = match &condition.operator {
            Operator::In(values) => (1, values),
            Operator::NotIn(values) => (2, values),
            Operator::Exists => (3, &[]),
            Operator::Missing => (4, &[]),
        };
        ConditionRecord { key: condition.key.clone(), operator, values: values.to_vec() }
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
