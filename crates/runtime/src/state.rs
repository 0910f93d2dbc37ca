//! Everything a process's runtime knows, changed only under its one lock.

use crate::actors::Actors;
use crate::awaited_groups::AwaitedGroups;
use crate::away::Away;
use crate::code::Codes;
use crate::creation::Creation;
use crate::draining::Draining;
use crate::execute::Inbox;
use crate::fresh_groups::FreshGroups;
use crate::lead::Lead;
use crate::lending::{BLOCKED_AFTER, Blocked};
use crate::lineage::Lineage;
use crate::links::{DAEMON, Links, Role, Token};
use crate::metrics::Telling;
use crate::objects::{Effects, Objects};
use crate::questions::Questions;
use crate::resuming::Resuming;
use crate::retrying::Retrying;
use crate::room_ahead::RoomAhead;
use crate::streams::Streams;
use crate::submit::Submission;
use crate::task_log::TaskLog;
use crate::unfinished::Unfinished;
use crate::watched::{Noticed, Sign};
use crate::yielding::Yieldings;
use oxiray_ids::{JobId, NodeId, ObjectId, TaskId, Unique, WorkerId};
use oxiray_wire::message::{
    Failure, Hold, LogLines, Notice, Promise, Publish, SegmentsUnmapped, Subscribe, Unhold, Unpin, Value,
};
use oxiray_wire::plain;
use oxiray_wire::{Message, Received};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::time::Instant;

/// Lines from workers that wait to be shown; of more, only the number is.
const LINES_LIMIT: usize = 10_000;

/// Who this process is in its cluster.
#[derive(Debug, Clone)]
pub struct Identity {
    /// This machine.
    pub node: NodeId,
    /// This process.
    pub worker: WorkerId,
    /// The job it works for.
    pub job: JobId,
    /// Where names live.
    pub namespace: String,
    /// The session's directory.
    pub session: String,
    /// What `init(address=…)` takes to come here.
    pub address: String,
    /// Counts the heads of this cluster when the process came; 0 where the end of this one is final.
    pub epoch: u64,
}

/// Something for the user's process to act on.
#[derive(Debug)]
pub enum News {
    /// A worker printed.
    Lines(LogLines),
    /// The daemon has something to say.
    Notice(String),
    /// An object's value is there (or never will be).
    Ready(ObjectId),
    /// A task's error that nobody looked at before it was dropped.
    Unseen(Value),
    /// The daemon is gone, or said everything it had to.
    Over,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) identity: Identity,
    pub(crate) links: Links,
    pub(crate) unfinished: Unfinished,
    pub(crate) lead: Lead,
    pub(crate) objects: Objects,
    pub(crate) tasks: Submission,
    pub(crate) retrying: Retrying,
    pub(crate) lineage: Lineage,
    pub(crate) actors: Actors,
    pub(crate) creations: FxHashMap<TaskId, Creation>,
    pub(crate) streams: Streams,
    /// Objects that stand for placement groups, by the question that their value answers.
    pub(crate) awaited_groups: AwaitedGroups,
    pub(crate) fresh_groups: FreshGroups,
    pub(crate) inbox: Inbox,
    pub(crate) yieldings: Yieldings,
    pub(crate) log: TaskLog,
    pub(crate) metrics: Telling,
    pub(crate) questions: Questions,
    pub(crate) room_ahead: RoomAhead,
    pub(crate) draining: Option<Draining>,
    pub(crate) resuming: Resuming,
    /// How a driver finds its daemon again.
    pub(crate) away: Option<Away>,
    /// Stored objects that are mapped for reading, and how often.
    pub(crate) pinned: FxHashMap<ObjectId, u32>,
    /// What each client's calls name by its hash.
    pub(crate) codes: FxHashMap<Token, Codes>,
    pub(crate) unique: Unique,
    pub(crate) headlines: VecDeque<News>,
    pub(crate) lines_dropped: u64,
    /// The daemon is gone; nothing new can be asked of it.
    pub(crate) lost: Option<Failure>,
    /// Something changed that another waiting thread may want to see.
    pub(crate) news: bool,
    /// When what is handled was noticed, or a moment before; it passes only while somebody waits.
    pub(crate) now: Instant,
    /// A timer was set that may be earlier than what the leader sleeps until.
    pub(crate) timer_moved: bool,
    /// Threads that wait inside a leased task, the time the first began, and whether the daemon knows.
    pub(crate) blocked: Blocked,
    received: Vec<Received>,
    effects: VecDeque<Effects>,
    applying: bool,
}

