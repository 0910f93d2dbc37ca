//! The ring in memory that two processes share (`crates/wire/src/ring.rs`): no byte is lost or read too early (RING-1), and
//! nobody sleeps for ever (RING-3).
//!
//! The memory is modelled as cells that loom watches, so that a byte which is read while it is written is found as such,
//! whatever value it has. The bell is a channel, as the socket is one. A writer or a reader that sleeps while nobody wakes
//! it is a deadlock, which loom reports.

#[path = "../../wire/src/ring/protocol.rs"]
mod protocol;

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

use bytes::BytesMut;
use loom::cell::UnsafeCell;
use loom::sync::mpsc::{Receiver, Sender, channel};
use protocol::{Ends, SharedMemory, Way};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Bytes of a ring here: the fewest that a write and a read can go around the end of.
const BYTES: usize = 2;
/// How often loom may take the processor from a thread that could go on. Mistakes in such protocols need two or three.
const PREEMPTIONS_MAX: usize = 3;

#[derive(Default)]
struct Memory {
    ways: [Way; 2],
    bytes: [[UnsafeCell<u8>; BYTES]; 2],
}

// SAFETY: loom finds every use of a byte that is not ordered after the one before it.
unsafe impl Sync for Memory {}

// SAFETY: `take` writes each byte of its target.
unsafe impl SharedMemory for Memory {
    const BYTES: usize = BYTES;

    fn way(&self, ring: usize) -> &Way {
        &self.ways[ring]
    }

    fn put(&self, ring: usize, offset: usize, bytes: &[u8]) {
        for (byte, cell) in bytes.iter().zip(&self.bytes[ring][offset..offset + bytes.len()]) {
            // SAFETY: loom has made sure that nobody else uses the byte.
            cell.with_mut(|place| unsafe { *place = *byte });
        }
    }

    fn take(&self, ring: usize, offset: usize, target: &mut [MaybeUninit<u8>]) {
        let cells = &self.bytes[ring][offset..offset + target.len()];
        for (place, cell) in target.iter_mut().zip(cells) {
            // SAFETY: loom has made sure that nobody writes the byte.
            cell.with(|byte| place.write(unsafe { *byte }));
        }
    }
}

type Ring = Ends<Memory>;

fn both() -> (Ring, Ring) {
    let memory = Arc::new(Memory::default());
    (Ring::over(Arc::clone(&memory), 0), Ring::over(memory, 1))
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

/// Writes as `Connection::flush` does, and waits for the bell where there is no room.
fn write_all(ring: &mut Ring, mut bytes: &[u8], peer: &Sender<()>, bell: &Receiver<()>) {
    while !bytes.is_empty() {
        let sent = ring.write(bytes).expect("sound");
        bytes = &bytes[sent..];
        if sent > 0 && ring.wakes_reader() {
            // A peer that is gone has what it wanted.
            let _ = peer.send(());
        }
        if sent == 0 && !ring.ask_for_room() {
            bell.recv().expect("the peer is there while it reads");
        }
    }
}

/// Reads as a thread that leads does: once more before it sleeps.
fn read_all(ring: &mut Ring, count: usize, limit: usize, peer: &Sender<()>, bell: &Receiver<()>) -> Vec<u8> {
    let (watch, mut came) = (ring.watching(), BytesMut::new());
    while came.len() < count {
        let read = ring.read(&mut came, limit).expect("sound");
        if read > 0 && ring.wakes_writer() {
            let _ = peer.send(());
        }
        if read == 0 && watch.sleep() {
            bell.recv().expect("the peer is there while it writes");
        }
    }
    assert_eq!(ring.read(&mut came, limit), Ok(0), "nothing comes twice");
    assert!(!watch.clone().has_more());
    came.to_vec()
}

/// A writer of so many bytes in pieces, and a reader.
fn one_way(pieces: &'static [&'static [u8]], limit: usize) {
    explore(move || {
        let (mut near, mut far) = both();
        let ((to_near, near_bell), (to_far, far_bell)) = (channel(), channel());
        let writing = loom::thread::spawn(move || {
            for piece in pieces {
                write_all(&mut near, piece, &to_far, &near_bell);
            }
        });
        let bytes = pieces.concat();
        assert_eq!(read_all(&mut far, bytes.len(), limit, &to_near, &far_bell), bytes);
        writing.join().expect("it ends");
    });
}

#[test]
fn a_reader_that_sleeps_hears_of_what_is_written() {
    one_way(&[&[1], &[2]], BYTES);
}

#[test]
fn a_writer_without_room_hears_of_room_and_bytes_stay_in_order_around_the_end() {
    one_way(&[&[1, 2, 3, 4]], BYTES);
}

#[test]
fn pieces_that_are_read_one_by_one_stay_in_order() {
    one_way(&[&[1], &[2, 3]], 1);
}

#[test]
fn a_question_is_answered_over_both_rings() {
    explore(|| {
        let (mut near, mut far) = both();
        let ((to_near, near_bell), (to_far, far_bell)) = (channel(), channel());
        let answering = loom::thread::spawn(move || {
            let asked = read_all(&mut far, 1, BYTES, &to_near, &far_bell);
            write_all(&mut far, &[asked[0] + 1], &to_near, &far_bell);
        });
        write_all(&mut near, &[7], &to_far, &near_bell);
        assert_eq!(read_all(&mut near, 1, BYTES, &to_far, &near_bell), [8]);
        assert!(!near.watching().sleeps() || !near.watching().has_more());
        answering.join().expect("it ends");
    });
}
