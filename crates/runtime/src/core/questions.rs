//! Questions to the daemon that have one answer each.
//!
//! - QUESTIONS-1: every question that somebody waits for is answered: those that are open when the daemon is lost, and
//!   those asked after that, are answered with the reason.

use crate::core::slack::shed_map;
use oxiray_ids::ObjectId;
use oxiray_store::SegmentId;
use oxiray_wire::Message;
use oxiray_wire::message::{
    ActorAnswer, ClusterReport, Failure, FailureCode, GroupAnswer, GroupReport, Holdings, KeyValueAnswer, StateReport,
};
use rustc_hash::{FxHashMap, FxHashSet};

/// What the daemon said.
#[derive(Debug)]
pub enum DaemonAnswer {
    /// Room to write: where.
    Allocated(SegmentId),
    /// An object to read: where it is, and its bytes.
    Pinned(SegmentId, u64),
    /// What the cluster has.
    Cluster(Box<ClusterReport>),
    /// What became of an actor.
    Actor(Box<ActorAnswer>),
    /// A kept value.
    Kept(Box<KeyValueAnswer>),
    /// Which objects the daemon knows.
    Holdings(Holdings),
    /// What became of a placement group.
    Group(Box<GroupAnswer>),
    /// What there is to know of placement groups.
    Groups(Box<GroupReport>),
    /// What runs and ran.
    State(Box<StateReport>),
    /// What drivers reported of this worker's devices.
    DeviceErrors(Vec<String>),
    /// The question has no other answer.
    Refused(Failure),
}

/// Questions asked and answers not collected yet.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    last: u64,
    answers: FxHashMap<u64, DaemonAnswer>,
    open: Vec<u64>,
    /// Why no answer comes any more: the daemon is gone for good.
    over: Option<Failure>,
    /// Questions nobody waits for any more, and the object that an answer would pin.
    abandoned: FxHashMap<u64, Option<ObjectId>>,
    /// What was asked, for a head that comes back.
    asked: FxHashMap<u64, Message>,
    /// Objects with room in the store that this process holds for nothing but their writing.
    pub(crate) writing: FxHashSet<ObjectId>,
}

impl Questions {
    /// A number for a new question.
    pub(crate) fn ask(&mut self) -> u64 {
        self.last += 1;
        match &self.over {
            // QUESTIONS-1.
            Some(failure) => drop(self.answers.insert(self.last, DaemonAnswer::Refused(failure.clone()))),
            None => self.open.push(self.last),
        }
        self.last
    }

    /// A number for a question whose answer nobody waits for.
    pub(crate) fn forget(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn take(&mut self, question: u64) -> Option<DaemonAnswer> {
        self.answers.remove(&question)
    }

    /// Nobody waits for the answer any more. Returns an object that it has pinned for nobody.
    pub(crate) fn abandon(&mut self, question: u64, pins: Option<ObjectId>) -> Option<ObjectId> {
        match self.answers.remove(&question) {
            Some(DaemonAnswer::Pinned(..)) => pins,
            Some(_) => None,
            None => {
                self.open.retain(|open| *open != question);
                self.settled(question);
                self.abandoned.insert(question, pins);
                None
            }
        }
    }

    /// The question will not be answered, and nobody waits for it.
    pub(crate) fn withdraw(&mut self, question: u64) {
        self.answers.remove(&question);
        self.open.retain(|open| *open != question);
        self.settled(question);
    }

    /// The question, in case it has to be asked again.
    pub(crate) fn note(&mut self, question: u64, message: &Message) {
        if self.over.is_none() {
            self.asked.insert(question, message.clone());
        }
    }

    /// The question is answered.
    pub(crate) fn settled(&mut self, question: u64) {
        self.asked.remove(&question);
        shed_map(&mut self.asked);
    }

    /// What is to be asked again; of the daemon's own store only where that is another.
    pub(crate) fn unanswered(&self, of_store: bool) -> Vec<Message> {
        let is_of_store = |message: &Message| {
            matches!(message, Message::Allocate(_) | Message::Pin(_) | Message::DeviceErrorsQuery(_))
        };
        let mut asked: Vec<_> = self.asked.iter().filter(|(_, message)| of_store || !is_of_store(message)).collect();
        asked.sort_unstable_by_key(|(question, _)| **question);
        asked.into_iter().map(|(_, message)| message.clone()).collect()
    }

    /// QUESTIONS-1: the daemon is gone for good.
    pub(crate) fn fail_all(&mut self, failure: &Failure) {
        self.over = Some(failure.clone());
        for question in std::mem::take(&mut self.open) {
            self.answers.insert(question, DaemonAnswer::Refused(failure.clone()));
        }
    }

    /// Keeps an answer for whoever asked. Returns an object that was pinned for nobody.
    pub(crate) fn answer(&mut self, question: u64, answer: DaemonAnswer) -> Option<ObjectId> {
        if let Some(Message::Allocate(asked)) = self.asked.get(&question)
            && is_room(&answer)
        {
            self.writing.insert(asked.object);
        }
        self.settled(question);
        if let Some(at) = self.open.iter().position(|open| *open == question) {
            self.open.swap_remove(at);
            self.answers.insert(question, answer);
            return None;
        }
        let pinned = matches!(answer, DaemonAnswer::Pinned(..));
        self.abandoned.remove(&question).flatten().filter(|_| pinned)
    }
}

/// Whether this process is counted for the object that it asked to write.
fn is_room(answer: &DaemonAnswer) -> bool {
    match answer {
        DaemonAnswer::Allocated(_) => true,
        DaemonAnswer::Refused(failure) => failure.code == FailureCode::ObjectSealed,
        _ => false,
    }
}