impl State {
    pub(crate) fn new(identity: Identity, mut links: Links) -> Self {
        links.begin_epoch(identity.epoch);
        Self {
            resuming: Resuming::new(identity.epoch),
            away: None,
            objects: Objects::new(identity.worker, identity.epoch > 0),
            identity,
            links,
            unfinished: Unfinished::default(),
            lead: Lead::default(),
            tasks: Submission::default(),
            retrying: Retrying::default(),
            lineage: Lineage::default(),
            actors: Actors::default(),
            creations: FxHashMap::default(),
            streams: Streams::default(),
            awaited_groups: AwaitedGroups::default(),
            fresh_groups: FreshGroups::default(),
            inbox: Inbox::default(),
            yieldings: Yieldings::default(),
            log: TaskLog::default(),
            metrics: Telling::default(),
            questions: Questions::default(),
            room_ahead: RoomAhead::default(),
            draining: None,
            pinned: FxHashMap::default(),
            codes: FxHashMap::default(),
            unique: Unique::new(),
            headlines: VecDeque::new(),
            lines_dropped: 0,
            lost: None,
            news: false,
            now: Instant::now(),
            timer_moved: false,
            blocked: Blocked::default(),
            received: Vec::new(),
            effects: VecDeque::new(),
            applying: false,
        }
    }

    /// Handles everything that epoll reported.
    pub(crate) fn serve(&mut self, events: &[Noticed]) {
        for (token, sign) in events {
            let Some(role) = self.links.role(*token) else {
                self.links.receive(*token, *sign, &mut Vec::new());
                continue;
            };
            let mut received = std::mem::take(&mut self.received);
            let mut over = self.links.receive(*token, *sign, &mut received);
            // A generator may wait for room.
            self.news |= std::mem::take(&mut self.links.made_room) || *sign == Sign::Writable;
            for received in received.drain(..) {
                self.heard(*token, role, received);
            }
            self.received = received;
            while !over {
                match self.links.next(*token) {
                    Ok(Some(received)) => self.heard(*token, role, received),
                    Ok(None) => break,
                    Err(_) => over = true,
                }
            }
            self.watch_progress(*token, role);
            if over {
                self.ended(*token, role);
            }
        }
        self.settle();
    }

    pub(crate) fn said(&mut self, token: Token, role: Role, Received { message, descriptors }: Received) {
        match (role, message) {
            (Role::Lease(_) | Role::Actor(_), Message::StreamItem(item)) => self.item_arrived(token, *item),
            (Role::Daemon, message) => self.daemon_said(message, descriptors),
            (Role::Lease(lease), message) => self.lease_said(lease, message),
            (Role::Actor(actor), message) => self.actor_said(actor, message),
            (Role::Client(_), message) => self.client_said(token, message),
        }
    }

    /// The daemon's word on a process's death may overtake what that process said before it died.
    pub(crate) fn hear_last_words(&mut self, token: Token, role: Role) {
        let mut is_over = false;
        while !is_over {
            let mut received = Vec::new();
            is_over = self.links.receive(token, Sign::Readable, &mut received) || received.is_empty();
            for received in received {
                self.heard(token, role, received);
            }
        }
    }

    pub(crate) fn ended(&mut self, token: Token, role: Role) {
        match role {
            Role::Daemon => self.daemon_silent(),
            Role::Lease(lease) if self.links.was_unmade(token) => self.lease_unreached(lease),
            Role::Lease(lease) => self.lease_silent(lease),
            Role::Actor(actor) if self.links.was_unmade(token) => self.actor_unreached(actor),
            Role::Actor(actor) => self.actor_silent(actor),
            Role::Client(_) => {
                self.codes.remove(&token);
                for task in self.inbox.client_gone(token) {
                    self.yieldings.close(&task);
                }
                self.yieldings.client_gone(token);
                self.news = true;
            }
        }
    }

    /// Tells whoever has to know of a change to the objects.
    ///
    /// What follows from it is done after it, not within it: chains of tasks may be longer than a stack is deep.
    pub(crate) fn apply(&mut self, effects: Effects) {
        if effects.is_empty() {
            return;
        }
        self.effects.push_back(effects);
        if self.applying {
            return;
        }
        self.applying = true;
        while let Some(effects) = self.effects.pop_front() {
            self.apply_one(effects);
        }
        self.applying = false;
    }

