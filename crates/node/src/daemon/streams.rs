//! What becomes of streams: what is sent, who says what, whose stream is over.

use super::Daemon;
use crate::poller::Token;
use crate::streams::{DEPARTED_MAX, FRAME_PROGRESS_LIMIT, Flushed, Role, Stream};
use oxiray_machine::Key;
use oxiray_wire::connection::ConnectionError;
use oxiray_wire::message::{
    ClientToDaemon, Direction as _, Driver, HeadToNewcomer, HeadToNode, NodeToHead, NodeToNode, Returning,
    VisitorToDaemon, VisitorToHead, VisitorToSession,
};
use oxiray_wire::{FrameError, Message, Received};
use std::os::fd::OwnedFd;
use std::time::Instant;

impl Daemon {
    pub(super) fn add_stream(&mut self, key: Key, stream: Stream) {
        if let Err(error) = self.streams.add(&self.poller, key, stream) {
            self.log.line(&format!("a stream cannot be watched: {error}"));
        }
    }

    pub(super) fn queue(&mut self, to: Key, message: &Message, descriptors: Vec<OwnedFd>) {
        if let Err(error) = message.check_size() {
            return match message.too_large() {
                Some(refusal) => self.queue(to, &refusal, Vec::new()),
                None => self.expel(to, &format!("what it is to be sent is too large: {error}")),
            };
        }
        if let Err(descriptors) = self.streams.send(to, message, descriptors) {
            self.queue_elsewhere(to, message, descriptors);
        }
    }

    /// A worker of another node is told through that.
    fn queue_elsewhere(&mut self, to: Key, message: &Message, descriptors: Vec<OwnedFd>) {
        if let Some((member, worker)) = self.core.route(to) {
            self.queue(member, &message.relayed(worker).into(), descriptors);
        }
    }

    /// Ends a peer for what it said (DOOR-1).
    pub(super) fn expel(&mut self, key: Key, why: &str) {
        if self.streams.get(key).is_some_and(|stream| matches!(stream.role, Role::Member(_))) {
            self.log.line(&format!("member {key} is ended: {why}"));
            self.kill_member(key);
            return self.give_up(key, why);
        }
        self.refuse(key, why);
    }

    pub(super) fn flush_all(&mut self) {
        for key in self.streams.take_dirty() {
            self.flush(key);
        }
    }

    fn flush(&mut self, key: Key) {
        match self.streams.flush(&self.poller, key) {
            Flushed::Quietly => {}
            Flushed::HasRoom => self.resume_output(key),
            Flushed::IsClosed => self.stream_over(key),
            Flushed::IsUnread => {
                self.log.line(&format!("client {key} does not read what it is sent, and is given up"));
                self.stream_over(key);
            }
        }
    }

    /// There is something to be read of a stream, or room to write.
    pub(super) fn stream_ready(&mut self, key: Key, is_hung_up: bool) {
        if let Some(pid) = self.streams.ready(key, is_hung_up) {
            self.driver_hung_up(key, pid);
        }
    }

