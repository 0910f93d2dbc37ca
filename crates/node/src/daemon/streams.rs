//! Control streams: reading, writing, closing.

use super::{Daemon, Token};
use oxiray_machine::Key;
use oxiray_wire::connection::{ConnectionError, READ_BYTES};
use oxiray_wire::message::{
    ClientToDaemon, Direction as _, Driver, HeadToNewcomer, HeadToNode, NodeToHead, NodeToNode, Returning,
    VisitorToDaemon, VisitorToHead, VisitorToSession,
};
use oxiray_wire::{Connection, FrameError, Message, Received};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// What may wait for a peer that does not read, before it is given up.
const OUTBOX_BYTES_MAX: usize = 1 << 30;
/// Above this much waiting for a driver or a visitor that still is there, it is not heard: every word of it may ask for more.
const OUTBOX_BYTES_CHOKING: usize = 16 << 20;
/// Above this much waiting for a driver, its workers' output is not read.
pub(super) const OUTBOX_BYTES_CROWDED: usize = 4 << 20;

/// For how long nothing more may come of a frame that was begun. Frames are written whole, so that only a process that is
/// stopped in the midst of one, or lies about its length, takes longer; one that is slow does not.
const FRAME_PROGRESS_LIMIT: Duration = Duration::from_secs(120);

/// How many drivers of one process that have left are heard out at once.
const DEPARTED_MAX: usize = 16;

/// Who is at the other end.
#[derive(Debug)]
pub(super) enum Role {
    /// Nobody knows yet: it has until then to say so.
    Newcomer(Instant),
    /// The other half of the socket pair that a private daemon was started with; it has yet to greet.
    Expected,
    /// The command line: it looks, or stops the session.
    Visitor,
    /// A driver that was let in, with a descriptor of its process.
    Driver(Option<OwnedFd>),
    /// A worker's control stream.
    Worker,
    /// A node that joined this one, with a descriptor of its process.
    Member(Option<OwnedFd>),
    /// The node that this one joined.
    Head,
    /// Whoever answers where that node was, since it is away.
    Returning,
    /// Another node, to exchange objects with.
    Node,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) connection: Connection,
    pub(super) role: Role,
    /// The process at the other end, where the socket tells.
    pub(super) peer_pid: u32,
    /// Closed by the peer: nothing is read or written any more.
    pub(super) is_over: bool,
    /// To be closed when everything is sent.
    pub(super) is_closing: bool,
    /// A worker's that has yet to tell a head that came back where it stands.
    pub(super) is_unresumed: bool,
    /// The peer has closed its end: nobody hears what it is answered.
    is_hung_up: bool,
    /// Where the process at the other end is dead: how much of what it had said is yet to be read. Whoever else has that end
    /// is not heard.
    last_words: Option<u64>,
    watches_room: bool,
    /// Not heard, and not watched for what is to be read, until it has read what waits for it.
    is_choked: bool,
}

impl Stream {
    pub(super) fn new(connection: Connection, role: Role, peer_pid: u32) -> Self {
        Self {
            connection,
            role,
            peer_pid,
            is_over: false,
            is_closing: false,
            is_unresumed: false,
            is_hung_up: false,
            last_words: None,
            watches_room: false,
            is_choked: false,
        }
    }

    /// Whether it is to read before it is heard. Members and workers always read, and others wait for their words.
    fn is_to_read(&self) -> bool {
        matches!(self.role, Role::Driver(_) | Role::Visitor)
            && !self.is_hung_up
            && self.last_words.is_none()
            && self.connection.unsent_bytes() > OUTBOX_BYTES_CHOKING
    }

    /// Whether nothing that the peer says is to be heard any more: it only asks, or asks to be let in, and is not there to be
    /// answered; or it was told that it is heard no more.
    fn is_idle(&self) -> bool {
        self.is_hung_up && (self.is_closing || matches!(self.role, Role::Visitor | Role::Newcomer(_)))
    }

    /// Reads some of what has arrived; whether that is all.
    fn read(&mut self) -> Result<bool, ConnectionError> {
        match &mut self.last_words {
            None => Ok(self.connection.read()? < READ_BYTES),
            Some(0) => Ok(true),
            // A read ends before a frame that descriptors come with, too.
            Some(left) => {
                let read = self.connection.read()?;
                *left = left.saturating_sub(read as u64);
                Ok(read == 0)
            }
        }
    }

    /// Since when nothing more has come of a frame that was begun, though it is heard.
    fn stalled_since(&self) -> Option<Instant> {
        self.connection.stalled_since().filter(|_| !self.is_over && !self.is_choked)
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.connection.unsent_bytes() > OUTBOX_BYTES_CROWDED
    }
}

