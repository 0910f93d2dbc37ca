//! The thread that copies objects to disk and back.
//!
//! Spilled files have no name: a process that dies leaves none behind (STORE-5).

use crate::book::{JobId, JobResult};
use crate::checksum::Checksum;
use crate::terms::Access;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstatvfs, openat, unlinkat};
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
    /// Nothing where clients write the file.
    checksum: Option<u32>,
}

/// A copy to be made.
#[derive(Debug)]
pub(crate) enum Copy {
    /// No copy: makes a file with room for so many bytes.
    Nothing {
        size: u64,
    },
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
    /// Reads as many bytes as there is room for.
    pub(crate) fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    /// Writes into a file that is not sealed.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// A descriptor for a client to read or write the file by.
    pub(crate) fn open(&self, access: Access) -> io::Result<OwnedFd> {
        let mode = match access {
            Access::ReadOnly => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(rustix::fs::open(path, mode | OFlags::CLOEXEC, Mode::empty())?)
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
    /// How full its file system may get, in thousandths.
    fullness_max: u32,
}

impl Directory {
    fn open(path: &Path, fullness_max: u32) -> io::Result<Self> {
        let made = match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => Some(path.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => return Err(error),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { descriptor, made, fullness_max })
    }

    /// Refuses what would make the file system fuller than it may get, so that others still have room there.
    fn check_room(&self, size: u64) -> io::Result<()> {
        let system = fstatvfs(&self.descriptor)?;
        let unit = u128::from(system.f_frsize);
        let (whole, free) = (u128::from(system.f_blocks) * unit, u128::from(system.f_bavail) * unit);
        let taken = whole.saturating_sub(free) + u128::from(size);
        if taken * 1000 <= whole * u128::from(self.fullness_max) {
            return Ok(());
        }
        let percent = |part: u32| format!("{}.{} %", part / 10, part % 10);
        let full = (whole.saturating_sub(free) * 1000).checked_div(whole).unwrap_or(1000) as u32;
        Err(io::Error::other(format!(
            "its file system is {} full, and may get {} full with these {size} bytes (RAY_local_fs_capacity_threshold)",
            percent(full),
            percent(self.fullness_max)
        )))
    }

    /// A new file without a name, with room for `size` bytes where the file system can tell that beforehand; with
    /// whether it can.
    fn file(&self, job: JobId, size: u64) -> io::Result<(File, bool)> {
        self.check_room(size)?;
        let file = self.nameless(job)?;
        if size == 0 {
            return Ok((file, true));
        }
        match fallocate(&file, FallocateFlags::empty(), 0, size) {
            Ok(()) => Ok((file, true)),
            Err(Errno::OPNOTSUPP) => Ok((file, false)),
            Err(error) => Err(error.into()),
        }
    }

    fn nameless(&self, job: JobId) -> io::Result<File> {
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
    /// `copies_limit`: how many copies may be under way, so that handing one over never blocks. `fullness_max`: how full
    /// the file system may get, in thousandths.
    pub(crate) fn start(directory: &Path, copies_limit: usize, fullness_max: u32) -> io::Result<Self> {
        let directory = Directory::open(directory, fullness_max)?;
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
                Copy::Nothing { size } => self
                    .make(job, size, &mut buffer)
                    .map(Some)
                    .map_err(|error| format!("making a file for an object: {error}")),
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
        let (file, _) = self.directory.file(job, size)?;
        let checksum = self.copy(memory, Some(&file), size, buffer)?;
        Ok(SpilledFile { file: Arc::new(file), size, checksum: Some(checksum) })
    }

    /// A file that a client can write through a mapping, without ever being killed for want of room.
    fn make(&self, job: JobId, size: u64, buffer: &mut [u8]) -> io::Result<SpilledFile> {
        let room = size.max(1);
        let (file, is_there) = self.directory.file(job, room)?;
        if !is_there {
            buffer.fill(0);
            self.in_steps(room, |offset, step| file.write_all_at(&buffer[..step], offset))?;
        }
        Ok(SpilledFile { file: Arc::new(file), size, checksum: None })
    }

    fn load(&self, memory: Option<&File>, spilled: &SpilledFile, buffer: &mut [u8]) -> JobResult {
        let SpilledFile { file, size, checksum } = spilled;
        if memory.is_none() && checksum.is_none() {
            return Ok(());
        }
        let found = self
            .copy(file, memory, *size, buffer)
            .map_err(|error| format!("its spilled bytes could not be read back: {error}"))?;
        match checksum {
            Some(checksum) if found != *checksum => {
                Err(format!("its spilled bytes changed on disk (checksum {found:08x}, written as {checksum:08x})"))
            }
            _ => Ok(()),
        }
    }

    fn copy(&self, from: &File, to: Option<&File>, size: u64, buffer: &mut [u8]) -> io::Result<u32> {
        let mut checksum = Checksum::new();
        self.in_steps(size, |offset, step| {
            let bytes = &mut buffer[..step];
            from.read_exact_at(bytes, offset)?;
            checksum.update(bytes);
            to.map_or(Ok(()), |to| to.write_all_at(bytes, offset))
        })?;
        Ok(checksum.value())
    }

    fn in_steps(&self, size: u64, mut act: impl FnMut(u64, usize) -> io::Result<()>) -> io::Result<()> {
        let mut offset = 0;
        while offset < size {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("the object store is being closed"));
            }
            let step = usize::try_from(size - offset).map_or(STEP, |rest| rest.min(STEP));
            act(offset, step)?;
            offset += step as u64;
        }
        Ok(())
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
        let spiller = Spiller::start(directory.path(), 2, 1000).unwrap();
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
    fn a_file_to_be_written_has_room_and_one_too_many_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let spiller = Spiller::start(directory.path(), 1, 1000).unwrap();
        let size = 3 * STEP as u64;
        spiller.submit(JobId(1), Copy::Nothing { size }).unwrap();
        let (_, Ok(Some(file))) = wait(&spiller) else { panic!("there is room") };
        assert_eq!(file.file.metadata().unwrap().len(), size);
        let writer = File::from(file.open(Access::ReadWrite).unwrap());
        writer.write_all_at(&[7], size - 1).unwrap();
        assert!(File::from(file.open(Access::ReadOnly).unwrap()).write_at(&[7], 0).is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "STORE-5");

        let full = Spiller::start(directory.path(), 1, 0).unwrap();
        full.submit(JobId(1), Copy::Nothing { size }).unwrap();
        let refused = wait(&full).1.unwrap_err();
        assert!(refused.contains("may get 0.0 % full"), "{refused}");
    }

    #[test]
    fn a_directory_that_the_store_makes_is_private_and_goes_with_it() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("spill");
        let spiller = Spiller::start(&path, 1, 1000).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        drop(spiller);
        assert!(!path.exists());
        assert!(Spiller::start(&parent.path().join("a/b"), 1, 1000).is_err());
    }
}
