//! The streams of a daemon, by the key of whoever is at the other end: what waits to be sent there, and whose turn it is to
//! be heard.

use crate::poller::{Poller, Token};
use crate::turns::Turns;
use oxiray_machine::Key;
use oxiray_wire::connection::{ConnectionError, READ_BYTES};
use oxiray_wire::{Connection, Message};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// What may wait for a peer that does not read, before it is given up.
const OUTBOX_BYTES_MAX: usize = 1 << 30;
/// Above this much waiting for a driver or a visitor that still is there, it is not heard: every word of it may ask for more.
const OUTBOX_BYTES_CHOKING: usize = 16 << 20;
/// Above this much waiting for a driver, its workers' output is not read.
const OUTBOX_BYTES_CROWDED: usize = 4 << 20;

/// For how long nothing more may come of a frame that was begun. Frames are written whole, so that only a process that is
/// stopped in the midst of one, or lies about its length, takes longer; one that is slow does not.
pub(crate) const FRAME_PROGRESS_LIMIT: Duration = Duration::from_secs(120);

/// How many drivers of one process that have left are heard out at once.
pub(crate) const DEPARTED_MAX: usize = 16;

/// Who is at the other end.
#[derive(Debug)]
pub(crate) enum Role {
    /// Nobody knows yet: it has until then to say so.
    Newcomer(Instant),
    /// The other half of the socket pair that a private daemon was started with; it has yet to greet.
    Expected,
    /// The command line: it looks, or stops the session.
    Visitor(Rights),
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

/// What a visitor may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// It gives orders.
    All,
    /// It only reads, as it said.
    Reading,
}

impl Rights {
    /// Those of one that greets so.
    pub(crate) fn of(reads_only: bool) -> Self {
        if reads_only { Self::Reading } else { Self::All }
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) connection: Connection,
    pub(crate) role: Role,
    /// The process at the other end, where the socket tells.
    pub(crate) peer_pid: u32,
    /// Closed by the peer: nothing is read or written any more.
    pub(crate) is_over: bool,
    /// To be closed when everything is sent.
    pub(crate) is_closing: bool,
    /// A worker's that has yet to tell a head that came back where it stands.
    pub(crate) is_unresumed: bool,
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
    pub(crate) fn new(connection: Connection, role: Role, peer_pid: u32) -> Self {
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
        matches!(self.role, Role::Driver(_) | Role::Visitor(_))
            && !self.is_hung_up
            && self.last_words.is_none()
            && self.connection.unsent_bytes() > OUTBOX_BYTES_CHOKING
    }

    /// Whether it is not heard until it has read what waits for it.
    pub(crate) fn has_to_read(&self) -> bool {
        self.is_choked && self.is_to_read()
    }

    /// Whether nothing that the peer says is to be heard any more: it only asks, or asks to be let in, and is not there to be
    /// answered; or it was told that it is heard no more.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_hung_up && (self.is_closing || matches!(self.role, Role::Visitor(_) | Role::Newcomer(_)))
    }

    /// Whether the process at the other end is dead, and what it had said is yet to be heard.
    pub(crate) fn is_being_heard_out(&self) -> bool {
        self.last_words.is_some()
    }

    /// Reads some of what has arrived; whether that is all.
    pub(crate) fn read(&mut self) -> Result<bool, ConnectionError> {
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

    pub(crate) fn is_crowded(&self) -> bool {
        self.connection.unsent_bytes() > OUTBOX_BYTES_CROWDED
    }

    /// It is crowded so much that nothing is added to what waits, whoever asks for it.
    pub(crate) fn is_overcrowded(&self) -> bool {
        self.connection.unsent_bytes() > 2 * OUTBOX_BYTES_CROWDED
    }
}

/// What came of sending what waited for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing that anybody has to know.
    Quietly,
    /// The peer has read so much that its workers' output may be read again.
    HasRoom,
    /// All is sent to a peer whose stream is to be closed then.
    IsClosed,
    /// The peer does not read what it is sent.
    IsUnread,
}

