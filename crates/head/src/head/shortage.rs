//! Demands that no node there is can meet. Where nodes can join they wait a while for one that can; elsewhere they are
//! refused at once.
//!
//! - SHORTAGE-1: such a demand is refused, with the reason, [`Plan::patience`](oxiray_machine::Plan) after it was made, or after
//!   the last node died that could have met it, whichever is later.
//! - SHORTAGE-2: its driver is told once, when the wait begins.
//! - SHORTAGE-3: one that names a node in particular waits for nobody: no other node will do.
//! - SHORTAGE-4: one for a label that is withdrawn for now waits until that holds again.

use super::HeadCore;
use crate::clock::Alarm;
use crate::demands::{Need, Refusal, resource_request};
use oxiray_ids::JobId;
use oxiray_resources::Demand;
use oxiray_scheduler::{Otherwise, Placement, Reason, ResourceRequest, Strategy};
use oxiray_wire::message::{Notice, Strategy as Told};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two looks at whether a label that is withdrawn holds again; it is looked at as well when a node tells of that.
const LABEL_LOOKED_FOR_EVERY: Duration = Duration::from_secs(1);

impl HeadCore {
    /// What is wished for, where it can be met, or waits for a node that can.
    pub(super) fn check(
        &mut self,
        job: JobId,
        demand: Demand,
        strategy: Option<&Told>,
        label: &str,
    ) -> Result<ResourceRequest, Refusal> {
        let resource_request = resource_request(demand, strategy);
        match self.members.never(&resource_request) {
            Some(reason) if !self.may_wait_for_a_node(job, &resource_request, &reason, label) => {
                Err(format!("{}{}", reason.message(label), self.growth.why_no_group(&resource_request)))
            }
            _ => Ok(resource_request),
        }
    }

    /// When a request made at `since` is to be refused unless a node comes that can meet it (SHORTAGE-1).
    fn patience_ends(&self, resource_request: &ResourceRequest, since: Instant) -> Instant {
        if let Some(until) = self.growth.awaited_until(resource_request, self.clock.now, self.own.plan().rules.node) {
            return until.max(since);
        }
        if let Some(until) = self.durable.resumption.nodes_until() {
            return until + self.own.plan().rules.node;
        }
        if self.members.withdrawn_for(resource_request).is_some() {
            // A label that is withdrawn holds again.
            return self.clock.now + self.own.plan().rules.node.max(LABEL_LOOKED_FOR_EVERY);
        }
        let names_a_node = resource_request.place.as_deref().is_some_and(|place| {
            matches!(place.strategy, Strategy::Node { otherwise: Otherwise::Wait | Otherwise::Fail, .. })
        });
        if names_a_node {
            return since;
        }
        self.members.last_loss(resource_request).map_or(since, |lost| lost.max(since)) + self.own.plan().rules.node
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
        if self.durable.resumption.nodes_until().is_some()
            || self.growth.awaited_until(resource_request, self.clock.now, self.own.plan().rules.node).is_some()
        {
            return;
        }
        let seconds = self.own.plan().rules.node.as_secs_f64();
        let withdrawn = self.members.withdrawn_for(resource_request);
        let Some(detail) = self.jobs.details.get_mut(&job) else { return };
        if detail.is_news(&Need::ResourceRequest(resource_request.clone())) {
            let driver = detail.driver;
            let why = format!("{}{}", reason.message(label), self.growth.why_no_group(resource_request));
            let text = match withdrawn {
                Some(withdrawn) => format!("{why}{withdrawn}. It waits until that holds again"),
                None => format!(
                    "{why}. It waits up to {seconds} s for such a machine to join (OXIRAY_INFEASIBLE_WAIT_S, when the \
                     cluster is started)"
                ),
            };
            self.send(driver, Notice { text, ..Notice::default() });
        }
    }

    /// Those who wait for what no node can meet: who has waited long enough is refused.
    pub(super) fn no_node_can(&mut self, resource_request: &ResourceRequest) {
        if self.pending.shortages.get(resource_request).is_some_and(|due| self.clock.now < *due) {
            return;
        }
        let Placement::Never(reason) = self.members.look_everywhere(resource_request) else { return };
        let mut next: Option<Instant> = None;
        let mut waiting: BTreeMap<JobId, String> = BTreeMap::new();
        for ticket in self.pending.queue.tickets(&Need::ResourceRequest(resource_request.clone())) {
            let Some(wanted) = self.pending.wanted.get(&ticket) else { continue };
            let label = format!("{} `{}`", wanted.want.kind(), wanted.label);
            let due = self.patience_ends(resource_request, wanted.since);
            if due > self.clock.now {
                next = Some(next.map_or(due, |next| next.min(due)));
                waiting.entry(wanted.claimant.job).or_insert(label);
                continue;
            }
            let Some(wanted) = self.pending.withdraw(ticket) else { continue };
            let (groups, waited) =
                (self.growth.why_no_group(resource_request), self.why_no_node_came(resource_request));
            self.turn_away(&wanted, format!("{}{groups}{waited}", reason.message(&label)));
        }
        for (job, label) in waiting {
            self.tell_of_shortage(job, resource_request, &reason, &label);
        }
        if let Some(due) = next {
            self.pending.shortages.insert(resource_request.clone(), due);
            self.clock.alarm_at(due, Alarm::NoNodeCame);
        }
    }

    fn why_no_node_came(&self, resource_request: &ResourceRequest) -> String {
        let seconds = self.own.plan().rules.node.as_secs_f64();
        match self.members.last_loss(resource_request) {
            Some(_) => format!(". A machine that could died, and no other has come for {seconds} s"),
            None if self.own.plan().rules.node.is_zero() => String::new(),
            None => format!(". No such machine has joined for {seconds} s"),
        }
    }

    /// Some have waited long enough; the others are looked at anew with them.
    pub(super) fn look_at_shortages(&mut self) {
        self.pending.shortages.retain(|_, due| *due > self.clock.now);
        self.pending.is_due = true;
    }
}
