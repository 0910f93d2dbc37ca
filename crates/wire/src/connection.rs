//! One end of a stream: frames in, frames out, descriptors alongside; never blocking.
//!
//! A stream is a socket. Where both processes are on one machine and one of them offers it, its bytes go through shared
//! memory from some frame on, and the socket is left for bells and for the end of the stream (`ring.rs`). To a process of
//! another machine it is a *promise* at first: frames are queued until the connection comes through it (`far.rs`).

use crate::body::Body;
use crate::far::{Came, Far};
use crate::frame::{
    self, FRAME_BYTES_LIMIT, FRAME_DESCRIPTORS_LIMIT, FrameError, HEADER_BYTES, HELLO_BYTES_LIMIT, Header,
};
use crate::message::{Message, RingOffered, RingTaken};
use crate::ring::{Ring, Watch};
use bytes::{Buf, BytesMut};
use error::broken;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketType};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// How much is asked of the kernel at once.
pub const READ_BYTES: usize = 64 << 10;

/// How much is read of shared memory at once: what comes of it stays in the processor's cache until it is handled.
const RING_READ_BYTES: usize = 16 << 10;

/// How many reads one call of [`Connection::receive`] makes at most, so that one chatty peer cannot
/// starve the others of an event loop.
const READS_LIMIT: usize = 16;

