//! A client's mappings, kept from object to object so that pages are touched once.

use crate::mapping::{ReadMapping, Region, WriteMapping};
use crate::terms::{Access, Extent, FileId, SegmentId};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

#[derive(Debug, Default)]
struct Mapped {
    read: Option<Arc<Region>>,
    write: Option<Arc<Region>>,
}

impl Mapped {
    fn in_use(&self) -> bool {
        [&self.read, &self.write].into_iter().flatten().any(|region| Arc::strong_count(region) > 1)
    }
}

/// The files that a client has mapped. The daemon sends a file's descriptor once per access and counts on the client to
/// keep the mapping until it says that the file is retired.
#[derive(Debug, Default)]
pub struct SegmentCache {
    mapped: BTreeMap<FileId, Mapped>,
    keeps_descriptors: bool,
}

impl SegmentCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is mapped for reading from now on may be mapped once more ([`ReadMapping::private`]), for which descriptors stay
    /// open.
    pub fn keep_descriptors(&mut self) {
        self.keeps_descriptors = true;
    }

    /// The files are another store's from now on. A mapping in use lives until its last user drops it.
    pub fn forget_all(&mut self) {
        self.mapped.clear();
    }

    /// Maps a range of a descriptor that the daemon sent.
    pub fn insert(&mut self, file: FileId, access: Access, descriptor: &OwnedFd, range: Extent) -> io::Result<()> {
        let mut region = Region::map(descriptor.as_fd(), access, range.base, range.bytes)?;
        if self.keeps_descriptors && access == Access::ReadOnly {
            region.keep(descriptor.as_fd(), range.base);
        }
        let region = Arc::new(region);
        let mapped = self.mapped.entry(file).or_default();
        match access {
            Access::ReadOnly => mapped.read = Some(region),
            Access::ReadWrite => mapped.write = Some(region),
        }
        Ok(())
    }

    /// An object of `size` bytes, mapped for reading; nothing where its file is not.
    pub fn reader(&self, segment: SegmentId, size: usize) -> Option<ReadMapping> {
        ReadMapping::new(self.mapped.get(&segment.file)?.read.as_ref()?, segment.offset, size)
    }

    /// Room for an object of `size` bytes, mapped for writing; nothing where its file is not.
    pub fn writer(&self, segment: SegmentId, size: usize) -> Option<WriteMapping> {
        WriteMapping::new(self.mapped.get(&segment.file)?.write.as_ref()?, segment.offset, size)
    }

    /// The daemon retired the file. A mapping in use lives until its last user drops it.
    pub fn retire(&mut self, file: FileId) {
        self.mapped.remove(&file);
    }

    /// Drops mappings that nobody uses, the oldest files first and `spared` never, until at most `keep` files are mapped,
    /// and tells which: the daemon must hear of each (`Store::mapping_dropped`) before this client asks it for anything
    /// else. The kernel limits the mappings of a process (65,530 by default).
    pub fn trim(&mut self, keep: usize, spared: FileId) -> Vec<FileId> {
        let surplus = self.mapped.len().saturating_sub(keep);
        if surplus == 0 {
            return Vec::new();
        }
        let idle = self.mapped.iter().filter(|(file, mapped)| **file != spared && !mapped.in_use());
        let dropped: Vec<FileId> = idle.map(|(&file, _)| file).take(surplus).collect();
        for file in &dropped {
            self.mapped.remove(file);
        }
        dropped
    }

    /// How many files are mapped.
    pub fn len(&self) -> usize {
        self.mapped.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.mapped.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect};

    const CAPACITY: u64 = 8192;

    const ALL: Extent = Extent { base: 0, bytes: CAPACITY };

    fn insert(cache: &mut SegmentCache, file: u64, memory: &Memory, access: Access) {
        cache.insert(FileId(file), access, &memory.open(access).unwrap(), ALL).unwrap();
    }

    fn at(file: u64, offset: u64) -> SegmentId {
        SegmentId { file: FileId(file), offset }
    }

    #[test]
    fn what_one_mapping_writes_the_other_reads() {
        let (memory, mut cache) = (Memory::new(CAPACITY).unwrap(), SegmentCache::new());
        insert(&mut cache, 1, &memory, Access::ReadWrite);
        assert!(cache.reader(at(1, 0), 1).is_none());
        insert(&mut cache, 1, &memory, Access::ReadOnly);
        cache.writer(at(1, 4096), 5).unwrap().edit(|bytes| bytes.copy_from_slice(b"hello"));
        let reader = cache.reader(at(1, 4096), 4096).unwrap();
        assert_eq!(&reader.as_slice()[..5], b"hello");
        assert_eq!(reader.as_slice().len(), 4096);
        assert!(cache.reader(at(1, 4096), 4097).is_none() && cache.writer(at(1, u64::MAX), 2).is_none());
        assert_eq!(reader.as_slice().as_ptr() as usize % 64, 0);
    }

    #[test]
    fn a_private_mapping_has_the_bytes_and_keeps_what_is_written_to_itself() {
        const LARGE: u64 = 2 << 20;
        let (memory, mut cache) = (Memory::new(LARGE).unwrap(), SegmentCache::new());
        let all = Extent { base: 0, bytes: LARGE };
        cache.keep_descriptors();
        for access in [Access::ReadWrite, Access::ReadOnly] {
            cache.insert(FileId(1), access, &memory.open(access).unwrap(), all).unwrap();
        }
        let size = LARGE as usize - 4096;
        let writer = cache.writer(at(1, 4096), size).unwrap();
        writer.edit(|bytes| bytes.fill(7));
        let reader = cache.reader(at(1, 4096), size).unwrap();
        let range = 100..size - 9;
        let private = reader.private(range.clone()).unwrap().expect("its descriptor is kept");
        assert_eq!(private.length(), range.len());
        // SAFETY: the memory is mapped for writing as long as `private` lives, and nothing else refers to it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(private.address(), private.length()) };
        assert!(bytes.iter().all(|byte| *byte == 7));
        bytes[0] = 1;
        assert_eq!((reader.as_slice()[100], bytes[0], bytes[1]), (7, 1, 7), "nobody else sees what is written");
        drop((cache, reader));
        assert_eq!(bytes[range.len() - 1], 7, "it lives by itself");
    }

    #[test]
    fn small_files_are_mapped_once_and_so_are_all_where_nobody_asked_for_more() {
        for (keeps, bytes) in [(true, CAPACITY), (false, 2 << 20)] {
            let (memory, mut cache) = (Memory::new(bytes).unwrap(), SegmentCache::new());
            if keeps {
                cache.keep_descriptors();
            }
            let all = Extent { base: 0, bytes };
            cache.insert(FileId(1), Access::ReadOnly, &memory.open(Access::ReadOnly).unwrap(), all).unwrap();
            assert!(cache.reader(at(1, 0), 4096).unwrap().private(0..4096).unwrap().is_none());
        }
    }

    #[test]
    fn a_retired_mapping_lives_until_its_last_user_drops_it() {
        let (memory, mut cache) = (Memory::new(CAPACITY).unwrap(), SegmentCache::new());
        insert(&mut cache, 1, &memory, Access::ReadWrite);
        let writer = cache.writer(at(1, 0), 1).unwrap();
        cache.retire(FileId(1));
        assert!(cache.is_empty() && cache.writer(at(1, 0), 1).is_none());
        writer.edit(|bytes| bytes[0] = 1);
    }

    #[test]
    fn trimming_spares_mappings_in_use() {
        let (memory, mut cache) = (Memory::new(CAPACITY).unwrap(), SegmentCache::new());
        for segment in 0..4 {
            insert(&mut cache, segment, &memory, Access::ReadOnly);
        }
        let used = cache.reader(at(0, 0), 1).unwrap();
        assert_eq!(cache.trim(2, FileId(1)), [FileId(2), FileId(3)]);
        assert_eq!(cache.trim(0, FileId(9)), [FileId(1)]);
        assert_eq!(used.as_slice()[0], 0);
        drop(used);
        assert_eq!(cache.trim(0, FileId(9)), [FileId(0)]);
    }

    #[test]
    fn a_readers_descriptor_cannot_be_mapped_writable() {
        let memory = Memory::new(CAPACITY).unwrap();
        let descriptor = memory.open(Access::ReadOnly).unwrap();
        let refused = Region::map(descriptor.as_fd(), Access::ReadWrite, 0, CAPACITY).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let length = CAPACITY as usize;
        // SAFETY: the kernel chooses the place of the mapping; nothing reads it.
        let start =
            unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, &descriptor, 0) }.unwrap();
        // SAFETY: the range is the mapping made above.
        let later = unsafe { mprotect(start, length, MprotectFlags::READ | MprotectFlags::WRITE) };
        assert_eq!(later, Err(rustix::io::Errno::ACCESS));
        // SAFETY: the range is the mapping made above, and nothing refers to it.
        unsafe { rustix::mm::munmap(start, length) }.unwrap();
    }

    #[test]
    fn a_capacity_beyond_the_file_is_refused_instead_of_faulting() {
        let memory = Memory::new(CAPACITY).unwrap();
        let descriptor = memory.open(Access::ReadOnly).unwrap();
        let mut cache = SegmentCache::new();
        let refused =
            cache.insert(FileId(1), Access::ReadOnly, &descriptor, Extent { base: 4096, bytes: CAPACITY }).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