impl Daemon {
    pub(super) fn add_stream(&mut self, key: Key, stream: Stream) {
        match self.poller.watch(&stream.connection, Token::Stream(key)) {
            Ok(()) => drop(self.streams.insert(key, stream)),
            Err(error) => self.log.line(&format!("a stream cannot be watched: {error}")),
        }
    }

    pub(super) fn queue(&mut self, to: Key, message: &Message, descriptors: Vec<OwnedFd>) {
        if let Err(error) = message.check_size() {
            return match message.too_large() {
                Some(refusal) => self.queue(to, &refusal, Vec::new()),
                None => self.expel(to, &format!("what it is to be told is too large: {error}")),
            };
        }
        let Some(stream) = self.streams.get_mut(&to).filter(|stream| !stream.is_over) else {
            return self.queue_elsewhere(to, message, descriptors);
        };
        if stream.is_hung_up && matches!(stream.role, Role::Driver(_)) {
            // What it said last may have answers, which nobody will read.
            return;
        }
        stream.connection.send_with(message, descriptors);
        self.dirty.insert(to);
    }

    /// A worker of another node is told through that.
    fn queue_elsewhere(&mut self, to: Key, message: &Message, descriptors: Vec<OwnedFd>) {
        if let Some((member, worker)) = self.core.route(to) {
            self.queue(member, &message.relayed(worker).into(), descriptors);
        }
    }

    /// Ends a peer for what it said (DOOR-1).
    pub(super) fn expel(&mut self, key: Key, why: &str) {
        if self.streams.get(&key).is_some_and(|stream| matches!(stream.role, Role::Member(_))) {
            self.log.line(&format!("member {key} is ended: {why}"));
            self.kill_member(key);
            return self.give_up(key, why);
        }
        self.refuse(key, why);
    }

    pub(super) fn flush_all(&mut self) {
        for key in std::mem::take(&mut self.dirty) {
            self.flush(key);
        }
    }

    fn flush(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(&key).filter(|stream| !stream.is_over) else { return };
        let was_crowded = stream.is_crowded();
        let flushed = stream.connection.flush();
        let is_crowded = stream.is_crowded();
        match flushed {
            Ok(is_empty) => {
                let was = (stream.watches_room, stream.is_choked);
                (stream.watches_room, stream.is_choked) = (!is_empty, stream.is_to_read());
                if was != (stream.watches_room, stream.is_choked) {
                    self.poller.watch_for(&stream.connection, Token::Stream(key), !stream.is_choked, !is_empty);
                }
                if was.1 && !stream.is_choked {
                    // There may be messages that were read and not handled.
                    self.turns.add(Token::Stream(key));
                }
                if is_empty && stream.is_closing {
                    return self.stream_over(key);
                }
                if stream.connection.unsent_bytes() > OUTBOX_BYTES_MAX {
                    self.log.line(&format!("client {key} does not read what it is sent, and is given up"));
                    return self.stream_over(key);
                }
            }
            // What the peer said before it left is still to be read: the end is found there.
            Err(_) => self.turns.add(Token::Stream(key)),
        }
        if was_crowded && !is_crowded {
            self.resume_output(key);
        }
    }

    /// There is something to be read of a stream, or room to write.
    pub(super) fn stream_ready(&mut self, key: Key, is_hung_up: bool) {
        let Some(stream) = self.streams.get_mut(&key).filter(|stream| !stream.is_over) else { return };
        let has_left = is_hung_up && !std::mem::replace(&mut stream.is_hung_up, is_hung_up);
        if stream.watches_room {
            self.dirty.insert(key);
        }
        self.turns.add(Token::Stream(key));
        if has_left && matches!(stream.role, Role::Driver(_)) {
            let pid = stream.peer_pid;
            self.driver_hung_up(key, pid);
        }
    }

    /// What a driver has said before it left is heard. One process that connects and leaves faster than it is heard would
    /// take all descriptors.
    fn driver_hung_up(&mut self, key: Key, pid: u32) {
        let has_left =
            |stream: &&Stream| stream.is_hung_up && stream.peer_pid == pid && matches!(stream.role, Role::Driver(_));
        if self.streams.values().filter(has_left).count() > DEPARTED_MAX {
            self.turned_away(format!(
                "driver {key} of process {pid} left, and so did {DEPARTED_MAX} others of that process that are not heard out: \
                 what this one said last is passed over"
            ));
            self.stream_over(key);
        }
    }

