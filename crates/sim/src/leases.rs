//! Members on other machines: their leases, and links that work one way only, or not at all.
//!
//! - LINK-1: before the head gives a member up, everything that was granted there has ended.
//! - LINK-2: a member is fenced for a reason: no more often than something went wrong, and never long after all is well.

use crate::agenda::{Event, MILLISECOND, Micros, SECOND};
use crate::node::Role;
use crate::process::Life;
use crate::stream::{Descriptor, End};
use crate::world::{NodeIndex, StreamIndex, World};
use oxiray_machine::Key;
use oxiray_node::lease::{self, MemberLease};
use oxiray_wire::message::{Heartbeat, HeartbeatHeard};
use std::collections::BTreeMap;
use std::time::Duration;

/// For how long a member goes on without a word from the head.
const LEASE: Duration = Duration::from_secs(3);
/// How often the head looks at its members' leases within one of them.
const LOOKS: u32 = 4;
/// The longest trouble with a link or a node that comes to an end by itself.
pub(crate) const TROUBLE_LONGEST: Micros = 20 * SECOND;
/// How long after the calm a member may still be fenced: the longest trouble, and a lease by the slowest clock.
const FENCED_LATEST: Micros = TROUBLE_LONGEST + 5 * SECOND;

/// What a node keeps of leases: of its own, and on the head of those of the members.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    own: Option<MemberLease>,
    heard: BTreeMap<Key, Duration>,
    looked: Duration,
}

impl World {
    /// A node has come: a member has a lease from when it asked, and the head begins to look.
    pub(crate) fn lease_begins(&mut self, node: NodeIndex) {
        if !self.options.has_leases {
            return;
        }
        let local = self.nodes[node].clock.reads(self.now);
        if node == 0 {
            self.nodes[0].leases.looked = local;
            return self.look_again(local);
        }
        self.nodes[node].leases.own = Some(MemberLease::new(LEASE, local));
        self.agenda.plan(self.now, Event::Beat(node));
    }

    /// The head hears of a member for the first time.
    pub(crate) fn member_is_heard(&mut self, key: Key) {
        let local = self.nodes[0].clock.reads(self.now);
        self.nodes[0].leases.heard.insert(key, local);
    }

    /// A member says its word, or ends what it was granted. A daemon that stands still is killed by the kernel.
    pub(crate) fn beat(&mut self, node: NodeIndex) {
        if !self.nodes[node].is_alive {
            return;
        }
        let found = &mut self.nodes[node];
        let local = found.clock.reads(self.now);
        let Some(own) = &mut found.leases.own else { return };
        if local >= own.until() {
            let is_frozen = found.frozen_until.is_some();
            if is_frozen && local < own.until() + lease::margin(LEASE) / 2 {
                return self.agenda.plan(self.now + 100 * MILLISECOND, Event::Beat(node));
            }
            return self.is_fenced(node, "its lease is over");
        }
        if found.frozen_until.is_none()
            && let (Some(number), Some(head)) = (own.word(local), found.core.head_key())
        {
            self.queue(node, head, Heartbeat { number }.into(), None);
        }
        let Some(own) = &self.nodes[node].leases.own else { return };
        let next = own.next().max(local + Duration::from_millis(50));
        let at = self.nodes[node].clock.when_it_reads(next).max(self.now + MILLISECOND);
        self.agenda.plan(at, Event::Beat(node));
    }

    /// A member's word has come to the head, which answers it.
    pub(crate) fn word_heard(&mut self, from: Key, said: &Heartbeat) {
        self.member_is_heard(from);
        self.queue(0, from, HeartbeatHeard { number: said.number }.into(), None);
    }

    pub(crate) fn word_answered(&mut self, node: NodeIndex, said: &HeartbeatHeard) {
        if let Some(own) = &mut self.nodes[node].leases.own {
            own.heard(said.number);
        }
    }