    /// What a driver has said before it left is heard. One process that connects and leaves faster than it is heard would
    /// take all descriptors.
    fn driver_hung_up(&mut self, key: Key, pid: u32) {
        if self.streams.departed(pid) > DEPARTED_MAX {
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
                if !has_more && self.streams.get(key).is_some_and(Stream::is_being_heard_out) {
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
            let Some(stream) = self.streams.living(key) else { return Ok(false) };
            if stream.is_idle() {
                return Err(ConnectionError::Closed);
            }
            if stream.has_to_read() {
                return Ok(false);
            }
            match stream.connection.next()? {
                Some(received) => self.received(key, received),
                None if is_all => return Ok(false),
                None => is_all = stream.read()?,
            }
            if Instant::now() >= until || self.turn.has_enough_askers() {
                return Ok(true);
            }
        }
    }

    fn connection_over(&mut self, key: Key, error: &ConnectionError) {
        let Some(stream) = self.streams.get(key) else { return };
        if !matches!(error, ConnectionError::Closed) {
            let line = format!("the connection of client {key} ends: {error}");
            match stream.role {
                Role::Newcomer(_) => self.turned_away(line),
                _ => self.log.line(&line),
            }
        }
        self.stream_over(key);
    }

    /// The process at the other end is dead, and all that it had said is heard.
    fn heard_out(&mut self, key: Key) {
        match self.streams.get(key).map(|stream| &stream.role) {
            Some(Role::Worker) => self.worker_heard_out(key),
            _ => self.stream_over(key),
        }
    }

    /// Ends all that is known of a stream here.
    pub(super) fn remove_stream(&mut self, key: Key) -> Option<Stream> {
        self.streams.remove(&self.poller, key)
    }

    fn received(&mut self, key: Key, Received { message, descriptors }: Received) {
        let is_heard = |stream: &&Stream| !stream.is_over && !stream.is_closing;
        let Some(stream) = self.streams.get(key).filter(is_heard) else { return };
        let heard = match (&stream.role, self.core.head_key()) {
            (Role::Newcomer(_) | Role::Expected, _) => {
                self.greeted(key, message);
                Ok(())
            }
            (Role::Visitor(rights), _) => {
                let rights = *rights;
                VisitorToDaemon::of(message).map(|message| self.visitor_speaks(key, rights, message))
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
        match self.streams.get(key).map(|stream| &stream.role) {
            // It is not for a node to end its head.
            Some(Role::Head | Role::Returning) => self.connection_over(key, &error.into()),
            _ => self.expel(key, &format!("it broke the protocol: {error}")),
        }
    }

    pub(super) fn end_stalled(&mut self) {
        for key in self.streams.stalled(self.turn.now) {
            let seconds = FRAME_PROGRESS_LIMIT.as_secs();
            self.log.line(&format!("client {key} began a frame, and nothing more of it has come for {seconds} s"));
            self.stream_over(key);
        }
    }

    /// What a visitor says about the session of this daemon.
    pub(super) fn session_asked(&mut self, message: &VisitorToSession) {
        match message {
            VisitorToSession::Stop(_) => {
                self.log.line("the command line asks to stop");
                self.lifetime.stop();
            }
        }
    }

    /// What a visitor says to the head that this daemon is, or has.
    pub(super) fn visitor_said(&mut self, key: Key, message: VisitorToHead) {
        match message {
            VisitorToHead::StateQuery(asked) => self.core.state_query(key, *asked),
            VisitorToHead::StateFollow(asked) => self.core.state_follow(key, asked),
            VisitorToHead::ChronicleFollow(asked) => self.core.chronicle_follow(key, asked),
            VisitorToHead::MetricsQuery(asked) => self.core.metrics_query(key, &asked),
            VisitorToHead::DrainAsked(asked) => self.core.drain_asked(key, &asked),
            VisitorToHead::DeviceAsked(asked) => self.core.device_asked(key, &asked),
            VisitorToHead::EndAsked(asked) => self.core.end_asked(key, &asked),
            VisitorToHead::GrowthState(state) => self.core.growth_state(key, &state),
            VisitorToHead::SubmissionAsked(asked) => self.submission_asked(key, &asked),
            VisitorToHead::TokenAsked(asked) => self.token_asked(key, &asked),
            VisitorToHead::LogQuery(asked) => self.logs_asked(key, &asked),
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
        if let Some(stream) = self.streams.get_mut(key) {
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
        let Some(stream) = self.streams.get_mut(key) else { return };
        let (Role::Driver(pidfd) | Role::Member(pidfd)) = &mut stream.role else { return };
        if let Some(pidfd) = pidfd.take() {
            self.poller.forget(&pidfd);
        }
        if !self.streams.hear_out(key) {
            self.remove_stream(key);
            self.member_over(key);
        }
    }

    /// The stream is at its end. A worker's stays until its process is gone.
    pub(super) fn stream_over(&mut self, key: Key) {
        let may_live = self.may_live(key);
        let Some(stream) = self.streams.living(key) else { return };
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
                return self.objects.link_over(key);
            }
            Role::Returning => self.head_not_back(key),
            Role::Head => self.head_silent(),
            _ => {}
        }
        self.logs_without(key);
        let Some(stream) = self.remove_stream(key) else { return };
        if let Role::Driver(Some(pidfd)) = &stream.role {
            self.poller.forget(pidfd);
        }
        match (&stream.role, self.core.head_key()) {
            (Role::Driver(_) | Role::Visitor(_), Some(head)) => self.proxied_client_over(head, key),
            (Role::Driver(_), None) => self.core.driver_left(key),
            (Role::Visitor(_), None) => self.core.visitor_left(key),
            _ => {}
        }
        self.lifetime.client_left(key);
    }
}
