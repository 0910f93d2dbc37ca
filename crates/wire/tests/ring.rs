//! Streams that go on through shared memory: nothing is lost, out of order or read after the end.

use oxiray_wire::message::{Function, Goodbye, LeaseReclaim};
use oxiray_wire::{Connection, Message, Received};

fn both() -> (Connection, Connection) {
    let (near, far) = Connection::pair().expect("a pair");
    let mut far = Connection::new(far).expect("non-blocking");
    far.take_rings();
    (near, far)
}

fn numbered(number: usize, size: usize) -> Message {
    let mut hash = vec![number as u8; size];
    hash[..8].copy_from_slice(&number.to_le_bytes());
    Function { hash: hash.into(), ..Function::default() }.into()
}

fn number_of(received: &Received) -> usize {
    let Message::Function(function) = &received.message else { panic!("{received:?}") };
    assert!(function.hash[8..].iter().all(|byte| *byte == function.hash[0]));
    usize::from_le_bytes(function.hash[..8].try_into().expect("eight"))
}

/// Both ends, with everything through memory from now on.
fn turned() -> (Connection, Connection) {
    let (mut near, mut far) = both();
    near.offer_ring().expect("memory");
    near.flush().expect("open");
    let mut inbox = Vec::new();
    far.receive(&mut inbox).expect("open");
    near.receive(&mut inbox).expect("open");
    far.receive(&mut inbox).expect("open");
    assert!(inbox.is_empty(), "nobody hears of how a stream goes on: {inbox:?}");
    assert!(near.writes_to_ring() && far.writes_to_ring() && near.watch().is_some() && far.watch().is_some());
    (near, far)
}

#[test]
fn frames_stay_in_order_while_the_stream_turns() {
    let (mut near, mut far) = both();
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for number in 0..200 {
        if number == 20 {
            near.offer_ring().expect("memory");
        }
        near.send(&numbered(number, 3000));
        far.send(&numbered(number, 2000));
        near.flush().expect("open");
        if number % 3 == 0 {
            far.receive(&mut there).expect("open");
        }
        far.flush().expect("open");
        if number % 7 == 0 {
            near.receive(&mut back).expect("open");
        }
    }
    while there.len() < 200 || back.len() < 200 {
        near.flush().expect("open");
        far.flush().expect("open");
        near.receive(&mut back).expect("open");
        far.receive(&mut there).expect("open");
    }
    assert!(near.writes_to_ring() && far.writes_to_ring());
    for came in [there, back] {
        assert!(came.iter().map(number_of).eq(0..200));
    }
}

#[test]
fn no_bell_stands_amidst_the_frames_of_a_stream_that_turns() {
    let (mut near, mut far) = both();
    let (mut there, mut back) = (Vec::new(), Vec::new());
    near.offer_ring().expect("memory");
    for number in 0..200 {
        near.send(&numbered(number, 10_000));
    }
    assert_eq!(near.flush().ok(), Some(false), "the socket has no room for all");
    far.receive(&mut there).expect("open");
    for number in 0..200 {
        far.send(&numbered(number, 1000));
    }
    assert_eq!(far.flush().ok(), Some(false), "the memory has no room for all");
    near.receive(&mut back).expect("open");
    assert!(near.watch().is_some() && !near.writes_to_ring() && !back.is_empty());
    while there.len() < 200 || back.len() < 200 {
        near.flush().expect("open");
        far.receive(&mut there).expect("no bell is taken for a frame");
        far.flush().expect("open");
        near.receive(&mut back).expect("open");
        near.read_ring().expect("sound");
        while let Some(received) = near.next().expect("sound") {
            back.push(received);
        }
    }
    for came in [there, back] {
        assert!(came.iter().map(number_of).eq(0..200));
    }
}

#[test]
fn a_frame_larger_than_the_memory_crosses_in_pieces() {
    let (mut near, mut far) = turned();
    near.send(&numbered(7, 3 << 20));
    let mut inbox = Vec::new();
    while inbox.is_empty() {
        near.flush().expect("open");
        far.read_ring().expect("open");
        inbox.extend(far.next().expect("sound"));
    }
    assert_eq!(number_of(&inbox[0]), 7);
    assert_eq!(near.flush().ok(), Some(true));
}

#[test]
fn what_was_written_before_the_end_is_delivered() {
    let (mut near, mut far) = turned();
    for number in 0..10 {
        near.send(&numbered(number, 100));
    }
    near.flush().expect("open");
    drop(near);
    let mut inbox = Vec::new();
    assert!(far.receive(&mut inbox).is_err(), "it is the end");
    assert!(inbox.iter().map(number_of).eq(0..10));
}

#[test]
fn who_sleeps_hears_one_bell_on_its_socket() {
    let (mut near, mut far) = turned();
    let watch = far.watch().expect("it reads there");
    assert!(watch.sleep());
    for number in 0..3 {
        near.send(&numbered(number, 100));
        near.flush().expect("open");
    }
    let mut heard = [0; 8];
    let bells = rustix::net::recv(&far, &mut heard[..], rustix::net::RecvFlags::PEEK).expect("a bell").1;
    assert_eq!(bells, 1);
    let mut inbox = Vec::new();
    far.receive(&mut inbox).expect("open");
    assert_eq!(inbox.len(), 3);
}

#[test]
fn memory_is_taken_from_nobody_who_may_not_offer_it() {
    let (mut near, far) = Connection::pair().expect("a pair");
    let mut far = Connection::new(far).expect("non-blocking");
    near.offer_ring().expect("memory");
    near.flush().expect("open");
    assert!(far.receive(&mut Vec::new()).is_err());
}

#[test]
fn the_socket_does_until_the_offer_is_answered() {
    let (mut near, mut far) = both();
    near.offer_ring().expect("memory");
    near.send(&Goodbye::default());
    near.send(&LeaseReclaim {});
    assert!(!near.writes_to_ring(), "nothing was answered");
    near.flush().expect("open");
    let mut inbox = Vec::new();
    far.receive(&mut inbox).expect("open");
    assert_eq!(inbox.len(), 2);
}
