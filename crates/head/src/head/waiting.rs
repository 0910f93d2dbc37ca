//! Who waits for resources: served when there are some, told what is in the way when there are none.

use super::HeadCore;
use super::device_rows::HoldersFound;
use super::explain::FULLY_NAMED_MAX;
use super::placing::Share;
use crate::clock::Alarm;
use crate::demands::Need;
use crate::workers::Duty;
use oxiray_ids::{JobId, NodeId};
use oxiray_machine::Key;
use oxiray_scheduler::{Waiter, Waiting};
use oxiray_wire::message::{LeaseReclaim, Notice};
use std::time::{Duration, Instant};

/// The shortest and the longest time between two askings for idle leases.
const RECLAIM_PERIODS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// How long someone waits before their driver is told why.
const NOTICE_AFTER: Duration = Duration::from_secs(10);
/// Of how many classes of each job that waits it is looked whether leases are to be recalled.
const CLASSES_MAX: usize = 16;
/// Why a request is refused whose job is forgotten: nobody knows with which program its worker would be started.
const JOB_OVER: &str = "its job is over and forgotten";
/// How many workers may be starting at once.
pub(super) const STARTING_MAX: usize = 64;

impl HeadCore {
    /// Serves whoever can be served now. Returns whether there was reason to look.
    pub(super) fn serve(&mut self) -> bool {
        let has_changed = std::mem::take(&mut self.pending.is_due);
        let goes_on = self.pending.scan.take_goes_on();
        if !(has_changed || goes_on) || self.pending.queue.is_empty() {
            return false;
        }
        let kept_on: Vec<NodeId> =
            self.pending.large.kept().into_iter().flat_map(|kept| kept.places.keys().copied()).collect();
        for (ticket, share) in self.serve_queue(STARTING_MAX.saturating_sub(self.workers.starting), has_changed) {
            let wanted = self.pending.wanted.remove(&ticket).expect("a ticket in the queue has someone who wants it");
            let is_over = !self.jobs.details.contains_key(&wanted.claimant.job);
            match share {
                Share::BundlePlacement(room) => self.group_placed(&wanted.want, &room),
                Share::Prefetches(..) if is_over => self.turn_away(&wanted, JOB_OVER.to_owned()),
                Share::Prefetches(need, journey) => self.bring(ticket, wanted, need, journey),
                Share::On(member, ..) if is_over => {
                    self.members.look_again(member);
                    self.turn_away(&wanted, JOB_OVER.to_owned());
                }
                Share::On(member, need, parts) => self.order(member, ticket, wanted, (need, parts)),
            }
        }
        self.show_kept_room(&kept_on);
        true
    }

    /// What is to happen while somebody still waits: owners are asked for leases, and drivers told in time.
    pub(super) fn look_after_waiting(&mut self) {
        if self.pending.queue.is_empty() {
            self.pending.fairness.reclaim.someone_came = false;
            return;
        }
        if !self.pending.fairness.reclaim.notice_is_armed {
            self.pending.fairness.reclaim.notice_is_armed = true;
            self.clock.alarm_at(self.clock.now + NOTICE_AFTER, Alarm::Notice);
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
        self.arm_deadlocks();
        self.keep_room();
        self.arm_preemption();
    }

    /// Arranges for a look at which leases are to be recalled, where there is a reason for one.
    fn arm_recall(&mut self) {
        if let Some(at) = self.pending.fairness.next_look(self.pending.queue.claimants(), self.clock.now) {
            self.clock.alarm_at(at, Alarm::Recall);
        }
    }

    /// Owners are told to give leases back by which those who wait may start (FAIR-2).
    pub(super) fn recall_leases(&mut self) {
        let waiters: Vec<Waiter<JobId>> =
            self.pending.queue.waiting_of_each(CLASSES_MAX).filter_map(|waiting| waiter(&waiting)).collect();
        let view = |node: NodeId| self.members.at(node).map(|member| member.view.clone());
        let (recalled, again) = self.pending.fairness.look(&waiters, view, self.clock.now);
        for worker in recalled {
            if let Some(Duty::Leased(lease)) = self.workers.by_key.get(&worker).map(|worker| worker.duty) {
                self.retire_lease(lease);
            }
        }
        if let Some(at) = again {
            self.clock.alarm_at(at, Alarm::Recall);
        }
        // Room that was kept for somebody may be kept no longer.
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
            self.clock.alarm_at(self.clock.now + self.pending.fairness.reclaim.period, Alarm::Reclaim);
        }
    }

    /// Owners are asked once more, and then more seldom.
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
            let Some(detail) = self.jobs.details.get_mut(&wanted.claimant.job) else { continue };
            if detail.is_news(waiting.resource_request) {
                due.push((detail.driver, wanted.clone(), waiting.resource_request.clone(), waiting.count));
            }
        }
        let holders = HoldersFound::default();
        for (place, (driver, wanted, need, count)) in due.into_iter().enumerate() {
            let holders = (place < FULLY_NAMED_MAX).then_some(&holders);
            let text = self.why_it_waits(&wanted, &need, count, holders);
            self.send(driver, Notice { text, ..Notice::default() });
        }
        if !self.pending.queue.is_empty() {
            self.pending.fairness.reclaim.notice_is_armed = true;
            self.clock.alarm_at(self.clock.now + NOTICE_AFTER / 4, Alarm::Notice);
        }
    }
}

/// Who waits for resources of machines.
fn waiter(waiting: &Waiting<'_, JobId, u64, Need>) -> Option<Waiter<JobId>> {
    match waiting.resource_request {
        Need::ResourceRequest(resource_request) => Some(Waiter {
            claimant: waiting.claimant,
            resource_request: resource_request.clone(),
            count: waiting.count,
        }),
        Need::Within { .. } | Need::Group(_) => None,
    }
}
