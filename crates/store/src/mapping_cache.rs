//! The daemon's own mappings of segments, for objects that go to other nodes and come from there.
//!
//! To map a segment anew costs as much as to copy it, since the kernel goes from page to page. So mappings stay while
//! their segments go from object to object, but not more than a limit: what a process has mapped counts as its own where
//! the kernel, out of memory, looks for whom to end.

use crate::mapping::{Region, WriteMapping};
use crate::terms::{FileId, SegmentId};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// How many mappings are kept, whatever their size.
const KEPT_MAX: usize = 64;

/// Mappings, the one that was asked for last behind the others.
#[derive(Debug)]
pub(crate) struct MappingCache {
    limit_bytes: usize,
    kept: VecDeque<(SegmentId, Arc<WriteMapping>)>,
}

impl MappingCache {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, kept: VecDeque::new() }
    }

    /// The mapping of a segment, of which an object of `size` bytes is looked at; `map` maps its file where none of the
    /// segments that are kept is in it. It is kept even where it is larger than the limit, until the next one is asked for
    /// or [`MappingCache::trim`] is called.
    pub(crate) fn get(
        &mut self,
        segment: SegmentId,
        size: usize,
        map: impl FnOnce() -> io::Result<Region>,
    ) -> io::Result<Arc<WriteMapping>> {
        let mapping = match self.take(segment) {
            Some(mapping) if mapping.length() == size => mapping,
            _ => {
                let same_file = self.kept.iter().find(|(kept, _)| kept.file == segment.file);
                let region = match same_file {
                    Some((_, kept)) => Arc::clone(kept.region()),
                    None => Arc::new(map()?),
                };
                let mapping = WriteMapping::new(&region, segment.offset, size);
                Arc::new(mapping.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?)
            }
        };
        self.trim_to(self.limit_bytes.saturating_sub(mapping.length()), KEPT_MAX - 1);
        self.kept.push_back((segment, mapping.clone()));
        Ok(mapping)
    }

    /// The file is gone.
    pub(crate) fn forget(&mut self, file: FileId) {
        self.kept.retain(|(kept, _)| kept.file != file);
    }

    /// Drops those that were not asked for for longest, until the limit is held. One in use lives until its last user
    /// drops it.
    pub(crate) fn trim(&mut self) {
        self.trim_to(self.limit_bytes, KEPT_MAX);
    }

    fn take(&mut self, segment: SegmentId) -> Option<Arc<WriteMapping>> {
        let place = self.kept.iter().position(|(known, _)| *known == segment)?;
        self.kept.remove(place).map(|(_, mapping)| mapping)
    }

    fn trim_to(&mut self, limit_bytes: usize, limit: usize) {
        let mut bytes: usize = self.kept.iter().map(|(_, mapping)| mapping.length()).sum();
        while (bytes > limit_bytes || self.kept.len() > limit)
            && let Some((_, mapping)) = self.kept.pop_front()
        {
            bytes -= mapping.length();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::terms::Access;
    use std::os::fd::AsFd;

    const CAPACITY: u64 = 8192;
    const SIZE: usize = CAPACITY as usize;

    fn make(capacity: u64) -> io::Result<Region> {
        let memory = Memory::new(capacity)?;
        Region::map(memory.open(Access::ReadWrite)?.as_fd(), Access::ReadWrite, 0, capacity)
    }

    fn segment(file: u64) -> SegmentId {
        SegmentId { file: FileId(file), offset: 0 }
    }

    #[test]
    fn those_used_last_are_kept_up_to_the_limit() {
        let mut kept = MappingCache::new(2 * SIZE);
        let first = kept.get(segment(1), SIZE, || make(CAPACITY)).unwrap();
        kept.get(segment(2), SIZE, || make(CAPACITY)).unwrap();
        let again = kept.get(segment(1), SIZE, || panic!("it is there")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        kept.get(segment(3), SIZE, || make(CAPACITY)).unwrap();
        let mut is_made = false;
        kept.get(segment(2), SIZE, || {
            is_made = true;
            make(CAPACITY)
        })
        .unwrap();
        assert!(is_made, "the first one was used since");
    }

    #[test]
    fn one_beyond_the_limit_is_kept_while_it_is_the_last() {
        let mut kept = MappingCache::new(SIZE);
        let large = kept.get(segment(1), 2 * SIZE, || make(2 * CAPACITY)).unwrap();
        assert_eq!(Arc::strong_count(&large), 2);
        kept.trim();
        assert_eq!(Arc::strong_count(&large), 1);
        let small = kept.get(segment(2), SIZE, || make(CAPACITY)).unwrap();
        kept.forget(FileId(2));
        assert_eq!(Arc::strong_count(&small), 1);
    }
}
