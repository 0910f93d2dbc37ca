//! Who waits for resources: served when there are some, told what is in the way when there are none.

use super::groups::Need;
use super::placing::Share;
use super::{Alarm, Duty, GroupMembership, HeadCore, Key, STARTING_MAX};
use oxiray_ids::{ActorId, JobId, NodeId, ObjectId, PlacementGroupId};
use oxiray_machine::environments::Environments;
use oxiray_resources::Quantity;
use oxiray_scheduler::WaitQueue;
use oxiray_scheduler::{Obstacle, Reason, Waiter, Waiting};
use oxiray_wire::message::{Environment, LeaseReclaim, Notice};
use oxiray_wire::state::DemandKind;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The shortest and the longest time between two askings for idle leases.
const RECLAIM_PERIODS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// How long someone waits before their driver is told why.
const NOTICE_AFTER: Duration = Duration::from_secs(10);
/// Of how many classes of each job that waits it is looked whether leases are to be recalled.
const CLASSES_MAX: usize = 16;
/// The most holders that one message names.
pub(super) const HOLDERS_NAMED_MAX: usize = 16;

/// Who waits in the queue.
#[derive(Debug, Clone)]
pub(super) enum PendingKind {
    Lease {
        client: Key,
        request: u64,
        environment: Environment,
        fresh: bool,
        home: Option<GroupMembership>,
        /// Large objects that are read, and their bytes.
        arguments: Vec<(ObjectId, u64)>,
        /// Whether its tasks may be run again.
        may_repeat: bool,
    },
    Actor(ActorId),
    Group {
        id: PlacementGroupId,
        maker: Key,
    },
}

#[derive(Debug, Clone)]
pub(super) struct PendingRequest {
    pub(super) want: PendingKind,
    pub(super) job: JobId,
    pub(super) label: String,
    pub(super) since: Instant,
    /// AHEAD-1.
    pub(super) is_brought: bool,
}

impl PendingKind {
    /// In a word.
    pub(super) fn kind(&self) -> DemandKind {
        match self {
            Self::Lease { .. } => DemandKind::Task,
            Self::Actor(_) => DemandKind::Actor,
            Self::Group { .. } => DemandKind::Group,
        }
    }
}

/// Everybody who waits for a worker or for bundles, and who is served first.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) queue: WaitQueue<JobId, u64, Need>,
    /// Who stands behind each ticket, in the queue or out of it.
    pub(super) wanted: BTreeMap<u64, PendingRequest>,
    pub(super) environments: Environments<Need>,
    /// Who is to be told that there is no environment for them, and why.
    pub(super) unprepared: Vec<(u64, String)>,
    pub(super) ahead: super::prefetch::Prefetches,
    pub(super) shortages: super::shortage::Shortages,
    pub(super) fairness: super::fairness::Fairness,
    /// Something came or changed by which somebody may be served.
    pub(super) is_due: bool,
}

impl HeadCore {
    /// Serves whoever can be served.
    pub(super) fn pump(&mut self) {
        while std::mem::take(&mut self.pending.is_due) && !self.pending.queue.is_empty() {
            for (ticket, share) in self.serve_queue(STARTING_MAX.saturating_sub(self.workers.starting)) {
                let wanted =
                    self.pending.wanted.remove(&ticket).expect("a ticket in the queue has someone who wants it");
                let is_over = !self.jobs.details.contains_key(&wanted.job);
                match share {
                    Share::BundlePlacement(room) => self.group_placed(&wanted.want, &room),
                    Share::Prefetches(..) if is_over => {}
                    Share::Prefetches(need, journey) => self.bring(ticket, wanted, need, journey),
                    Share::On(member, ..) if is_over => self.members.look_again(member),
                    Share::On(member, need, bundle) => self.order(member, ticket, wanted, (need, bundle)),
                }
            }
            self.exchange();
        }
        if self.pending.queue.is_empty() {
            self.pending.fairness.reclaim.someone_came = false;
            return;
        }
        if !self.pending.fairness.reclaim.notice_is_armed {
            self.pending.fairness.reclaim.notice_is_armed = true;
            self.alarm_at(self.clock.now + NOTICE_AFTER, Alarm::Notice);
        }
        if std::mem::take(&mut self.pending.fairness.reclaim.someone_came) {
            self.pending.fairness.reclaim.period = RECLAIM_PERIODS.0;
            let too_soon =
                self.pending.fairness.reclaim.last.is_some_and(|last| self.clock.now < last + RECLAIM_PERIODS.0);
            if !too_soon {
                self.ask_for_idle_leases();
            }
            self.arm_reclaim();
        }
        self.arm_recall();
    }

