//! What a runtime asks of its daemon when it puts one object after the other; the test plays the daemon.

#![expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]

mod common;

use oxiray_runtime::Runtime;
use oxiray_wire::message::{Allocate, Allocated, Content, Failure, FailureCode, StoreRefused, Value};
use oxiray_wire::{Connection, Message, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const SIZE: usize = 200 << 10;
/// However slow the machine is, two puts follow each other closely within this.
const LIMIT: Duration = Duration::from_secs(60);

/// What the daemon saw.
#[derive(Debug, PartialEq)]
enum Seen {
    /// An object was sealed in room that had been lent ahead.
    Used,
    /// Room that was lent ahead came back.
    Back,
    /// Room was asked for ahead, and refused.
    Refused,
    /// An object was sealed in room that it had been waited for.
    Waited,
}

/// A daemon that grants whatever is asked for, ahead only where it `lends`; it ends with its client.
fn play(mut connection: Connection, lends: bool, seen: &Sender<Seen>) {
    let (mut lent, mut written) = (BTreeSet::new(), BTreeSet::new());
    let (mut segment, mut received): (u64, Vec<Received>) = (0, Vec::new());
    loop {
        let timeout = Timespec { tv_sec: 60, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&connection, PollFlags::IN)], Some(&timeout));
        assert_eq!(ready, Ok(1), "the runtime said nothing for 60 s");
        if connection.receive(&mut received).is_err() {
            return;
        }
        for Received { message, .. } in received.drain(..) {
            let what = match message {
                Message::Allocate(Allocate { request, ahead: true, .. }) if !lends => {
                    let failure = Some(Failure { code: FailureCode::StoreFull, ..Failure::default() });
                    connection.send(&StoreRefused { request, failure });
                    Seen::Refused
                }
                Message::Allocate(asked) => {
                    segment += 1;
                    let file = memfd_create("segment", MemfdFlags::CLOEXEC).expect("a memory file");
                    ftruncate(&file, asked.size).expect("it has a size");
                    let granted = Allocated {
                        request: asked.request,
                        file: segment,
                        mapped: asked.size,
                        size: asked.size,
                        ..Allocated::default()
                    };
                    connection.send_with(&granted.into(), vec![file]);
                    assert!(!asked.ahead || lent.is_empty(), "AHEAD-1: for one object at a time");
                    let of = if asked.ahead { &mut lent } else { &mut written };
                    assert!(of.insert(asked.object), "room for an object is asked for once");
                    continue;
                }
                Message::Seal(said) if lent.remove(&said.object) => Seen::Used,
                Message::Seal(said) => {
                    assert!(written.remove(&said.object), "AHEAD-2");
                    Seen::Waited
                }
                Message::Abort(said) => {
                    assert!(lent.remove(&said.object), "only what was lent ahead comes back");
                    Seen::Back
                }
                _ => continue,
            };
            let _ = seen.send(what);
        }
        while !connection.flush().expect("the runtime keeps the stream open") {}
    }
}

/// A runtime, and what its daemon sees.
fn started(lends: bool) -> (Runtime, Receiver<Seen>) {
    let (runtime, near) = common::started();
    let (sender, seen) = channel();
    std::thread::spawn(move || play(near, lends, &sender));
    (runtime, seen)
}

fn put(runtime: &Runtime, size: usize) {
    let (task, index) = runtime.next_put(size);
    runtime.store(task.object(index), size, |bytes| bytes.fill(7)).expect("there is room");
    let value = Value { content: Some(Content::Stored(size as u64)), contained: Vec::new() };
    runtime.release(runtime.put(task, index, value));
}

/// Puts objects until the daemon has seen something.
fn put_until(runtime: &Runtime, seen: &Receiver<Seen>, wanted: &Seen) {
    let until = Instant::now() + LIMIT;
    while !seen.try_iter().any(|what| what == *wanted) {
        assert!(Instant::now() < until, "{wanted:?} was never seen");
        put(runtime, SIZE);
    }
}

/// Whether the daemon sees something while this process does nothing.
fn is_seen_soon(seen: &Receiver<Seen>, wanted: &Seen) -> bool {
    let until = Instant::now() + Duration::from_secs(1);
    let left = || until.saturating_duration_since(Instant::now());
    std::iter::from_fn(|| seen.recv_timeout(left()).ok()).any(|what| what == *wanted)
}

#[test]
fn room_is_asked_for_ahead_used_and_given_back() {
    let (runtime, seen) = started(true);
    put_until(&runtime, &seen, &Seen::Used);
    // Where the last two puts were far apart, nothing was asked for after them: two more then.
    let until = Instant::now() + LIMIT;
    while !is_seen_soon(&seen, &Seen::Back) {
        assert!(Instant::now() < until, "room is never given back");
        put(&runtime, SIZE);
        put(&runtime, SIZE);
    }
}

#[test]
fn an_object_of_another_size_is_waited_for() {
    let (runtime, seen) = started(true);
    put_until(&runtime, &seen, &Seen::Used);
    put(&runtime, SIZE + 1);
    // What was lent comes back before or behind it; the object itself is not written there.
    assert!(seen.iter().find(|what| *what != Seen::Back && *what != Seen::Used) == Some(Seen::Waited));
}

#[test]
fn what_is_not_lent_is_waited_for() {
    let (runtime, seen) = started(false);
    put_until(&runtime, &seen, &Seen::Refused);
    put(&runtime, SIZE);
    put(&runtime, SIZE);
    let waited = seen.iter().inspect(|what| assert_ne!(*what, Seen::Used)).filter(|what| *what == Seen::Waited);
    assert_eq!(waited.take(2).count(), 2);
}

#[test]
fn nothing_is_asked_for_ahead_of_very_large_objects() {
    let (runtime, seen) = started(true);
    for _ in 0..4 {
        put(&runtime, 5 << 20);
    }
    assert!(seen.iter().take(4).all(|what| what == Seen::Waited));
}
