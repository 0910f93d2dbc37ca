//! Bytes from process to process through memory that both have: a stream that costs no system call.
//!
//! A memory file holds two rings, one for each direction. Whoever reads one may sleep, and is then woken by a byte on the
//! socket that both processes have besides, its *bell*.
//!
//! - RING-1: a ring has one writer and one reader. Each moves its own position and only looks at the other's.
//! - RING-2: what was written is read, though its writer died right after: the memory is both processes'.
//! - RING-3: nobody sleeps while there is something for it. The reader says that it sleeps and then looks once more; the
//!   writer writes and then looks whether the reader sleeps. The same holds for a writer that waits for room.
//!   `crates/models/src/ring.rs` tries every order of that.
//! - RING-4: whatever a peer does to the memory, the worst that comes of it is the stream's end: positions are kept here and
//!   checked, bytes are copied before they are looked at, and the file cannot be made smaller.

mod protocol;

/// What counts the positions; a model of the protocol has its own.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

use protocol::{Ends, SharedMemory, Watching, Way};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Bytes that one direction has room for; a power of two, and more than any value that travels with a message.
pub const RING_BYTES: usize = 128 << 10;
/// Where the first ring begins: behind the positions.
const HEAD_BYTES: usize = 4096;
const FILE_BYTES: usize = HEAD_BYTES + 2 * RING_BYTES;

/// The memory of both rings, mapped.
#[derive(Debug)]
pub(crate) struct Memory {
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

    /// Where a part of a ring begins.
    fn part(&self, ring: usize, offset: usize, length: usize) -> *mut u8 {
        // RING-4: whatever the positions say, nothing is touched but the ring's own bytes.
        let is_within = ring < 2 && offset <= RING_BYTES && length <= RING_BYTES - offset;
        assert!(is_within, "RING-4: {length} bytes at {offset} of ring {ring}");
        // SAFETY: the offset is within the ring, and the ring within the mapping.
        unsafe { self.start.cast::<u8>().add(HEAD_BYTES + ring * RING_BYTES + offset) }
    }
}

// SAFETY: `take` copies as many bytes as its target has.
unsafe impl SharedMemory for Memory {
    const BYTES: usize = RING_BYTES;

    fn way(&self, ring: usize) -> &Way {
        const { assert!(2 * size_of::<Way>() <= HEAD_BYTES && align_of::<Way>() <= HEAD_BYTES) };
        assert!(ring < 2, "RING-4: there are two rings");
        // SAFETY: the mapping begins at a page and holds two of them; they consist of atomics alone, for which any bits
        // are valid, whoever writes them.
        unsafe { &*self.start.cast::<Way>().add(ring) }
    }

    fn put(&self, ring: usize, offset: usize, bytes: &[u8]) {
        let target = self.part(ring, offset, bytes.len());
        // SAFETY: the part is within the mapping, which no memory of this process's own overlaps.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    }

    fn take(&self, ring: usize, offset: usize, target: &mut [MaybeUninit<u8>]) {
        let source = self.part(ring, offset, target.len());
        // SAFETY: the part is within the mapping, which no memory of this process's own overlaps.
        unsafe { std::ptr::copy_nonoverlapping(source, target.as_mut_ptr().cast(), target.len()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and nothing that points into it outlives it.
        let unmapped = unsafe { munmap(self.start, FILE_BYTES) };
        // At the limit of mappings it may be refused (`ENOMEM`), which only leaves the memory mapped.
        assert!(matches!(unmapped, Ok(()) | Err(Errno::NOMEM)), "the range of a mapping is valid");
    }
}

/// One process's end of both rings.
pub(crate) type Ring = Ends<Memory>;

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
        Ok((Self::over(Arc::new(Memory::map(&file)?), 0), file))
    }

    /// The rings that a peer made.
    pub(crate) fn join(file: &OwnedFd) -> Result<Self, Errno> {
        // RING-4: a file that shrinks under its mapping would kill who reads it.
        let is_fixed = fcntl_get_seals(file.as_fd())?.contains(SealFlags::SHRINK);
        if !is_fixed || fstat(file)?.st_size != FILE_BYTES as i64 {
            return Err(Errno::INVAL);
        }
        Ok(Self::over(Arc::new(Memory::map(file)?), 1))
    }

    /// Looks at the ring that is read here, from any thread.
    pub(crate) fn watch(&self) -> Watch {
        Watch(self.watching())
    }
}

/// Looks whether there is something to read, without reading it.
#[derive(Debug, Clone)]
pub struct Watch(Watching<Memory>);

impl Watch {
    /// Whether there is something to read.
    pub fn has_more(&self) -> bool {
        self.0.has_more()
    }

