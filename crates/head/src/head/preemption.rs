//! Work that ends early for what is more urgent (`crate::preemption`): chosen, told, and ended.

use super::HeadCore;
use crate::clock::Alarm;
use crate::demands::Need;
use crate::fairness::Holder;
use crate::large::Places;
use crate::placement_groups::{GroupPhase, PlacementGroup};
use crate::preemption::{
    CONSIDERED_MAX, MACHINES_MAX, PATIENCE, PATIENCE_FOR_MACHINES, Step, TAKEN_MAX, Victim, Warned,
};
use crate::queue::PendingKind;
use crate::workers::{Duty, Worker};
use oxiray_ids::{JobId, NodeId, PlacementGroupId};
use oxiray_machine::Key;
use oxiray_resources::ResourceName;
use oxiray_scheduler::{
    Asks as _, Eviction, HeldPart, NodeView, Preemptible, Priority, SoughtRoom, UrgentWaiter, preempt,
};
use oxiray_wire::message::{Notice, Preemption};
use oxiray_wire::state::ExitKind;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Of how many kinds of requests of each job it is looked whether somebody is to end for them.
const CLASSES_MAX: usize = 16;

/// Somebody for whom others may end.
struct Urgent {
    ticket: u64,
    priority: Priority,
    need: Need,
    count: usize,
    spared: BTreeSet<Victim>,
}

impl HeadCore {
    /// Arranges for a look, where there is somebody who may end early.
    pub(super) fn arm_preemption(&mut self) {
        if self.own.plan().rules.preemption_grace.is_none() || self.pending.fairness.preemptible().next().is_none() {
            return;
        }
        if let Some(at) = self.pending.preemption.arm(self.clock.now) {
            self.clock.alarm_at(at, Alarm::Preemption);
        }
    }

    /// What is due is done, and who waits is looked at anew.
    pub(super) fn look_for_preemption(&mut self) {
        let Some(grace) = self.own.plan().rules.preemption_grace else { return };
        self.pending.preemption.look(self.clock.now);
        self.spare_preempted();
        for (victim, step) in self.pending.preemption.due(self.clock.now) {
            match step {
                Step::Ask => self.tell_preempted(victim.holder, true),
                Step::End => self.end_preempted(victim),
            }
        }
        self.preempt_for_urgent(grace);
        if let Some(at) = self.pending.preemption.next_due() {
            self.clock.alarm_at(at, Alarm::Preemption);
        }
        if !self.pending.queue.is_empty() {
            self.arm_preemption();
        }
    }

    fn preempt_for_urgent(&mut self, grace: Duration) {
        let candidates = self.preemptible();
        let Some(least) = candidates.iter().map(|candidate| candidate.priority).min() else { return };
        let urgent = self.urgent_above(least);
        if urgent.is_empty() {
            return;
        }
        let waiters: Vec<UrgentWaiter<'_, Victim>> = urgent.iter().filter_map(Urgent::as_waiter).collect();
        let ending: Vec<Preemptible<Victim>> =
            self.pending.preemption.warned().map(|warned| warned.told.clone()).collect();
        let has_groups = waiters.iter().any(|waiter| matches!(waiter.sought, SoughtRoom::Group(_)));
        let views = self.views_for(&candidates, &ending, has_groups);
        let chosen = preempt(&waiters, views, &ending, candidates.clone(), TAKEN_MAX);
        for Eviction { waiter, victims } in chosen {
            let Urgent { ticket, priority, need, .. } = &urgent[waiter];
            let told = candidates.iter().filter(|candidate| victims.contains(&candidate.victim));
            let told: Vec<Preemptible<Victim>> = told.cloned().collect();
            self.keep_made_room((*ticket, need.clone()), *priority, places(&told, need), self.clock.now + grace);
            for told in told {
                self.warn(told, &urgent[waiter], grace);
            }
        }
    }

