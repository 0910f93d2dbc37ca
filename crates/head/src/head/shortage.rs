//! Demands that no node there is can meet. Where nodes can join they wait a while for one that can; elsewhere they are
//! refused at once.
//!
//! - SHORTAGE-1: such a demand is refused, with the reason, [`Plan::node_wait`](crate::Plan) after it was made, or after
//!   the last node died that could have met it, whichever is later.
//! - SHORTAGE-2: its driver is told once, when the wait begins.
//! - SHORTAGE-3: one that names a node in particular waits for nobody: no other node will do.

use super::groups::Need;
use super::{Alarm, HeadCore, JobDetail};
use oxiray_ids::JobId;
use oxiray_scheduler::{Near, Otherwise, Placement, Reason, ResourceRequest, Strategy, place};
use oxiray_wire::message::Notice;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

/// Of how many demands it is remembered that a driver was told; with one more, all are told again.
const NOTICED_MAX: usize = 1000;

/// When a class of the queue that no node can meet is to be looked at again.
pub(super) type Shortages = HashMap<ResourceRequest, Instant>;

/// The demands of which a driver was told that they wait.
#[derive(Debug, Default)]
pub(super) struct Noticed(HashSet<Need>);

impl Noticed {
    /// Whether this is the first word of the demand.
    pub(super) fn insert(&mut self, need: Need) -> bool {
        if self.0.len() >= NOTICED_MAX {
            self.0.clear();
        }
        self.0.insert(need)
    }
}

impl JobDetail {
    /// Whether the driver is there, and is told of the demand for the first time.
    pub(super) fn is_news(&mut self, need: Need) -> bool {
        !self.is_over && self.noticed.insert(need)
    }
}

impl HeadCore {
    /// When a request made at `since` is to be refused unless a node comes that can meet it (SHORTAGE-1).
    fn patience_ends(&self, resource_request: &ResourceRequest, since: Instant) -> Instant {
        if let Some(until) = self.growth_awaited_until(resource_request) {
            return until.max(since);
        }
        if let Some(until) = self.nodes_awaited_until() {
            return until + self.own.plan().node_wait;
        }
        let names_a_node = resource_request.place.as_deref().is_some_and(|place| {
            matches!(place.strategy, Strategy::Node { otherwise: Otherwise::Wait | Otherwise::Fail, .. })
        });
        if names_a_node {
            return since;
        }
        self.last_loss(resource_request).map_or(since, |lost| lost.max(since)) + self.own.plan().node_wait
    }

    /// When the last node died that could have met the request.
    fn last_loss(&self, resource_request: &ResourceRequest) -> Option<Instant> {
        let could = |view| {
            !matches!(place(std::slice::from_ref(view), resource_request, &Near::default(), 0), Placement::Never(_))
        };
        self.members.lost.iter().rev().find(|lost| could(&lost.view)).map(|lost| lost.at)
    }

    /// Whether a request that no node can meet, and that is made now, may wait for one; its driver is told so.
    pub(super) fn may_wait_for_a_node(
        &mut self,
        job: JobId,
        resource_request: &ResourceRequest,
        reason: &Reason,
        label: &str,
    ) -> bool {
        let may_wait = self.patience_ends(resource_request, self.clock.now) > self.clock.now;
        if may_wait {
            self.tell_of_shortage(job, resource_request, reason, label);
        }
        may_wait
    }

    /// SHORTAGE-2.
    fn tell_of_shortage(&mut self, job: JobId, resource_request: &ResourceRequest, reason: &Reason, label: &str) {
        if self.nodes_awaited_until().is_some() || self.growth_awaited_until(resource_request).is_some() {
            return;
        }
        let seconds = self.own.plan().node_wait.as_secs_f64();
        let Some(detail) = self.jobs.details.get_mut(&job) else { return };
        if detail.is_news(Need::ResourceRequest(resource_request.clone())) {
            let driver = detail.driver;
            let text = format!(
                "{}{}. It waits up to {seconds} s for such a machine to join (OXIRAY_INFEASIBLE_WAIT_S, when the cluster \
                 is started)",
                reason.message(label),
                self.why_no_group(resource_request)
            );
            self.send(driver, Notice { text, ..Notice::default() });
        }
    }

    /// Those who wait for what no node can meet: who has waited long enough is refused.
    pub(super) fn no_node_can(&mut self, resource_request: &ResourceRequest) {
        if self.pending.shortages.get(resource_request).is_some_and(|due| self.clock.now < *due) {
            return;
        }
        let Placement::Never(reason) = self.look_everywhere(resource_request) else { return };
        let mut next: Option<Instant> = None;
        let mut waiting: BTreeMap<JobId, String> = BTreeMap::new();
        for ticket in self.pending.queue.tickets(&Need::ResourceRequest(resource_request.clone())) {
            let Some(wanted) = self.pending.wanted.get(&ticket) else { continue };
            let label = format!("{} `{}`", wanted.want.kind(), wanted.label);
            let due = self.patience_ends(resource_request, wanted.since);
            if due > self.clock.now {
                next = Some(next.map_or(due, |next| next.min(due)));
                waiting.entry(wanted.job).or_insert(label);
                continue;
            }
            let Some(wanted) = self.withdraw(ticket) else { continue };
            let (groups, waited) = (self.why_no_group(resource_request), self.why_no_node_came(resource_request));
            self.turn_away(&wanted, format!("{}{groups}{waited}", reason.message(&label)));
        }
        for (job, label) in waiting {
            self.tell_of_shortage(job, resource_request, &reason, &label);
        }
        if let Some(due) = next {
            self.pending.shortages.insert(resource_request.clone(), due);
            self.alarm_at(due, Alarm::NoNodeCame);
        }
    }

    fn why_no_node_came(&self, resource_request: &ResourceRequest) -> String {
        let seconds = self.own.plan().node_wait.as_secs_f64();
        match self.last_loss(resource_request) {
            Some(_) => format!(". A machine that could died, and no other has come for {seconds} s"),
            None if self.own.plan().node_wait.is_zero() => String::new(),
            None => format!(". No such machine has joined for {seconds} s"),
        }
    }

    /// Some have waited long enough; the others are looked at anew with them.
    pub(super) fn look_at_shortages(&mut self) {
        self.pending.shortages.retain(|_, due| *due > self.clock.now);
        self.pending.is_due = true;
    }
}
