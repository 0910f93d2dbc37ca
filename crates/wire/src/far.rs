//! A stream to a process of another machine: records of TLS over a connection that the daemon has made.
//!
//! The daemon's thread proves who it is, and has the other side prove the same; then it gives the connection away, as one
//! packet through a socket pair, the *promise*. From there on a call goes from process to process, and wakes no daemon.
//!
//! - FAR-1: the promise's end is the stream's: the daemon that vouched for the peer is gone, or the peer is.
//! - FAR-2: what was sealed is sent as it is and in its order, whatever the kernel takes at once.

use crate::connection::READ_BYTES;
use bytes::BytesMut;
use oxiray_records::{Handover, Kind, Opener, RECORD_MAX, Sealer};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Content sealed at once.
const BATCH_BYTES: usize = 128 << 10;
/// A ticket to resume a session with; these streams do not.
const NEW_SESSION_TICKET: u8 = 4;

/// What a look at a stream came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// Something, and there may be more at once.
    More,
    /// Something, which was all.
    All,
    Ended,
}

/// The connection, once it is here.
#[derive(Debug)]
struct Line {
    tcp: OwnedFd,
    sealer: Sealer,
    opener: Opener,
    /// Records that go out, and how much of them the kernel has.
    out: Vec<u8>,
    sent: usize,
    /// The beginning of a record.
    inbox: Vec<u8>,
}

/// A promise, and what has come of it.
#[derive(Debug)]
pub(crate) struct Far {
    promise: OwnedFd,
    line: Option<Line>,
}

impl Far {
    pub(crate) fn new(promise: OwnedFd) -> Self {
        Self { promise, line: None }
    }

    pub(crate) fn is_here(&self) -> bool {
        self.line.is_some()
    }

    pub(crate) fn promise(&self) -> BorrowedFd<'_> {
        self.promise.as_fd()
    }

    pub(crate) fn unsent_bytes(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.out.len() - line.sent)
    }

    /// How much there is of a record that has not come whole.
    pub(crate) fn unopened_bytes(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.inbox.len())
    }

    /// Sends what is queued in `outgoing`: whether nothing is left that the kernel could take later, and how much was
    /// sealed.
    pub(crate) fn flush(&mut self, outgoing: &mut BytesMut) -> io::Result<(bool, u64)> {
        let Some(line) = &mut self.line else { return Ok((true, 0)) };
        let mut taken = 0;
        loop {
            if !line.send()? {
                return Ok((false, taken));
            }
            if outgoing.is_empty() {
                return Ok((true, taken));
            }
            let now = outgoing.split_to(outgoing.len().min(BATCH_BYTES));
            line.sealer.seal(Kind::Data, &now, &[], &mut line.out)?;
            taken += now.len() as u64;
        }
    }

    /// Reads once, and opens what is whole.
    pub(crate) fn read(&mut self, scratch: &mut [u8], incoming: &mut BytesMut) -> io::Result<Came> {
        let Some(line) = &mut self.line else { return self.take(scratch, incoming) };
        match line.read(scratch, incoming) {
            // FAR-1: where the peer has nothing to say it may be the promise that woke us.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Ok(if self.is_broken() { Came::Ended } else { Came::All })
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Came::More),
            came => came,
        }
    }

    /// What has come of the promise: nothing yet, or the connection and what the peer has said early.
    fn take(&mut self, packet: &mut [u8], incoming: &mut BytesMut) -> io::Result<Came> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let count = match rustix::net::recvmsg(&self.promise, &mut [IoSliceMut::new(packet)], &mut control, flags) {
            Ok(message) if message.bytes == 0 => return Ok(Came::Ended),
            Ok(message) => message.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Came::All),
            Err(error) => return Err(error.into()),
        };
        let mut given = control.drain().filter_map(|entry| match entry {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let tcp = given.next().and_then(|mut descriptors| descriptors.next());
        let tcp = tcp.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "it came without its socket"))?;
        let handover = Handover::parse(&packet[..count]);
        // The keys are nobody else's to find here.
        packet[..count].fill(0);
        let Handover { sealing, opening, early, unsent } = handover?;
        let (sealer, opener) = (Sealer::new(&sealing)?, Opener::new(&opening)?);
        incoming.extend_from_slice(&early);
        self.line = Some(Line { tcp, sealer, opener, out: unsent, sent: 0, inbox: Vec::new() });
        Ok(Came::More)
    }

    fn is_broken(&self) -> bool {
        matches!(rustix::net::recv(&self.promise, &mut [0; 1], RecvFlags::DONTWAIT), Ok((_, 0)))
    }
}

