//! The streams of a process against a peer that does not read.

use super::*;
use oxiray_ids::WorkerId;
use oxiray_wire::message::RingTaken;
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