    /// Those who wait for long enough, and for whom somebody of that priority may end: who is served first stands first.
    fn urgent_above(&self, least: Priority) -> Vec<Urgent> {
        let waiting = self.pending.queue.waiting_of_each(CLASSES_MAX).filter(|one| one.claimant.priority > least);
        let urgent = waiting.filter_map(|one| {
            let (ticket, need) = (*one.oldest, one.resource_request);
            let wanted = self.pending.wanted.get(&ticket)?;
            let waited = self.clock.now.saturating_duration_since(wanted.since);
            if waited < self.patience_for(need) || !self.has_no_bundles(&wanted.want) {
                return None;
            }
            // Who asks from within what may end would end with it, and ask again. Of the others of its kind nobody knows.
            let spared = self.waits_behind(&wanted.want);
            let count = if spared.is_empty() { one.count.min(TAKEN_MAX) } else { 1 };
            Some(Urgent { ticket, priority: one.claimant.priority, need: need.clone(), count, spared })
        });
        let mut urgent: Vec<Urgent> = urgent.collect();
        urgent.sort_by_key(|one| Reverse(one.priority));
        urgent
    }

    fn patience_for(&self, need: &Need) -> Duration {
        let wait = self.own.plan().rules.node;
        let is_brought = match need {
            Need::ResourceRequest(request) => self.growth.awaited_until(request, self.clock.now, wait).is_some(),
            Need::Group(_) => self.growth.has_autoscaler(),
            Need::Within { .. } => false,
        };
        if is_brought { PATIENCE_FOR_MACHINES } else { PATIENCE }
    }

    /// Whether it is no group that has some of its bundles already.
    fn has_no_bundles(&self, want: &PendingKind) -> bool {
        let PendingKind::Group { id, .. } = want else { return true };
        self.groups.known.get(*id).is_some_and(|group| group.nodes.iter().all(Option::is_none))
    }

    /// Who waits for what somebody waits for: the worker that asked, whoever leased that, and so on; and their groups.
    fn waits_behind(&self, want: &PendingKind) -> BTreeSet<Victim> {
        let mut found = BTreeSet::new();
        let mut next = self.asker(want);
        while let Some(key) = next.take() {
            let Some(worker) = self.workers.by_key.get(&key) else { break };
            let group = worker.home.map(|home| Holder::Group(home.group));
            let holders = group.into_iter().chain([Holder::Worker(key)]);
            found.extend(holders.filter_map(|holder| self.pending.fairness.victim(holder)));
            if let Duty::Leased(lease) = worker.duty {
                next = self.workers.leases.get(&lease).map(|lease| lease.owner);
            }
        }
        found
    }

    /// Those who may end early and were not told so: where they are and what they hold.
    fn preemptible(&self) -> Vec<Preemptible<Victim>> {
        let all = self.pending.fairness.preemptible();
        let mut all: Vec<(Priority, Victim)> =
            all.filter(|(_, victim)| !self.pending.preemption.is_warned(victim)).collect();
        all.sort_by_key(|(priority, victim)| (*priority, Reverse(*victim)));
        let known = all.into_iter().take(CONSIDERED_MAX).filter_map(|(priority, victim)| {
            let parts = match victim.holder {
                Holder::Worker(worker) => {
                    self.workers.by_key.get(&worker).filter(|worker| worker.duty.is_use() && !worker.end.is_doomed)?;
                    self.pending.fairness.part_of(worker).into_iter().collect()
                }
                Holder::Group(group) => self.parts_of_group(group)?,
                Holder::Order(_) => return None,
            };
            let is_known = !parts.is_empty() && parts.iter().all(knows_devices);
            is_known.then_some(Preemptible { victim, priority, parts })
        });
        known.collect()
    }

    fn parts_of_group(&self, id: PlacementGroupId) -> Option<Vec<HeldPart>> {
        let group = self.groups.known.get(id).filter(|group| group.phase == GroupPhase::Created)?;
        let part = |index: usize| self.part_of_bundle(group, index);
        Some((0..group.nodes.len()).filter_map(part).collect())
    }

    fn part_of_bundle(&self, group: &PlacementGroup, index: usize) -> Option<HeldPart> {
        let told = self.members.devices_of_bundle(group, index).into_iter();
        let devices = told.filter_map(|(name, numbers)| Some((ResourceName::new(&name).ok()?, numbers))).collect();
        let demand = group.description.group.bundles[index].demand.clone();
        Some(HeldPart { node: group.nodes[index]?, demand, devices })
    }