    /// Arranges for a look at which leases are to be recalled, where there is a reason for one.
    fn arm_recall(&mut self) {
        if let Some(at) = self.pending.fairness.next_look(self.pending.queue.jobs(), self.clock.now) {
            self.alarm_at(at, Alarm::Recall);
        }
    }

    /// Owners are told to give leases back by which those who wait may start (FAIR-2).
    pub(super) fn recall_leases(&mut self) {
        let waiters: Vec<Waiter<JobId>> =
            self.pending.queue.waiting_of_each(CLASSES_MAX).filter_map(|waiting| waiter(&waiting)).collect();
        let view = |node: NodeId| {
            let member = self.members.by_node.get(&node).and_then(|member| self.members.by_key.get(member));
            member.map(|member| member.view.clone())
        };
        let (recalled, again) = self.pending.fairness.look(&waiters, view, self.clock.now);
        for worker in recalled {
            if let Some(Duty::Leased(lease)) = self.workers.by_key.get(&worker).map(|worker| worker.duty) {
                self.retire_lease(lease);
            }
        }
        if let Some(at) = again {
            self.alarm_at(at, Alarm::Recall);
        }
        // BundlePlacement that was kept for somebody may be kept no longer.
        self.pending.is_due = true;
    }

    fn ask_for_idle_leases(&mut self) {
        self.pending.fairness.reclaim.last = Some(self.clock.now);
        let holders = self.clients.by_key.iter().filter(|(_, client)| !client.leases.is_empty()).map(|(key, _)| *key);
        for holder in holders.collect::<Vec<Key>>() {
            self.send(holder, LeaseReclaim {});
        }
    }

    fn arm_reclaim(&mut self) {
        if !std::mem::replace(&mut self.pending.fairness.reclaim.is_armed, true) {
            self.alarm_at(self.clock.now + self.pending.fairness.reclaim.period, Alarm::Reclaim);
        }
    }

    pub(super) fn reclaim_again(&mut self) {
        self.pending.fairness.reclaim.is_armed = false;
        if !self.pending.queue.is_empty() {
            self.ask_for_idle_leases();
            self.pending.fairness.reclaim.period = (self.pending.fairness.reclaim.period * 2).min(RECLAIM_PERIODS.1);
            self.arm_reclaim();
        }
    }

    /// Tells drivers, once for each demand, what has waited for long and what for.
    pub(super) fn notice(&mut self) {
        self.pending.fairness.reclaim.notice_is_armed = false;
        let long_ago = |since: Instant| self.clock.now >= since + NOTICE_AFTER;
        let mut due = Vec::new();
        for waiting in self.pending.queue.waiting() {
            let Some(wanted) = self.pending.wanted.get(waiting.oldest).filter(|wanted| long_ago(wanted.since)) else {
                continue;
            };
            due.push((wanted.clone(), waiting.resource_request.clone(), waiting.count));
        }
        for (wanted, need, count) in due {
            let text = self.why_it_waits(&wanted, &need, count);
            let Some(detail) = self.jobs.details.get_mut(&wanted.job) else { continue };
            if detail.is_news(need) {
                let driver = detail.driver;
                self.send(driver, Notice { text, ..Notice::default() });
            }
        }
        if !self.pending.queue.is_empty() {
            self.pending.fairness.reclaim.notice_is_armed = true;
            self.alarm_at(self.clock.now + NOTICE_AFTER / 4, Alarm::Notice);
        }
    }

