//! Memory files: made, opened for clients, given back.

use crate::terms::Access;
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod, fcntl_add_seals, ftruncate, memfd_create,
    open,
};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// One memory file. Its size is fixed for ever, so that no mapping of it can fault; it takes memory where it was written to.
#[derive(Debug)]
pub(crate) struct Memory {
    file: Arc<File>,
    bytes: u64,
}

impl Memory {
    pub(crate) fn new(bytes: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = match memfd_create(c"oxiray-object", flags | MemfdFlags::NOEXEC_SEAL) {
            // Kernels before 6.3 do not know of memory files that cannot be executed.
            Err(Errno::INVAL) => memfd_create(c"oxiray-object", flags)?,
            made => made?,
        };
        ftruncate(&descriptor, bytes)?;
        // Whoever has a descriptor for reading does not open the file anew for writing by mistake.
        fchmod(&descriptor, Mode::RUSR)?;
        fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { file: Arc::new(File::from(descriptor)), bytes })
    }

    /// The file, for the thread that copies it to and from disk.
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A descriptor for a client.
    pub(crate) fn open(&self, access: Access) -> io::Result<OwnedFd> {
        open_as(&self.file, access)
    }

    /// Gives the pages of a part back at once, though clients may still have the file mapped.
    pub(crate) fn discard(&self, offset: u64, bytes: u64) {
        // A kernel that cannot punch holes gives the pages back when the last mapping goes.
        let _ = fallocate(&*self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes);
    }
}

/// A descriptor of a file that this process may read and write.
pub(crate) fn open_as(file: &File, access: Access) -> io::Result<OwnedFd> {
    match access {
        Access::ReadWrite => Ok(file.try_clone()?.into()),
        // Only another opening has another mode: a duplicate would be as writable as this one.
        Access::ReadOnly => {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fcntl_get_seals;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn a_memory_file_keeps_its_size() {
        let memory = Memory::new(1 << 20).unwrap();
        assert!(memory.file.set_len(0).is_err());
        assert!(memory.file.set_len(2 << 20).is_err());
        assert!(fcntl_get_seals(&memory.file).unwrap().contains(SealFlags::SEAL));
    }

    #[test]
    fn readers_cannot_write() {
        let memory = Memory::new(4096).unwrap();
        let reader = File::from(memory.open(Access::ReadOnly).unwrap());
        let writer = File::from(memory.open(Access::ReadWrite).unwrap());
        assert!(reader.write_at(b"x", 0).is_err());
        assert_eq!(reader.metadata().unwrap().mode() & 0o777, 0o400);
        writer.write_at(b"x", 0).unwrap();
        let mut byte = [0];
        reader.read_at(&mut byte, 0).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn discarding_gives_pages_back_under_open_descriptors() {
        let memory = Memory::new(1 << 20).unwrap();
        let reader = File::from(memory.open(Access::ReadOnly).unwrap());
        memory.file.write_at(&vec![1; 1 << 20], 0).unwrap();
        assert_eq!(reader.metadata().unwrap().blocks() * 512, 1 << 20);
        memory.discard(4096, 8192);
        assert_eq!(reader.metadata().unwrap().blocks() * 512, (1 << 20) - 8192);
        let mut byte = [0];
        reader.read_at(&mut byte, 4095).unwrap();
        assert_eq!(byte, [1]);
        memory.discard(0, 1 << 20);
        assert_eq!(reader.metadata().unwrap().blocks(), 0);
    }
}