    /// The machines on which something may become free; where a group waits, others besides.
    fn views_for(
        &self,
        candidates: &[Preemptible<Victim>],
        ending: &[Preemptible<Victim>],
        has_groups: bool,
    ) -> BTreeMap<NodeId, NodeView> {
        let parts = candidates.iter().chain(ending).flat_map(|one| &one.parts);
        let of_parts: BTreeSet<NodeId> = parts.map(|part| part.node).collect();
        let of_parts_first = self.members.views().filter(|(_, view)| of_parts.contains(&view.node));
        let others = self.members.views().filter(|(_, view)| has_groups && !of_parts.contains(&view.node));
        let all = of_parts_first.chain(others.take(MACHINES_MAX));
        all.map(|(_, view)| (view.node, view.clone())).collect()
    }

    /// PREEMPTION-1: somebody is told to end for one who waits.
    fn warn(&mut self, told: Preemptible<Victim>, urgent: &Urgent, grace: Duration) {
        let holder = told.victim.holder;
        let label = self.pending.wanted.get(&urgent.ticket).map(|wanted| wanted.label.clone()).unwrap_or_default();
        let (Priority(above), Priority(own)) = (urgent.priority, told.priority);
        let reason = format!("`{label}`, whose priority is {above}, waits for what it holds, and its own is {own}");
        let name = self.name_of(holder);
        let text = format!(
            "{name} ends within {} s to make room: {reason}. It was made with preemptible=True, and is run again then",
            grace.as_secs_f64()
        );
        self.log(text.clone());
        if let Some(driver) =
            self.job_of_holder(holder).and_then(|job| self.jobs.details.get(&job)).map(|job| job.driver)
        {
            self.send(driver, Notice { text, ..Notice::default() });
        }
        for key in self.workers_of(holder) {
            if let Some(Duty::Leased(lease)) = self.workers.by_key.get(&key).map(|worker| worker.duty) {
                self.retire_lease(lease);
            }
        }
        let need = urgent.need.clone();
        self.pending.preemption.warn(told, (name, reason), need, self.clock.now, grace);
        self.tell_preempted(holder, false);
    }

    /// The processes of who is to end hear of it, or once more.
    fn tell_preempted(&mut self, holder: Holder, ends_now: bool) {
        let warned = self.pending.preemption.warned().find(|warned| warned.told.victim.holder == holder);
        let Some((reason, until)) = warned.map(|warned| (warned.reason.clone(), warned.until)) else { return };
        let left_ms = until.saturating_duration_since(self.clock.now).as_millis() as u64;
        for key in self.workers_of(holder) {
            if let Some(worker) = self.workers.by_key.get_mut(&key) {
                worker.end.preempted = Some(reason.clone());
            }
            self.send(key, Preemption { left_ms, reason: reason.clone(), is_over: false, ends_now });
        }
    }

    /// The processes that end with a holder.
    fn workers_of(&self, holder: Holder) -> Vec<Key> {
        let is_of = |(key, worker): &(&Key, &Worker)| match holder {
            Holder::Worker(of) => **key == of,
            Holder::Group(group) => worker.home.is_some_and(|home| home.group == group),
            Holder::Order(_) => false,
        };
        let alive = |(_, worker): &(&Key, &Worker)| worker.duty.is_use() && !worker.end.is_doomed;
        self.workers.by_key.iter().filter(is_of).filter(alive).map(|(key, _)| *key).collect()
    }

    fn name_of(&self, holder: Holder) -> String {
        match holder {
            Holder::Worker(key) => {
                let Some(worker) = self.workers.by_key.get(&key) else { return "a worker".to_owned() };
                let kind = if matches!(worker.duty, Duty::Actor(_)) { "actor" } else { "task" };
                format!("{kind} `{}` (pid {})", worker.label, worker.pid.unwrap_or(0))
            }
            Holder::Group(group) => format!("placement group {}", self.groups.name_of(group)),
            Holder::Order(_) => "an order".to_owned(),
        }
    }

    fn job_of_holder(&self, holder: Holder) -> Option<JobId> {
        match holder {
            Holder::Worker(key) => self.workers.by_key.get(&key).map(|worker| worker.job),
            Holder::Group(group) => self.groups.known.get(group).map(|group| group.description.job),
            Holder::Order(_) => None,
        }
    }

