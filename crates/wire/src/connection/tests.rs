use super::*;
use crate::frame::{CONTROL_BYTES_LIMIT, MESSAGE_BYTES_LIMIT};
use crate::message::{Function, Goodbye, LeaseReclaim, Peer};
use bytes::Bytes;
use oxiray_ids::WorkerId;

fn both() -> (Connection, Connection) {
    let (near, far) = Connection::pair().expect("a pair");
    (near, Connection::new(far).expect("non-blocking"))
}

#[test]
fn messages_and_descriptors_arrive_together_and_in_order() {
    let (mut near, mut far) = both();
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    near.send(&Goodbye::default());
    near.send_with(&Peer { client: WorkerId::new([1; 28]) }.into(), vec![writer]);
    near.send(&LeaseReclaim {});
    near.send_with(&Peer { client: WorkerId::new([1; 28]) }.into(), vec![reader]);
    while !near.flush().expect("open") {}
    let mut inbox = Vec::new();
    while inbox.len() < 4 {
        far.receive(&mut inbox).expect("open");
    }
    let counts: Vec<usize> = inbox.iter().map(|received| received.descriptors.len()).collect();
    assert_eq!(counts, [0, 1, 0, 1]);
    assert_eq!(rustix::io::write(&inbox[1].descriptors[0], b"x"), Ok(1));
    let mut byte = [0];
    assert_eq!(rustix::io::read(&inbox[3].descriptors[0], &mut byte), Ok(1));
}

/// WIRE-4.
#[test]
fn a_message_that_no_frame_can_carry_ends_the_connection() {
    let (mut near, mut far) = both();
    near.send(&Goodbye::default());
    near.flush().expect("open");
    near.send(&Function { hash: Bytes::from(vec![0; MESSAGE_BYTES_LIMIT]), ..Function::default() });
    let is_unsendable = |error| matches!(error, ConnectionError::Frame(FrameError::Unsendable { kind: 70, .. }));
    assert!(near.flush().is_err_and(is_unsendable));
    drop(near);
    let mut inbox = Vec::new();
    while far.receive(&mut inbox).is_ok() {}
    assert_eq!(inbox.len(), 1, "what was said before it arrives");
}

#[test]
fn a_control_message_is_small() {
    let mut near = BytesMut::new();
    let text = "x".repeat(CONTROL_BYTES_LIMIT);
    let error = frame::append(&crate::message::Notice { text, job: None }, 0, &mut near).expect_err("it is too large");
    assert!(matches!(error, FrameError::Unsendable { limit: CONTROL_BYTES_LIMIT, .. }) && near.is_empty());
}

#[test]
fn it_is_known_since_when_a_frame_that_was_begun_has_not_come() {
    let (mut near, mut far) = both();
    let mut whole = BytesMut::new();
    frame::append(&Function { hash: Bytes::from(vec![1; 100]), ..Function::default() }, 0, &mut whole)
        .expect("it fits");
    let mut inbox = Vec::new();
    let mut send = |bytes: &[u8], far: &mut Connection| {
        near.outgoing.extend_from_slice(bytes);
        near.flush().expect("open");
        far.receive(&mut inbox).expect("open");
        far.stalled_since()
    };
    assert_eq!(send(&[], &mut far), None);
    let begun = send(&whole[..50], &mut far).expect("it was begun");
    assert_eq!(send(&[], &mut far), Some(begun), "nothing more has come");
    assert!(send(&whole[50..90], &mut far).expect("it has not come whole") > begun);
    assert_eq!(send(&whole[90..], &mut far), None);
    assert_eq!(inbox.len(), 1);
}

#[test]
fn a_large_message_crosses_in_pieces() {
    let (mut near, mut far) = both();
    let inline = Bytes::from(vec![7; 3 << 20]);
    near.send(&Function { hash: inline.clone(), ..Function::default() });
    let mut inbox = Vec::new();
    while inbox.is_empty() {
        near.flush().expect("open");
        far.receive(&mut inbox).expect("open");
    }
    assert!(matches!(&inbox[0].message, Message::Function(function) if function.hash == inline));
}

#[test]
fn what_came_before_the_end_is_delivered() {
    let (mut near, mut far) = both();
    near.send(&Goodbye::default());
    near.flush().expect("open");
    drop(near);
    let mut inbox = Vec::new();
    assert!(matches!(far.receive(&mut inbox), Ok(()) | Err(ConnectionError::Closed)));
    assert_eq!(inbox.len(), 1);
    assert!(matches!(far.receive(&mut inbox), Err(ConnectionError::Closed)));
}

#[test]
fn a_peer_that_sends_descriptors_and_no_frames_is_let_go_of() {
    let (near, far) = socket_pair().expect("a pair");
    let mut far = Connection::new(far).expect("non-blocking");
    let mut inbox = Vec::new();
    let mut ended = None;
    for _ in 0..READ_BYTES {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FRAME_DESCRIPTORS_LIMIT))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let borrowed = [near.as_fd(); FRAME_DESCRIPTORS_LIMIT];
        assert!(control.push(SendAncillaryMessage::ScmRights(&borrowed)));
        // The first four bytes of a frame that never comes to its end, and then its body.
        rustix::net::sendmsg(&near, &[IoSlice::new(&[1, 0, 1, 0])], &mut control, SendFlags::empty()).expect("open");
        if let Err(error) = far.receive(&mut inbox) {
            ended = Some(error);
            break;
        }
    }
    assert!(matches!(ended, Some(ConnectionError::Socket(Errno::TOOMANYREFS) | ConnectionError::Frame(_))));
    assert!(inbox.is_empty());
}

#[test]
fn an_unproven_peer_cannot_make_us_read_much() {
    let (near, far) = socket_pair().expect("a pair");
    let mut far = Connection::unproven(far).expect("non-blocking");
    let mut near = Connection::new(near).expect("non-blocking");
    near.send(&Function { hash: Bytes::from(vec![0; HELLO_BYTES_LIMIT + 1]), ..Function::default() });
    near.flush().expect("open");
    let error = far.receive(&mut Vec::new()).expect_err("the frame is too large");
    assert!(matches!(error, ConnectionError::Frame(FrameError::Oversized { .. })));
}
