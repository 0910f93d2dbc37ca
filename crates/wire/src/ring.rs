//! Bytes from process to process through memory that both have: a stream that costs no system call.
//!
//! A memory file holds two rings, one for each direction. Whoever reads one may sleep, and is then woken by a byte on the
//! socket that both processes have besides, its *bell*.
//!
//! - RING-1: a ring has one writer and one reader. Each moves its own position and only looks at the other's.
//! - RING-2: what was written is read, though its writer died right after: the memory is both processes'.
//! - RING-3: nobody sleeps while there is something for it. The reader says that it sleeps and then looks once more; the
//!   writer writes and then looks whether the reader sleeps. The same holds for a writer that waits for room.
//! - RING-4: whatever a peer does to the memory, the worst that comes of it is the stream's end: positions are kept here and
//!   checked, bytes are copied before they are looked at, and the file cannot be made smaller.

use bytes::BytesMut;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes that one direction has room for; a power of two, and more than any value that travels with a message.
pub const RING_BYTES: usize = 128 << 10;
/// Where the first ring begins: behind the positions.
const HEAD_BYTES: usize = 4096;
const FILE_BYTES: usize = HEAD_BYTES + 2 * RING_BYTES;

/// The peer broke the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

/// What stands alone in its line of the processor's cache.
#[repr(C, align(64))]
#[derive(Debug)]
struct Line<T>(T);

/// One direction's positions, counted in bytes since the start.
#[repr(C)]
#[derive(Debug)]
struct Way {
    /// Up to here the writer has written.
    written: Line<AtomicU64>,
    /// Up to here the reader has read.
    read: Line<AtomicU64>,
    /// Not 0 where the reader wants the bell once more is written.
    sleeps: Line<AtomicU32>,
    /// Not 0 where the writer wants the bell once there is room.
    lacks_room: Line<AtomicU32>,
}

/// The memory of both rings.
#[derive(Debug)]
struct Memory {
    start: *mut c_void,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Memory {}
// SAFETY: positions are atomic; ring bytes are touched through `Ring` alone, which is used by one thread at a time.
unsafe impl Sync for Memory {}

impl Memory {
    fn map(file: &OwnedFd) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so that nothing of this process is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), FILE_BYTES, protection, MapFlags::SHARED, file, 0)? };
        Ok(Self { start })
    }

    fn way(&self, number: usize) -> &Way {
        const { assert!(2 * size_of::<Way>() <= HEAD_BYTES && align_of::<Way>() <= HEAD_BYTES) };
        // SAFETY: the mapping begins at a page and holds two of them; they consist of atomics alone, for which any bits
        // are valid, whoever writes them.
        unsafe { &*self.start.cast::<Way>().add(number) }
    }

    /// Where the byte at a position of a ring lies.
    fn at(&self, number: usize, position: u64) -> (*mut u8, usize) {
        let offset = position as usize & (RING_BYTES - 1);
        // SAFETY: the offset is within the ring, and the ring within the mapping.
        (unsafe { self.start.cast::<u8>().add(HEAD_BYTES + number * RING_BYTES + offset) }, RING_BYTES - offset)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and nothing that points into it outlives it.
        let unmapped = unsafe { munmap(self.start, FILE_BYTES) };
        debug_assert!(unmapped.is_ok(), "the range of a mapping is valid");
    }
}

/// One process's end of both rings.
#[derive(Debug)]
pub(crate) struct Ring {
    memory: Arc<Memory>,
    /// The ring that is written here; the other one is read.
    own: usize,
    written: u64,
    read: u64,
    /// Up to here the peer had read what is written here when that was looked at last: while there is room by that, its
    /// position is not looked at, since every look takes the line from the peer's cache.
    read_there: u64,
}

