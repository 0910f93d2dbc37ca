//! What the store and the program that speaks to the storage tell each other: one message is one packet of a unix socket,
//! with the files that it is about.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The most parts of files that one message names, and so the most files. The kernel passes 253 at a time.
pub const RANGES_MAX: usize = 240;
/// The most bytes of a message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// A part of a file that comes with the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Which of the files.
    pub file: u32,
    /// Where it begins there.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// What the store wants done. Keys are names below the session's prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageOrder {
    /// Find out whether the storage takes objects of this session.
    Probe {
        /// Names the order in its answer.
        id: u64,
    },
    /// Write these parts, one after the other, as one file of the storage.
    Put {
        /// Names the order in its answer.
        id: u64,
        /// The file's name.
        key: String,
        /// The parts.
        ranges: Vec<Range>,
    },
    /// Read a part of such a file into a part of the file that comes with the message.
    Get {
        /// Names the order in its answer.
        id: u64,
        /// The file's name.
        key: String,
        /// Where the part begins in it.
        offset: u64,
        /// Where it goes.
        to: Range,
        /// What its bytes sum up to.
        checksum: u32,
    },
    /// Remove such a file. It is not answered: what is left is removed at the end.
    Delete {
        /// The file's name.
        key: String,
    },
}

/// What came of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageAnswer {
    /// It is done.
    Done {
        /// The order.
        id: u64,
        /// What the bytes of each part sum up to that was written.
        checksums: Vec<u32>,
    },
    /// It is not, and there is no point in asking again: the bytes are gone, or are not what was written.
    Gone {
        /// The order.
        id: u64,
        /// Why.
        reason: String,
    },
    /// It is not done for now.
    Away {
        /// The order.
        id: u64,
        /// Why.
        reason: String,
    },
}

/// Sends one message; waits where the socket does.
///
/// # Errors
/// Where the other end is gone, or the message has more files than may travel.
pub fn send(socket: impl AsFd, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RANGES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a message may bring {RANGES_MAX} files along"),
        ));
    }
    rustix::io::retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// The next message with its files; nothing where the other end has closed.
///
/// # Errors
/// Where there is none yet and the socket does not wait, or what came is no message.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RANGES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // The other end may have closed without reading everything: that is told once, before what it said at last.
    let mut was_reset = false;
    let got = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) if !was_reset => was_reset = true,
            got => break got?,
        }
    };
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message is longer than any may be, or lost its files",
        ));
    }
    let mut files = Vec::new();
    for entry in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = entry {
            files.extend(descriptors);
        }
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    let message =
        postcard::from_bytes(&bytes[..got.bytes]).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some((message, files)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::fs::File;
    use std::io::Read as _;

    #[test]
    fn messages_bring_their_files_and_end_with_the_socket() {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let file = File::open("/proc/self/comm").unwrap();
        let ranges = vec![Range { file: 0, offset: u64::MAX, bytes: u64::MAX }; RANGES_MAX];
        let order = StorageOrder::Put { id: 7, key: "7".into(), ranges };
        send(&near, &order, &vec![file.as_fd(); RANGES_MAX]).unwrap();
        send(&near, &StorageOrder::Delete { key: "7".into() }, &[]).unwrap();
        let (received, files) = receive::<StorageOrder>(&far).unwrap().unwrap();
        assert_eq!((received, files.len()), (order, RANGES_MAX));
        let mut name = String::new();
        File::from(files.into_iter().next_back().unwrap()).read_to_string(&mut name).unwrap();
        assert!(!name.is_empty());
        assert!(
            matches!(receive(&far).unwrap(), Some((StorageOrder::Delete { key }, files)) if key == "7" && files.is_empty())
        );
        drop(near);
        assert!(receive::<StorageOrder>(&far).unwrap().is_none());
        assert!(send(&far, &StorageOrder::Probe { id: 1 }, &[]).is_err());
    }

    #[test]
    fn the_last_words_of_who_closes_without_reading_are_heard() {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        send(&far, &StorageOrder::Probe { id: 1 }, &[]).unwrap();
        let last = StorageAnswer::Away { id: 0, reason: "no credentials".into() };
        send(&near, &last, &[]).unwrap();
        drop(near);
        let (heard, _) = receive::<StorageAnswer>(&far).unwrap().unwrap();
        assert_eq!(heard, last);
        assert!(receive::<StorageAnswer>(&far).unwrap().is_none());
    }
}
