//! Members and drivers whose head is away: they look for the next one, and are taken back, or are too late.
//!
//! - RETURN-1: a member serves a head that comes after its own, and none that is the same: that one has given up, or will,
//!   what came on the stream that broke.
//! - RETURN-2: what workers say for the head between two heads is dropped, until they have told the next where they stand.

use crate::agenda::{Event, MILLISECOND, Micros, SECOND};
use crate::node::Role;
use crate::process::Life;
use crate::stream::{Descriptor, End};
use crate::world::{NodeIndex, ProcessIndex, StreamIndex, World};
use oxiray_machine::Key;
use oxiray_wire::Message;
use oxiray_wire::message::{Driver, Returning};

/// How long a member on the head's machine waits for it. Others have a lease.
const NEAR_LIMIT: Micros = 10 * SECOND;
/// How long a driver does.
const DRIVER_LIMIT: Micros = 30 * SECOND;
/// The longest time between two tries.
const PAUSE_LONGEST: Micros = 250 * MILLISECOND;

impl World {
    /// A member's stream to the head is over: its work goes on.
    pub(crate) fn head_is_away(&mut self, node: NodeIndex, key: Key) {
        self.nodes[node].forget_stream(key);
        self.nodes[node].away_since = Some(self.now);
        self.dial_later(node);
    }

    fn dial_later(&mut self, node: NodeIndex) {
        let at = self.now + self.chance.between(50 * MILLISECOND, PAUSE_LONGEST);
        self.agenda.plan(at, Event::Dials(node));
    }

    /// A member looks for the head (RETURN-1).
    pub(crate) fn dial_head(&mut self, node: NodeIndex) {
        let Some(since) = self.nodes[node].away_since.filter(|_| self.nodes[node].is_alive) else { return };
        if !self.options.has_leases && self.now >= since + NEAR_LIMIT {
            return self.head_stays_away(node, "the head did not come back");
        }
        let is_cut = self.machines[self.nodes[node].machine].cut_until > self.now;
        if self.is_without_head() || self.nodes[0].frozen_until.is_some() || is_cut {
            return self.dial_later(node);
        }
        let epoch = self.nodes[0].core.epoch();
        if epoch <= self.nodes[node].core.epoch() {
            return self.head_stays_away(node, "only the stream to the head broke");
        }
        self.nodes[node].away_since = None;
        let stream = self.new_stream([End::Nobody, End::Nobody], self.options.network);
        let at_head = self.nodes[0].core.new_key();
        self.streams[stream].ends[0] = End::Node { node: 0, key: at_head };
        self.nodes[0].streams.insert(at_head, (stream, Role::Member(node)));
        if self.options.has_leases {
            self.member_is_heard(at_head);
        }
        let key = self.nodes[node].core.new_key();
        self.streams[stream].ends[1] = End::Node { node, key };
        self.nodes[node].streams.insert(key, (stream, Role::Head));
        let stored = self.on_shelf(node);
        self.log.line(self.now, format_args!("node {node} is back at head {epoch}"));
        let clients = self.nodes[node].core.serve_next_head(key, epoch, String::new(), stored);
        self.nodes[node].unresumed = clients.into_iter().collect();
        self.settle(node);
        self.locate_again(node);
    }

    /// The work of a member ends; its machine gets another.
    pub(crate) fn head_stays_away(&mut self, node: NodeIndex, why: &str) {
        if !self.nodes[node].is_alive {
            return;
        }
        self.nodes[node].away_since = None;
        if self.options.has_leases {
            return self.is_fenced(node, why);
        }
        self.log.line(self.now, format_args!("node {node} ends: {why}"));
        self.node_dies(node);
        let (at, machine) = (self.now + SECOND, self.nodes[node].machine);
        self.agenda.plan(at, Event::NodeComes { machine });
    }

    /// RETURN-2: whether what a worker says is for the head that there is now.
    pub(crate) fn is_for_this_head(&mut self, node: NodeIndex, worker: Key, message: &Message) -> bool {
        let epoch = self.nodes[node].core.epoch();
        if matches!(message, Message::ClientResume(told) if told.epoch == epoch) {
            self.nodes[node].unresumed.remove(&worker);
        }
        !self.nodes[node].unresumed.contains(&worker)
    }

    /// Streams between processes on the head's machine and on others went through the head, where they are not near.
    pub(crate) fn break_gateway(&mut self) {
        if !self.options.has_leases || !self.options.heads_are_awaited {
            return;
        }
        let is_at_head = |end: &End| matches!(end, End::Process(process) if self.processes[*process].node == 0);
        let streams = self.streams.iter().enumerate().filter(|(_, stream)| stream.closed == [false; 2]);
        let carried = streams.filter(|(_, stream)| {
            let is_between = stream.ends.iter().all(|end| matches!(end, End::Process(_)));
            is_between && stream.ends.iter().any(is_at_head) && !stream.ends.iter().all(is_at_head)
        });
        for stream in carried.map(|(index, _)| index).collect::<Vec<StreamIndex>>() {
            self.break_stream(stream);
        }
    }

    /// A driver whose daemon is gone looks for it, from then on for a while.
    pub(crate) fn look_for_head_from(&mut self, process: ProcessIndex, since: Micros) {
        let (at, until) = (self.now + PAUSE_LONGEST, since + DRIVER_LIMIT);
        self.agenda.plan(at, Event::Redials { process, until });
    }

    /// A driver looks for the head at its socket.
    pub(crate) fn redial_head(&mut self, process: ProcessIndex, until: Micros) {
        if self.processes[process].life != Life::Running {
            return;
        }
        if self.is_without_head() || self.nodes[0].frozen_until.is_some() {
            let at = self.now + self.chance.between(MILLISECOND, PAUSE_LONGEST);
            if at >= until {
                return self.with_core(process, |core| core.daemon_stays_away("it did not come back in time"));
            }
            return self.agenda.plan(at, Event::Redials { process, until });
        }
        let core = &self.client(process).core;
        let (id, epoch) = (core.identity(), core.epoch());
        let who = Returning { worker: id.worker, job: id.job, epoch };
        let told = Driver { pid: self.processes[process].pid, interpreter: "python".into(), ..Driver::default() };
        self.wake(0);
        let key = self.nodes[0].core.new_key();
        let stream = self.new_stream([End::Node { node: 0, key }, End::Process(process)], 50);
        self.processes[process].control = Descriptor { stream, side: 1 };
        self.nodes[0].streams.insert(key, (stream, Role::Driver));
        self.log.line(self.now, format_args!("driver {process} is back as {key}"));
        if let Err(why) = self.nodes[0].core.resume_driver(key, told, &who) {
            self.log.line(self.now, format_args!("driver {process} is too late: {why}"));
            self.nodes[0].forget_stream(key);
            self.close(Descriptor { stream, side: 0 });
            self.with_core(process, |core| core.daemon_stays_away(&why));
            return self.go_on(process);
        }
        self.after_event(0);
    }
}
