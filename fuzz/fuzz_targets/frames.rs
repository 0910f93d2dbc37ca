//! A frame of the wire, its header and its body: it is read or refused, and what was read is written as what is read again.

#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use oxiray_wire::Message;
use oxiray_wire::frame::{FRAME_BYTES_LIMIT, HEADER_BYTES, Header, append};

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(header)) = Header::peek(bytes, FRAME_BYTES_LIMIT) else { return };
    let Some(body) = bytes[HEADER_BYTES..].get(..header.length) else { return };
    let Ok(Some(message)) = Message::decode(header.kind, Bytes::copy_from_slice(body)) else { return };
    let Some(written) = written(&message) else { return };
    let again = Message::decode(message.kind(), written.clone().freeze().split_off(HEADER_BYTES));
    let again = again.expect("what was written is read").expect("the kind is known");
    // Bytes are compared: a number that is none differs from itself.
    assert_eq!(Some(&written), self::written(&again).as_ref(), "{message:?}");
});

/// The message as a frame; nothing where it is too long to be sent, since it may be longer as it is written than as it was read.
fn written(message: &Message) -> Option<BytesMut> {
    let mut frame = BytesMut::new();
    append(message, 0, &mut frame).ok().map(|()| frame)
}