    /// Hears a peer until there is no more, or its moment is over; whether there may be more.
    pub(super) fn hear(&mut self, key: Key, until: Instant) -> bool {
        match self.hear_some(key, until) {
            Ok(has_more) => {
                if !has_more && self.streams.get(&key).is_some_and(|stream| stream.last_words.is_some()) {
                    self.heard_out(key);
                }
                has_more
            }
            Err(error) => {
                self.connection_over(key, &error);
                false
            }
        }
    }

    fn hear_some(&mut self, key: Key, until: Instant) -> Result<bool, ConnectionError> {
        let mut is_all = false;
        loop {
            let Some(stream) = self.streams.get_mut(&key).filter(|stream| !stream.is_over) else { return Ok(false) };
            if stream.is_idle() {
                return Err(ConnectionError::Closed);
            }
            if stream.is_choked && stream.is_to_read() {
                return Ok(false);
            }
            match stream.connection.next()? {
                Some(received) => self.received(key, received),
                None if is_all => return Ok(false),
                None => is_all = stream.read()?,
            }
            if Instant::now() >= until || self.has_enough_askers() {
                return Ok(true);
            }
        }
    }

    fn connection_over(&mut self, key: Key, error: &ConnectionError) {
        let Some(stream) = self.streams.get(&key) else { return };
        if !matches!(error, ConnectionError::Closed) {
            let line = format!("the connection of client {key} ends: {error}");
            match stream.role {
                Role::Newcomer(_) => self.turned_away(line),
                _ => self.log.line(&line),
            }
        }
        self.stream_over(key);
    }

    /// The process at the other end is dead. What it has said by now is heard, in turn, before its end is carried out by
    /// [`Daemon::heard_out`]; `false` where there is no stream to be heard.
    pub(super) fn hear_out(&mut self, key: Key) -> bool {
        let Some(stream) = self.streams.get_mut(&key).filter(|stream| !stream.is_over) else { return false };
        stream.last_words = Some(stream.connection.unread_bytes());
        self.turns.add(Token::Stream(key));
        true
    }

    fn heard_out(&mut self, key: Key) {
        match self.streams.get(&key).map(|stream| &stream.role) {
            Some(Role::Worker) => self.worker_heard_out(key),
            _ => self.stream_over(key),
        }
    }

    /// Ends all that is known of a stream here.
    pub(super) fn remove_stream(&mut self, key: Key) -> Option<Stream> {
        self.turns.forget(Token::Stream(key));
        let stream = self.streams.remove(&key)?;
        self.poller.forget(&stream.connection);
        Some(stream)
    }

    fn received(&mut self, key: Key, Received { message, descriptors }: Received) {
        let is_heard = |stream: &&Stream| !stream.is_over && !stream.is_closing;
        let Some(stream) = self.streams.get(&key).filter(is_heard) else { return };
        let heard = match (&stream.role, self.core.head_key()) {
            (Role::Newcomer(_) | Role::Expected, _) => {
                self.greeted(key, message);
                Ok(())
            }
            (Role::Visitor, None) => VisitorToDaemon::of(message).map(|message| self.visited(key, message)),
            (Role::Visitor, Some(head)) => {
                VisitorToDaemon::of(message).map(|message| self.guest_visits(head, key, message))
            }
            (Role::Driver(_) | Role::Worker, None) => {
                ClientToDaemon::of(message).map(|message| self.dispatch(key, message))
            }
            (Role::Driver(_) | Role::Worker, Some(head)) => {
                ClientToDaemon::of(message).map(|message| self.client_of_member_said(head, key, message))
            }
            (Role::Member(_), _) => NodeToHead::of(message).map(|message| self.member_said(key, message)),
            (Role::Head, _) => HeadToNode::of(message).map(|message| self.head_said(message, descriptors)),
            (Role::Node, _) => NodeToNode::of(message).map(|message| self.node_said(key, message)),
            (Role::Returning, _) => HeadToNewcomer::of(message).map(|message| self.head_answers(key, &message)),
        };
        if let Err(error) = heard {
            self.misdirected(key, error);
        }
    }

    /// A peer said what is not for this end (DOOR-1).
    fn misdirected(&mut self, key: Key, error: FrameError) {
        match self.streams.get(&key).map(|stream| &stream.role) {
            // It is not for a node to end its head.
            Some(Role::Head | Role::Returning) => self.connection_over(key, &error.into()),
            _ => self.expel(key, &format!("it broke the protocol: {error}")),
        }
    }

    /// When a peer has to have gone on with the frame that it began.
    pub(super) fn progress_deadline(&self) -> Option<Instant> {
        self.streams.values().filter_map(Stream::stalled_since).min().map(|since| since + FRAME_PROGRESS_LIMIT)
    }

