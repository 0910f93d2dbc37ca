//! How a message stands on a stream: an 8-byte header and a protobuf body.
//!
//! ```text
//! 0        4       6     7     8
//! ┌────────┬───────┬─────┬─────┬──────────────┐
//! │ length │ kind  │ fds │ ver │ body: length │   little endian; `fds` descriptors travel with
//! └────────┴───────┴─────┴─────┴──────────────┘   the frame's first byte (SCM_RIGHTS)
//! ```

use crate::body::Body;
use crate::message::Message;
use bytes::{Buf, BytesMut};

/// The version of framing and schema; peers must agree on it exactly.
pub const WIRE_VERSION: u8 = 1;

/// Names that version where peers of two machines agree on what they speak.
pub fn protocol() -> Vec<u8> {
    format!("oxiray/{WIRE_VERSION}").into_bytes()
}

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 8;

/// The largest body; larger values travel through the object store.
pub const FRAME_BYTES_LIMIT: usize = 128 << 20;

/// The largest body of any message but [`Relay`](crate::message::Relay), which is to have room for it.
pub const MESSAGE_BYTES_LIMIT: usize = FRAME_BYTES_LIMIT - (4 << 10);

/// The largest body of a message that neither carries values nor lists things.
pub const CONTROL_BYTES_LIMIT: usize = 1 << 20;

/// The largest body before the peer has been let in.
pub const HELLO_BYTES_LIMIT: usize = 64 << 10;

/// The most descriptors that one frame carries.
pub const FRAME_DESCRIPTORS_LIMIT: usize = 8;

/// The most bytes that the body of a message of that kind has.
pub fn body_limit(kind: u16) -> usize {
    Message::body_limit(kind)
}

/// What a peer sent is not a frame of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The version byte differs.
    #[error("the peer speaks wire version {theirs}, this is {WIRE_VERSION}: install the same oxiray on both sides")]
    Version {
        /// The version byte received.
        theirs: u8,
    },
    /// The header announces more than is allowed.
    #[error("a frame of {bytes} bytes was announced, at most {limit} are read here")]
    Oversized {
        /// Bytes announced.
        bytes: usize,
        /// The limit in force.
        limit: usize,
    },
    /// The body would take many times its size in memory.
    #[error("the body of a frame of kind {kind} has more entries than one of its size may have")]
    Crowded {
        /// The frame's kind.
        kind: u16,
    },
    /// A message is too large to be sent.
    #[error(
        "a message of kind {kind} has {bytes} bytes, at most {limit} are sent: put large values into the object store"
    )]
    Unsendable {
        /// Its kind.
        kind: u16,
        /// Bytes of its body.
        bytes: usize,
        /// The most that it may have.
        limit: usize,
    },
    /// The header announces more descriptors than a frame may carry, or than arrived.
    #[error("a frame announced {announced} descriptors, {arrived} arrived")]
    Descriptors {
        /// What the header says.
        announced: usize,
        /// What the kernel delivered.
        arrived: usize,
    },
    /// The body is not the protobuf message that its kind names.
    #[error("the body of a frame of kind {kind} cannot be read: {error}")]
    Body {
        /// The frame's kind.
        kind: u16,
        /// What is wrong, and in which field.
        error: prost::DecodeError,
    },
    /// The message is none that this peer says to this end.
    #[error("a message of kind {kind} is not among those of {direction}, and is not for this end of the stream")]
    Misdirected {
        /// The frame's kind.
        kind: u16,
        /// The direction of the stream, as `crates/wire/src/message/directions.rs` names it.
        direction: &'static str,
    },
    /// Before a greeting, a frame of a kind that nobody here knows.
    #[error("a frame of the unknown kind {kind} came before the greeting")]
    Stranger {
        /// The frame's kind.
        kind: u16,
    },
    /// Shared memory was offered that cannot be used, or its positions cannot be.
    #[error("the peer broke the memory that it shares")]
    Ring,
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of body that follow.
    pub length: usize,
    /// Which message the body is.
    pub kind: u16,
    /// How many descriptors came with it.
    pub descriptors: usize,
}

impl Header {
    /// Reads a header from the front of `buffer`; `None` while it is incomplete.
    pub fn peek(buffer: &[u8], bytes_limit: usize) -> Result<Option<Self>, FrameError> {
        let Some(mut head) = buffer.get(..HEADER_BYTES) else { return Ok(None) };
        let length = head.get_u32_le() as usize;
        let kind = head.get_u16_le();
        let descriptors = head.get_u8() as usize;
        let version = head.get_u8();
        if version != WIRE_VERSION {
            return Err(FrameError::Version { theirs: version });
        }
        let limit = bytes_limit.min(body_limit(kind));
        if length > limit {
            return Err(FrameError::Oversized { bytes: length, limit });
        }
        if descriptors > FRAME_DESCRIPTORS_LIMIT {
            return Err(FrameError::Descriptors { announced: descriptors, arrived: 0 });
        }
        Ok(Some(Self { length, kind, descriptors }))
    }
}

/// Appends `message` as a frame to `buffer`; nothing of it where its body exceeds [`body_limit`] (WIRE-4).
pub fn append(message: &impl Body, descriptors: usize, buffer: &mut BytesMut) -> Result<(), FrameError> {
    assert!(descriptors <= FRAME_DESCRIPTORS_LIMIT, "a frame carries at most {FRAME_DESCRIPTORS_LIMIT} descriptors");
    let (kind, length) = (message.kind(), message.body_bytes());
    let limit = body_limit(kind);
    if length > limit {
        return Err(FrameError::Unsendable { kind, bytes: length, limit });
    }
    buffer.reserve(HEADER_BYTES + length);
    let mut head = [0; HEADER_BYTES];
    head[..4].copy_from_slice(&(length as u32).to_le_bytes());
    head[4..6].copy_from_slice(&kind.to_le_bytes());
    head[6] = descriptors as u8;
    head[7] = WIRE_VERSION;
    buffer.extend_from_slice(&head);
    message.append_body(buffer);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Goodbye, LeaseReturn};
    use oxiray_ids::LeaseNumber;

    #[test]
    fn a_header_is_read_back() {
        let mut buffer = BytesMut::new();
        append(&Message::LeaseReturn(LeaseReturn { lease: LeaseNumber(300), retiring: false }), 2, &mut buffer)
            .expect("it fits");
        let header = Header::peek(&buffer, 64).expect("well-formed").expect("complete");
        assert_eq!((header.length, header.descriptors), (buffer.len() - HEADER_BYTES, 2));
        assert_eq!(Header::peek(&buffer[..7], 64), Ok(None));
    }

    #[test]
    fn malformed_headers_are_refused() {
        let mut buffer = BytesMut::new();
        append(&Message::Goodbye(Goodbye::default()), 0, &mut buffer).expect("it fits");
        buffer[7] = 9;
        assert_eq!(Header::peek(&buffer, 64), Err(FrameError::Version { theirs: 9 }));
        buffer[7] = WIRE_VERSION;
        buffer[3] = 0xff;
        assert!(matches!(Header::peek(&buffer, FRAME_BYTES_LIMIT), Err(FrameError::Oversized { .. })));
        buffer[3] = 0;
        buffer[6] = 200;
        assert!(matches!(Header::peek(&buffer, 64), Err(FrameError::Descriptors { announced: 200, .. })));
    }
}
