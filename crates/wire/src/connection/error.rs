//! How connections end.

use crate::frame::FrameError;
use rustix::io::Errno;
use std::io::ErrorKind;

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The peer closed its end, or died.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer broke the format.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The operating system refused.
    #[error("socket error {0}")]
    Socket(Errno),
    /// The connection to another machine did not come, broke, or brought what its peer cannot have sealed.
    #[error("the connection to another machine: {0}")]
    Far(std::io::Error),
}

/// What ended a connection to another machine.
pub(super) fn broken(error: std::io::Error) -> ConnectionError {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ConnectionError::Closed,
        _ => ConnectionError::Far(error),
    }
}
