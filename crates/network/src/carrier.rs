//! One TLS connection and the local socket whose bytes it carries.
//!
//! - CARRIER-1: bytes arrive in order and unchanged, and what was sent before an end is delivered before the end.
//! - CARRIER-2: of each direction at most what one read gives is held here (NETWORK-4): the peer is read when what it
//!   sent before was taken, the local socket when what it gave before was sent.
//! - CARRIER-3: of a connection that was given to a process, nothing is read or written here as long as that has its end of
//!   the local socket. When it has not any more, what it has said is delivered, and then the end.

use crate::expectation::{Local, Way};
use crate::object_stream::{Came, ObjectStream};
use crate::record_boundary::RecordBoundary;
use crate::socket;
use crate::stream_side::{StreamSide, StreamStanding};
use crate::tls;
use oxiray_records::Handover;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, BufRead as _, ErrorKind, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

/// Bytes read at once.
const READ_BYTES: usize = 128 << 10;
/// How many turns a stream is served before others are.
const TURNS_MAX: usize = 8;

/// Where bytes are between two system calls: one for all streams.
#[derive(Debug)]
pub(crate) struct Scratch {
    read: Box<[u8]>,
    /// What was decrypted of one read, for the local socket.
    plain: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { read: vec![0; READ_BYTES].into(), plain: Vec::with_capacity(READ_BYTES) }
    }
}

/// Who seals and opens a connection's records.
#[derive(Debug)]
enum Encryption {
    Tls(Box<rustls::Connection>),
    /// A stream with direct transfer has keys only, once it is joined to its local socket.
    ObjectStream(Box<ObjectStream>),
    /// The process at the other end of the local socket, which has been given the connection (CARRIER-3).
    Process,
}

/// A connection, from its first byte to its last.
#[derive(Debug)]
pub(crate) struct Carrier {
    cover: Encryption,
    border: RecordBoundary,
    pub(crate) tcp: TcpStream,
    local: Option<UnixStream>,
    /// What came from the peer and the local socket has no room for.
    inbound: Vec<u8>,
    /// The peer has sent its last byte.
    peer_ended: bool,
    /// The local socket has given its last byte, and the peer was told.
    local_ended: bool,
    /// Nobody reads the local socket any more.
    is_unread: bool,
    from_peer: StreamSide,
    from_local: StreamSide,
    /// The side whose room is waited for.
    pub(crate) tcp_is_full: bool,
    pub(crate) local_is_full: bool,
    /// How many bytes of the peer the kernel waits for before it tells of them.
    told_from: usize,
}

impl Carrier {
    pub(crate) fn new(tls: rustls::Connection, tcp: TcpStream) -> Self {
        Self {
            cover: Encryption::Tls(Box::new(tls)),
            border: RecordBoundary::default(),
            tcp,
            local: None,
            inbound: Vec::new(),
            peer_ended: false,
            local_ended: false,
            is_unread: false,
            from_peer: StreamSide::UNKNOWN,
            from_local: StreamSide::UNKNOWN,
            tcp_is_full: false,
            local_is_full: false,
            told_from: 1,
        }
    }

    /// TLS itself, as long as the connection is not joined to a local socket.
    pub(crate) fn tls(&mut self) -> io::Result<&mut rustls::Connection> {
        match &mut self.cover {
            Encryption::Tls(tls) => Ok(tls),
            _ => Err(io::Error::other("the connection is not in the hands of TLS any more")),
        }
    }

    /// From here on its bytes are those of a local socket; `early` came from the peer already.
    ///
    /// # Errors
    /// Where the keys of a stream that seals its own records cannot be taken over.
    pub(crate) fn attach(mut self, local: Local, early: &[u8]) -> io::Result<Self> {
        let Local { socket, way } = local;
        let local = UnixStream::from(socket);
        local.set_nonblocking(true)?;
        match way {
            Way::Carried => self.inbound.extend_from_slice(early),
            Way::DirectTransfer(direct_transfer) => {
                let handover = self.take_keys(early)?;
                let early = handover.early.clone();
                let mut object_stream = ObjectStream::new(direct_transfer, handover)?;
                object_stream.unpack(&early, &mut self.inbound)?;
                self.cover = Encryption::ObjectStream(Box::new(object_stream));
            }
            Way::Given => {
                let handover = self.take_keys(early)?;
                self.give(&local, &handover)?;
            }
        }
        self.local = Some(local);
        Ok(self)
    }

