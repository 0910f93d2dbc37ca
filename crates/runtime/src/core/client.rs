//! The core as a whole: what it consists of, what happens to it, and what follows from one part for another.

pub(crate) mod actors;
pub(crate) mod allocation_credit;
pub(crate) mod awaiting;
pub(crate) mod away;
pub(crate) mod cancel;
pub(crate) mod confirming;
pub(crate) mod creation;
pub(crate) mod execute;
pub(crate) mod finish;
pub(crate) mod groups;
pub(crate) mod leases;
pub(crate) mod lending;
pub(crate) mod near;
pub(crate) mod object_log;
mod preempted;
pub(crate) mod program;
pub(crate) mod questions;
pub(crate) mod reading;
pub(crate) mod recover;
pub(crate) mod regaining;
pub(crate) mod resuming;
pub(crate) mod retrying;
pub(crate) mod submit;
pub(crate) mod task_log;
pub(crate) mod yielding;

use crate::core::actors::Actors;
use crate::core::calls::{Calls, Leases};
use crate::core::daemon::Daemon;
use crate::core::draining::Draining;
use crate::core::groups::Groups;
use crate::core::identity::Identity;
use crate::core::io::{DAEMON, Io, Role, Token};
use crate::core::lineage::Lineage;
use crate::core::objects::{Effects, Objects};
use crate::core::peers::{Brought, Peers};
use crate::core::service::Service;
use crate::core::signals::{ClientEvent, Signals};
use crate::core::streams::Streams;
use crate::core::task_log::TaskLog;
use oxiray_ids::{ObjectId, TaskId, Unique, WorkerId};
use oxiray_wire::message::{
    ActorToCaller, CallerToWorker, DaemonToClient, Direction as _, EventToClient, Hold, Notice, Promise, Publish,
    Subscribe, Unhold, Value, WorkerToOwner,
};
use oxiray_wire::plain;
use oxiray_wire::{FrameError, Message, Received};
use std::time::{Instant, SystemTime};

/// The core of a process's runtime: everything it knows, and what follows from what it hears.
///
/// It has no clock, socket, file or thread of its own. What happens is told to it ([`Client::heard`], [`Client::ended`],
/// [`Client::run_timers`] and what users ask for), with the time in [`Client::now`]; what it wants done, its shell does
/// ([`Io`]).
#[derive(Debug)]
pub struct Client<I: Io> {
    pub(crate) io: I,
    pub(crate) identity: Identity,
    pub(crate) peers: Peers<I::Descriptor>,
    pub(crate) daemon: Daemon,
    pub(crate) objects: Objects,
    pub(crate) calls: Calls,
    pub(crate) leases: Leases,
    pub(crate) lineage: Lineage,
    pub(crate) actors: Actors,
    pub(crate) streams: Streams,
    pub(crate) groups: Groups,
    pub(crate) service: Service,
    pub(crate) log: TaskLog,
    pub(crate) signals: Signals,
    /// When what is handled was noticed, or a moment before.
    pub(crate) now: Instant,
}

impl<I: Io> Client<I> {
    /// The runtime of a new process; `began` is the time by both clocks.
    pub fn new(identity: Identity, io: I, unique: Unique, began: (Instant, SystemTime)) -> Self {
        let mut peers = Peers::new(identity.epoch);
        peers.add(DAEMON, Role::Daemon);
        Self {
            io,
            peers,
            daemon: Daemon::default(),
            objects: Objects::new(identity.worker, identity.epoch > 0),
            identity,
            calls: Calls::new(unique),
            leases: Leases::default(),
            lineage: Lineage::default(),
            actors: Actors::default(),
            streams: Streams::default(),
            groups: Groups::default(),
            service: Service::default(),
            log: TaskLog::new(began),
            signals: Signals::default(),
            now: began.0,
        }
    }

    /// A stream that the daemon introduced.
    pub(crate) fn open_stream(&mut self, end: I::Descriptor, role: Role, is_near: bool) -> Option<Token> {
        let stream = self.io.open(end, role, is_near)?;
        self.peers.add(stream, role);
        Some(stream)
    }

    pub(crate) fn close_stream(&mut self, stream: Token) {
        self.peers.remove(stream);
        self.io.close(stream);
    }