    pub(super) fn end_stalled(&mut self) {
        if self.progress_deadline().is_none_or(|at| at > self.now) {
            return;
        }
        let is_late = |since: Instant| since + FRAME_PROGRESS_LIMIT <= self.now;
        let is_stalled = |stream: &Stream| stream.stalled_since().is_some_and(is_late);
        let stalled = self.streams.iter().filter(|(_, stream)| is_stalled(stream));
        for key in stalled.map(|(key, _)| *key).collect::<Vec<_>>() {
            let seconds = FRAME_PROGRESS_LIMIT.as_secs();
            self.log.line(&format!("client {key} began a frame, and nothing more of it has come for {seconds} s"));
            self.stream_over(key);
        }
    }

    fn visited(&mut self, key: Key, message: VisitorToDaemon) {
        match message {
            VisitorToDaemon::Session(asked) => self.session_asked(&asked),
            VisitorToDaemon::Report(asked) => self.report_asked(key, &asked),
            VisitorToDaemon::Head(message) => self.visitor_said(key, message),
        }
    }

    /// What a visitor says about the session of this daemon.
    pub(super) fn session_asked(&mut self, message: &VisitorToSession) {
        match message {
            VisitorToSession::Stop(_) => {
                self.log.line("the command line asks to stop");
                self.is_stopping = true;
            }
        }
    }

    /// What a visitor says to the head that this daemon is, or has.
    pub(super) fn visitor_said(&mut self, key: Key, message: VisitorToHead) {
        match message {
            VisitorToHead::StateQuery(asked) => self.core.state_query(key, asked),
            VisitorToHead::MetricsQuery(asked) => self.core.metrics_query(key, asked.request),
            VisitorToHead::DrainAsked(asked) => self.core.drain_asked(key, &asked),
            VisitorToHead::GrowthState(state) => self.core.growth_state(key, &state),
            VisitorToHead::SubmissionAsked(asked) => self.submission_asked(key, &asked),
            VisitorToHead::TokenAsked(asked) => self.token_asked(key, &asked),
            VisitorToHead::GrowthQuery(asked) => self.core.growth_query(key, asked.request),
        }
    }

    pub(super) fn become_driver(
        &mut self,
        key: Key,
        driver: Driver,
        pidfd: Option<OwnedFd>,
        returning: Option<&Returning>,
    ) {
        if let Some(pidfd) = &pidfd
            && let Err(error) = self.poller.watch(pidfd, Token::Driver(key))
        {
            self.log.line(&format!("the process of driver {key} cannot be watched: {error}"));
        }
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.connection.prove();
            stream.role = Role::Driver(pidfd);
            match returning.map(|who| self.core.resume_driver(key, driver.clone(), who)) {
                None => self.core.driver_joined(key, driver),
                Some(Ok(())) => {}
                Some(Err(text)) => self.refuse(key, &text),
            }
        }
    }

    /// The process is gone, even where a child that it forked keeps its end of the stream open.
    pub(super) fn driver_process_died(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let (Role::Driver(pidfd) | Role::Member(pidfd)) = &mut stream.role else { return };
        if let Some(pidfd) = pidfd.take() {
            self.poller.forget(&pidfd);
        }
        if !self.hear_out(key) {
            self.remove_stream(key);
            self.member_over(key);
        }
    }

    /// The stream is at its end. A worker's stays until its process is gone.
    pub(super) fn stream_over(&mut self, key: Key) {
        let may_live = self.may_live(key);
        let Some(stream) = self.streams.get_mut(&key).filter(|stream| !stream.is_over) else { return };
        stream.is_over = true;
        self.poller.forget(&stream.connection);
        if matches!(stream.role, Role::Worker) {
            self.core.worker_left(key);
            return self.worker_heard_out(key);
        }
        match stream.role {
            // It ends by itself now; its workers may live until its process is gone.
            Role::Member(Some(_)) => return self.core.member_silent(key, false),
            Role::Member(None) if may_live => return self.core.member_silent(key, true),
            Role::Member(None) => self.member_over(key),
            Role::Node => {
                self.remove_stream(key);
                return self.link_over(key);
            }
            Role::Returning => self.head_not_back(key),
            Role::Head => self.head_silent(),
            _ => {}
        }
        let Some(stream) = self.remove_stream(key) else { return };
        if let Role::Driver(Some(pidfd)) = &stream.role {
            self.poller.forget(pidfd);
        }
        match (&stream.role, self.core.head_key()) {
            (Role::Driver(_) | Role::Visitor, Some(head)) => self.guest_over(head, key),
            (Role::Driver(_), None) => self.core.driver_left(key),
            (Role::Visitor, None) => self.core.visitor_left(key),
            _ => {}
        }
        if self.only_driver == Some(key) {
            self.is_stopping = true;
        }
    }
}
