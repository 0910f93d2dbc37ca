//! Processes that wait for what others of them hold (`crate::deadlocks`): found, told of, and resolved by a call or a placement
//! group that fails.

use super::HeadCore;
use super::standstill::{Said, Standstill};
use crate::clock::Alarm;
use crate::deadlocks::{Party, Verdict, Waits};
use crate::demands::Need;
use crate::queue::PendingKind;
use crate::workers::Duty;
use oxiray_ids::{JobId, PlacementGroupId};
use oxiray_machine::Key;
use oxiray_resources::{Demand, ResourceName};
use oxiray_scheduler::Asks;
use oxiray_wire::message::{FailureCode, LeaseRefused, Notice, WaitsQuery};
use oxiray_wire::state::DeadlockFound;
use std::collections::BTreeSet;
use std::time::Duration;

/// How many of those who hold what something needs are named in its failure.
const NAMED_MAX: usize = 4;

/// What one of those who cannot go on waits for in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct InVain {
    ticket: u64,
    /// Who waits.
    by: Key,
    /// Whether it is a request for a worker of its.
    is_lease: bool,
}

impl HeadCore {
    /// Arranges for a look, where somebody waits.
    pub(super) fn arm_deadlocks(&mut self) {
        if let Some(period) = self.pending.deadlocks.arm(self.own.plan().rules.deadlock) {
            self.clock.alarm_at(self.clock.now + period, Alarm::Deadlocks);
        }
    }

    /// Whether something waits for more than processors.
    fn may_be_deadlocked(&self) -> bool {
        self.pending.queue.waiting().any(|waiting| match waiting.resource_request {
            Need::Within { demand, .. } => needs_more(demand),
            need => need.demands().any(needs_more),
        })
    }

    /// A round of questions is over: looks at what was said, does what follows, and asks anew where there is reason to.
    pub(super) fn look_for_deadlocks(&mut self) {
        let said = Said::new(self.pending.deadlocks.end_round());
        let (stuck, held) = self.standstill(&said);
        let standstill = Standstill { said: &said, stuck: &stuck, held: &held };
        let in_vain = self.in_vain(standstill);
        let waiting = in_vain.iter().map(|one| one.by).collect();
        match self.pending.deadlocks.find(waiting, self.own.plan().rules.deadlock, self.clock.now) {
            Verdict::Nothing => {}
            Verdict::Tell => self.tell_of_deadlock(&in_vain, standstill),
            Verdict::Fail => self.fail_for_deadlock(&in_vain, standstill),
        }
        self.pending.deadlocks.remember(said.into_waits());
        if !self.may_be_deadlocked() {
            return;
        }
        let asked = self.asked_for_waits();
        let number = self.new_key();
        for client in &asked {
            self.send(*client, WaitsQuery { number });
        }
        let patience = self.own.plan().rules.deadlock;
        let period = self.pending.deadlocks.begin_round(number, asked.len(), patience);
        self.clock.alarm_at(self.clock.now + period, Alarm::Deadlocks);
    }

    /// Drivers, and workers in use; where there are placement groups also those who are not, as they could remove one.
    fn asked_for_waits(&self) -> Vec<Key> {
        let has_groups = !self.groups.reservations.is_empty();
        let is_asked = |key: &Key| match self.workers.by_key.get(key).map(|worker| worker.duty) {
            Some(Duty::Leased(_) | Duty::Actor(_)) => true,
            Some(Duty::Idle) => has_groups,
            Some(Duty::Ending) => false,
            None => self.jobs.driver_of(self.clients.by_key[key].job) == Some(*key),
        };
        self.clients.by_key.keys().copied().filter(is_asked).collect()
    }

    /// What those wait for in vain whose going on would free something.
    fn in_vain(&self, standstill: Standstill<'_>) -> Vec<InVain> {
        let keepers = self.keepers(standstill);
        let all = keepers.into_iter().flat_map(|by| self.awaited_by(by, standstill));
        all.filter(|one| self.never_served(one.ticket, standstill)).collect()
    }

