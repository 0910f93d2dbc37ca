//! Files mapped into a client, and the parts of them that are objects.
//!
//! The kernel keeps a reader's mapping read-only and a memory file's size fixed, so that no access within a mapping can
//! fault. That bytes do not change under a reader is STORE-3, which clients keep by pinning what they read and by
//! writing only what they create.

use crate::terms::Access;
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Mappings from here on ask for huge pages.
const HUGE_FROM: usize = 2 << 20;
const PAGE: usize = 4096;

/// Files that are mapped for reading from this size on may be mapped once more, by [`ReadMapping::private`].
const KEPT_FROM: usize = 1 << 20;
/// Of how many files a process keeps the descriptors for that.
const KEPT_MAX: usize = 128;
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// A descriptor that is kept beside a mapping, one of [`KEPT_MAX`].
#[derive(Debug)]
struct Kept {
    descriptor: OwnedFd,
    /// Where the mapping begins in the file.
    base: u64,
}

impl Kept {
    /// Nothing where there are enough, or no more descriptors.
    fn of(descriptor: BorrowedFd<'_>, base: u64) -> Option<Self> {
        let count = |kept: usize| (kept < KEPT_MAX).then_some(kept + 1);
        KEPT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).ok()?;
        let Ok(descriptor) = descriptor.try_clone_to_owned() else {
            KEPT.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        Some(Self { descriptor, base })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Region {
    start: *mut u8,
    length: usize,
    kept: Option<Kept>,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Region {}
// SAFETY: `ReadMapping` only reads through the pointer, and `WriteMapping` uses its part under its lock.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes` of a file from `base` on, which is a multiple of a page.
    pub(crate) fn map(descriptor: BorrowedFd<'_>, access: Access, base: u64, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let actual = u64::try_from(fstat(descriptor)?.st_size).unwrap_or(0);
        if length == 0 || base.checked_add(bytes).is_none_or(|end| end > actual) {
            let text = format!("a mapping of {bytes} bytes from {base} on was asked for of a file of {actual}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // Not populated beforehand: measured, touching pages all at once is no faster than touching them as they are
        // written, and a pooled segment has them already.
        let protection = match access {
            Access::ReadOnly => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: the kernel chooses the place, so that nothing of this process is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, descriptor, base)? };
        if length >= HUGE_FROM {
            // SAFETY: the range is the mapping made above, and the advice changes no bytes. Where the machine has no
            // huge pages for shared memory, it is refused.
            let _ = unsafe { madvise(start, length, Advice::LinuxHugepage) };
        }
        Ok(Self { start: start.cast(), length, kept: None })
    }

    /// Keeps the descriptor of a file that was mapped from `base` on, if it is large.
    pub(crate) fn keep(&mut self, descriptor: BorrowedFd<'_>, base: u64) {
        if self.length >= KEPT_FROM {
            self.kept = Kept::of(descriptor, base);
        }
    }

    fn part(&self, offset: u64, size: usize) -> Option<Range<usize>> {
        let start = usize::try_from(offset).ok()?;
        start.checked_add(size).filter(|&end| end <= self.length).map(|end| start..end)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and no slice outlives its mapping.
        let unmapped = unsafe { munmap(self.start.cast(), self.length) };
        // A process at its limit of mappings is refused where this one lies within a merged one (`ENOMEM`): that only leaves
        // the memory mapped. Any other error says that the range is none of ours.
        assert!(matches!(unmapped, Ok(()) | Err(Errno::NOMEM)), "the range of a mapping is valid");
    }
}

/// An object's part of a file that is mapped for reading.
#[derive(Debug)]
pub struct ReadMapping {
    region: Arc<Region>,
    part: Range<usize>,
}

impl ReadMapping {
    /// Nothing where the part is not within the mapping.
    pub(crate) fn new(region: &Arc<Region>, offset: u64, size: usize) -> Option<Self> {
        Some(Self { part: region.part(offset, size)?, region: Arc::clone(region) })
    }

    /// The object's bytes. They are sure not to change while this client has the object pinned, and mean nothing otherwise.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the part is within the mapping, which is readable as long as `self` lives; by STORE-3 nobody writes what
        // is looked at.
        unsafe { std::slice::from_raw_parts(self.region.start.add(self.part.start), self.part.len()) }
    }
}

impl ReadMapping {
    /// Memory that holds these of the object's bytes and belongs to whoever asked: what is written to it is seen by nobody
    /// else. Pages that are not written to are the object's own, so that it has to stay pinned meanwhile. Nothing where the
    /// file's descriptor was not kept.
    ///
    /// # Errors
    /// Where the kernel refuses another mapping.
    pub fn private(&self, bytes: Range<usize>) -> io::Result<Option<PrivateMapping>> {
        assert!(bytes.start <= bytes.end && bytes.end <= self.part.len(), "{bytes:?} of an object");
        let Some(kept) = self.region.kept.as_ref().filter(|_| !bytes.is_empty()) else { return Ok(None) };
        let (from, to) = (self.part.start + bytes.start, self.part.start + bytes.end);
        let first = from / PAGE * PAGE;
        let length = to - first;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let base = kept.base + first as u64;
        // SAFETY: the kernel chooses the place. The range lies in the file, for the region does.
        let start =
            unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::PRIVATE, &kept.descriptor, base)? };
        Ok(Some(PrivateMapping { region: Region { start: start.cast(), length, kept: None }, offset: from - first }))
    }
}

