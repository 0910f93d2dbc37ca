//! Sockets that are connected to each other.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

/// Two connected stream sockets, closed on exec.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// The two ends of a promise: of whoever keeps it, and of who it is given ([`Connection::introduced`]).
pub fn promise_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}