    /// What a process waits for in the queue.
    fn awaited_by(&self, by: Key, standstill: Standstill<'_>) -> Vec<InVain> {
        let (Some(client), Some(waits)) = (self.clients.by_key.get(&by), standstill.said.by(by)) else {
            return Vec::new();
        };
        let Waits { requests, actors, groups, .. } = waits;
        let of_leases = requests.iter().filter_map(|request| client.waiting.get(request).copied());
        let of_actors = actors.iter().filter_map(|actor| self.ticket_of(*actor, client.job));
        let of_groups = groups.iter().filter_map(|group| self.awaited_group(by, *group, standstill));
        let others = of_actors.chain(of_groups).map(|ticket| (ticket, false));
        of_leases
            .map(|ticket| (ticket, true))
            .chain(others)
            .map(|(ticket, is_lease)| InVain { ticket, by, is_lease })
            .collect()
    }

    /// What was found of which a request is a part, or behind which it waits, as long as that stands: by what was said last, and by
    /// what is held now.
    pub(super) fn deadlock_around(&self, ticket: u64) -> Option<DeadlockFound> {
        let (said, since) = self.pending.deadlocks.found()?;
        let said = Said::new(said.clone());
        let (stuck, held) = self.standstill(&said);
        let standstill = Standstill { said: &said, stuck: &stuck, held: &held };
        if self.in_vain(standstill).is_empty() || !self.never_served(ticket, standstill) {
            return None;
        }
        let why = self.why_never(ticket, standstill)?;
        let for_so_long = self.clock.now.saturating_duration_since(since);
        let left = self.own.plan().rules.deadlock.map(|patience| patience.saturating_sub(for_so_long));
        Some(DeadlockFound {
            reason: format!("{why}. {}", what_is_next(left)),
            found_s: for_so_long.as_secs_f64(),
            fails_in_s: left.map(|left| left.as_secs_f64()),
        })
    }

    /// Their drivers hear of it, once.
    fn tell_of_deadlock(&mut self, in_vain: &[InVain], standstill: Standstill<'_>) {
        let Some(youngest) = in_vain.iter().max() else { return };
        let Some(why) = self.why_never(youngest.ticket, standstill) else { return };
        let jobs: BTreeSet<JobId> = in_vain.iter().filter_map(|one| self.clients.job_of(one.by)).collect();
        let text = format!("{why}. {}", what_is_next(self.own.plan().rules.deadlock));
        for job in jobs {
            let Some(driver) = self.jobs.details.get(&job).map(|detail| detail.driver) else { continue };
            self.send(driver, Notice { text: text.clone(), ..Notice::default() });
        }
    }

    /// DEADLOCK-2: the youngest of what they wait for fails.
    fn fail_for_deadlock(&mut self, in_vain: &[InVain], standstill: Standstill<'_>) {
        let Some(InVain { ticket, by, is_lease }) = in_vain.iter().max().copied() else { return };
        let Some(text) = self.why_never(ticket, standstill) else { return };
        let Some(wanted) = self.pending.withdraw(ticket) else { return };
        let failure = FailureCode::DeviceDeadlock.because(text.clone());
        match &wanted.want {
            PendingKind::Lease { request, .. } if is_lease => {
                self.clients.waits_no_more(by, *request);
                self.send(by, LeaseRefused { request: *request, failure: Some(failure) });
            }
            PendingKind::Group { id, .. } => self.group_fails(*id, &text, Some(&failure)),
            PendingKind::Lease { .. } | PendingKind::Actor(_) => self.turn_away(&wanted, text),
        }
    }