/// A copy of a part of an object, of which the kernel makes the pages that are written to.
#[derive(Debug)]
pub struct PrivateMapping {
    region: Region,
    offset: usize,
}

impl PrivateMapping {
    /// Where its bytes begin.
    pub fn address(&self) -> *mut u8 {
        // SAFETY: the offset is less than a page, of which there is at least one byte.
        unsafe { self.region.start.add(self.offset) }
    }

    /// How many they are.
    pub fn length(&self) -> usize {
        self.region.length - self.offset
    }
}

/// An object's part of a file that is mapped for writing.
#[derive(Debug)]
pub struct WriteMapping {
    region: Arc<Region>,
    part: Range<usize>,
    writing: Mutex<()>,
    /// Up to here pages were touched.
    touched: AtomicUsize,
}

impl WriteMapping {
    /// Nothing where the part is not within the mapping.
    pub(crate) fn new(region: &Arc<Region>, offset: u64, size: usize) -> Option<Self> {
        let part = region.part(offset, size)?;
        Some(Self { part, region: Arc::clone(region), writing: Mutex::new(()), touched: AtomicUsize::new(0) })
    }

    /// How many bytes this is.
    pub(crate) fn length(&self) -> usize {
        self.part.len()
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Has the kernel map the pages of a range of the part that is about to be used, those that were used before excepted.
    /// For one that is used once from its beginning to its end: one by one, as they are first written to, pages of a
    /// segment that has them already cost several times as much.
    pub fn touch(&self, range: Range<usize>) {
        let start = range.start.max(self.touched.load(Ordering::Relaxed)) / PAGE * PAGE;
        let end = range.end.next_multiple_of(PAGE).min(self.part.len());
        if start < end {
            // SAFETY: the range is within the mapping, and the advice changes no bytes. A kernel that does not know it
            // refuses it, and maps pages as they are used.
            let _ = unsafe {
                let from = self.region.start.add(self.part.start + start);
                madvise(from.cast(), end - start, Advice::LinuxPopulateRead)
            };
            self.touched.store(end, Ordering::Relaxed);
        }
    }

    /// Lets `write` fill the part, which holds whatever its last object left. Only between [`crate::Event::Created`] and
    /// the seal; one thread at a time, others wait.
    pub fn edit<R>(&self, write: impl FnOnce(&mut [u8]) -> R) -> R {
        // A panic in `write` leaves bytes half written, as any unsealed object's may be.
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the part is within the mapping, which is writable as long as `self` lives. By STORE-2 nobody else was
        // given the segment, and the lock makes this the only slice of it here.
        write(unsafe { std::slice::from_raw_parts_mut(self.region.start.add(self.part.start), self.part.len()) })
    }
}
