//! A peer's connection, with TLS or without, which never blocks.

use rustls::ServerConnection;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// A peer's connection. It reads and writes as far as it goes, and then says that it would block.
#[derive(Debug)]
pub struct PorchStream {
    socket: TcpStream,
    tls: Option<Box<ServerConnection>>,
}

impl PorchStream {
    pub(super) fn new(socket: TcpStream, tls: Option<ServerConnection>) -> Self {
        Self { socket, tls: tls.map(Box::new) }
    }

    /// Says that nothing more comes.
    ///
    /// # Errors
    /// Where the peer is gone, or takes no more now.
    pub fn finish(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.flush()?;
        self.socket.shutdown(Shutdown::Write)
    }

    /// Where the peer came to; `None` where it is gone.
    pub fn local(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Whether something waits that the peer has to take first.
    pub(super) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }
}

impl Read for PorchStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.socket).read(buffer),
            None => self.socket.read(buffer),
        }
    }
}

impl Write for PorchStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.socket).write(buffer),
            None => self.socket.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

impl AsFd for PorchStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for PorchStream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