impl Ring {
    /// New rings, and the file for the peer.
    pub(crate) fn make() -> Result<(Self, OwnedFd), Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = match memfd_create(c"oxiray-ring", flags | MemfdFlags::NOEXEC_SEAL) {
            // Kernels before 6.3 do not know of memory files that cannot be executed.
            Err(Errno::INVAL) => memfd_create(c"oxiray-ring", flags)?,
            made => made?,
        };
        ftruncate(&file, FILE_BYTES as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::over(&file, 0)?, file))
    }

    /// The rings that a peer made.
    pub(crate) fn join(file: &OwnedFd) -> Result<Self, Errno> {
        // RING-4: a file that shrinks under its mapping would kill who reads it.
        let is_fixed = fcntl_get_seals(file.as_fd())?.contains(SealFlags::SHRINK);
        if !is_fixed || fstat(file)?.st_size != FILE_BYTES as i64 {
            return Err(Errno::INVAL);
        }
        Self::over(file, 1)
    }

    fn over(file: &OwnedFd, own: usize) -> Result<Self, Errno> {
        Ok(Self { memory: Arc::new(Memory::map(file)?), own, written: 0, read: 0, read_there: 0 })
    }

    /// Looks at the ring that is read here, from any thread.
    pub(crate) fn watch(&self) -> Watch {
        Watch { memory: Arc::clone(&self.memory), way: 1 - self.own }
    }

    /// Writes as much as there is room for.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let way = self.memory.way(self.own);
        let mut room = RING_BYTES - (self.written - self.read_there) as usize;
        if room < bytes.len() {
            let read = way.read.0.load(Ordering::Acquire);
            let used = self.written.wrapping_sub(read);
            room = (RING_BYTES as u64).checked_sub(used).ok_or(Broken)? as usize;
            self.read_there = read;
        }
        let bytes = &bytes[..bytes.len().min(room)];
        let (target, until_end) = self.memory.at(self.own, self.written);
        let (first, second) = bytes.split_at(bytes.len().min(until_end));
        let (start, _) = self.memory.at(self.own, 0);
        // SAFETY: both parts are within the ring. By RING-1 nobody else writes there, and the reader does not look there
        // before the position below says so.
        unsafe {
            std::ptr::copy_nonoverlapping(first.as_ptr(), target, first.len());
            std::ptr::copy_nonoverlapping(second.as_ptr(), start, second.len());
        }
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
        let has_room = used < RING_BYTES as u64;
        if has_room {
            way.lacks_room.0.store(0, Ordering::Relaxed);
        }
        has_room
    }

    /// Appends what there is to `target`, at most `limit`; how much that was.
    pub(crate) fn read(&mut self, target: &mut BytesMut, limit: usize) -> Result<usize, Broken> {
        let number = 1 - self.own;
        let way = self.memory.way(number);
        let written = way.written.0.load(Ordering::Acquire);
        let length = written.wrapping_sub(self.read);
        if length > RING_BYTES as u64 {
            return Err(Broken);
        }
        let length = limit.min(length as usize);
        if length == 0 {
            return Ok(0);
        }
        let (source, until_end) = self.memory.at(number, self.read);
        let (start, _) = self.memory.at(number, 0);
        let first = length.min(until_end);
        target.reserve(length);
        // SAFETY: both parts are within the ring, `target` has room for them, and both are bytes that the position says
        // are written. A peer that breaks RING-1 changes what is read, and is found out where that is parsed.
        unsafe {
            let room = target.spare_capacity_mut().as_mut_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(source, room, first);
            std::ptr::copy_nonoverlapping(start, room.add(first), length - first);
            target.set_len(target.len() + length);
        }
        self.read += length as u64;
        way.read.0.store(self.read, Ordering::Release);
        Ok(length)
    }

    /// After reading: whether the peer wants its bell for the room (RING-3).
    pub(crate) fn wakes_writer(&self) -> bool {
        take(&self.memory.way(1 - self.own).lacks_room.0)
    }
}

/// Whether a wish for the bell stands after what was done before; it is taken with that.
fn take(wish: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    wish.load(Ordering::Relaxed) != 0 && wish.swap(0, Ordering::Relaxed) != 0
}

/// Looks whether there is something to read, without reading it.
#[derive(Debug, Clone)]
pub struct Watch {
    memory: Arc<Memory>,
    way: usize,
}

impl Watch {
    /// Whether there is something to read.
    pub fn has_more(&self) -> bool {
        let way = self.memory.way(self.way);
        way.written.0.load(Ordering::Acquire) != way.read.0.load(Ordering::Relaxed)
    }

    /// Asks for the bell when there is something to read; `false` where there is by now (RING-3).
    pub fn sleep(&self) -> bool {
        let way = self.memory.way(self.way);
        way.sleeps.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let sleeps = !self.has_more();
        if !sleeps {
            way.sleeps.0.store(0, Ordering::Relaxed);
        }
        sleeps
    }