/// All streams.
#[derive(Debug)]
pub(crate) struct Streams {
    by_key: BTreeMap<Key, Stream>,
    /// Streams with something to send.
    dirty: BTreeSet<Key>,
    /// Streams, and pipes of workers, with something to be read.
    pub(crate) turns: Turns<Token>,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self { by_key: BTreeMap::new(), dirty: BTreeSet::new(), turns: Turns::new() }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Stream> {
        self.by_key.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Stream> {
        self.by_key.get_mut(&key)
    }

    /// The stream, where it is not over.
    pub(crate) fn living(&mut self, key: Key) -> Option<&mut Stream> {
        self.by_key.get_mut(&key).filter(|stream| !stream.is_over)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &Stream)> {
        self.by_key.iter().map(|(key, stream)| (*key, stream))
    }

    pub(crate) fn add(&mut self, poller: &Poller, key: Key, stream: Stream) -> Result<(), Errno> {
        poller.watch(&stream.connection, Token::Stream(key))?;
        self.by_key.insert(key, stream);
        Ok(())
    }

    /// Ends all that is known of a stream here.
    pub(crate) fn remove(&mut self, poller: &Poller, key: Key) -> Option<Stream> {
        self.turns.forget(Token::Stream(key));
        let stream = self.by_key.remove(&key)?;
        poller.forget(&stream.connection);
        Some(stream)
    }

    /// Ends all streams but one, which is returned where it is there.
    pub(crate) fn end_all_but(&mut self, key: Option<Key>) -> Option<Stream> {
        let left = key.and_then(|key| self.by_key.remove(&key));
        self.by_key.clear();
        left
    }

    // --- what is sent ---

    /// Has a message sent with the next flush.
    ///
    /// # Errors
    /// Gives the descriptors back where there is no stream that is not over.
    pub(crate) fn send(&mut self, to: Key, message: &Message, descriptors: Vec<OwnedFd>) -> Result<(), Vec<OwnedFd>> {
        let Some(stream) = self.by_key.get_mut(&to).filter(|stream| !stream.is_over) else { return Err(descriptors) };
        if stream.is_hung_up && matches!(stream.role, Role::Driver(_)) {
            // What it said last may have answers, which nobody will read.
            return Ok(());
        }
        stream.connection.send_with(message, descriptors);
        self.dirty.insert(to);
        Ok(())
    }

    /// There is something to be sent on the stream already.
    pub(crate) fn is_to_flush(&mut self, key: Key) {
        self.dirty.insert(key);
    }

    /// Has a stream closed when everything is sent.
    pub(crate) fn close_when_sent(&mut self, key: Key) {
        if let Some(stream) = self.by_key.get_mut(&key) {
            stream.is_closing = true;
            self.dirty.insert(key);
        }
    }

    /// The streams with something to send; each is to be flushed.
    pub(crate) fn take_dirty(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.dirty)
    }

    /// Sends what the socket takes.
    pub(crate) fn flush(&mut self, poller: &Poller, key: Key) -> Flushed {
        let Some(stream) = self.by_key.get_mut(&key).filter(|stream| !stream.is_over) else {
            return Flushed::Quietly;
        };
        let was_crowded = stream.is_crowded();
        match stream.connection.flush() {
            Ok(is_empty) => {
                let was = (stream.watches_room, stream.is_choked);
                (stream.watches_room, stream.is_choked) = (!is_empty, stream.is_to_read());
                if was != (stream.watches_room, stream.is_choked) {
                    poller.watch_for(&stream.connection, Token::Stream(key), !stream.is_choked, !is_empty);
                }
                if was.1 && !stream.is_choked {
                    // There may be messages that were read and not handled.
                    self.turns.add(Token::Stream(key));
                }
                if is_empty && stream.is_closing {
                    return Flushed::IsClosed;
                }
                if stream.connection.unsent_bytes() > OUTBOX_BYTES_MAX {
                    return Flushed::IsUnread;
                }
            }
            // What the peer said before it left is still to be read: the end is found there.
            Err(_) => self.turns.add(Token::Stream(key)),
        }
        if was_crowded && !stream.is_crowded() { Flushed::HasRoom } else { Flushed::Quietly }
    }

    // --- what is heard ---

    /// There is something to be read of a stream, or room to write. Returns whether that is the first sign that a driver has
    /// closed its end, and the driver's process.
    pub(crate) fn ready(&mut self, key: Key, is_hung_up: bool) -> Option<u32> {
        let stream = self.by_key.get_mut(&key).filter(|stream| !stream.is_over)?;
        let has_left = is_hung_up && !std::mem::replace(&mut stream.is_hung_up, is_hung_up);
        if stream.watches_room {
            self.dirty.insert(key);
        }
        self.turns.add(Token::Stream(key));
        (has_left && matches!(stream.role, Role::Driver(_))).then_some(stream.peer_pid)
    }

    /// How many drivers of a process have closed their end and are yet to be heard out.
    pub(crate) fn departed(&self, pid: u32) -> usize {
        let has_left =
            |stream: &&Stream| stream.is_hung_up && stream.peer_pid == pid && matches!(stream.role, Role::Driver(_));
        self.by_key.values().filter(has_left).count()
    }

    /// The process at the other end is dead. What it has said by now is heard, in turn; `false` where there is no stream to be
    /// heard.
    pub(crate) fn hear_out(&mut self, key: Key) -> bool {
        let Some(stream) = self.by_key.get_mut(&key).filter(|stream| !stream.is_over) else { return false };
        stream.last_words = Some(stream.connection.unread_bytes());
        self.turns.add(Token::Stream(key));
        true
    }

    /// When a peer has to have gone on with the frame that it began.
    pub(crate) fn progress_deadline(&self) -> Option<Instant> {
        self.by_key.values().filter_map(Stream::stalled_since).min().map(|since| since + FRAME_PROGRESS_LIMIT)
    }

    /// The peers that did not go on in time with the frame that they began.
    pub(crate) fn stalled(&self, now: Instant) -> Vec<Key> {
        let is_late = |since: Instant| since + FRAME_PROGRESS_LIMIT <= now;
        let stalled = self.iter().filter(|(_, stream)| stream.stalled_since().is_some_and(is_late));
        stalled.map(|(key, _)| key).collect()
    }

    /// Those that have not greeted yet, and until when each has to.
    pub(crate) fn newcomers(&self) -> impl Iterator<Item = (Instant, Key)> {
        self.iter().filter_map(|(key, stream)| match stream.role {
            Role::Newcomer(until) => Some((until, key)),
            _ => None,
        })
    }
}
