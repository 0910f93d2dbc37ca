//! A connection that came through the porch, for the asynchronous half of the program.

use bytes::{Buf as _, Bytes};
use hyper::rt::{Read, ReadBufCursor, Sleep, Timer, Write};
use oxiray_network::porch::{PorchPlace, PorchStream, ProvenPeer};
use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is read at once, in bytes.
const PIECE_BYTES: usize = 16 << 10;

/// The connection, and what was heard of it already.
#[derive(Debug)]
pub(crate) struct Stream {
    heard: Bytes,
    socket: AsyncFd<PorchStream>,
    _place: PorchPlace,
}

impl Stream {
    pub(crate) fn new(arrival: ProvenPeer) -> io::Result<Self> {
        let ProvenPeer { stream, heard, place, .. } = arrival;
        // SAFETY: a `PorchStream` has one socket for as long as it lives, and closes it when it is dropped.
        let socket = unsafe { AsyncFd::register(stream) }?;
        Ok(Self { heard: heard.into(), socket, _place: place })
    }

    /// The same, where this was heard of it and is to be read again.
    pub(crate) fn after(mut self, heard: Bytes) -> Self {
        self.heard = heard;
        self
    }

    fn poll_out<T>(
        &mut self,
        context: &mut Context<'_>,
        mut act: impl FnMut(&mut PorchStream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            let mut ready = ready!(self.socket.poll_write_ready_mut(context))?;
            if let Ok(done) = ready.try_io(|socket| act(socket.get_mut())) {
                return Poll::Ready(done);
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.heard.is_empty() {
            let size = self.heard.len().min(into.remaining());
            into.put_slice(&self.heard[..size]);
            self.heard.advance(size);
            return Poll::Ready(Ok(()));
        }
        loop {
            let mut ready = ready!(self.socket.poll_read_ready_mut(context))?;
            if let Ok(read) = ready.try_io(|socket| socket.get_mut().read(into.initialize_unfilled())) {
                into.advance(read?);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_out(context, |stream| stream.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_out(context, PorchStream::flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_out(context, PorchStream::finish)
    }
}

/// A connection of tokio's as hyper reads and writes one, and the other way round.
#[derive(Debug)]
pub(crate) struct Hyper<S>(pub(crate) S);

impl<S: AsyncRead + Unpin> Read for Hyper<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut piece = [0; PIECE_BYTES];
        let size = into.remaining().min(PIECE_BYTES);
        let mut buffer = ReadBuf::new(&mut piece[..size]);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer))?;
        into.put_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Write for Hyper<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Timers of tokio's for hyper.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timers;

struct Sleeping(Pin<Box<tokio::time::Sleep>>);

impl Future for Sleeping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl Sleep for Sleeping {}

impl Timer for Timers {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Sleeping(Box::pin(tokio::time::sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Sleeping(Box::pin(tokio::time::sleep_until(deadline.into()))))
    }
}