    /// Whether the bell was asked for and did not ring yet.
    pub fn sleeps(&self) -> bool {
        self.memory.way(self.way).sleeps.0.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> (Ring, Ring) {
        let (near, file) = Ring::make().expect("memory");
        (near, Ring::join(&file).expect("sealed"))
    }

    #[test]
    fn bytes_come_in_order_around_the_end_and_never_more_than_there_is_room_for() {
        let (mut near, mut far) = both();
        let bytes: Vec<u8> = (0..3 * RING_BYTES).map(|at| (at % 251) as u8).collect();
        let (mut sent, mut came) = (0, BytesMut::new());
        while came.len() < bytes.len() {
            let piece = bytes.len().min(sent + 100_003);
            let wrote = near.write(&bytes[sent..piece]).expect("sound");
            sent += wrote;
            assert!(sent - came.len() <= RING_BYTES);
            far.read(&mut came, RING_BYTES).expect("sound");
        }
        assert!(came == bytes);
        assert_eq!(far.read(&mut came, RING_BYTES), Ok(0));
    }

    #[test]
    fn the_bell_is_asked_for_once_and_never_where_there_is_something() {
        let (mut near, mut far) = both();
        let watch = far.watch();
        near.write(b"x").expect("sound");
        assert!(!near.wakes_reader() && watch.has_more());
        assert!(!watch.sleep(), "there is something to read");
        far.read(&mut BytesMut::new(), RING_BYTES).expect("sound");
        assert!(watch.sleep() && watch.sleeps());
        near.write(b"y").expect("sound");
        assert!(near.wakes_reader() && !near.wakes_reader() && !watch.sleeps());
    }

    #[test]
    fn a_full_ring_has_its_writer_told_of_room() {
        let (mut near, mut far) = both();
        assert_eq!(near.write(&vec![0; RING_BYTES + 1]), Ok(RING_BYTES));
        assert!(near.write(b"x") == Ok(0) && !near.ask_for_room() && !far.wakes_reader());
        far.read(&mut BytesMut::new(), RING_BYTES).expect("sound");
        assert!(far.wakes_writer() && !far.wakes_writer());
        assert!(near.ask_for_room() && near.write(b"x") == Ok(1));
    }

    #[test]
    fn what_was_not_read_for_the_limit_is_read_after() {
        let (mut near, mut far) = both();
        let bytes: Vec<u8> = (0..200).collect();
        near.write(&bytes).expect("sound");
        let mut came = BytesMut::new();
        let reads: Vec<usize> = (0..4).map(|_| far.read(&mut came, 90).expect("sound")).collect();
        assert_eq!((reads, &came[..]), (vec![90, 90, 20, 0], &bytes[..]));
    }

    #[test]
    fn positions_that_cannot_be_end_the_stream() {
        let (mut near, mut far) = both();
        near.memory.way(0).written.0.store(RING_BYTES as u64 + 1, Ordering::Release);
        near.memory.way(0).read.0.store(5, Ordering::Release);
        assert_eq!(far.read(&mut BytesMut::new(), RING_BYTES), Err(Broken));
        assert_eq!(near.write(&vec![0; RING_BYTES + 1]), Err(Broken), "it looks where room seems to be short");
    }

    #[test]
    fn a_file_that_may_shrink_is_refused() {
        let file = memfd_create(c"other", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
        ftruncate(&file, FILE_BYTES as u64).expect("room");
        assert_eq!(Ring::join(&file).err(), Some(Errno::INVAL));
    }

    #[test]
    fn nothing_is_lost_between_two_threads_that_sleep_for_each_other() {
        let (mut near, mut far) = both();
        let (bell, heard) = std::sync::mpsc::channel();
        let (room_bell, room_heard) = std::sync::mpsc::channel();
        let total = 40 * RING_BYTES;
        let writing = std::thread::spawn(move || {
            let mut left = total;
            while left > 0 {
                let wrote = near.write(&vec![7; left.min(1 + left % 5000)]).expect("sound");
                left -= wrote;
                if wrote > 0 && near.wakes_reader() {
                    bell.send(()).expect("heard");
                }
                if wrote == 0 && !near.ask_for_room() {
                    room_heard.recv().expect("told");
                }
            }
        });
        let (watch, mut came) = (far.watch(), 0);
        let mut target = BytesMut::new();
        while came < total {
            let read = far.read(&mut target, RING_BYTES).expect("sound");
            assert!(target.iter().all(|byte| *byte == 7));
            target.clear();
            came += read;
            if read > 0 && far.wakes_writer() {
                let _ = room_bell.send(());
            }
            if read == 0 && watch.sleep() && heard.recv().is_err() {
                break;
            }
        }
        writing.join().expect("done");
        far.read(&mut target, RING_BYTES).expect("sound");
        assert_eq!(came + target.len(), total);
    }
}
