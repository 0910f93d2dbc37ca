//! A client's mappings, kept from object to object so that pages are touched once.

use crate::mapping::{ReadMapping, WriteMapping};
use crate::terms::{Access, SegmentId};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

#[derive(Debug, Default)]
struct Mapped {
    read: Option<Arc<ReadMapping>>,
    write: Option<Arc<WriteMapping>>,
}

impl Mapped {
    fn in_use(&self) -> bool {
        self.read.as_ref().is_some_and(|mapping| Arc::strong_count(mapping) > 1)
            || self.write.as_ref().is_some_and(|mapping| Arc::strong_count(mapping) > 1)
    }
}

/// The segments that a client has mapped. The daemon sends a segment's descriptor once per access and counts on the
/// client to keep the mapping until it says that the segment is retired.
#[derive(Debug, Default)]
pub struct SegmentCache {
    mapped: BTreeMap<SegmentId, Mapped>,
}

impl SegmentCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps a descriptor that the daemon sent.
    pub fn insert(
        &mut self,
        segment: SegmentId,
        access: Access,
        descriptor: &OwnedFd,
        capacity: u64,
    ) -> io::Result<()> {
        let (mut read, mut write) = (None, None);
        match access {
            Access::ReadOnly => read = Some(Arc::new(ReadMapping::new(descriptor.as_fd(), capacity)?)),
            Access::ReadWrite => write = Some(Arc::new(WriteMapping::new(descriptor.as_fd(), capacity)?)),
        }
        let mapped = self.mapped.entry(segment).or_default();
        mapped.read = read.or(mapped.read.take());
        mapped.write = write.or(mapped.write.take());
        Ok(())
    }

    /// The segment mapped for reading.
    pub fn reader(&self, segment: SegmentId) -> Option<Arc<ReadMapping>> {
        self.mapped.get(&segment)?.read.clone()
    }

    /// The segment mapped for writing.
    pub fn writer(&self, segment: SegmentId) -> Option<Arc<WriteMapping>> {
        self.mapped.get(&segment)?.write.clone()
    }

    /// The daemon retired the segment. A mapping in use lives until its last user drops it.
    pub fn retire(&mut self, segment: SegmentId) {
        self.mapped.remove(&segment);
    }

    /// Drops mappings that nobody uses, the oldest segments first and `spared` never, until at most `keep` segments are
    /// mapped, and tells which: the daemon must hear of each (`Store::mapping_dropped`) before this client asks it for anything else.
    /// The kernel limits the mappings of a process (65,530 by default).
    pub fn trim(&mut self, keep: usize, spared: SegmentId) -> Vec<SegmentId> {
        let surplus = self.mapped.len().saturating_sub(keep);
        if surplus == 0 {
            return Vec::new();
        }
        let idle = self.mapped.iter().filter(|(segment, mapped)| **segment != spared && !mapped.in_use());
        let dropped: Vec<SegmentId> = idle.map(|(&segment, _)| segment).take(surplus).collect();
        for segment in &dropped {
            self.mapped.remove(segment);
        }
        dropped
    }

    /// How many segments are mapped.
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

    fn insert(cache: &mut SegmentCache, segment: u64, memory: &Memory, access: Access) {
        cache.insert(SegmentId(segment), access, &memory.open(access).unwrap(), CAPACITY).unwrap();
    }

    #[test]
    fn what_one_mapping_writes_the_other_reads() {
        let (memory, mut cache) = (Memory::new(CAPACITY).unwrap(), SegmentCache::new());
        insert(&mut cache, 1, &memory, Access::ReadWrite);
        assert!(cache.reader(SegmentId(1)).is_none());
        insert(&mut cache, 1, &memory, Access::ReadOnly);
        cache.writer(SegmentId(1)).unwrap().edit(|bytes| bytes[4096..4101].copy_from_slice(b"hello"));
        let reader = cache.reader(SegmentId(1)).unwrap();
        assert_eq!(&reader.as_slice()[4096..4101], b"hello");
        assert_eq!(reader.as_slice().len(), CAPACITY as usize);
        assert_eq!(reader.as_slice().as_ptr() as usize % 64, 0);
    }

    #[test]
    fn a_retired_mapping_lives_until_its_last_user_drops_it() {
        let (memory, mut cache) = (Memory::new(CAPACITY).unwrap(), SegmentCache::new());
        insert(&mut cache, 1, &memory, Access::ReadWrite);
        let writer = cache.writer(SegmentId(1)).unwrap();
        cache.retire(SegmentId(1));
        assert!(cache.is_empty() && cache.writer(SegmentId(1)).is_none());
        writer.edit(|bytes| bytes[0] = 1);
    }

    #[test]
    fn trimming_spares_mappings_in_use() {
        let (memory, mut cache) = (Memory::new(CAPACITY).unwrap(), SegmentCache::new());
        for segment in 0..4 {
            insert(&mut cache, segment, &memory, Access::ReadOnly);
        }
        let used = cache.reader(SegmentId(0)).unwrap();
        assert_eq!(cache.trim(2, SegmentId(1)), [SegmentId(2), SegmentId(3)]);
        assert_eq!(cache.trim(0, SegmentId(9)), [SegmentId(1)]);
        assert_eq!(used.as_slice()[0], 0);
        drop(used);
        assert_eq!(cache.trim(0, SegmentId(9)), [SegmentId(0)]);
    }

    #[test]
    fn a_readers_descriptor_cannot_be_mapped_writable() {
        let memory = Memory::new(CAPACITY).unwrap();
        let descriptor = memory.open(Access::ReadOnly).unwrap();
        let refused = WriteMapping::new(descriptor.as_fd(), CAPACITY).unwrap_err();
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
        let refused = cache.insert(SegmentId(1), Access::ReadOnly, &descriptor, CAPACITY + 1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
