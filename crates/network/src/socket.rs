//! TCP sockets as nodes use them: never blocking, never gathering small writes, and given up when the peer is silent.

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

/// How many peers the kernel lets wait to be accepted.
const BACKLOG: i32 = 1024;
/// How often a peer that says nothing is asked whether it is there, before it is given up.
const KEEPALIVE_PROBES: u32 = 3;

/// A socket that listens at the address.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A socket on its way to the address: it is there when it can be written to.
pub(crate) fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

/// What came of a socket that was dialled and has become ready.
pub(crate) fn dialled(socket: impl AsFd) -> io::Result<()> {
    sockopt::socket_error(socket)?.map_err(Into::into)
}

/// Sets what every stream between nodes has; a peer that answers nothing for `silence` is gone.
pub(crate) fn prepare(socket: impl AsFd, silence: Duration) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    let period = (silence / (KEEPALIVE_PROBES + 1)).max(Duration::from_secs(1));
    sockopt::set_tcp_keepidle(socket, period)?;
    sockopt::set_tcp_keepintvl(socket, period)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(socket, silence.as_millis() as u32)?;
    Ok(())
}

/// Has the kernel tell of what comes only when there are so many bytes of it, or its end.
pub(crate) fn tell_from(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    let bytes = bytes as libc::c_int;
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the option's value is an integer of this length, which the kernel reads during the call only.
    let set =
        unsafe { libc::setsockopt(descriptor, libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const bytes).cast(), length) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
