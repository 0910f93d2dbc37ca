//! How two processes write and read a ring: positions, and who asks for the bell and when.
//!
//! The memory is a trait, and the atomics are what the module around this one calls `atomic`: `crates/models/src/ring.rs` has the
//! very code here run under loom, in every order and with every stale value that the memory model allows.

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use bytes::BytesMut;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// The peer broke the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

/// What stands alone in its line of the processor's cache.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct Line<T>(pub(crate) T);

/// One direction's positions, counted in bytes since the start.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// Up to here the writer has written.
    pub(crate) written: Line<AtomicU64>,
    /// Up to here the reader has read.
    pub(crate) read: Line<AtomicU64>,
    /// Not 0 where the reader wants the bell once more is written.
    pub(crate) sleeps: Line<AtomicU32>,
    /// Not 0 where the writer wants the bell once there is room.
    pub(crate) lacks_room: Line<AtomicU32>,
}

/// Memory that both processes have: two rings, each with its positions.
///
/// # Safety
/// `take` fills the whole of its target.
pub(crate) unsafe trait SharedMemory {
    /// Bytes that a ring has room for; a power of two.
    const BYTES: usize;

    /// A ring's positions.
    fn way(&self, ring: usize) -> &Way;

    /// Writes bytes to a ring, from an offset on. By RING-1 nobody else writes there, and who reads does not look there
    /// before the position says so.
    ///
    /// # Panics
    /// Where the ring has not so many behind the offset.
    fn put(&self, ring: usize, offset: usize, bytes: &[u8]);

    /// Copies bytes of a ring, from an offset on.
    ///
    /// # Panics
    /// Where the ring has not so many behind the offset.
    fn take(&self, ring: usize, offset: usize, target: &mut [MaybeUninit<u8>]);
}

/// Where in a ring the byte at a position lies, and how many there are from there to the ring's end.
fn place<M: SharedMemory>(position: u64) -> (usize, usize) {
    let offset = position as usize & (M::BYTES - 1);
    (offset, M::BYTES - offset)
}

/// One process's end of both rings.
#[derive(Debug)]
pub(crate) struct Ends<M> {
    pub(super) memory: Arc<M>,
    /// The ring that is written here; the other one is read.
    own: usize,
    written: u64,
    read: u64,
    /// Up to here the peer had read what is written here when that was looked at last: while there is room by that, its
    /// position is not looked at, since every look takes the line from the peer's cache.
    read_there: u64,
}

impl<M: SharedMemory> Ends<M> {
    pub(crate) fn over(memory: Arc<M>, own: usize) -> Self {
        const { assert!(M::BYTES.is_power_of_two()) };
        Self { memory, own, written: 0, read: 0, read_there: 0 }
    }

    /// Looks at the ring that is read here, from any thread.
    pub(crate) fn watching(&self) -> Watching<M> {
        Watching { memory: Arc::clone(&self.memory), ring: 1 - self.own }
    }

    /// Writes as much as there is room for.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let way = self.memory.way(self.own);
        let mut room = M::BYTES - self.written.wrapping_sub(self.read_there) as usize;
        if room < bytes.len() {
            let read = way.read.0.load(Ordering::Acquire);
            let used = self.written.wrapping_sub(read);
            room = (M::BYTES as u64).checked_sub(used).ok_or(Broken)? as usize;
            self.read_there = read;
        }
        let bytes = &bytes[..bytes.len().min(room)];
        let (offset, until_end) = place::<M>(self.written);
        let (first, second) = bytes.split_at(bytes.len().min(until_end));
        self.memory.put(self.own, offset, first);
        self.memory.put(self.own, 0, second);
        self.written += bytes.len() as u64;
        way.written.0.store(self.written, Ordering::Release);
        Ok(bytes.len())
    }

    /// After writing: whether the peer wants its bell for that (RING-3).
    pub(crate) fn wakes_reader(&self) -> bool {
        take(&self.memory.way(self.own).sleeps.0)
    }

    /// There was no room: asks for the bell when there is; `true` where there is some by now (RING-3).
    pub(crate) fn ask_for_room(&self) -> bool {
        let way = self.memory.way(self.own);
        way.lacks_room.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let used = self.written.wrapping_sub(way.read.0.load(Ordering::Acquire));
        let has_room = used < M::BYTES as u64;
        if has_room {
            way.lacks_room.0.store(0, Ordering::Relaxed);
        }
        has_room
    }

    /// Appends what there is to `target`, at most `limit`; how much that was. A peer that breaks RING-1 changes what is
    /// read, and is found out where that is parsed.
    pub(crate) fn read(&mut self, target: &mut BytesMut, limit: usize) -> Result<usize, Broken> {
        let ring = 1 - self.own;
        let way = self.memory.way(ring);
        let written = way.written.0.load(Ordering::Acquire);
        let length = written.wrapping_sub(self.read);
        if length > M::BYTES as u64 {
            return Err(Broken);
        }
        let length = limit.min(length as usize);
        if length == 0 {
            return Ok(0);
        }
        let (offset, until_end) = place::<M>(self.read);
        target.reserve(length);
        let (first, second) = target.spare_capacity_mut()[..length].split_at_mut(length.min(until_end));
        self.memory.take(ring, offset, first);
        self.memory.take(ring, 0, second);
        // SAFETY: both parts, `length` together, were filled just now.
        unsafe { target.set_len(target.len() + length) };
        self.read += length as u64;
        way.read.0.store(self.read, Ordering::Release);
        Ok(length)
    }

    /// After reading: whether the peer wants its bell for the room (RING-3).
    pub(crate) fn wakes_writer(&self) -> bool {
        take(&self.memory.way(1 - self.own).lacks_room.0)
    }
}

/// Whether a request for the bell stands after what was done before; it is taken with that.
fn take(wish: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    wish.load(Ordering::Relaxed) != 0 && wish.swap(0, Ordering::Relaxed) != 0
}

/// Looks whether there is something to read, without reading it.
#[derive(Debug)]
pub(crate) struct Watching<M> {
    memory: Arc<M>,
    ring: usize,
}

impl<M> Clone for Watching<M> {
    fn clone(&self) -> Self {
        Self { memory: Arc::clone(&self.memory), ring: self.ring }
    }
}

impl<M: SharedMemory> Watching<M> {
    /// Whether there is something to read.
    pub(crate) fn has_more(&self) -> bool {
        let way = self.memory.way(self.ring);
        way.written.0.load(Ordering::Acquire) != way.read.0.load(Ordering::Relaxed)
    }

    /// Asks for the bell when there is something to read; `false` where there is by now (RING-3).
    pub(crate) fn sleep(&self) -> bool {
        let way = self.memory.way(self.ring);
        way.sleeps.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let sleeps = !self.has_more();
        if !sleeps {
            way.sleeps.0.store(0, Ordering::Relaxed);
        }
        sleeps
    }

    /// Whether the bell was asked for and did not ring yet.
    pub(crate) fn sleeps(&self) -> bool {
        self.memory.way(self.ring).sleeps.0.load(Ordering::Relaxed) != 0
    }
}
