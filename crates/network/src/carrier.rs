//! One TLS connection and the local socket whose bytes it carries.
//!
//! - CARRIER-1: bytes arrive in order and unchanged, and what was sent before an end is delivered before the end.
//! - CARRIER-2: of each direction at most what one read gives is held here (NETWORK-4): the peer is read when what it
//!   sent before was taken, the local socket when what it gave before was sent.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

/// Bytes read at once.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// How many turns a stream is served before others are.
const TURNS_MAX: usize = 16;

/// How a stream stands after it was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing more can be moved for now.
    Idle,
    /// There may be more to move at once.
    Busy,
    /// Both sides are done with it.
    Over,
}

/// A connection, from its first byte to its last.
#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) tls: rustls::Connection,
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
    /// The side whose room is waited for.
    pub(crate) tcp_is_full: bool,
    pub(crate) local_is_full: bool,
}

impl Carrier {
    pub(crate) fn new(tls: rustls::Connection, tcp: TcpStream) -> Self {
        Self {
            tls,
            tcp,
            local: None,
            inbound: Vec::new(),
            peer_ended: false,
            local_ended: false,
            is_unread: false,
            tcp_is_full: false,
            local_is_full: false,
        }
    }

    /// From here on its bytes are those of a local socket; `early` came from the peer already.
    pub(crate) fn attach(&mut self, local: UnixStream, early: &[u8]) {
        self.local = Some(local);
        self.inbound.extend_from_slice(early);
    }

    pub(crate) fn local(&self) -> Option<&UnixStream> {
        self.local.as_ref()
    }

    /// Lets the handshake go on; whether it is done.
    pub(crate) fn shake(&mut self) -> io::Result<bool> {
        while self.tls.is_handshaking() {
            let sent = self.send()?;
            if !self.tls.is_handshaking() {
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
            match self.tls.reader().read(room) {
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

    /// Moves what can be moved, both ways.
    pub(crate) fn carry(&mut self, scratch: &mut [u8]) -> io::Result<Standing> {
        for _ in 0..TURNS_MAX {
            let came = self.inward(scratch)?;
            if self.peer_ended && self.inbound.is_empty() {
                self.part();
                return Ok(Standing::Over);
            }
            let went = self.outward(scratch)?;
            if !came && !went {
                return Ok(Standing::Idle);
            }
        }
        Ok(Standing::Busy)
    }

    /// Says the last word where there is room for one.
    fn part(&mut self) {
        self.tls.send_close_notify();
        // The peer has gone first: whether it hears makes no difference.
        let _ = self.send();
    }

    fn inward(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        if !self.deliver_inbound() {
            return Ok(false);
        }
        let mut moved = self.deliver_plain(scratch)?;
        if self.inbound.is_empty() && !self.peer_ended {
            moved |= self.take_in()?;
            moved |= self.deliver_plain(scratch)?;
        }
        Ok(moved)
    }

    /// Delivers what was decrypted; whether there was anything.
    fn deliver_plain(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        let mut moved = false;
        while self.inbound.is_empty() {
            match self.tls.reader().read(scratch) {
                Ok(0) => {
                    self.peer_ended = true;
                    return Ok(moved);
                }
                Ok(read) => self.deliver(&scratch[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(moved),
                // The peer was cut off without a last word: what came before is whole all the same.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    self.peer_ended = true;
                    return Ok(moved);
                }
                Err(error) => return Err(error),
            }
            moved = true;
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

    fn outward(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        let mut moved = self.send()?;
        if self.tls.wants_write() || self.local_ended {
            return Ok(moved);
        }
        let Some(local) = &mut self.local else { return Ok(moved) };
        match local.read(scratch) {
            Ok(0) => self.end_outward()?,
            Ok(read) => {
                self.tls.writer().write_all(&scratch[..read])?;
                self.send()?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(moved),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.end_outward()?,
        }
        moved = true;
        Ok(moved)
    }

    /// The local process is gone: the peer hears of it behind everything that was said, and what it says is dropped.
    fn end_outward(&mut self) -> io::Result<()> {
        self.local_ended = true;
        self.is_unread = true;
        self.inbound.clear();
        self.tls.send_close_notify();
        self.send()?;
        Ok(())
    }

    /// Sends what is encrypted; whether anything went.
    fn send(&mut self) -> io::Result<bool> {
        let mut moved = false;
        self.tcp_is_full = false;
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.tcp) {
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

    /// Reads from the peer and decrypts; whether anything came.
    fn take_in(&mut self) -> io::Result<bool> {
        match self.tls.read_tls(&mut self.tcp) {
            Ok(0) => self.peer_ended = true,
            Ok(_) => {}
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => return Ok(false),
            Err(error) => return Err(error),
        }
        if let Err(error) = self.tls.process_new_packets() {
            // The peer is told why, where it can be.
            let _ = self.send();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(true)
    }
}