    /// What a stream brings.
    pub fn heard(&mut self, stream: Token, received: Received<I::Descriptor>) {
        if let Message::Resumed(said) = &received.message
            && self.peers.role(stream).is_some()
            && !self.peers.is_held_back(stream)
        {
            if self.peers.mark(stream, said.epoch) {
                self.io.stop_reading(stream);
            }
            return;
        }
        if let Brought::Now { role, is_behind, received } = self.peers.bring(stream, received) {
            self.daemon.resuming.reads_what_came_before = is_behind;
            self.said(stream, role, received);
            self.daemon.resuming.reads_what_came_before = false;
        }
    }

    pub(crate) fn said(
        &mut self,
        token: Token,
        role: Role,
        Received { message, descriptors }: Received<I::Descriptor>,
    ) {
        let heard = match role {
            Role::Daemon => DaemonToClient::of(message).map(|message| self.daemon_said(message, descriptors)),
            Role::Lease(lease) => WorkerToOwner::of(message).map(|message| self.lease_said(token, lease, message)),
            Role::Actor(actor) => ActorToCaller::of(message).map(|message| self.actor_said(token, actor, message)),
            Role::Client(_) => CallerToWorker::of(message).map(|message| self.client_said(token, message)),
        };
        if let Err(error) = heard {
            self.refuse(token, &error);
        }
    }

    /// A peer said what is not for this end: its stream is over.
    fn refuse(&mut self, stream: Token, error: &FrameError) {
        self.notice(format!("a stream of this process was closed: {error}"));
        self.io.close(stream);
        self.ended(stream, true);
        self.signals.changed = true;
    }

    /// The daemon's word on a process's death may overtake what that process said before it died.
    pub(crate) fn hear_last_words(&mut self, stream: Token) {
        let mut is_over = false;
        while !is_over {
            let mut received = Vec::new();
            is_over = self.io.read_now(stream, &mut received) || received.is_empty();
            for received in received {
                self.heard(stream, received);
            }
        }
    }

    /// A stream is over. `was_made` says whether anything can have gone through it: the network may have made none.
    pub fn ended(&mut self, stream: Token, was_made: bool) {
        let Some(role) = self.peers.remove(stream) else { return };
        match role {
            Role::Daemon => self.daemon_silent(),
            Role::Lease(lease) if !was_made => self.lease_unreached(lease),
            Role::Lease(lease) => self.lease_silent(lease),
            Role::Actor(actor) if !was_made => self.actor_unreached(actor),
            Role::Actor(actor) => self.actor_silent(actor),
            Role::Client(_) => {
                self.service.codes.remove(&stream);
                for task in self.service.inbox.client_gone(stream) {
                    self.service.yieldings.close(task);
                }
                self.service.yieldings.client_gone(stream);
                self.signals.changed = true;
            }
        }
    }

    /// Nothing more came of a frame that a peer had begun: the shell has closed the stream.
    pub(crate) fn stream_stalled(&mut self, stream: Token, who: &str, why: String) {
        self.signals.news.push_back(ClientEvent::Notice(format!("{who} is not waited for any more: {why}")));
        if let Some(Role::Lease(id)) = self.peers.role(stream)
            && let Some(lease) = self.leases.granted.get_mut(&id)
        {
            lease.broken = Some(why);
        }
        self.ended(stream, true);
        self.signals.changed = true;
    }

    /// Tells whoever has to know of a change to the objects.
    ///
    /// What follows from it is done after it, not within it: chains of tasks may be longer than a stack is deep.
    pub(crate) fn apply(&mut self, effects: Effects) {
        if effects.is_empty() {
            return;
        }
        let Some(mut effects) = self.objects.begin_applying(effects) else { return };
        loop {
            self.apply_one(effects);
            match self.objects.next_to_apply() {
                Some(next) => effects = next,
                None => return,
            }
        }
    }

