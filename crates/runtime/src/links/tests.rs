//! The streams of a process against a peer that does not read.

use super::*;
use oxiray_ids::{ObjectId, WorkerId};
use oxiray_wire::message::{RingTaken, Unpin};
use oxiray_wire::{Message, frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

const LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// Sends until the kernel takes no more.
fn fill(socket: impl AsFd) {
    while rustix::net::send(&socket, &[0; 4096], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok() {}
}

/// Reads until nothing more is there.
fn drain(socket: impl AsFd) -> Vec<u8> {
    let (mut came, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok((read, _)) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::DONTWAIT) {
        came.extend_from_slice(&buffer[..read]);
    }
    came
}

/// What the kernel says first of any stream.
fn noticed(links: &Links) -> (Token, epoll::EventFlags) {
    let mut buffer = [MaybeUninit::uninit(); 1];
    let (events, _) = epoll::wait(&links.epoll, &mut buffer, Some(&LIMIT)).expect("epoll of our own");
    let (token, flags) = events.first().map(|event| (event.data.u64(), event.flags)).expect("something within 10 s");
    (token, flags)
}

#[test]
fn a_stream_whose_socket_is_full_turns_to_shared_memory_once_there_is_room() {
    let (daemon, _far_daemon) = Connection::pair().expect("a pair");
    let mut links = Links::new(daemon).expect("epoll");
    let (mut client, near) = Connection::pair().expect("a pair");
    let filler = near.try_clone().expect("a duplicate");
    let token = links.adopt(near, Role::Client(WorkerId::NIL), false).expect("a stream");
    fill(&filler);
    client.offer_ring().expect("memory");
    assert!(client.flush().expect("open"), "the other direction is empty");

    assert!(!links.receive(token, Sign::Readable, &mut Vec::new()));
    assert!(links.unsent_bytes(token) > 0, "that it is taken takes a frame, and there is no room for one");
    drain(&client);
    let (who, signs) = noticed(&links);
    assert!(who == token && signs.contains(epoll::EventFlags::OUT), "the room is waited for: {who}, {signs:?}");
    assert!(!links.receive(token, Sign::Writable, &mut Vec::new()));

    assert_eq!(poll(&mut [PollFd::new(&client, PollFlags::IN)], Some(&LIMIT)), Ok(1));
    let mut taken = bytes::BytesMut::new();
    frame::append(&Message::from(RingTaken {}), 0, &mut taken).expect("it fits");
    assert!(drain(&client).starts_with(&taken));
}

#[test]
fn what_nobody_waits_for_goes_with_the_next_frame_or_when_it_is_due() {
    let (daemon, far_daemon) = Connection::pair().expect("a pair");
    let mut links = Links::new(daemon).expect("epoll");
    assert_eq!(links.flush_at(), None);
    let (late, wanted) = (Message::from(RingTaken {}), Message::from(Unpin { object: ObjectId::NIL }));

    links.post_late(&late);
    let due = links.flush_at().expect("it does not wait for ever");
    links.flush_gathered();
    assert_eq!(
        (drain(&far_daemon), links.flush_at()),
        (Vec::new(), Some(due)),
        "who waits for an answer does not wait for it"
    );
    links.post(DAEMON, &wanted);
    links.flush_gathered();
    let mut both = bytes::BytesMut::new();
    for frame in [&late, &wanted] {
        frame::append(frame, 0, &mut both).expect("it fits");
    }
    assert_eq!((&drain(&far_daemon)[..], links.flush_at()), (&both[..], None), "in order, and nothing is left");

    links.post_late(&late);
    links.flush_all();
    assert!(!drain(&far_daemon).is_empty() && links.flush_at().is_none(), "its time has come");
}