impl AsFd for Far {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_ref().map_or_else(|| self.promise.as_fd(), |line| line.tcp.as_fd())
    }
}

impl Line {
    /// Whether the kernel has taken all that is sealed.
    fn send(&mut self) -> io::Result<bool> {
        while self.sent < self.out.len() {
            match rustix::net::send(&self.tcp, &self.out[self.sent..], SendFlags::NOSIGNAL) {
                Ok(sent) => self.sent += sent,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(true)
    }

    fn read(&mut self, scratch: &mut [u8], incoming: &mut BytesMut) -> io::Result<Came> {
        let begun = self.inbox.len();
        scratch[..begun].copy_from_slice(&self.inbox);
        let room = scratch.len() - begun;
        let (_, count) = rustix::net::recv(&self.tcp, &mut scratch[begun..], RecvFlags::DONTWAIT)?;
        if count == 0 {
            return Ok(Came::Ended);
        }
        self.inbox.clear();
        let (mut from, end) = (0, begun + count);
        let mut came = if count == room { Came::More } else { Came::All };
        while let Some(length) = Opener::length(&scratch[from..end])?.filter(|length| from + length <= end) {
            let (kind, content) = self.opener.open(&mut scratch[from..from + length], 0)?;
            let content = &scratch[from..from + content];
            match (kind, content.first()) {
                (Kind::Data, _) => incoming.extend_from_slice(content),
                (Kind::Alert, _) => came = Came::Ended,
                (Kind::Handshake, Some(&NEW_SESSION_TICKET)) => {}
                (Kind::Handshake, _) => {
                    return Err(io::Error::new(ErrorKind::InvalidData, "the peer asks TLS for what is not done here"));
                }
            }
            from += length;
        }
        self.inbox.extend_from_slice(&scratch[from..end]);
        Ok(came)
    }
}

const _: () = assert!(READ_BYTES > 2 * RECORD_MAX, "a record that is not whole leaves room, and so does an early word");

#[cfg(test)]
mod tests {
    use crate::connection::{Connection, ConnectionError, promise_pair};
    use crate::message::{Function, Goodbye, Message};
    use bytes::Bytes;
    use oxiray_records::{Cipher, Handover, Kind, Sealer, Secret};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    use std::io::{IoSlice, Write as _};
    use std::mem::MaybeUninit;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::time::{Duration, Instant};

    fn secret(key: u8) -> Secret {
        Secret::new(Cipher::ChaCha20Poly1305, &[key; 32], &[9; 12], 0).expect("a key")
    }

    /// Keeps the promise, with keys of its own for each direction.
    fn keep(promise: &OwnedFd, tcp: &TcpStream, keys: (u8, u8), early: &[u8]) {
        let (sealing, opening) = (secret(keys.0), secret(keys.1));
        let packet = Handover { sealing, opening, early: early.to_vec(), unsent: Vec::new() }.to_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [tcp.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        rustix::net::sendmsg(promise, &[IoSlice::new(&packet)], &mut control, SendFlags::empty()).expect("open");
    }

    fn tcp() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        let far = listener.accept().expect("it comes").0;
        for stream in [&near, &far] {
            stream.set_nonblocking(true).expect("it may");
        }
        (near, far)
    }

    fn promised() -> (OwnedFd, Connection) {
        let (keeper, given) = promise_pair().expect("a pair");
        let connection = Connection::introduced(given).expect("a promise");
        assert!(connection.is_promised());
        (keeper, connection)
    }

    /// Waits until it is the other's turn: until one of the two has received so many messages.
    fn receive(from: &mut Connection, to: &mut Connection, count: usize) -> Vec<Message> {
        let mut inbox = Vec::new();
        while inbox.len() < count {
            from.flush().expect("open");
            to.receive(&mut inbox).expect("open");
        }
        inbox.into_iter().map(|received| received.message).collect()
    }

    #[test]
    fn what_is_said_before_the_connection_is_here_is_heard_when_it_is() {
        let ((near_keeper, mut near), (far_keeper, mut far)) = (promised(), promised());
        near.send(&Goodbye::default());
        assert!(near.flush().expect("a promise takes all"), "and nothing is waited for");
        assert_eq!((near.unsent_bytes() as u64, near.promise().is_none()), (near.position(), true));
        let (here, there) = tcp();
        keep(&near_keeper, &here, (1, 2), &[]);
        keep(&far_keeper, &there, (2, 1), &[]);
        near.receive(&mut Vec::new()).expect("open");
        assert!(!near.is_promised() && near.promise().is_some());
        assert_eq!(receive(&mut near, &mut far, 1), [Goodbye::default().into()]);
        let large = Function { hash: Bytes::from(vec![7; 3 << 20]), ..Function::default() };
        far.send(&large.clone());
        assert_eq!(receive(&mut far, &mut near, 1), [large.into()], "in pieces, and the other way");
        assert_eq!(far.unsent_bytes(), 0);
    }

    #[test]
    fn an_early_word_comes_first() {
        let ((near_keeper, mut near), (far_keeper, mut far)) = (promised(), promised());
        let (here, there) = tcp();
        keep(&near_keeper, &here, (1, 2), &[]);
        // A whole frame, as the daemon has read it.
        let mut early = bytes::BytesMut::new();
        crate::frame::append(&crate::Message::from(Goodbye::default()), 0, &mut early).expect("it fits");
        keep(&far_keeper, &there, (2, 1), &early);
        near.receive(&mut Vec::new()).expect("open");
        near.send(&Function::default());
        assert_eq!(receive(&mut near, &mut far, 2), [Goodbye::default().into(), Function::default().into()]);
    }

    #[test]
    fn the_end_of_the_promise_is_the_end_of_the_stream() {
        let (keeper, mut unkept) = promised();
        drop(keeper);
        assert!(matches!(unkept.receive(&mut Vec::new()), Err(ConnectionError::Closed)));
        let ((near_keeper, mut near), (far_keeper, mut far)) = (promised(), promised());
        let (here, there) = tcp();
        keep(&near_keeper, &here, (1, 2), &[]);
        keep(&far_keeper, &there, (2, 1), &[]);
        near.receive(&mut Vec::new()).expect("open");
        near.send(&Goodbye::default());
        near.flush().expect("open");
        let mut watched = [PollFd::new(&there, PollFlags::IN)];
        assert_eq!(poll(&mut watched, Some(&Timespec { tv_sec: 60, tv_nsec: 0 })), Ok(1), "it has arrived");
        drop(far_keeper);
        let mut inbox = Vec::new();
        let ended = loop {
            if let Err(error) = far.receive(&mut inbox) {
                break error;
            }
        };
        // What had come before is delivered.
        assert!(matches!(ended, ConnectionError::Closed));
        assert_eq!(inbox.len(), 1);
        drop(near_keeper);
    }

    /// Waits for the stream's end; what came before it, and why it ended.
    fn last_of(stream: &mut Connection) -> (Vec<Message>, ConnectionError) {
        let (mut inbox, until) = (Vec::new(), Instant::now() + Duration::from_secs(60));
        loop {
            assert!(Instant::now() < until, "nothing says that the stream ended");
            if let Err(error) = stream.receive(&mut inbox) {
                return (inbox.into_iter().map(|received| received.message).collect(), error);
            }
        }
    }

    /// Frames in one record, in a record each, and in records that end within a frame; with what was said whole where a
    /// stream of them is cut.
    fn cuttable(sealer: &mut Sealer, messages: &[Message]) -> (Vec<u8>, Vec<usize>) {
        let (mut frames, mut ends) = (bytes::BytesMut::new(), Vec::new());
        for message in messages {
            crate::frame::append(message, 0, &mut frames).expect("it fits");
            ends.push(frames.len());
        }
        let (mut sealed, mut whole, mut said) = (Vec::new(), Vec::new(), 0_usize);
        for (number, piece) in [ends[0], 1, 7, ends[1] - 3, usize::MAX].into_iter().enumerate() {
            let piece = &frames[said..frames.len().min(said.saturating_add(piece))];
            sealer.seal(Kind::Data, piece, &[], &mut sealed).expect("sealed");
            let begun = whole.len();
            // Nothing of a record is opened before all of it is there.
            whole.resize(sealed.len(), ends.iter().filter(|end| **end <= said).count());
            said += piece.len();
            assert!(begun < whole.len(), "record {number}");
        }
        assert_eq!(said, frames.len());
        whole.push(messages.len());
        (sealed, whole)
    }

    #[test]
    fn a_stream_that_is_cut_at_any_byte_gives_the_messages_that_were_whole_and_ends() {
        let messages: Vec<Message> = vec![
            Function { hash: Bytes::from(vec![1; 30]), ..Function::default() }.into(),
            Goodbye::default().into(),
            Function { hash: Bytes::from(vec![2; 90]), ..Function::default() }.into(),
        ];
        let (sealed, whole) = cuttable(&mut Sealer::new(&secret(2)).expect("a key"), &messages);
        for (end, whole) in whole.into_iter().enumerate() {
            let (keeper, mut near) = promised();
            let (here, mut there) = tcp();
            keep(&keeper, &here, (1, 2), &[]);
            there.write_all(&sealed[..end]).expect("there is room");
            drop(there);
            let (heard, ended) = last_of(&mut near);
            assert_eq!(heard, messages[..whole], "RECORDS-3, {end} bytes");
            assert!(matches!(ended, ConnectionError::Closed), "{ended}");
        }
    }

    #[test]
    fn a_key_update_ends_the_stream_and_a_ticket_does_not() {
        let (keeper, mut near) = promised();
        let (here, mut there) = tcp();
        keep(&keeper, &here, (1, 2), &[]);
        let (mut sealer, mut sealed, mut frame) =
            (Sealer::new(&secret(2)).expect("a key"), Vec::new(), bytes::BytesMut::new());
        crate::frame::append(&Message::from(Goodbye::default()), 0, &mut frame).expect("it fits");
        for (kind, content) in
            [(Kind::Handshake, &[4, 0, 0, 0][..]), (Kind::Data, &frame), (Kind::Handshake, &[24, 0, 0, 1, 0])]
        {
            sealer.seal(kind, content, &[], &mut sealed).expect("sealed");
        }
        // What came before is heard first, as in the way of a slow peer.
        let (said, update) = sealed.split_at(sealed.len() - 27);
        there.write_all(said).expect("there is room");
        let mut inbox = Vec::new();
        while inbox.is_empty() {
            near.receive(&mut inbox).expect("a ticket is nobody's business");
        }
        there.write_all(update).expect("there is room");
        let (heard, ended) = last_of(&mut near);
        assert!(heard.is_empty() && matches!(ended, ConnectionError::Far(_)), "{ended}");
    }

    #[test]
    fn bytes_that_the_peer_has_not_sealed_end_the_stream() {
        for forged in [&b"GET / HTTP/1.1\r\n\r\n........"[..], &[&[23, 3, 3, 0, 30][..], &[0; 30]].concat()] {
            let (keeper, mut near) = promised();
            let (here, mut there) = tcp();
            keep(&keeper, &here, (1, 2), &[]);
            there.write_all(forged).expect("there is room");
            let mut inbox = Vec::new();
            let ended = loop {
                if let Err(error) = near.receive(&mut inbox) {
                    break error;
                }
            };
            assert!(matches!(ended, ConnectionError::Far(_)) && inbox.is_empty(), "{ended}");
        }
    }
}