thread_local! {
    /// Where the kernel writes before the bytes that came are appended: shared, so that an idle
    /// connection holds no buffer and no read clears one.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// A message and the descriptors that came with it: where nothing is real, whatever stands for them.
#[derive(Debug)]
pub struct Received<D = OwnedFd> {
    /// The message.
    pub message: Message,
    /// Its descriptors, in the order sent.
    pub descriptors: Vec<D>,
}

/// What frames go through.
#[derive(Debug)]
enum Channel {
    Socket(OwnedFd),
    Far(Box<Far>),
}

/// Shared memory beside the socket.
#[derive(Debug)]
struct Beside {
    ring: Ring,
    /// What is queued from this position on goes there.
    writes_from: Option<u64>,
    /// Whether what comes, comes there.
    reads: bool,
}

/// A non-blocking stream that carries frames.
#[derive(Debug)]
pub struct Connection {
    channel: Channel,
    incoming: BytesMut,
    arrived: VecDeque<OwnedFd>,
    outgoing: BytesMut,
    /// Where, counted in bytes sent since the start, frames with descriptors begin.
    departing: VecDeque<(u64, Vec<OwnedFd>)>,
    sent_bytes: u64,
    bytes_limit: usize,
    beside: Option<Beside>,
    takes_rings: bool,
    /// What was to be sent and is too large: the connection is over (WIRE-4).
    unsendable: Option<FrameError>,
    /// How much there is of a frame that has not come whole, and since when.
    begun: Option<(usize, Instant)>,
}

impl Connection {
    /// A connection to a peer that is known already: one end of a socket pair, or one let in.
    pub fn new(socket: OwnedFd) -> Result<Self, Errno> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self::over(Channel::Socket(socket)))
    }

    /// A connection to another process, from what the daemon gave out for it: an end of a socket pair, or a promise,
    /// which is of packets.
    pub fn introduced(socket: OwnedFd) -> Result<Self, Errno> {
        match rustix::net::sockopt::socket_type(&socket)? {
            SocketType::SEQPACKET => Ok(Self::over(Channel::Far(Box::new(Far::new(socket))))),
            _ => Self::new(socket),
        }
    }

    fn over(channel: Channel) -> Self {
        Self {
            channel,
            incoming: BytesMut::new(),
            arrived: VecDeque::new(),
            outgoing: BytesMut::new(),
            departing: VecDeque::new(),
            sent_bytes: 0,
            bytes_limit: FRAME_BYTES_LIMIT,
            beside: None,
            takes_rings: false,
            unsendable: None,
            begun: None,
        }
    }

    /// A connection to a peer that has yet to show who it is (WIRE-1).
    pub fn unproven(socket: OwnedFd) -> Result<Self, Errno> {
        Ok(Self { bytes_limit: HELLO_BYTES_LIMIT, ..Self::new(socket)? })
    }

    /// Lifts the size limit of [`Connection::unproven`].
    pub fn prove(&mut self) {
        self.bytes_limit = FRAME_BYTES_LIMIT;
    }

    /// Two connected ends; the second is returned raw, to be sent to another process.
    pub fn pair() -> Result<(Self, OwnedFd), Errno> {
        let (near, far) = socket_pair()?;
        Ok((Self::new(near)?, far))
    }

    /// Queues a message; [`Connection::flush`] sends it.
    /// One that is too large ends the connection (WIRE-4).
    pub fn send(&mut self, message: &impl Body) {
        if let Err(error) = frame::append(message, 0, &mut self.outgoing) {
            self.end(error);
        }
    }

    /// WIRE-4: whoever waits for something on the socket, here or there, wakes up to its end.
    fn end(&mut self, error: FrameError) {
        self.unsendable.get_or_insert(error);
        let _ = rustix::net::shutdown(self.channel.as_fd(), Shutdown::Both);
    }

    /// Queues a message with descriptors, which only travel through a socket of this machine. One that is too large ends the
    /// connection (WIRE-4).
    pub fn send_with(&mut self, message: &Message, descriptors: Vec<OwnedFd>) {
        let (count, position) = (descriptors.len(), self.position());
        if let Err(error) = frame::append(message, count, &mut self.outgoing) {
            self.end(error);
        } else if count > 0 {
            assert!(matches!(self.channel, Channel::Socket(_)), "descriptors do not travel between machines");
            self.departing.push_back((position, descriptors));
        }
    }

    /// How many bytes were queued since the start.
    pub fn position(&self) -> u64 {
        self.sent_bytes + self.outgoing.len() as u64
    }

    /// Bytes queued and not yet taken by the kernel.
    pub fn unsent_bytes(&self) -> usize {
        let sealed = if let Channel::Far(far) = &self.channel { far.unsent_bytes() } else { 0 };
        self.outgoing.len() + sealed
    }

    /// Whether the connection has yet to come; what is queued is sent then.
    pub fn is_promised(&self) -> bool {
        matches!(&self.channel, Channel::Far(far) if !far.is_here())
    }

    /// What is to be watched besides the connection's own descriptor, since its end is the connection's.
    pub fn promise(&self) -> Option<BorrowedFd<'_>> {
        match &self.channel {
            Channel::Far(far) if far.is_here() => Some(far.promise()),
            _ => None,
        }
    }

    /// Offers the peer shared memory in place of the socket. It must be on this machine, with no gateway between.
    pub fn offer_ring(&mut self) -> Result<(), Errno> {
        let (ring, file) = Ring::make()?;
        self.send_with(&RingOffered {}.into(), vec![file]);
        self.beside = Some(Beside { ring, writes_from: None, reads: false });
        Ok(())
    }

    /// From here on the peer may offer shared memory.
    pub fn take_rings(&mut self) {
        self.takes_rings = true;
    }

    /// Looks at the shared memory, where what comes, comes there.
    pub fn watch(&self) -> Option<Watch> {
        self.beside.as_ref().filter(|beside| beside.reads).map(|beside| beside.ring.watch())
    }

    /// Whether what is queued now goes through shared memory: there is a bell for room, and none to be asked of the
    /// kernel.
    pub fn writes_to_ring(&self) -> bool {
        self.ring_from().is_some_and(|from| self.sent_bytes >= from)
    }

    fn ring_from(&self) -> Option<u64> {
        self.beside.as_ref()?.writes_from
    }

    /// The last frame on the socket says that the others come through shared memory.
    fn turn_to_ring(&mut self) {
        self.send(&RingTaken {});
        let position = self.position();
        if let Some(beside) = &mut self.beside {
            beside.writes_from = Some(position);
        }
    }

    /// Wakes the peer. Where the socket takes no more, there are bells that it has not heard yet; where frames have yet to go
    /// through it, a bell would stand amidst them, and they wake the peer themselves.
    fn ring_bell(&self) {
        if !self.writes_to_ring() {
            return;
        }
        let _ = rustix::net::send(self.channel.as_fd(), &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    fn flush_to_ring(&mut self) -> Result<bool, ConnectionError> {
        while let Some(beside) = self.beside.as_mut().filter(|_| !self.outgoing.is_empty()) {
            let sent = beside.ring.write(&self.outgoing).map_err(|_| FrameError::Ring)?;
            let (has_room, wakes) = (sent > 0 || beside.ring.ask_for_room(), sent > 0 && beside.ring.wakes_reader());
            if sent == self.outgoing.len() {
                self.outgoing.clear();
            } else {
                let _ = self.outgoing.split_to(sent);
            }
            self.sent_bytes += sent as u64;
            if wakes {
                self.ring_bell();
            }
            if !has_room {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends what the kernel, or the shared memory, will take; `Ok(true)` when nothing is left that either
    /// could take later.
    pub fn flush(&mut self) -> Result<bool, ConnectionError> {
        if let Some(error) = self.unsendable.clone() {
            return Err(error.into());
        }
        match &mut self.channel {
            Channel::Socket(_) => self.flush_socket(),
            Channel::Far(far) => {
                let (is_sent, taken) = far.flush(&mut self.outgoing).map_err(broken)?;
                self.sent_bytes += taken;
                Ok(is_sent)
            }
        }
    }

    fn flush_socket(&mut self) -> Result<bool, ConnectionError> {
        while !self.outgoing.is_empty() {
            if self.writes_to_ring() {
                return self.flush_to_ring();
            }
            let sent = match self.send_some() {
                Ok(sent) => sent,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => continue,
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(ConnectionError::Closed),
                Err(error) => return Err(ConnectionError::Socket(error)),
            };
            let _ = self.outgoing.split_to(sent);
            self.sent_bytes += sent as u64;
        }
        Ok(true)
    }

    fn send_some(&mut self) -> Result<usize, Errno> {
        let flags = SendFlags::NOSIGNAL;
        let end = self.ring_from().map_or(self.outgoing.len(), |from| (from - self.sent_bytes) as usize);
        let Some((at, _)) = self.departing.front() else {
            return rustix::net::send(self.channel.as_fd(), &self.outgoing[..end], flags);
        };
        let before = (*at - self.sent_bytes) as usize;
        if before > 0 {
            return rustix::net::send(self.channel.as_fd(), &self.outgoing[..before], flags);
        }
        let until = self.departing.get(1).map_or(end, |(next, _)| (*next - self.sent_bytes) as usize);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FRAME_DESCRIPTORS_LIMIT))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let borrowed: Vec<BorrowedFd<'_>> = self.departing[0].1.iter().map(AsFd::as_fd).collect();
        let fits = control.push(SendAncillaryMessage::ScmRights(&borrowed));
        assert!(fits, "the control buffer has room for {FRAME_DESCRIPTORS_LIMIT} descriptors");
        let bytes = [IoSlice::new(&self.outgoing[..until])];
        let sent = rustix::net::sendmsg(self.channel.as_fd(), &bytes, &mut control, flags)?;
        self.departing.pop_front();
        Ok(sent)
    }

    /// Reads what has arrived and appends whole messages to `inbox`. Call it when the socket is
    /// readable; at the end of the stream, what came before is delivered first.
    pub fn receive(&mut self, inbox: &mut Vec<Received>) -> Result<(), ConnectionError> {
        for _ in 0..READS_LIMIT {
            if self.reads_ring() {
                return self.hear_bells(inbox);
            }
            let came = match &mut self.channel {
                Channel::Socket(_) => self.read_socket()?,
                Channel::Far(far) => {
                    SCRATCH.with_borrow_mut(|scratch| far.read(scratch, &mut self.incoming)).map_err(broken)?
                }
            };
            self.parse(inbox)?;
            if self.reads_ring() {
                self.read_ring()?;
                return self.parse(inbox);
            }
            match came {
                Came::More => {}
                Came::All => break,
                Came::Ended => return Err(ConnectionError::Closed),
            }
        }
        self.unsendable.clone().map_or(Ok(()), |error| Err(error.into()))
    }

    fn reads_ring(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.reads)
    }

    /// The socket has bells, or its end; then there is something in the shared memory, or room in it.
    fn hear_bells(&mut self, inbox: &mut Vec<Received>) -> Result<(), ConnectionError> {
        let heard = match rustix::net::recv(self.channel.as_fd(), &mut [0; 64][..], RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => Err(ConnectionError::Closed),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(ConnectionError::Socket(error)),
        };
        // RING-2: what was written before the end is read after it was heard of.
        while self.read_ring()? > 0 && heard.is_err() {}
        self.parse(inbox)?;
        heard
    }

    /// Reads some of what has arrived in the shared memory, for [`Connection::next`]; how many bytes. The end of the stream
    /// is only heard of by [`Connection::receive`].
    pub fn read_ring(&mut self) -> Result<usize, ConnectionError> {
        let Some(beside) = self.beside.as_mut().filter(|beside| beside.reads) else { return Ok(0) };
        let read = beside.ring.read(&mut self.incoming, RING_READ_BYTES).map_err(|_| FrameError::Ring)?;
        if read > 0 && beside.ring.wakes_writer() {
            self.ring_bell();
        }
        Ok(read)
    }

    fn parse(&mut self, inbox: &mut Vec<Received>) -> Result<(), ConnectionError> {
        while let Some(received) = self.next()? {
            inbox.push(received);
        }
        Ok(())
    }

    /// The next whole message of what was read. Whoever handles each before the next has it at hand in the processor's
    /// cache, and its memory is free for the next one.
    #[expect(clippy::should_implement_trait, reason = "more may come after it said that there is none")]
    pub fn next(&mut self) -> Result<Option<Received>, ConnectionError> {
        while let Some(header) = Header::peek(&self.incoming, self.bytes_limit)? {
            if self.incoming.len() < HEADER_BYTES + header.length {
                break;
            }
            self.begun = None;
            if header.descriptors > self.arrived.len() {
                let arrived = self.arrived.len();
                return Err(FrameError::Descriptors { announced: header.descriptors, arrived }.into());
            }
            self.incoming.advance(HEADER_BYTES);
            let body = self.incoming.split_to(header.length).freeze();
            let descriptors = self.arrived.drain(..header.descriptors).collect();
            match Message::decode(header.kind, body)? {
                Some(Message::RingOffered(_)) => self.ring_offered(descriptors)?,
                Some(Message::RingTaken(_)) => self.ring_taken(),
                Some(message) => return Ok(Some(Received { message, descriptors })),
                // A later version may say more; who has yet to greet has nothing else to say.
                None if self.bytes_limit == HELLO_BYTES_LIMIT => {
                    return Err(FrameError::Stranger { kind: header.kind }.into());
                }
                None => {}
            }
        }
        let unopened = if let Channel::Far(far) = &self.channel { far.unopened_bytes() } else { 0 };
        let length = self.incoming.len() + unopened;
        if self.begun.is_none_or(|(had, _)| had != length) {
            self.begun = (length > 0).then(|| (length, Instant::now()));
        }
        Ok(None)
    }

    /// Since when nothing more has come of a frame that was begun, where one was.
    pub fn stalled_since(&self) -> Option<Instant> {
        self.begun.map(|(_, since)| since)
    }

    fn ring_offered(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), FrameError> {
        let file = descriptors.into_iter().next().filter(|_| self.takes_rings && self.beside.is_none());
        let ring = file.and_then(|file| Ring::join(&file).ok()).ok_or(FrameError::Ring)?;
        self.beside = Some(Beside { ring, writes_from: None, reads: false });
        self.turn_to_ring();
        // An error here is the stream's end, which reading it reports.
        let _ = self.flush();
        Ok(())
    }

    /// All else that came on the socket are bells.
    fn ring_taken(&mut self) {
        let Some(beside) = &mut self.beside else { return };
        beside.reads = true;
        self.incoming.clear();
        if beside.writes_from.is_none() {
            self.turn_to_ring();
            let _ = self.flush();
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket(socket) => socket.as_fd(),
            Self::Far(far) => far.as_fd(),
        }
    }
}

mod error;
mod first;
mod pairs;
mod socket;
#[cfg(test)]
mod tests;

pub use error::ConnectionError;
pub use pairs::{promise_pair, socket_pair};
