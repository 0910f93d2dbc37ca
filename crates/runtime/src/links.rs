//! The streams of this process and the one epoll instance that watches them.
//!
//! A frame for a peer that has nothing of ours under way is written at once, so that a lone call is not
//! delayed; more frames to the same peer are gathered and written together, when [`GATHER_BYTES`] have
//! come together, when someone waits, or after [`GATHER_TIME`]. What the daemon is told and nobody waits for goes with the
//! next frame to it, or after [`LATE_TIME`].
//!
//! A stream to a process on this machine that is used again and again goes on through shared memory, where writing costs
//! no system call and nothing is gathered.
//!
//! - LINKS-1: memory that something may come in is watched, or the peer was asked to ring the bell for that.

use crate::core::{DAEMON, Role, Token};
use crate::watched::{Sign, Watched};
use oxiray_wire::connection::ConnectionError;
use oxiray_wire::{Body, Connection, Received};
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Frames are written without waiting for more once this much is gathered.
const GATHER_BYTES: usize = 32 << 10;
/// A gathered frame waits no longer than this.
const GATHER_TIME: Duration = Duration::from_micros(400);
/// A frame that nobody waits for is written no later than this.
const LATE_TIME: Duration = Duration::from_millis(1);
/// After so many frames a stream is worth the memory of a ring.
const FRAMES_BEFORE_RING: u32 = 16;

/// The event counter that wakes whoever sits in epoll.
const WAKE: Token = u64::MAX;

#[derive(Debug)]
struct Link {
    connection: Connection,
    watches_room: bool,
    dirty: bool,
    /// Nothing is read of it for now.
    is_held_back: bool,
    /// When something was last written.
    written_at: Option<Instant>,
    /// Frames to be sent before shared memory is offered; nothing where it is not to be, or was.
    offers_after: Option<u32>,
    /// There was no room in the shared memory.
    lacks_room: bool,
}

impl Link {
    /// Queues a frame, and offers the peer shared memory for all others once that is worth it.
    fn send(&mut self, message: &impl Body) {
        self.connection.send(message);
        if let Some(left) = &mut self.offers_after {
            *left -= 1;
            if *left == 0 {
                self.offers_after = None;
                // Where there is no memory for it, the socket does.
                let _ = self.connection.offer_ring();
            }
        }
    }

    /// Whether what is queued is written without waiting for more.
    fn is_due(&self) -> bool {
        self.connection.writes_to_ring() || (self.connection.unsent_bytes() >= GATHER_BYTES && !self.watches_room)
    }
}

#[derive(Debug)]
pub(crate) struct Links {
    epoll: OwnedFd,
    wake: OwnedFd,
    open: FxHashMap<Token, Link>,
    next: Token,
    dirty: Vec<Token>,
    /// When gathered frames are to be written.
    gathered_until: Option<Instant>,
    /// When what the daemon is told and nobody waits for is to be written.
    late_until: Option<Instant>,
    /// The shared memory that is looked at for what comes.
    pub(crate) watched: Watched,
    /// A peer made room in shared memory.
    pub(crate) made_room: bool,
    /// The last stream that ended before the daemons had made its connection: nothing has gone through it.
    unmade: Option<Token>,
}