    fn apply_one(&mut self, mut effects: Effects) {
        for id in std::mem::take(&mut effects.publish) {
            self.publish(id);
            let mut after = Effects::default();
            self.objects.published(id, &mut after);
            effects.unhold.append(&mut after.unhold);
            effects.forgotten.append(&mut after.forgotten);
            effects.ended.append(&mut after.ended);
        }
        self.unhold(&effects.unhold);
        for (id, was_promised) in effects.forgotten {
            self.forgotten_here(id, was_promised);
        }
        for value in effects.unseen {
            self.tell_unseen(value);
        }
        for id in effects.announce {
            self.signals.news.push_back(ClientEvent::Ready(id));
            self.signals.changed = true;
        }
        for id in effects.ended {
            self.signals.news.push_back(ClientEvent::Ended(id));
            self.signals.changed = true;
        }
        for (task, _) in effects.resolved {
            self.dependency_ready(task);
        }
    }

    pub(crate) fn resolve(&mut self, id: ObjectId, value: Value, holds: u32, inner_holds: u32) {
        self.hold_what_came_before(id, &value, holds, inner_holds);
        let mut effects = Effects::default();
        self.objects.resolve(id, value, holds, inner_holds, &mut effects);
        self.apply(effects);
        self.signals.changed = true;
    }

    /// References to these leave the process.
    pub(crate) fn promise(&mut self, ids: &[ObjectId]) {
        let (promised, ready) = self.objects.promise(ids);
        if !promised.is_empty() {
            let objects = promised.clone();
            self.io.send_now(DAEMON, &Promise { objects });
        }
        for id in ready {
            self.publish(id);
        }
    }

    fn publish(&mut self, id: ObjectId) {
        let Some(value) = self.objects.value(id).cloned() else { return };
        self.promise(&crate::core::objects::inner_ids(&value));
        let object = id;
        self.io.send_now(DAEMON, &Publish { object, value: Some(value) });
    }

    /// Asks for values of objects that others own, where that was not done yet.
    pub fn want(&mut self, id: ObjectId) {
        if let Some(reference) = self.objects.want(id) {
            self.io.send_now(DAEMON, &Subscribe { reference: Some(reference) });
        }
    }

    /// The receiver of references is counted as their holder before the sender gives up its own.
    pub(crate) fn hold_for(&mut self, ids: &[ObjectId], holder: &WorkerId) {
        self.count_for(ids, holder, false);
    }

    /// The same for references that travel in a reply or an item: the receiver confirms what comes.
    pub(crate) fn give(&mut self, ids: &[ObjectId], holder: &WorkerId) {
        self.count_for(ids, holder, true);
    }

    fn count_for(&mut self, ids: &[ObjectId], holder: &WorkerId, until_confirmed: bool) {
        if !ids.is_empty() {
            self.io.send_now(DAEMON, &Hold { objects: ids.to_vec(), holder: *holder, until_confirmed });
        }
    }

    /// Gives holds of this process back.
    pub(crate) fn unhold(&mut self, ids: &[ObjectId]) {
        if !ids.is_empty() {
            let objects = ids.to_vec();
            self.io.send(DAEMON, &Unhold { objects });
        }
    }

    /// Gives up what this process holds since it wrote it.
    pub(crate) fn give_up_written(&mut self, ids: &[ObjectId]) {
        for id in ids {
            self.daemon.questions.writing.remove(id);
        }
        self.unhold(ids);
    }

    pub(crate) fn daemon_said(&mut self, message: DaemonToClient, descriptors: Vec<I::Descriptor>) {
        let descriptor = descriptors.into_iter().next();
        match message {
            DaemonToClient::Event(news) => self.news_came(news, descriptor),
            DaemonToClient::Store(answer) => {
                self.store_answered(answer, descriptor);
                self.signals.changed = true;
            }
            DaemonToClient::Machine(answer) => {
                self.machine_answered(answer);
                self.signals.changed = true;
            }
            DaemonToClient::Answer(answer) => {
                self.answered(answer);
                self.signals.changed = true;
            }
        }
    }

