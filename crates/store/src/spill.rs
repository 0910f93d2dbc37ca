//! The thread that copies objects to disk and back.
//!
//! Spilled files have no name: a process that dies leaves none behind (STORE-5).

use crate::book::{JobId, JobResult};
use crate::checksum::Checksum;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, openat, unlinkat};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

/// Bytes copied in one step.
const STEP: usize = 1 << 20;

/// A spilled object.
#[derive(Debug, Clone)]
pub(crate) struct SpilledFile {
    file: Arc<File>,
    size: u64,
    checksum: u32,
}

/// A copy to be made.
#[derive(Debug)]
pub(crate) enum Copy {
    ToDisk {
        memory: Arc<File>,
        size: u64,
    },
    FromDisk {
        memory: Arc<File>,
        spilled: SpilledFile,
    },
    /// No copy: reads the file and compares its checksum.
    Check {
        spilled: SpilledFile,
    },
}

impl SpilledFile {
    /// A descriptor for a client to read the file by.
    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }
}

/// What came of a copy; the file where it went to disk.
pub(crate) type Copied = (JobId, Result<Option<SpilledFile>, String>);

/// Where spilled files lie.
#[derive(Debug)]
struct Directory {
    descriptor: OwnedFd,
    /// Removed with the store, where the store made it.
    made: Option<PathBuf>,
}

impl Directory {
    fn open(path: &Path) -> io::Result<Self> {
        let made = match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => Some(path.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => return Err(error),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { descriptor, made })
    }

    /// A new file without a name.
    fn file(&self, job: JobId) -> io::Result<File> {
        let (mode, flags) = (Mode::RUSR | Mode::WUSR, OFlags::RDWR | OFlags::CLOEXEC);
        match openat(&self.descriptor, ".", flags | OFlags::TMPFILE, mode) {
            // Not every file system makes files without a name: give one a name for a moment.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
                let name = format!(".oxiray-spill-{}-{}", std::process::id(), job.0);
                let file = openat(&self.descriptor, &name, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
                unlinkat(&self.descriptor, &name, rustix::fs::AtFlags::empty())?;
                Ok(file.into())
            }
            opened => Ok(opened?.into()),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // A user who put something of their own there keeps it.
            let _ = std::fs::remove_dir(path);
        }
    }
}

/// The thread's handle.
#[derive(Debug)]
pub(crate) struct Spiller {
    /// `None` only while the store is dropped.
    copies: Option<SyncSender<(JobId, Copy)>>,
    copied: Receiver<Copied>,
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Spiller {
    /// `copies_limit`: how many copies may be under way, so that handing one over never blocks.
    pub(crate) fn start(directory: &Path, copies_limit: usize) -> io::Result<Self> {
        let directory = Directory::open(directory)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stop = Arc::new(AtomicBool::new(false));
        let (copies, incoming) = sync_channel(copies_limit);
        let (outgoing, copied) = channel();
        let copier = Copier { directory, incoming, outgoing, wake: Arc::clone(&wake), stop: Arc::clone(&stop) };
        let thread = std::thread::Builder::new().name("store-spill".into()).spawn(move || copier.run())?;
        Ok(Self { copies: Some(copies), copied, wake, stop, thread: Some(thread) })
    }

    pub(crate) fn submit(&self, job: JobId, copy: Copy) -> JobResult {
        let copies = self.copies.as_ref().expect("the store lives");
        copies.try_send((job, copy)).map_err(|error| format!("the spilling thread takes no more work: {error}"))
    }

    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// What was copied since the last call.
    pub(crate) fn copied(&self) -> impl Iterator<Item = Copied> {
        // Emptied before the results are taken, so that a result that comes later wakes again.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        self.copied.try_iter()
    }
}

impl Drop for Spiller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.copies = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed; nobody waits for its copies any more.
            let _ = thread.join();
        }
    }
}

struct Copier {
    directory: Directory,
    incoming: Receiver<(JobId, Copy)>,
    outgoing: Sender<Copied>,
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
}