    fn look_again(&mut self, local: Duration) {
        let at = self.nodes[0].clock.when_it_reads(local + LEASE / LOOKS).max(self.now + MILLISECOND);
        self.agenda.plan(at, Event::Look);
    }

    /// The head gives up who said nothing for too long.
    pub(crate) fn look(&mut self) {
        let local = self.nodes[0].clock.reads(self.now);
        let leases = &mut self.nodes[0].leases;
        let absence = local.saturating_sub(std::mem::replace(&mut leases.looked, local));
        if absence > 2 * (LEASE / LOOKS) {
            // The head itself stood still: what members said meanwhile is on its way.
            leases.heard.values_mut().for_each(|heard| *heard = local);
        }
        let late = |heard: &Duration| *heard + lease::patience(LEASE) <= local;
        let late: Vec<Key> = leases.heard.iter().filter(|(_, heard)| late(heard)).map(|(key, _)| *key).collect();
        for key in late {
            self.give_up(key);
        }
        self.look_again(local);
    }

    /// LINK-1.
    pub(crate) fn give_up(&mut self, key: Key) {
        self.nodes[0].leases.heard.remove(&key);
        let Some((stream, Role::Member(node))) = self.nodes[0].streams.get(&key).copied() else { return };
        self.log.line(self.now, format_args!("node {node} is given up"));
        let lives = |process: &&crate::process::Process| process.node == node && process.life < Life::Dead;
        let living = self.processes.iter().filter(lives).count();
        // Processes that nothing can kill are known only to the machine that they are on.
        let is_over = !self.nodes[node].is_alive && (living == 0 || self.options.is_stuck);
        assert!(is_over, "LINK-1: node {node} is given up, and {living} processes live there");
        self.nodes[0].forget_stream(key);
        self.close(Descriptor { stream, side: 0 });
        self.nodes[0].core.member_gone(key);
    }

    /// A member ends all that it was granted, and comes again as another.
    pub(crate) fn is_fenced(&mut self, node: NodeIndex, why: &str) {
        if !self.nodes[node].is_alive {
            return;
        }
        let machine = self.nodes[node].machine;
        self.log.line(self.now, format_args!("node {node} is fenced: {why}"));
        self.fenced += 1;
        assert!(self.fenced <= self.troubles * self.machines.len() as u64, "LINK-2: there was no trouble to fence for");
        assert!(self.now <= self.options.calm_at + FENCED_LATEST, "LINK-2: all was well for long");
        self.node_dies(node);
        self.machines[machine].predecessor = Some(node);
        let at = self.now + self.chance.between(MILLISECOND, SECOND);
        self.agenda.plan(at, Event::NodeComes { machine });
    }

    /// The newcomer says who it was: all that it had been granted then is over.
    pub(crate) fn give_up_predecessor(&mut self, machine: usize) {
        let Some(before) = self.machines[machine].predecessor.take() else { return };
        let known = self.nodes[0].streams.iter().find(|(_, (_, role))| *role == Role::Member(before));
        if let Some(key) = known.map(|(key, _)| *key) {
            self.give_up(key);
        }
    }

    /// A stream breaks: what was sent last is lost both ways, and each end hears so.
    pub(crate) fn break_some_stream(&mut self) {
        let is_between = |ends: &[End; 2]| match ends {
            [End::Process(_), End::Process(_)] => true,
            [End::Node { .. }, End::Node { .. }] => self.options.has_leases,
            _ => false,
        };
        let streams = self.streams.iter().enumerate();
        let open = streams.filter(|(_, stream)| stream.closed == [false; 2] && is_between(&stream.ends));
        let open: Vec<StreamIndex> = open.map(|(index, _)| index).collect();
        let Some(stream) = self.chance.pick(&open) else { return };
        self.log.line(self.now, format_args!("stream {stream} breaks"));
        self.troubles += 1;
        self.break_stream(stream);
    }
}