    fn news_came(&mut self, news: EventToClient, descriptor: Option<I::Descriptor>) {
        match news {
            EventToClient::LeaseGranted(granted) => self.lease_granted(&granted, descriptor),
            EventToClient::LeaseRefused(refused) => self.lease_refused(refused),
            EventToClient::LeaseReclaim(_) => self.return_idle_leases(),
            EventToClient::LeaseEnded(ended) => self.lease_ended(&ended),
            EventToClient::LeaseRetire(asked) => self.retire_lease(asked.lease),
            EventToClient::Draining(said) => self.daemon.draining = Draining::heard(said, self.now),
            EventToClient::Preemption(said) => self.preempted(said),
            EventToClient::CancelObject(asked) => self.cancel_asked(&asked),
            EventToClient::ActorPlaced(placed) => self.actor_placed(&placed, descriptor),
            EventToClient::GroupAnswer(answer) => self.group_answered(answer),
            EventToClient::ActorDied(died) => self.actor_died(*died),
            EventToClient::ActorRestarting(said) => self.actor_restarting(*said),
            EventToClient::Published(published) => {
                if let Some(value) = published.value {
                    self.resolve(published.object, value, 0, 1);
                }
            }
            // The end that follows is final.
            EventToClient::Refused(_) => self.daemon.comes_back = false,
            EventToClient::HeadBack(said) => self.resume(said.epoch, false),
            EventToClient::Lost(said) => self.lost_elsewhere(said.object),
            EventToClient::ValueWanted(said) => self.wanted_elsewhere(said.object),
            EventToClient::CollectGarbage(_) => {
                self.service.inbox.collect();
                self.signals.changed = true;
            }
            EventToClient::Freed(said) => self.freed_elsewhere(said.object),
            EventToClient::Forgotten(said) => self.forgotten_elsewhere(said.object),
            EventToClient::TaskLogQuery(asked) => self.tell_of_tasks(asked.number),
            EventToClient::StackQuery(asked) => self.stacks_wanted(&asked),
            EventToClient::ObjectLogQuery(asked) => self.tell_of_objects(asked.number),
            EventToClient::WaitsQuery(asked) => self.waits_asked(asked.number),
            EventToClient::LogLines(mut lines) => {
                lines.name = plain(&lines.name).into_owned();
                lines.ip = plain(&lines.ip).into_owned();
                self.signals.tell(ClientEvent::Lines(lines));
            }
            EventToClient::Notice(Notice { text, .. }) => {
                self.signals.tell(ClientEvent::Notice(plain(&text).into_owned()));
            }
            EventToClient::Assign(assign) => {
                self.service.inbox.assign(assign);
                self.signals.changed = true;
            }
            EventToClient::Peer(peer) => {
                if let Some(descriptor) = descriptor {
                    let client = peer.client;
                    // A stream that cannot be watched is closed here, which tells the client.
                    let _ = self.open_stream(descriptor, Role::Client(client), false);
                }
            }
            EventToClient::Stop(_) => {
                self.service.inbox.close_when_empty();
                self.signals.changed = true;
            }
        }
    }

    /// When [`Client::run_timers`] has something to do next.
    pub fn next_timer(&self) -> Option<Instant> {
        let blocked = self.service.blocked.due();
        let again = self.service.inbox.interrupts.again_at();
        let told = [self.log.tell_at, self.calls.retries.next_due(), self.actors.next_due(), self.daemon.room.looks_at];
        let told = told.into_iter().flatten().min();
        [self.leases.next_idle_end(), self.service.inbox.give_back_at(), blocked, again, told]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due.
    pub fn run_timers(&mut self, now: Instant) {
        if self.log.tell_at.is_some_and(|at| at <= now) {
            self.tell_of_ended();
        }
        if self.calls.retries.next_due().is_some_and(|at| at <= now) {
            self.end_pauses(now);
        }
        if self.actors.next_due().is_some_and(|at| at <= now) {
            self.tell_of_restarts(now);
        }
        if self.leases.next_idle_end().is_some_and(|at| at <= now) {
            self.end_idle_leases(now);
        }
        if self.daemon.room.looks_at.is_some_and(|at| at <= now) {
            self.look_at_room(now);
        }
        let blocked = self.tell_of_waiting(now);
        if self.service.inbox.interrupts.is_due(now) {
            self.io.interrupt();
        }
        if blocked || self.service.inbox.give_back_at().is_some_and(|at| at <= now) {
            self.give_back_queued();
        }
    }

    pub(crate) fn new_task(&mut self, actor: oxiray_ids::ActorId) -> TaskId {
        TaskId::generate(actor, &mut self.calls.unique)
    }
}