impl Copier {
    fn run(self) {
        let mut buffer = vec![0; STEP];
        for (job, copy) in &self.incoming {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let result = match copy {
                Copy::ToDisk { memory, size } => self
                    .save(job, &memory, size, &mut buffer)
                    .map(Some)
                    .map_err(|error| format!("writing a spilled object: {error}")),
                Copy::FromDisk { memory, spilled } => self.load(Some(&memory), &spilled, &mut buffer).map(|()| None),
                Copy::Check { spilled } => self.load(None, &spilled, &mut buffer).map(|()| None),
            };
            if self.outgoing.send((job, result)).is_err() {
                return;
            }
            // Cannot fail but for a counter of 2^64 - 2 unread wakes.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    fn save(&self, job: JobId, memory: &File, size: u64, buffer: &mut [u8]) -> io::Result<SpilledFile> {
        let file = self.directory.file(job)?;
        if size > 0 {
            match fallocate(&file, FallocateFlags::empty(), 0, size) {
                // Not every file system can tell beforehand that there is room.
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let checksum = self.copy(memory, Some(&file), size, buffer)?;
        Ok(SpilledFile { file: Arc::new(file), size, checksum })
    }

    fn load(&self, memory: Option<&File>, spilled: &SpilledFile, buffer: &mut [u8]) -> JobResult {
        let SpilledFile { file, size, checksum } = spilled;
        let found = self
            .copy(file, memory, *size, buffer)
            .map_err(|error| format!("its spilled bytes could not be read back: {error}"))?;
        if found == *checksum {
            Ok(())
        } else {
            Err(format!("its spilled bytes changed on disk (checksum {found:08x}, written as {checksum:08x})"))
        }
    }

    fn copy(&self, from: &File, to: Option<&File>, size: u64, buffer: &mut [u8]) -> io::Result<u32> {
        let mut checksum = Checksum::new();
        let mut offset = 0;
        while offset < size {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("the object store is being closed"));
            }
            let step = usize::try_from(size - offset).map_or(STEP, |rest| rest.min(STEP));
            let bytes = &mut buffer[..step];
            from.read_exact_at(bytes, offset)?;
            checksum.update(bytes);
            if let Some(to) = to {
                to.write_all_at(bytes, offset)?;
            }
            offset += step as u64;
        }
        Ok(checksum.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use std::os::unix::fs::PermissionsExt;

    fn wait(spiller: &Spiller) -> Copied {
        spiller.copied.recv().unwrap()
    }

    #[test]
    fn bytes_come_back_and_changed_bytes_are_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let spiller = Spiller::start(directory.path(), 2).unwrap();
        let size = STEP as u64 + 5;
        let memory = Memory::new(2 << 20).unwrap();
        memory.file().write_all_at(&vec![7; STEP + 5], 0).unwrap();
        spiller.submit(JobId(1), Copy::ToDisk { memory: memory.file(), size }).unwrap();
        let (JobId(1), Ok(Some(spilled))) = wait(&spiller) else { panic!("the copy to disk works") };
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "STORE-5");

        let back = Memory::new(2 << 20).unwrap();
        let copy = || Copy::FromDisk { memory: back.file(), spilled: spilled.clone() };
        spiller.submit(JobId(2), copy()).unwrap();
        assert!(wait(&spiller).1.is_ok());
        let mut bytes = vec![0; STEP + 6];
        back.file().read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..STEP + 5].iter().all(|&byte| byte == 7) && bytes[STEP + 5] == 0);

        spilled.file.write_all_at(&[8], 1000).unwrap();
        spiller.submit(JobId(3), copy()).unwrap();
        assert!(wait(&spiller).1.unwrap_err().contains("changed on disk"));
        spilled.file.set_len(10).unwrap();
        spiller.submit(JobId(4), copy()).unwrap();
        assert!(wait(&spiller).1.unwrap_err().contains("could not be read back"));
    }

    #[test]
    fn a_directory_that_the_store_makes_is_private_and_goes_with_it() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("spill");
        let spiller = Spiller::start(&path, 1).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        drop(spiller);
        assert!(!path.exists());
        assert!(Spiller::start(&parent.path().join("a/b"), 1).is_err());
    }
}