    fn apply_one(&mut self, mut effects: Effects) {
        for id in std::mem::take(&mut effects.publish) {
            self.publish(id);
            let mut after = Effects::default();
            self.objects.published(id, &mut after);
            effects.unhold.append(&mut after.unhold);
            effects.forgotten.append(&mut after.forgotten);
        }
        self.unhold(&effects.unhold);
        for (id, was_promised) in effects.forgotten {
            self.forgotten_here(id, was_promised);
        }
        for value in effects.unseen {
            self.tell_unseen(value);
        }
        for id in effects.announce {
            self.headlines.push_back(News::Ready(id));
            self.news = true;
        }
        for (task, _) in effects.resolved {
            self.dependency_ready(task);
        }
    }

    /// Gives one use of an object up.
    pub(crate) fn release(&mut self, id: ObjectId) {
        let mut effects = Effects::default();
        self.objects.release(id, &mut effects);
        self.apply(effects);
    }

    pub(crate) fn resolve(&mut self, id: ObjectId, value: Value, holds: u32, inner_holds: u32) {
        self.hold_what_came_before(id, &value, holds, inner_holds);
        let mut effects = Effects::default();
        self.objects.resolve(id, value, holds, inner_holds, &mut effects);
        self.apply(effects);
        self.news = true;
    }

    /// References to these leave the process.
    pub(crate) fn promise(&mut self, ids: &[ObjectId]) {
        let (promised, ready) = self.objects.promise(ids);
        if !promised.is_empty() {
            let objects = promised.iter().map(|id| crate::objects::copy(id.as_bytes())).collect();
            self.links.post_now(DAEMON, &Promise { objects });
        }
        for id in ready {
            self.publish(id);
        }
    }

    fn publish(&mut self, id: ObjectId) {
        let Some(value) = self.objects.value(id).cloned() else { return };
        self.promise(&crate::objects::inner_ids(&value));
        let object = crate::objects::copy(id.as_bytes());
        self.links.post_now(DAEMON, &Publish { object, value: Some(value) });
    }

    /// Asks for values of objects that others own, where that was not done yet.
    pub(crate) fn want(&mut self, id: ObjectId) {
        if let Some(reference) = self.objects.want(id) {
            self.links.post_now(DAEMON, &Subscribe { reference: Some(reference) });
        }
    }

    /// The receiver of references is counted as their holder before the sender gives up its own.
    pub(crate) fn hold_for(&mut self, ids: &[ObjectId], holder: &WorkerId) {
        if !ids.is_empty() {
            let objects = ids.iter().map(|id| crate::objects::copy(id.as_bytes())).collect();
            let holder = crate::objects::copy(holder.as_bytes());
            self.links.post_now(DAEMON, &Hold { objects, holder });
        }
    }

    /// Gives holds of this process back.
    pub(crate) fn unhold(&mut self, ids: &[ObjectId]) {
        if !ids.is_empty() {
            let objects = ids.iter().map(|id| crate::objects::copy(id.as_bytes())).collect();
            self.links.post(DAEMON, &Unhold { objects });
        }
    }

