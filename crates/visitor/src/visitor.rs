//! The connection of a visitor: it greets, asks and waits for answers, or hears what it was promised to be told.

use crate::json::{self, StateError};
use oxiray_state::StateCopy;
use oxiray_wire::connection::ConnectionError;
use oxiray_wire::message::{
    ChronicleBatch, ChronicleFollow, ClusterQuery, ClusterReport, DaemonToVisitor, DeviceAsked, Direction as _,
    DrainAsked, EndAsked, Failure, GrowthQuery, GrowthReport, Hello, Holdings, HoldingsQuery, LogAnswer, LogQuery,
    MetricsQuery, MetricsReport, StateChanges, StateFollow, StateQuery, StateReport, SubmissionAnswer, SubmissionAsked,
    TokenAnswer, TokenAsked,
};
use oxiray_wire::state::{ChronicleCursor, ChronicleEntry, ChronicleKind, StateKind};
use oxiray_wire::{Connection, Message, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Why a visitor has no answer.
#[derive(Debug, Error)]
pub enum VisitError {
    /// The daemon does not let it in, in the daemon's words.
    #[error("{0}")]
    Refused(String),
    /// The daemon does not do what it was asked, or cannot answer.
    #[error("{}", .0.text)]
    Failed(Failure),
    /// Nothing came in time.
    #[error("the daemon did not answer within {} s", .0.as_secs())]
    NoAnswer(Duration),
    /// The head is of another version.
    #[error(transparent)]
    Unreadable(#[from] StateError),
    /// The connection has ended.
    #[error(transparent)]
    Ended(#[from] ConnectionError),
    /// The operating system refused.
    #[error("the connection to the daemon cannot be waited for: {0}")]
    System(#[from] Errno),
}

/// A question that a daemon answers with one message, which names the question by its number.
pub trait Question: Into<Message> {
    /// What answers it.
    type Answer;

    /// Gives the question its number.
    fn set_number(&mut self, number: u64);

    /// The number of the question that the message answers, and what it says; `None` where it is of another kind.
    fn answer(message: DaemonToVisitor) -> Option<(u64, Result<Self::Answer, Failure>)>;
}

/// Each question with the message that answers it: as it is, `boxed`, or boxed and `refusable`, so that it may be a failure.
macro_rules! questions {
    ($($question:ident => $answer:ident $($how:ident)?,)*) => {
        $(impl Question for $question {
            type Answer = $answer;

            fn set_number(&mut self, number: u64) {
                self.request = number;
            }

            fn answer(message: DaemonToVisitor) -> Option<(u64, Result<$answer, Failure>)> {
                let DaemonToVisitor::$answer(told) = message else { return None };
                Some((told.request, questions!(@said told $($how)?)))
            }
        })*
    };
    (@said $told:ident) => { Ok($told) };
    (@said $told:ident boxed) => { Ok(*$told) };
    (@said $told:ident refusable) => {{
        let mut told = *$told;
        told.failure.take().map_or(Ok(told), Err)
    }};
}

questions! {
    ClusterQuery => ClusterReport boxed,
    MetricsQuery => MetricsReport,
    HoldingsQuery => Holdings,
    LogQuery => LogAnswer refusable,
    GrowthQuery => GrowthReport boxed,
    StateQuery => StateReport refusable,
    StateFollow => StateChanges refusable,
    ChronicleFollow => ChronicleBatch refusable,
    DrainAsked => StateReport refusable,
    DeviceAsked => StateReport refusable,
    EndAsked => StateReport refusable,
    TokenAsked => TokenAnswer refusable,
    SubmissionAsked => SubmissionAnswer refusable,
}

/// The number of the question that the message answers; `None` where it answers none.
pub fn number_of(message: &DaemonToVisitor) -> Option<u64> {
    match message {
        DaemonToVisitor::ClusterReport(told) => Some(told.request),
        DaemonToVisitor::Holdings(told) => Some(told.request),
        DaemonToVisitor::StateReport(told) => Some(told.request),
        DaemonToVisitor::StateChanges(told) => Some(told.request),
        DaemonToVisitor::ChronicleBatch(told) => Some(told.request),
        DaemonToVisitor::LogAnswer(told) => Some(told.request),
        DaemonToVisitor::MetricsReport(told) => Some(told.request),
        DaemonToVisitor::GrowthReport(told) => Some(told.request),
        DaemonToVisitor::SubmissionAnswer(told) => Some(told.request),
        DaemonToVisitor::TokenAnswer(told) => Some(told.request),
        DaemonToVisitor::StoreRefused(told) => Some(told.request),
        DaemonToVisitor::Refused(_) | DaemonToVisitor::NodeAdmitted(_) => None,
    }
}

/// A connection on which a daemon listens to a visitor.
#[derive(Debug)]
pub struct Visitor {
    connection: Connection,
    inbox: VecDeque<DaemonToVisitor>,
    last_number: u64,
}

impl AsFd for Visitor {
    /// Readable when something was said.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl Visitor {
    /// Greets the daemon at the other end of the stream with the session's secret, which is empty where the stream's maker
    /// has proven itself already. Whether the daemon lets it in shows with the first answer.
    ///
    /// # Errors
    /// Where the stream has ended.
    pub fn greet(stream: OwnedFd, token: String) -> Result<Self, VisitError> {
        Self::greet_with(stream, Hello { token, ..Hello::default() })
    }

    /// The same for a visitor that only reads: orders that it gives all the same are refused.
    ///
    /// # Errors
    /// Where the stream has ended.
    pub fn greet_reading(stream: OwnedFd, token: String) -> Result<Self, VisitError> {
        Self::greet_with(stream, Hello { token, reads_only: true, ..Hello::default() })
    }

    fn greet_with(stream: OwnedFd, hello: Hello) -> Result<Self, VisitError> {
        let mut visitor = Self { connection: Connection::new(stream)?, inbox: VecDeque::new(), last_number: 0 };
        visitor.send(hello)?;
        Ok(visitor)
    }

    /// Asks, and waits for the answer. What else is said meanwhile is passed over.
    ///
    /// # Errors
    /// Where the daemon refuses, says nothing within the limit, or is gone.
    pub fn ask<Q: Question>(&mut self, mut question: Q, limit: Duration) -> Result<Q::Answer, VisitError> {
        let number = self.new_number();
        let until = Instant::now() + limit;
        question.set_number(number);
        self.send(question)?;
        while let Some(message) = self.next(until)? {
            match message {
                DaemonToVisitor::Refused(said) => return Err(VisitError::Refused(said.text)),
                // In place of an answer that no frame can carry.
                DaemonToVisitor::StoreRefused(said) if said.request == number => {
                    return Err(VisitError::Failed(said.failure.unwrap_or_default()));
                }
                other => {
                    if let Some((_, told)) = Q::answer(other).filter(|(answered, _)| *answered == number) {
                        return told.map_err(VisitError::Failed);
                    }
                }
            }
        }
        Err(VisitError::NoAnswer(limit))
    }

    /// Waits until something changed in these lists since the last call with the same copy, and brings the copy up to date.
    /// Returns whether that is done; `false` where nothing changed within the limit, or the head has not told all yet.
    ///
    /// # Errors
    /// Where the daemon refuses, or is gone.
    pub fn follow(&mut self, copy: &mut StateCopy, kinds: &[StateKind], limit: Duration) -> Result<bool, VisitError> {
        let asked = StateFollow { request: 0, kinds: kinds.to_vec(), cursor: Some(copy.cursor()) };
        match self.ask(asked, limit) {
            Ok(changes) => {
                json::check(changes.version)?;
                Ok(copy.apply(changes))
            }
            Err(VisitError::NoAnswer(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until something happened since the cursor, in entries of these kinds, all where none is named, and returns it
    /// with the next cursor; nothing where nothing did within the limit. `latest` is how many entries one who begins wants,
    /// beside those that hold.
    ///
    /// # Errors
    /// Where the daemon refuses, or is gone.
    pub fn chronicle(
        &mut self,
        cursor: ChronicleCursor,
        kinds: &[ChronicleKind],
        latest: Option<u64>,
        limit: Duration,
    ) -> Result<Option<ChronicleBatch>, VisitError> {
        let asked = ChronicleFollow { request: 0, kinds: kinds.to_vec(), cursor: Some(cursor), latest };
        match self.ask(asked, limit) {
            Ok(batch) => {
                json::check(batch.version)?;
                Ok(Some(batch))
            }
            Err(VisitError::NoAnswer(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All that the head remembers of these kinds, the last `latest` entries of it; what holds, where that is older, stands
    /// before them. The number that tells this head's from another's comes along.
    ///
    /// # Errors
    /// Where the daemon refuses, says nothing within the limit, or is gone.
    pub fn chronicle_so_far(
        &mut self,
        kinds: &[ChronicleKind],
        latest: Option<u64>,
        limit: Duration,
    ) -> Result<(u64, Vec<ChronicleEntry>), VisitError> {
        let mut remembered = Remembered::default();
        loop {
            let batch = self.chronicle(remembered.cursor, kinds, latest, limit)?.ok_or(VisitError::NoAnswer(limit))?;
            if !remembered.take(batch)? {
                return Ok((remembered.cursor.origin, remembered.entries));
            }
        }
    }

    /// A number for a question that is sent without waiting for its answer.
    pub fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Sends a message as far as the daemon takes it; the rest goes with what is sent or waited for next.
    ///
    /// # Errors
    /// Where the daemon is gone.
    pub fn send(&mut self, message: impl Into<Message>) -> Result<(), VisitError> {
        self.connection.send(&message.into());
        self.connection.flush()?;
        Ok(())
    }

    /// Sends what is left of earlier messages, as far as the daemon takes it; whether nothing is left.
    ///
    /// # Errors
    /// Where the daemon is gone.
    pub fn flush(&mut self) -> Result<bool, VisitError> {
        Ok(self.connection.flush()?)
    }

    /// What was said since the last call, without waiting, for callers that wait for several things at once; and why nothing
    /// more comes, once all is heard.
    pub fn hear(&mut self) -> (Vec<DaemonToVisitor>, Result<(), VisitError>) {
        let result = self.read();
        (self.inbox.drain(..).collect(), result)
    }

    /// The next message; `None` where none comes in time.
    ///
    /// # Errors
    /// Where the daemon is gone.
    pub fn next(&mut self, until: Instant) -> Result<Option<DaemonToVisitor>, VisitError> {
        loop {
            if let Some(message) = self.inbox.pop_front() {
                return Ok(Some(message));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let is_sent = self.connection.flush()?;
            let wanted = if is_sent { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.connection, wanted)], Some(&limit)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let result = self.read();
            if self.inbox.is_empty() {
                result?;
            }
        }
    }

    fn read(&mut self) -> Result<(), VisitError> {
        let mut received: Vec<Received> = Vec::new();
        let result = self.connection.receive(&mut received);
        for Received { message, .. } in received {
            self.inbox.push_back(DaemonToVisitor::of(message).map_err(ConnectionError::from)?);
        }
        Ok(result?)
    }
}

/// What the head remembers of the chronicle, answer by answer.
#[derive(Debug, Default)]
pub struct Remembered {
    /// The entries that were told so far.
    pub entries: Vec<ChronicleEntry>,
    /// Where the next question begins; it tells this head's entries from another's.
    pub cursor: ChronicleCursor,
}

impl Remembered {
    /// Takes an answer in. Returns whether there is more already.
    ///
    /// # Errors
    /// Where the head is of another version.
    pub fn take(&mut self, batch: ChronicleBatch) -> Result<bool, json::StateError> {
        json::check(batch.version)?;
        if batch.is_fresh {
            self.entries.clear();
        }
        self.entries.extend(batch.entries);
        self.cursor = batch.cursor.unwrap_or_default();
        Ok(batch.has_more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::NodeId;
    use oxiray_wire::message::{Refused, StateCursor, StoreRefused};
    use oxiray_wire::state::{NodeRow, STATE_VERSION, Tables};

    const LIMIT: Duration = Duration::from_secs(60);

    /// A visitor, and the daemon's end of its stream.
    fn pair() -> (Visitor, Connection) {
        let (daemon, stream) = Connection::pair().expect("a pair");
        (Visitor::greet(stream, "secret".into()).expect("greeted"), daemon)
    }

    fn say(daemon: &mut Connection, messages: Vec<Message>) {
        for message in messages {
            daemon.send(&message);
        }
        assert!(daemon.flush().expect("sent"));
    }

    fn heard(daemon: &mut Connection) -> Vec<Message> {
        let mut inbox = Vec::new();
        daemon.receive(&mut inbox).expect("it came");
        inbox.into_iter().map(|received| received.message).collect()
    }

    #[test]
    fn an_answer_is_told_from_what_else_is_said_and_from_answers_that_come_late() {
        let (mut visitor, mut daemon) = pair();
        let report = |request, version| ClusterReport { request, version, ..ClusterReport::default() };
        let none = visitor.ask(ClusterQuery::default(), Duration::ZERO);
        assert!(matches!(none, Err(VisitError::NoAnswer(_))), "{none:?}");
        let pushed = GrowthReport { request: 2, ..GrowthReport::default() };
        say(&mut daemon, vec![report(1, 7).into(), pushed.into(), report(2, 8).into()]);
        assert_eq!(visitor.ask(ClusterQuery::default(), LIMIT).expect("an answer").version, 8);
        let messages = heard(&mut daemon);
        let numbers = messages.iter().filter_map(|message| match message {
            Message::Hello(hello) => Some(hello.token.len() as u64),
            Message::ClusterQuery(asked) => Some(asked.request),
            _ => None,
        });
        assert_eq!(numbers.collect::<Vec<_>>(), [6, 1, 2]);
    }

    #[test]
    fn a_failure_and_a_refusal_are_told_in_the_daemons_words() {
        let (mut visitor, mut daemon) = pair();
        let failure = |text: &str| Some(Failure { text: text.into(), ..Failure::default() });
        say(
            &mut daemon,
            vec![StateReport { request: 1, failure: failure("no such"), ..StateReport::default() }.into()],
        );
        let told = visitor.ask(StateQuery::default(), LIMIT).expect_err("a failure");
        assert_eq!(told.to_string(), "no such");
        say(&mut daemon, vec![StoreRefused { request: 2, failure: failure("too large") }.into()]);
        assert_eq!(visitor.ask(HoldingsQuery::default(), LIMIT).expect_err("refused").to_string(), "too large");
        say(&mut daemon, vec![Refused { text: "a wrong token".into() }.into()]);
        assert_eq!(visitor.ask(GrowthQuery::default(), LIMIT).expect_err("refused").to_string(), "a wrong token");
    }

    #[test]
    fn a_copy_follows_what_changes_and_stays_where_nothing_does() {
        let (mut visitor, mut daemon) = pair();
        let node = |name: &str| NodeRow { node_id: NodeId::new([1; 28]), name: name.into(), ..NodeRow::default() };
        let changes = |request, revision, is_fresh, name: &str| StateChanges {
            request,
            version: STATE_VERSION,
            cursor: Some(StateCursor { origin: 7, begun: 1, revision }),
            is_fresh,
            tables: Some(Tables { nodes: vec![node(name)], ..Tables::default() }),
            ..StateChanges::default()
        };
        let mut copy = StateCopy::default();
        say(&mut daemon, vec![changes(1, 3, true, "one").into(), changes(2, 4, false, "two").into()]);
        assert!(visitor.follow(&mut copy, &[StateKind::Nodes], LIMIT).expect("an answer"));
        assert!(visitor.follow(&mut copy, &[StateKind::Nodes], LIMIT).expect("an answer"));
        assert_eq!(copy.nodes.values().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["two"]);
        assert!(!visitor.follow(&mut copy, &[StateKind::Nodes], Duration::ZERO).expect("nothing changed"));
        let asked = heard(&mut daemon).into_iter().filter_map(|message| match message {
            Message::StateFollow(asked) => asked.cursor.map(|cursor| cursor.revision),
            _ => None,
        });
        assert_eq!(asked.collect::<Vec<_>>(), [0, 3, 4]);
        say(
            &mut daemon,
            vec![StateChanges { request: 4, version: STATE_VERSION + 1, ..StateChanges::default() }.into()],
        );
        let refused = visitor.follow(&mut copy, &[StateKind::Nodes], LIMIT).expect_err("another version");
        assert!(matches!(refused, VisitError::Unreadable(_)), "{refused}");
    }

    #[test]
    fn the_chronicle_is_followed_from_where_the_last_batch_ended() {
        let (daemon, stream) = Connection::pair().expect("a pair");
        let mut daemon = daemon;
        let mut visitor = Visitor::greet_reading(stream, "secret".into()).expect("greeted");
        let batch = |request, number, has_more| ChronicleBatch {
            request,
            version: STATE_VERSION,
            cursor: Some(ChronicleCursor { origin: 7, number, begun: 1 }),
            is_fresh: request == 1,
            entries: vec![ChronicleEntry { number, ..ChronicleEntry::default() }],
            has_more,
            ..ChronicleBatch::default()
        };
        say(&mut daemon, vec![batch(1, 1, true).into(), batch(2, 2, false).into()]);
        let (origin, told) = visitor.chronicle_so_far(&[ChronicleKind::Node], None, LIMIT).expect("entries");
        assert_eq!(origin, 7);
        assert_eq!(told.iter().map(|entry| entry.number).collect::<Vec<_>>(), [1, 2]);
        let asked = heard(&mut daemon).into_iter().filter_map(|message| match message {
            Message::ChronicleFollow(asked) => asked.cursor.map(|cursor| cursor.number),
            Message::Hello(hello) => hello.reads_only.then_some(99),
            _ => None,
        });
        assert_eq!(asked.collect::<Vec<_>>(), [99, 0, 1]);
        let none = visitor.chronicle(ChronicleCursor::default(), &[], None, Duration::ZERO);
        assert!(none.expect("nothing happened").is_none());
    }

    #[test]
    fn what_a_daemon_said_before_it_ended_is_heard() {
        let (mut visitor, mut daemon) = pair();
        say(&mut daemon, vec![GrowthReport::default().into()]);
        drop(daemon);
        assert!(matches!(visitor.next(Instant::now() + LIMIT), Ok(Some(DaemonToVisitor::GrowthReport(_)))));
        assert!(matches!(visitor.next(Instant::now() + LIMIT), Err(VisitError::Ended(_))));
        let (mut visitor, mut daemon) = pair();
        say(&mut daemon, vec![GrowthReport::default().into()]);
        drop(daemon);
        let mut heard = 0;
        let over = loop {
            let (messages, result) = visitor.hear();
            heard += messages.len();
            if let Err(over) = result {
                break over;
            }
        };
        assert_eq!((heard, over.to_string().as_str()), (1, "the peer closed the connection"));
    }
}
