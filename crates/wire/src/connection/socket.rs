//! What is read of a socket: bytes, and the descriptors that come with them.

use super::{Connection, ConnectionError, READ_BYTES, SCRATCH};
use crate::far::Came;
use crate::frame::FRAME_DESCRIPTORS_LIMIT;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;

/// Descriptors that may have arrived ahead of the frames that announce them. A peer that sends its frames whole never
/// has more under way than one for each byte of a read; one that sends descriptors and no frames would take ours.
const ARRIVED_LIMIT: usize = 1024;

impl Connection {
    pub(super) fn read_socket(&mut self) -> Result<Came, ConnectionError> {
        match self.read() {
            Ok(READ_BYTES) => Ok(Came::More),
            Ok(_) => Ok(Came::All),
            Err(ConnectionError::Closed) => Ok(Came::Ended),
            Err(error) => Err(error),
        }
    }

    /// Reads once what has arrived at a socket, for [`Connection::next`]; how many bytes, fewer than [`READ_BYTES`] where
    /// nothing is left. Whoever hears many peers reads more of one only when it has handled what it read: so a peer has no
    /// more than that, and a frame that is not whole, in this process.
    pub fn read(&mut self) -> Result<usize, ConnectionError> {
        loop {
            return match self.read_some() {
                Ok(0) | Err(Errno::CONNRESET) => Err(ConnectionError::Closed),
                Ok(read) => Ok(read),
                Err(Errno::AGAIN) => Ok(0),
                Err(Errno::INTR) => continue,
                Err(error) => Err(ConnectionError::Socket(error)),
            };
        }
    }

    /// Bytes that have arrived and were not read.
    pub fn unread_bytes(&self) -> u64 {
        // A socket that cannot tell has an end to be read.
        rustix::io::ioctl_fionread(self.channel.as_fd()).unwrap_or(0)
    }

    fn read_some(&mut self) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FRAME_DESCRIPTORS_LIMIT))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let read = SCRATCH.with_borrow_mut(|scratch| {
            let message = rustix::net::recvmsg(
                self.channel.as_fd(),
                &mut [IoSliceMut::new(scratch)],
                &mut control,
                RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
            )?;
            self.incoming.extend_from_slice(&scratch[..message.bytes]);
            Ok(message.bytes)
        })?;
        for entry in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = entry {
                self.arrived.extend(descriptors);
            }
        }
        if self.arrived.len() > ARRIVED_LIMIT {
            return Err(Errno::TOOMANYREFS);
        }
        Ok(read)
    }
}