    /// Gives up what this process holds since it wrote it.
    pub(crate) fn give_up_written(&mut self, ids: &[ObjectId]) {
        for id in ids {
            self.questions.writing.remove(id);
        }
        self.unhold(ids);
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each message")]
    pub(crate) fn daemon_said(&mut self, message: Message, descriptors: Vec<std::os::fd::OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        match message {
            Message::LeaseGranted(granted) => self.lease_granted(&granted, descriptors.next()),
            Message::LeaseRefused(refused) => self.lease_refused(refused),
            Message::LeaseReclaim(_) => self.return_idle_leases(),
            Message::LeaseEnded(ended) => self.lease_ended(&ended),
            Message::LeaseRetire(asked) => self.retire_lease(asked.lease),
            Message::Draining(said) => self.draining = Draining::heard(said),
            Message::CancelObject(asked) => self.cancel_asked(&asked),
            Message::ActorPlaced(placed) => self.actor_placed(&placed, descriptors.next()),
            Message::GroupAnswer(answer) => self.group_answered(answer),
            Message::ActorDied(died) => self.actor_died(*died),
            Message::ActorRestarting(said) => self.actor_restarting(*said),
            Message::Published(published) => {
                if let (Some(id), Some(value)) = (ObjectId::from_slice(&published.object), published.value) {
                    self.resolve(id, value, 0, 1);
                }
            }
            // The end that follows is final.
            Message::Refused(_) => self.away = None,
            Message::HeadBack(said) => self.resume(said.epoch, false),
            Message::Lost(said) => self.lost_elsewhere(&said.object),
            Message::Wanted(said) => self.wanted_elsewhere(&said.object),
            Message::CollectGarbage(_) => {
                self.inbox.collect();
                self.news = true;
            }
            Message::Freed(said) => self.freed_elsewhere(&said.object),
            Message::Forgotten(said) => self.forgotten_elsewhere(&said.object),
            Message::Allocated(_)
            | Message::Holdings(_)
            | Message::StoreRefused(_)
            | Message::Pinned(_)
            | Message::ClusterReport(_)
            | Message::ActorAnswer(_)
            | Message::GroupReport(_)
            | Message::KeptAnswer(_)
            | Message::StateReport(_)
            | Message::SegmentRetired(_) => {
                if let Some(object) = self.questions.answer(message, descriptors.next()) {
                    self.links.post(DAEMON, &Unpin { object });
                }
                let unmapped = std::mem::take(&mut self.questions.unmapped);
                if !unmapped.is_empty() {
                    let files = unmapped.into_iter().map(|file| file.0).collect();
                    self.links.post_now(DAEMON, &SegmentsUnmapped { files });
                }
                self.news = true;
            }
            Message::TaskLogQuery(asked) => self.tell_of_tasks(asked.number),
            Message::ObjectLogQuery(asked) => self.tell_of_objects(asked.number),
            Message::LogLines(mut lines) => {
                lines.name = plain(&lines.name).into_owned();
                self.tell(News::Lines(lines));
            }
            Message::Notice(Notice { text }) => self.tell(News::Notice(plain(&text).into_owned())),
            Message::Assign(assign) => {
                self.inbox.assign(assign);
                self.news = true;
            }
            Message::Peer(peer) => {
                if let Some(descriptor) = descriptors.next() {
                    let client = WorkerId::from_slice(&peer.client).unwrap_or(WorkerId::NIL);
                    // A stream that cannot be watched is closed here, which tells the client.
                    let _ = self.links.adopt(descriptor, Role::Client(client), false);
                }
            }
            Message::Stop(_) => {
                self.inbox.close_when_empty();
                self.news = true;
            }
            _ => {}
        }
    }

    pub(crate) fn tell(&mut self, news: News) {
        if self.headlines.len() >= LINES_LIMIT {
            self.lines_dropped += 1;
            return;
        }
        self.tell_what_was_dropped();
        self.headlines.push_back(news);
        self.news = true;
    }

    /// Where lines were dropped, says how many, in their place.
    pub(crate) fn tell_what_was_dropped(&mut self) {
        let dropped = std::mem::take(&mut self.lines_dropped);
        if dropped > 0 {
            let text = format!(
                "{dropped} messages of workers are not shown here, since more came than this program could print: the \
                 files of its workers among the session's logs have them all"
            );
            self.headlines.push_back(News::Notice(text));
        }
    }

    /// When [`State::run_timers`] has something to do next.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let blocked = self.blocked.since.filter(|_| !self.blocked.told).map(|since| since + BLOCKED_AFTER);
        let again = self.inbox.interrupts.again_at();
        let looks = [self.room_ahead.looks_at, self.unfinished.looks_at].into_iter().flatten().min();
        let told = [self.log.tell_at, self.metrics.at, self.retrying.next_due(), looks];
        let told = told.into_iter().flatten().min();
        [self.links.flush_at, self.tasks.next_idle_end(), self.inbox.give_back_at(), blocked, again, told]
            .into_iter()
            .flatten()
            .min()
    }

    pub(crate) fn run_timers(&mut self, now: Instant) {
        if self.links.flush_at.is_some_and(|at| at <= now) {
            self.links.flush_all();
        }
        if self.log.tell_at.is_some_and(|at| at <= now) {
            self.tell_of_ended();
        }
        if self.metrics.at.is_some_and(|at| at <= now) {
            self.tell_of_metrics();
        }
        if self.retrying.next_due().is_some_and(|at| at <= now) {
            self.end_pauses(now);
        }
        if self.tasks.next_idle_end().is_some_and(|at| at <= now) {
            self.end_idle_leases(now);
        }
        if self.room_ahead.looks_at.is_some_and(|at| at <= now) {
            self.look_at_room(now);
        }
        if self.unfinished.looks_at.is_some_and(|at| at <= now) {
            self.look_at_unfinished(now);
        }
        let blocked = self.blocked.since.is_some_and(|since| !self.blocked.told && since + BLOCKED_AFTER <= now);
        if blocked {
            self.blocked.told = true;
            self.links.post_now(DAEMON, &oxiray_wire::message::Blocked {});
        }
        self.inbox.interrupts.repeat(now);
        if blocked || self.inbox.give_back_at().is_some_and(|at| at <= now) {
            self.give_back_queued();
        }
    }

    pub(crate) fn new_task(&mut self, actor: oxiray_ids::ActorId) -> TaskId {
        TaskId::generate(actor, &mut self.unique)
    }
}