impl Links {
    pub(crate) fn new(daemon: Connection) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake =
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let mut links = Self {
            epoll,
            wake,
            open: FxHashMap::default(),
            next: DAEMON,
            dirty: Vec::new(),
            gathered_until: None,
            late_until: None,
            watched: Watched::default(),
            made_room: false,
            unmade: None,
        };
        links.insert(daemon)?;
        Ok(links)
    }

    /// Duplicates of the two descriptors that are used without the lock: epoll and its waker.
    pub(crate) fn waiting_descriptors(&self) -> Result<(OwnedFd, OwnedFd), Errno> {
        Ok((rustix::io::fcntl_dupfd_cloexec(&self.epoll, 0)?, rustix::io::fcntl_dupfd_cloexec(&self.wake, 0)?))
    }

    fn insert(&mut self, connection: Connection) -> Result<Token, Errno> {
        let token = self.next;
        self.next += 1;
        self.open_as(token, connection)?;
        Ok(token)
    }

    /// The stream to a daemon that came back.
    pub(crate) fn reopen_daemon(&mut self, connection: Connection) -> Result<(), Errno> {
        self.open_as(DAEMON, connection)
    }

    fn open_as(&mut self, token: Token, connection: Connection) -> Result<(), Errno> {
        watch(&self.epoll, &connection, token, epoll::EventFlags::IN)?;
        let link = Link {
            connection,
            watches_room: false,
            dirty: false,
            is_held_back: false,
            written_at: None,
            offers_after: None,
            lacks_room: false,
        };
        self.open.insert(token, link);
        Ok(())
    }

    /// A stream from a descriptor that the daemon sent; `is_near` where it leads to a process on this machine that will
    /// take shared memory.
    pub(crate) fn adopt(&mut self, descriptor: OwnedFd, role: Role, is_near: bool) -> Result<Token, Errno> {
        let mut connection = Connection::introduced(descriptor)?;
        if matches!(role, Role::Client(_)) {
            connection.take_rings();
        }
        let token = self.insert(connection)?;
        if let Some(link) = self.open.get_mut(&token).filter(|_| is_near) {
            link.offers_after = Some(FRAMES_BEFORE_RING);
        }
        Ok(token)
    }

    pub(crate) fn remove(&mut self, token: Token) {
        if let Some(mut link) = self.open.remove(&token) {
            self.watched.remove(token);
            let _ = link.connection.flush();
            unwatch(&self.epoll, &link.connection);
        }
    }

    pub(crate) fn is_open(&self, token: Token) -> bool {
        self.open.contains_key(&token)
    }

    /// Gathers a frame. Nothing happens where the stream is gone: its end is noticed on reading.
    pub(crate) fn post(&mut self, token: Token, message: &impl Body) {
        let Some(link) = self.open.get_mut(&token) else { return };
        link.send(message);
        self.gather(token);
    }

    fn gather(&mut self, token: Token) {
        let Some(link) = self.open.get_mut(&token) else { return };
        if link.is_due() {
            self.flush(token);
        } else if !link.dirty {
            link.dirty = true;
            self.dirty.push(token);
            if self.gathered_until.is_none() {
                self.gathered_until = Some(Instant::now() + GATHER_TIME);
            }
        }
    }

    /// Gathers a frame to the daemon that nobody waits for: it wakes the daemon for nothing else.
    pub(crate) fn post_late(&mut self, message: &impl Body) {
        let Some(link) = self.open.get_mut(&DAEMON) else { return };
        link.send(message);
        if link.is_due() {
            self.flush(DAEMON);
        } else if self.late_until.is_none() {
            self.late_until = Some(Instant::now() + LATE_TIME);
        }
    }

    /// Writes a frame, and what was gathered before it, at once.
    pub(crate) fn post_now(&mut self, token: Token, message: &impl Body) {
        if let Some(link) = self.open.get_mut(&token) {
            link.send(message);
            self.flush(token);
        }
    }

    /// Writes a frame at once where nothing was written for a while; gathers it with others where one follows another.
    pub(crate) fn post_soon(&mut self, token: Token, message: &impl Body) {
        let quiet = |link: &Link| link.written_at.is_none_or(|at| at.elapsed() >= GATHER_TIME);
        if self.open.get(&token).is_some_and(quiet) {
            self.post_now(token, message);
        } else {
            self.post(token, message);
        }
    }

    /// Since when nothing more has come of a frame that the peer has begun, where one has; nothing while nothing is read.
    pub(crate) fn stalled_since(&self, token: Token) -> Option<Instant> {
        self.open.get(&token).filter(|link| !link.is_held_back).and_then(|link| link.connection.stalled_since())
    }

    /// Bytes that a peer has yet to take.
    pub(crate) fn unsent_bytes(&self, token: Token) -> usize {
        self.open.get(&token).map_or(0, |link| link.connection.unsent_bytes())
    }

    fn flush(&mut self, token: Token) {
        self.late_until.take_if(|_| token == DAEMON);
        let Some(link) = self.open.get_mut(&token) else { return };
        // An error here is the stream's end, which reading it reports with everything that came before.
        let blocked = matches!(link.connection.flush(), Ok(false));
        let is_ring = link.connection.writes_to_ring();
        link.lacks_room = blocked && is_ring;
        let blocked = blocked && !is_ring;
        if !is_ring {
            link.written_at = Some(Instant::now());
        }
        if blocked != link.watches_room {
            link.watches_room = blocked;
            let interest = if blocked { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            let _ = epoll::modify(&self.epoll, &link.connection, epoll::EventData::new_u64(token), interest);
        }
    }

    /// When [`Links::flush_all`] is to be called.
    pub(crate) fn flush_at(&self) -> Option<Instant> {
        self.gathered_until.into_iter().chain(self.late_until).min()
    }

    /// Writes everything.
    pub(crate) fn flush_all(&mut self) {
        self.flush_gathered();
        if self.late_until.is_some() {
            self.flush(DAEMON);
        }
    }

    /// Writes everything gathered; what nobody waits for, only where something else goes to the daemon.
    pub(crate) fn flush_gathered(&mut self) {
        self.gathered_until = None;
        for token in std::mem::take(&mut self.dirty) {
            if let Some(link) = self.open.get_mut(&token) {
                link.dirty = false;
                self.flush(token);
            }
        }
    }

    /// Serves a stream of which there was a sign; `true` where it is over and was removed. What came in shared memory is
    /// had from [`Links::next`].
    pub(crate) fn receive(&mut self, token: Token, sign: Sign, inbox: &mut Vec<Received>) -> bool {
        if token == WAKE {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            return false;
        }
        if sign == Sign::Writable {
            self.flush(token);
        }
        let Some(link) = self.open.get_mut(&token) else { return false };
        let was_promised = link.connection.is_promised();
        let mut came = match sign {
            Sign::InMemory => link.connection.read_ring().is_ok(),
            Sign::Readable | Sign::Writable => link.connection.receive(inbox).is_ok(),
        };
        if was_promised && !link.connection.is_promised() {
            // The promise is watched already.
            let event = epoll::EventData::new_u64(token);
            came &= epoll::add(&self.epoll, &link.connection, event, epoll::EventFlags::IN).is_ok();
            self.flush(token);
        }
        let Some(link) = self.open.get_mut(&token).filter(|link| {
            self.unmade = (!came && link.connection.is_promised()).then_some(token).or(self.unmade);
            came
        }) else {
            self.remove(token);
            return true;
        };
        if sign != Sign::InMemory
            && let Some(watch) = link.connection.watch()
        {
            self.watched.add(token, watch);
        }
        // To turn to shared memory takes a frame, for which the socket may have had no room.
        let is_behind = sign != Sign::InMemory && link.connection.unsent_bytes() > 0;
        self.made_room |= link.lacks_room;
        if link.lacks_room || is_behind {
            self.flush(token);
        }
        false
    }

    /// Whether a stream that is over ended before its connection was made.
    pub(crate) fn was_unmade(&self, token: Token) -> bool {
        self.unmade == Some(token)
    }

    /// The next message of what was read; an error where the stream broke with that, and was removed.
    pub(crate) fn next(&mut self, token: Token) -> Result<Option<Received>, ConnectionError> {
        let Some(link) = self.open.get_mut(&token) else { return Ok(None) };
        link.connection.next().inspect_err(|_| self.remove(token))
    }

    /// Reads nothing more of the stream for now.
    pub(crate) fn hold_back(&mut self, token: Token) {
        if let Some(link) = self.open.get_mut(&token) {
            link.is_held_back = true;
            self.watched.remove(token);
            unwatch(&self.epoll, &link.connection);
        }
    }

    /// Reads a stream again that was held back.
    pub(crate) fn read_on(&mut self, token: Token) {
        let Some(link) = self.open.get_mut(&token).filter(|link| link.is_held_back) else { return };
        link.is_held_back = false;
        let room = if link.watches_room { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        // It was watched before, so that there is room for it.
        let _ = watch(&self.epoll, &link.connection, token, epoll::EventFlags::IN | room);
        if let Some(watch) = link.connection.watch() {
            self.watched.add(token, watch);
        }
    }
}

/// Watches a stream, and that with which it ends.
fn watch(epoll: &OwnedFd, connection: &Connection, token: Token, interest: epoll::EventFlags) -> Result<(), Errno> {
    let event = || epoll::EventData::new_u64(token);
    epoll::add(epoll, connection, event(), interest)?;
    connection.promise().map_or(Ok(()), |promise| epoll::add(epoll, promise, event(), epoll::EventFlags::IN))
}

fn unwatch(epoll: &OwnedFd, connection: &Connection) {
    // They fail where it was not watched.
    let _ = epoll::delete(epoll, connection);
    let _ = connection.promise().map(|promise| epoll::delete(epoll, promise));
}

#[cfg(test)]
mod tests;