    /// Ends TLS's part in the connection, between two records.
    fn take_keys(&mut self, early: &[u8]) -> io::Result<Handover> {
        let Encryption::Tls(mut tls) = std::mem::replace(&mut self.cover, Encryption::Process) else {
            return Err(io::Error::other("the connection is in other hands already"));
        };
        let (mut early, mut unsent) = (early.to_vec(), Vec::new());
        self.peer_ended |= drain(&mut tls, &mut early)?;
        while tls.wants_write() {
            tls.write_tls(&mut unsent)?;
        }
        if !self.border.is_reached() {
            return Err(io::Error::new(ErrorKind::InvalidData, "a record was cut where the handshake ended"));
        }
        let secrets = tls.dangerous_extract_secrets().map_err(io::Error::other)?;
        Ok(Handover { sealing: tls::secret_of(secrets.tx)?, opening: tls::secret_of(secrets.rx)?, early, unsent })
    }

    /// Gives the connection to whoever has the other end of the local socket.
    fn give(&self, local: &UnixStream, handover: &Handover) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [self.tcp.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room for one");
        // Nothing was sent before, so that there is room for a packet of this size.
        sendmsg(local, &[IoSlice::new(&handover.to_bytes())], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    pub(crate) fn local(&self) -> Option<&UnixStream> {
        self.local.as_ref()
    }

    /// The kernel tells of one side: there is something to read or room to write, and maybe an end behind it.
    pub(crate) fn told(&mut self, is_local: bool, is_ending: bool) {
        let side = if is_local { &mut self.from_local } else { &mut self.from_peer };
        side.told(is_ending);
    }

    /// Lets the handshake go on; whether it is done.
    pub(crate) fn shake(&mut self) -> io::Result<bool> {
        while self.tls()?.is_handshaking() {
            let sent = self.send()?;
            if !self.tls()?.is_handshaking() {
                break;
            }
            if !self.take_in()? && !sent {
                return Ok(false);
            }
            if self.peer_ended {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        // What was queued meanwhile follows.
        self.send()?;
        Ok(true)
    }

    /// Reads at most as much as there is room for; nothing where more must come first.
    pub(crate) fn read_early(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.tls()?.reader().read(room) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => return Ok(Some(read)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if !self.take_in()? {
                return Ok(None);
            }
            if self.peer_ended {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Whether what the peer says is for this thread.
    pub(crate) fn hears_peer(&self) -> bool {
        !matches!(self.cover, Encryption::Process) || self.local_ended
    }

    /// CARRIER-3.
    fn accompany(&mut self, scratch: &mut Scratch) -> StreamStanding {
        let Some(local) = self.local.as_mut().filter(|_| !self.local_ended) else { return self.outlast(scratch) };
        match local.read(&mut scratch.read) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return StreamStanding::Idle,
            Err(error) if error.kind() == ErrorKind::Interrupted => return StreamStanding::Busy,
            // It has nothing to say here: this is its end.
            Ok(_) | Err(_) => {}
        }
        self.local_ended = true;
        // It fails where the peer has hung up, which is as good.
        let _ = self.tcp.shutdown(Shutdown::Write);
        self.outlast(scratch)
    }

    /// Nobody is left to read what the peer says. If the socket were closed on it, the kernel would drop what is still on
    /// its way to the peer.
    fn outlast(&mut self, scratch: &mut Scratch) -> StreamStanding {
        for _ in 0..TURNS_MAX {
            match self.tcp.read(&mut scratch.read) {
                Ok(0) => return StreamStanding::Over,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return StreamStanding::Idle,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return StreamStanding::Over,
            }
        }
        StreamStanding::Busy
    }

    /// Moves what can be moved, both ways.
    pub(crate) fn carry(&mut self, scratch: &mut Scratch) -> io::Result<StreamStanding> {
        if matches!(self.cover, Encryption::Process) {
            return Ok(self.accompany(scratch));
        }
        for _ in 0..TURNS_MAX {
            let came = self.inward(scratch)?;
            if self.peer_ended && self.inbound.is_empty() {
                self.part();
                return Ok(StreamStanding::Over);
            }
            let went = self.outward(scratch)?;
            if !came && !went {
                return Ok(StreamStanding::Idle);
            }
        }
        Ok(StreamStanding::Busy)
    }

    /// Says the last word where there is room for one.
    fn part(&mut self) {
        // The peer has gone first: whether it hears makes no difference.
        let _ = self.close().and_then(|()| self.send());
    }

    fn close(&mut self) -> io::Result<()> {
        match &mut self.cover {
            Encryption::Tls(tls) => tls.send_close_notify(),
            Encryption::ObjectStream(object_stream) => object_stream.close()?,
            Encryption::Process => {}
        }
        Ok(())
    }

    fn inward(&mut self, scratch: &mut Scratch) -> io::Result<bool> {
        if !self.deliver_inbound() {
            return Ok(false);
        }
        scratch.plain.clear();
        let moved = match &mut self.cover {
            Encryption::Tls(tls) => {
                // What was decrypted before this stream was carried comes first.
                self.peer_ended |= drain(tls, &mut scratch.plain)?;
                !self.peer_ended && self.from_peer.is_ready && self.read_peer(scratch)?
            }
            Encryption::ObjectStream(_) => {
                !self.peer_ended && self.from_peer.is_ready && self.read_object_stream(scratch)?
            }
            Encryption::Process => false,
        };
        if scratch.plain.is_empty() {
            return Ok(moved);
        }
        self.deliver(&scratch.plain);
        Ok(true)
    }

    /// Reads from the peer once, and decrypts all that came; whether anything did.
    fn read_peer(&mut self, scratch: &mut Scratch) -> io::Result<bool> {
        let read = match self.tcp.read(&mut scratch.read) {
            Ok(0) => {
                self.peer_ended = true;
                return Ok(true);
            }
            Ok(read) => read,
            Err(error) => return self.from_peer.has_failed(error),
        };
        self.from_peer.has_read(read, scratch.read.len());
        let mut encrypted = &scratch.read[..read];
        while !encrypted.is_empty() && !self.peer_ended {
            self.tls()?.read_tls(&mut encrypted)?;
            self.decrypt()?;
            self.peer_ended |= drain(self.tls()?, &mut scratch.plain)?;
        }
        Ok(true)
    }

    /// The same where there is direct transfer, which takes its own way.
    fn read_object_stream(&mut self, scratch: &mut Scratch) -> io::Result<bool> {
        let Encryption::ObjectStream(object_stream) = &mut self.cover else { return Ok(false) };
        let moved = match object_stream.receive(&mut self.tcp, &mut scratch.plain) {
            Ok(Came::Ended) => {
                self.peer_ended = true;
                true
            }
            Ok(Came::Bytes(count, room)) => {
                self.from_peer.has_read(count, room);
                true
            }
            Err(error) => self.from_peer.has_failed(error)?,
        };
        let awaited = object_stream.awaited();
        if awaited != self.told_from {
            socket::tell_from(&self.tcp, awaited)?;
            self.told_from = awaited;
        }
        Ok(moved)
    }

    fn deliver(&mut self, bytes: &[u8]) {
        let written = self.write_local(bytes);
        self.inbound.extend_from_slice(&bytes[written..]);
    }

    /// Whether nothing waits for room any more.
    fn deliver_inbound(&mut self) -> bool {
        if !self.inbound.is_empty() {
            let waiting = std::mem::take(&mut self.inbound);
            self.deliver(&waiting);
        }
        self.inbound.is_empty()
    }

    /// How many of the bytes the local socket took. Where nobody reads it any more all are dropped.
    fn write_local(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        self.local_is_full = false;
        while written < bytes.len() {
            let Some(local) = self.local.as_mut().filter(|_| !self.is_unread) else { return bytes.len() };
            match local.write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.local_is_full = true;
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // What it said before it went is still to be read.
                Err(_) => self.is_unread = true,
            }
        }
        written
    }

    fn outward(&mut self, scratch: &mut Scratch) -> io::Result<bool> {
        let moved = self.send()?;
        if self.tcp_is_full || self.local_ended {
            return Ok(moved);
        }
        if let Encryption::ObjectStream(object_stream) = &mut self.cover
            && object_stream.pack_due()?
        {
            self.send()?;
            return Ok(true);
        }
        if !self.from_local.is_ready {
            return Ok(moved);
        }
        let Some(local) = &mut self.local else { return Ok(moved) };
        match local.read(&mut scratch.read) {
            Ok(0) => self.end_outward()?,
            Ok(read) => {
                self.from_local.has_read(read, scratch.read.len());
                match &mut self.cover {
                    // TLS has no limit to what waits there: the local socket is read only when all is sent.
                    Encryption::Tls(tls) => tls.writer().write_all(&scratch.read[..read])?,
                    Encryption::ObjectStream(object_stream) => object_stream.pack(&scratch.read[..read])?,
                    Encryption::Process => {}
                }
                self.send()?;
            }
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {
                return Ok(self.from_local.has_failed(error)? || moved);
            }
            Err(_) => self.end_outward()?,
        }
        Ok(true)
    }

    /// The local process is gone: the peer hears of it behind everything that was said, and what it says is dropped.
    fn end_outward(&mut self) -> io::Result<()> {
        self.local_ended = true;
        self.is_unread = true;
        self.inbound.clear();
        self.close()?;
        self.send()?;
        Ok(())
    }

    /// Sends what is encrypted; whether anything went.
    fn send(&mut self) -> io::Result<bool> {
        let mut moved = false;
        self.tcp_is_full = false;
        while self.has_unsent() {
            let sent = match &mut self.cover {
                Encryption::Tls(tls) => tls.write_tls(&mut self.tcp),
                Encryption::ObjectStream(object_stream) => object_stream.send(&mut self.tcp),
                Encryption::Process => break,
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => moved = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.tcp_is_full = true;
                    return Ok(moved);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.local_ended {
            // It fails where the peer has hung up, which is as good.
            let _ = self.tcp.shutdown(Shutdown::Write);
        }
        Ok(moved)
    }

    fn has_unsent(&self) -> bool {
        match &self.cover {
            Encryption::Tls(tls) => tls.wants_write(),
            Encryption::ObjectStream(object_stream) => object_stream.has_unsent(),
            Encryption::Process => false,
        }
    }

    /// Reads from the peer and decrypts; whether anything came.
    fn take_in(&mut self) -> io::Result<bool> {
        let Encryption::Tls(tls) = &mut self.cover else { return Ok(false) };
        match tls.read_tls(&mut self.border.reader(&mut self.tcp)) {
            Ok(0) => self.peer_ended = true,
            Ok(_) => {}
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => return Ok(false),
            Err(error) => return Err(error),
        }
        self.decrypt()?;
        Ok(true)
    }

    fn decrypt(&mut self) -> io::Result<()> {
        if let Err(error) = self.tls()?.process_new_packets() {
            // The peer is told why, where it can be.
            let _ = self.send();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(())
    }
}

/// Takes over what TLS has decrypted; whether that was the last.
fn drain(tls: &mut rustls::Connection, plain: &mut Vec<u8>) -> io::Result<bool> {
    let mut reader = tls.reader();
    loop {
        match reader.fill_buf() {
            Ok([]) => return Ok(true),
            Ok(bytes) => {
                plain.extend_from_slice(bytes);
                let count = bytes.len();
                reader.consume(count);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            // The peer was cut off without a last word: what came before is whole all the same.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}