    pub(super) fn why_it_waits(&self, wanted: &super::PendingRequest, need: &Need, count: usize) -> String {
        let what = format!("{} `{}`", wanted.want.kind(), wanted.label);
        let waited = self.clock.now.saturating_duration_since(wanted.since).as_secs();
        let others = if count > 1 { format!(" ({} more wait for the same)", count - 1) } else { String::new() };
        let resource_request = match need {
            Need::ResourceRequest(resource_request) => resource_request,
            Need::Within { group, bundle, demand } => {
                let (name, why) = (self.group_name(*group), self.why_within(*group, *bundle));
                return format!(
                    "{what} has waited {waited} s for {demand} within placement group {name}{others}: {why}"
                );
            }
            Need::Group(group) => {
                let (strategy, count) = (group.strategy.name(), group.bundles.len());
                let plural = if count == 1 { "" } else { "s" };
                let why = self.why_not_placed(group);
                return format!("{what} ({strategy}, {count} bundle{plural}) has waited {waited} s{others}: {why}");
            }
        };
        let demand = &resource_request.demand;
        let (among, busy) = match self.obstacle(resource_request) {
            Some(Reason { obstacle: Obstacle::Busy(busy), among, .. }) => (among, busy),
            Some(never) => {
                if let Some(group) = self.group_for(resource_request) {
                    return format!(
                        "{what} has waited {waited} s for {demand}{others}: the autoscaler is to bring a machine of \
                         group `{group}`"
                    );
                }
                let reason = never.message(&what);
                return format!("{reason}. It has waited {waited} s for such a machine to join");
            }
            None => {
                let starting = self.workers.starting;
                let room = if demand.is_nothing() {
                    "it needs no resources".to_owned()
                } else {
                    format!("there is room for {demand}")
                };
                return format!(
                    "{what} has waited {waited} s{others}: {room}, and its worker process has not started yet ({starting} \
                     are starting now)"
                );
            }
        };
        let resource = busy.resource.as_str();
        let holders = self.named_holders(resource);
        let held = if holders.is_empty() { String::new() } else { format!("; held by {}", holders.join(", ")) };
        format!("{what} has waited {waited} s for {demand}{among}{others}: {busy}{held}")
    }

    /// Who holds shares of a device of this machine, in words.
    pub(super) fn holders_of(&self, resource: &str, slot: u32) -> Vec<(u32, String, Quantity)> {
        self.own.holders_of((resource, slot), |(group, index)| {
            format!("placement group {}, bundle {index}, unused", self.group_name(group))
        })
    }

    fn named_holders(&self, resource: &str) -> Vec<String> {
        let devices = self.own.devices().into_iter().filter(|(name, _)| *name == resource);
        let on_devices = devices.flat_map(|(name, slot)| {
            let holders = self.holders_of(name, slot).into_iter();
            holders.map(move |(pid, label, share)| format!("pid {pid} ({label}: {share} of {name} {slot})"))
        });
        let mut named: Vec<String> = on_devices.collect();
        if named.is_empty() {
            named = self.own.holders_in_words(resource);
        }
        if named.len() > HOLDERS_NAMED_MAX {
            let more = named.len() - HOLDERS_NAMED_MAX;
            named.truncate(HOLDERS_NAMED_MAX);
            named.push(format!("and {more} more"));
        }
        named
    }
}

/// Who waits for resources of machines.
fn waiter(waiting: &Waiting<'_, JobId, u64, Need>) -> Option<Waiter<JobId>> {
    match waiting.resource_request {
        Need::ResourceRequest(resource_request) => {
            Some(Waiter { job: waiting.job, resource_request: resource_request.clone(), count: waiting.count })
        }
        Need::Within { .. } | Need::Group(_) => None,
    }
}
