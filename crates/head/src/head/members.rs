//! The machines of the cluster come, fall silent, and are gone.

use super::HeadCore;
use super::validation::ProtocolError;
use crate::clock::Alarm;
use crate::fairness::Holder;
use crate::journal::Row;
use crate::members::view_of;
use crate::workers::{Duty, NodeEnd};
use oxiray_machine::{Effect, Key};
use oxiray_wire::message::{NodeJoin, Notice, WorkerGone};
use oxiray_wire::state::ChronicleEvent;
use std::time::Duration;

/// How long the process of a member may live without its stream: it ends its own workers in that time.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

impl HeadCore {
    /// A machine joins.
    pub(super) fn member_joined(&mut self, key: Key, told: NodeJoin) -> Result<(), ProtocolError> {
        let reported = self.new_node(key, &told).and_then(|_| view_of(&told).ok_or(ProtocolError::Description))?;
        self.log(format!("node {} joins from {}", reported.node, told.session));
        let is_back = self.durable.resumption.awaits_node(reported.node);
        let event = if is_back { ChronicleEvent::NodeReturned } else { ChronicleEvent::NodeJoined };
        self.note_node(event, reported.node, &told.name, &told.ip);
        self.pending.fairness.machine_came(&reported.inventory);
        self.durable.touch(Row::Member(reported.node));
        self.members.join(key, told, reported);
        self.note_devices(key, is_back);
        self.drain_leaving(key);
        self.pending.is_due = true;
        Ok(())
    }

    /// A member has something to say to the driver of a job.
    pub(super) fn pass_notice(&mut self, from: Key, said: Notice) {
        match said.job.and_then(|job| self.jobs.driver_of(job)) {
            Some(driver) => self.send(driver, Notice { text: said.text, ..Notice::default() }),
            None => self.log(format!("member {from}: {}", said.text)),
        }
    }

    /// The member's stream is over: it is dead or about to be. One on another machine has a lease.
    pub(crate) fn member_silent(&mut self, key: Key, is_far: bool) {
        if let Some(member) = self.members.by_key.get_mut(&key) {
            member.is_silent = true;
            self.search_without(key);
            if !is_far {
                self.clock.alarm_at(self.clock.now + SILENCE_LIMIT, Alarm::Silent(key));
            }
        }
        self.members.show(key);
    }

    /// The member's stream is over, and its process lives on: nobody can tell it anything any more.
    pub(super) fn end_silent_member(&mut self, key: Key) {
        if let Some(member) = self.members.by_key.get(&key) {
            let (node, seconds) = (member.view.node, SILENCE_LIMIT.as_secs());
            self.log(format!("the stream to node {node} ended {seconds} s ago, and its process did not: it is killed"));
            self.out.push(Effect::KillMember { member: key });
            self.member_gone(key);
        }
    }

    /// The member's process is gone, and its workers with it.
    pub(crate) fn member_gone(&mut self, key: Key) {
        self.proxied_clients_gone(key);
        let Some(member) = self.members.leave(key) else { return };
        let node = member.view.node;
        self.pending.fairness.machine_left(&member.view.inventory);
        self.durable.touch(Row::Member(node));
        self.log(format!("node {node} at {} is gone", member.told.ip));
        self.objects.locations.member_gone(key);
        self.workers.suspicion.member_gone(key);
        self.nothing_comes(node);
        self.search_without(key);
        let text = format!("the node {node} ({}) that it ran on died", member.told.ip);
        let was_drained = self.members.is_dismissed(key);
        for worker in member.workers.values() {
            if let Some(worker) = self.workers.by_key.get_mut(worker) {
                worker.end.with_node = Some(if was_drained { NodeEnd::Drained } else { NodeEnd::Lost });
            }
            if let Some(Duty::Leased(lease)) = self.workers.by_key.get(worker).map(|worker| worker.duty) {
                self.lease_lost(lease, &text, was_drained);
            }
            self.remember_end_on(node, &member.told.ip, *worker, &text);
            self.worker_gone(*worker, &WorkerGone { text: text.clone(), ..WorkerGone::default() });
        }
        let orders = self.members.orders.iter().filter(|(_, order)| order.member == key).map(|(number, _)| *number);
        for number in orders.collect::<Vec<_>>() {
            let order = self.members.orders.remove(&number).expect("MEMBER-3: an order ends once");
            self.pending.fairness.lets_go(Holder::Order(number));
            self.queue_again(order);
        }
        self.bundles_lost(key, node);
        let how = match self.members.drains.remove(&key) {
            Some(drain) if was_drained => format!("it was drained: {}", drain.asked.reason),
            _ => "its daemon ended or was killed".to_owned(),
        };
        self.note_lost(node, &member.told.name, &how);
        self.members.remember(member, (self.clock.now, self.clock.wall_ms), how);
        self.pending.is_due = true;
    }
}