    /// The grace is over (PREEMPTION-1).
    fn end_preempted(&mut self, victim: Victim) {
        let Some(Warned { reason, .. }) = self.pending.preemption.forget(&victim) else { return };
        for key in self.workers_of(victim.holder) {
            if let Some(worker) = self.workers.by_key.get_mut(&key) {
                // One that was under way when the others were told has not heard of it.
                worker.end.preempted = Some(reason.clone());
            }
            self.exits_by(key, ExitKind::IntendedSystem, &format!("it was preempted: {reason}"));
            self.kill_worker(key);
        }
        if let Holder::Group(id) = victim.holder {
            let nodes = self.groups.known.get(id).into_iter().flat_map(|group| group.nodes.iter().flatten().copied());
            self.move_from(id, nodes.collect());
        }
    }

    /// PREEMPTION-2. Those who have ended meanwhile are forgotten.
    fn spare_preempted(&mut self) {
        let is_needed = |told: &Preemptible<Victim>| {
            let more_urgent = |one: &oxiray_scheduler::Waiting<'_, JobId, u64, Need>| {
                one.claimant.priority > told.priority && self.could_run_where(one.resource_request, &told.parts)
            };
            self.pending.queue.waiting().any(|one| more_urgent(&one))
        };
        let is_there = |victim: &Victim| self.pending.fairness.victim(victim.holder) == Some(*victim);
        let judged = self.pending.preemption.warned().map(|warned| &warned.told);
        let over: Vec<Victim> =
            judged.filter(|told| !is_there(&told.victim) || !is_needed(told)).map(|told| told.victim).collect();
        for victim in over {
            self.pending.preemption.forget(&victim);
            // What waits within a group that goes on may begin.
            self.pending.is_due = true;
            for key in self.workers_of(victim.holder) {
                if let Some(worker) = self.workers.by_key.get_mut(&key)
                    && worker.end.preempted.take().is_some()
                {
                    self.send(key, Preemption { is_over: true, ..Preemption::default() });
                }
            }
        }
    }

    /// Whether something could run on one of the machines where these parts are.
    fn could_run_where(&self, need: &Need, parts: &[HeldPart]) -> bool {
        let mut views = parts.iter().filter_map(|part| self.members.at(part.node)).map(|member| &member.view);
        match need {
            Need::ResourceRequest(request) => views.any(|view| request.may_be_met_on(view)),
            Need::Group(_) => views.next().is_some(),
            Need::Within { .. } => false,
        }
    }

    /// Who ends for those that wait for this, in words; nothing where nobody does.
    pub(super) fn preempted_in_words(&self, need: &Need) -> Option<String> {
        let ending = self.pending.preemption.ending_for(need);
        let ends = ending.map(|warned| {
            let left = warned.until.saturating_duration_since(self.clock.now);
            format!("{} within {:.0} s", warned.name, left.as_secs_f64().ceil())
        });
        let ends: Vec<String> = ends.collect();
        (!ends.is_empty()).then(|| format!("to make room, there ends {}", ends.join(", ")))
    }
}

/// Where they hold something of what is asked for, and what.
fn places(held: &[Preemptible<Victim>], need: &Need) -> Places {
    let mut places = Places::new();
    for part in held.iter().flat_map(|one| &one.parts) {
        let is_asked_for =
            |name: &ResourceName| need.demands().any(|asked| asked.iter().any(|(one, _)| one.source() == name));
        let names = part.demand.iter().map(|(name, _)| name.source()).filter(|name| is_asked_for(name));
        places.entry(part.node).or_default().extend(names.cloned());
    }
    places
}

impl Urgent {
    fn as_waiter(&self) -> Option<UrgentWaiter<'_, Victim>> {
        let sought = match &self.need {
            Need::ResourceRequest(request) => SoughtRoom::Request(request),
            Need::Group(group) => SoughtRoom::Group(group),
            Need::Within { .. } => return None,
        };
        Some(UrgentWaiter { priority: self.priority, sought, count: self.count, spared: self.spared.clone() })
    }
}

/// Whether it is known of each device of which it has some.
fn knows_devices(part: &HeldPart) -> bool {
    part.demand.devices().all(|(name, _)| part.devices.get(name).is_some_and(|numbers| !numbers.is_empty()))
}