    /// Why a request is never met.
    fn why_never(&self, ticket: u64, standstill: Standstill<'_>) -> Option<String> {
        let wanted = self.pending.wanted.get(&ticket)?;
        let need = self.pending.queue.resource_request_of(&ticket)?;
        let demand = need.demand().cloned().unwrap_or_else(|| Demand::sum(need.demands()));
        // Who has a share of a device has some of its memory, and the other way round.
        let is_wanted =
            |held: &Demand| demand.iter().any(|(name, _)| held.iter().any(|(held, _)| held.source() == name.source()));
        let processes = standstill.processes().filter_map(|worker| {
            if need.group().is_some() && self.workers.by_key.get(&worker)?.home.map(|home| home.group) == need.group() {
                return Some(self.holder_in_words(worker, "runs in the group", standstill));
            }
            let (_, held) = self.pending.fairness.held_by(worker)?;
            is_wanted(&held).then(|| self.holder_in_words(worker, &format!("holds {held}"), standstill))
        });
        let mut holders: Vec<String> = processes.collect();
        let rests = standstill.processes().any(|key| self.rests_with_some(key, standstill));
        let reserved = self.groups_in_words(standstill, is_wanted);
        let has_reserved = !reserved.is_empty();
        holders.extend(reserved);
        let more = holders.len().saturating_sub(NAMED_MAX);
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        holders.truncate(NAMED_MAX);
        let (kind, label, holders) = (wanted.want.kind(), &wanted.label, holders.join("; "));
        let end = if rests { ", end an actor that has no call (`ray.kill`, or its last handle goes)" } else { "" };
        let remove = if has_reserved { ", remove a placement group that is not needed any more" } else { "" };
        Some(format!(
            "{kind} `{label}` waits for {demand} and would for ever: what it needs is held by those who cannot go on before: \
             {holders}{more}. Ask for less in `{label}`, have its caller ask for less{end}{remove}, or offer more of it"
        ))
    }

    /// Whether a process runs nothing and holds something.
    fn rests_with_some(&self, process: Key, standstill: Standstill<'_>) -> bool {
        standstill.said.by(process).is_some_and(|waits| waits.rests)
            && self.pending.fairness.held_by(process).is_some_and(|(_, held)| !held.is_nothing())
    }

    /// What is set aside for groups that nobody who goes on could remove.
    fn groups_in_words(&self, standstill: Standstill<'_>, is_wanted: impl Fn(&Demand) -> bool) -> Vec<String> {
        let jobs: BTreeSet<JobId> = standstill
            .stuck
            .iter()
            .filter_map(|party| match party {
                Party::Job(job) => Some(*job),
                Party::Process(_) => None,
            })
            .collect();
        let groups = jobs.into_iter().flat_map(|job| self.reserved_by(job));
        let named = groups.filter_map(|group| {
            let there = group.nodes.iter().zip(&group.description.group.bundles).filter(|(node, _)| node.is_some());
            let held = Demand::sum(there.map(|(_, bundle)| &bundle.demand));
            let id: PlacementGroupId = group.description.id;
            is_wanted(&held)
                .then(|| format!("placement group {} holds {held}, and whoever could remove it waits", id.hex()))
        });
        named.collect()
    }

    fn holder_in_words(&self, worker: Key, how: &str, standstill: Standstill<'_>) -> String {
        let (label, pid) =
            self.workers.by_key.get(&worker).map_or(("", 0), |known| (known.label.as_str(), known.pid.unwrap_or(0)));
        let who = format!("`{label}` (pid {pid} on {}, which {how})", self.members.ip_of(worker));
        if standstill.said.by(worker).is_some_and(|waits| waits.rests) {
            return format!("{who} is an actor without a call, and whoever has a handle of it waits");
        }
        let tickets = self.awaited_by(worker, standstill).into_iter();
        let labels: BTreeSet<&str> = tickets
            .filter_map(|one| self.pending.wanted.get(&one.ticket))
            .map(|wanted| wanted.label.as_str())
            .collect();
        let awaited = if labels.is_empty() {
            "a call that one of the others runs".to_owned()
        } else {
            labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(" and ")
        };
        format!("{who} waits for {awaited}")
    }
}

/// What becomes of those who were found, of which one fails after so long.
fn what_is_next(left: Option<Duration>) -> String {
    match left {
        Some(left) => {
            format!("In {} s one of them fails, so that the others go on", (left.as_secs_f64() * 10.0).round() / 10.0)
        }
        None => "They wait until one of them is cancelled (OXIRAY_DEADLOCK is `report`)".to_owned(),
    }
}

/// Whether it asks for something that is not lent while its holder waits.
fn needs_more(demand: &Demand) -> bool {
    demand.iter().any(|(resource, _)| *resource != ResourceName::CPU)
}