    /// Asks for the bell when there is something to read; `false` where there is by now (RING-3).
    pub fn sleep(&self) -> bool {
        self.0.sleep()
    }

    /// Whether the bell was asked for and did not ring yet.
    pub fn sleeps(&self) -> bool {
        self.0.sleeps()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]
mod tests {
    use super::atomic::Ordering;
    use super::protocol::Broken;
    use super::*;
    use bytes::BytesMut;
    use proptest::prelude::*;

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

    /// What a process does that means harm, to what its peer looks at next.
    #[derive(Debug, Clone)]
    enum Harm {
        Written(u64),
        Read(u64),
        Wishes(u32, u32),
        Bytes(usize, u8),
        /// What an honest one does, so that the others are not refused at once.
        Reads(usize),
        Writes(usize),
    }

    fn harm() -> impl Strategy<Value = Harm> {
        let ring = RING_BYTES as u64;
        // Around what can be, where mistakes would lie, and anything.
        let position = prop_oneof![0..4 * ring, (0..2 * ring).prop_map(|below| u64::MAX - below), any::<u64>()];
        let size = 0..2 * RING_BYTES;
        prop_oneof![
            position.clone().prop_map(Harm::Written),
            position.prop_map(Harm::Read),
            (any::<u32>(), any::<u32>()).prop_map(|(sleeps, lacks_room)| Harm::Wishes(sleeps, lacks_room)),
            (0..RING_BYTES, any::<u8>()).prop_map(|(at, byte)| Harm::Bytes(at, byte)),
            size.clone().prop_map(Harm::Reads),
            size.prop_map(Harm::Writes),
        ]
    }

    proptest! {
        /// RING-4: [`Memory::part`] asserts that nothing beside a ring is touched.
        #[test]
        fn no_peer_does_more_harm_than_to_end_the_stream(
            harms in proptest::collection::vec((harm(), 0..2 * RING_BYTES, 0..2 * RING_BYTES), 1..40),
        ) {
            let (mut near, mut far) = both();
            let (watch, mut came) = (near.watch(), BytesMut::new());
            for (harm, wanted, limit) in harms {
                match harm {
                    Harm::Written(to) => far.memory.way(1).written.0.store(to, Ordering::Release),
                    Harm::Read(to) => far.memory.way(0).read.0.store(to, Ordering::Release),
                    Harm::Wishes(sleeps, lacks_room) => {
                        for ring in 0..2 {
                            far.memory.way(ring).sleeps.0.store(sleeps, Ordering::Relaxed);
                            far.memory.way(ring).lacks_room.0.store(lacks_room, Ordering::Relaxed);
                        }
                    }
                    Harm::Bytes(at, byte) => far.memory.put(1, at, &[byte]),
                    Harm::Reads(limit) => drop(far.read(&mut BytesMut::new(), limit)),
                    Harm::Writes(size) => drop(far.write(&vec![1; size])),
                }
                came.clear();
                let read = near.read(&mut came, limit);
                prop_assert!(read.is_err() || read == Ok(came.len()));
                prop_assert!(came.len() <= limit.min(RING_BYTES));
                let wrote = near.write(&vec![2; wanted]);
                prop_assert!(wrote.is_err() || wrote.is_ok_and(|count| count <= wanted.min(RING_BYTES)));
                near.wakes_reader();
                near.wakes_writer();
                near.ask_for_room();
                prop_assert!(!watch.sleep() || watch.sleeps() && !watch.has_more());
            }
        }
    }
}
