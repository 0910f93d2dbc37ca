//! Segments mapped into a client.
//!
//! The kernel keeps a reader's mapping read-only and a segment's size fixed, so that no access within a mapping can
//! fault. That bytes do not change under a reader is STORE-3, which clients keep by pinning what they read and by
//! writing only what they create.

use rustix::fs::fstat;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Mappings from here on ask for huge pages.
const HUGE_FROM: usize = 2 << 20;
const PAGE: usize = 4096;

#[derive(Debug)]
struct Region {
    start: *mut u8,
    length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Region {}
// SAFETY: `ReadMapping` only reads through the pointer, and `WriteMapping` uses it under its lock.
unsafe impl Sync for Region {}

impl Region {
    fn map(descriptor: BorrowedFd<'_>, capacity: u64, protection: ProtFlags) -> io::Result<Self> {
        let length = usize::try_from(capacity).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let actual = u64::try_from(fstat(descriptor)?.st_size).unwrap_or(0);
        if length == 0 || actual < capacity {
            let text = format!("a mapping of {capacity} bytes was asked for of a memory file of {actual}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // Not populated beforehand: measured, touching pages all at once is no faster than touching them as they are
        // written, and a pooled segment has them already.
        // SAFETY: the kernel chooses the place, so that nothing of this process is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, descriptor, 0)? };
        if length >= HUGE_FROM {
            // SAFETY: the range is the mapping made above, and the advice changes no bytes. Where the machine has no
            // huge pages for shared memory, it is refused.
            let _ = unsafe { madvise(start, length, Advice::LinuxHugepage) };
        }
        Ok(Self { start: start.cast(), length })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and no slice outlives its mapping.
        let unmapped = unsafe { munmap(self.start.cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "the range of a mapping is valid");
    }
}

/// A segment mapped for reading.
#[derive(Debug)]
pub struct ReadMapping(Region);

impl ReadMapping {
    /// Maps the first `capacity` bytes.
    pub fn new(descriptor: BorrowedFd<'_>, capacity: u64) -> io::Result<Self> {
        Region::map(descriptor, capacity, ProtFlags::READ).map(Self)
    }

    /// All bytes of the segment. Only those of an object that this client has pinned mean anything, and only these are
    /// sure not to change.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the range is mapped readable as long as `self` lives; by STORE-3 nobody writes what is looked at.
        unsafe { std::slice::from_raw_parts(self.0.start, self.0.length) }
    }
}

/// A segment mapped for writing.
#[derive(Debug)]
pub struct WriteMapping {
    region: Region,
    writing: Mutex<()>,
    /// Up to here pages were touched.
    touched: AtomicUsize,
}

impl WriteMapping {
    /// Maps the first `capacity` bytes.
    pub fn new(descriptor: BorrowedFd<'_>, capacity: u64) -> io::Result<Self> {
        let region = Region::map(descriptor, capacity, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self { region, writing: Mutex::new(()), touched: AtomicUsize::new(0) })
    }

    /// How many bytes are mapped.
    pub(crate) fn length(&self) -> usize {
        self.region.length
    }

    /// Has the kernel map the pages of a part that is about to be used, those that were used before excepted. For a
    /// mapping that is used once from its beginning to its end: one by one, as they are first written to, pages of a
    /// segment that has them already cost several times as much.
    pub fn touch(&self, part: Range<usize>) {
        let start = part.start.max(self.touched.load(Ordering::Relaxed)) / PAGE * PAGE;
        let end = part.end.next_multiple_of(PAGE).min(self.region.length);
        if start < end {
            // SAFETY: the range is within the mapping, and the advice changes no bytes. A kernel that does not know it
            // refuses it, and maps pages as they are used.
            let _ = unsafe { madvise(self.region.start.add(start).cast(), end - start, Advice::LinuxPopulateRead) };
            self.touched.store(end, Ordering::Relaxed);
        }
    }

    /// Lets `write` fill the segment, which holds whatever its last object left. Only between
    /// [`crate::Event::Created`] and the seal; one thread at a time, others wait.
    pub fn edit<R>(&self, write: impl FnOnce(&mut [u8]) -> R) -> R {
        // A panic in `write` leaves bytes half written, as any unsealed object's may be.
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the range is mapped writable as long as `self` lives, and the lock makes this the only slice of it.
        write(unsafe { std::slice::from_raw_parts_mut(self.region.start, self.region.length) })
    }
}
