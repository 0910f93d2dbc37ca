//! The thread that copies objects to disk and back, or has the storage's program do it.
//!
//! Spilled files have no name: a process that dies leaves none behind (STORE-5). Objects of one job share files, so that
//! descriptors are counted by what is on disk, not by the object. Where an object goes, its part of the file is punched
//! out; the file goes with the last.

use crate::book::{CopyId, Failure, JobResult};
use crate::checksum::Checksum;
use crate::memory::open_as;
use crate::storage::StorageOptions;
use crate::storage::client::{Outgoing, Storage, StoredPart};
use crate::terms::{Access, Extent};
use oxiray_ids::JobId;
use oxiray_threads::{Mailbox, Post, mailbox};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstatvfs, openat, unlinkat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// Bytes copied in one step.
const STEP: usize = 1 << 20;

/// About how many bytes a file of several objects gets. What is larger than a quarter has a file to itself.
pub(crate) const SHARED_BYTES: u64 = 64 << 20;
pub(crate) const SHARED_PART: u64 = 4;
/// What can be mapped begins at a multiple of this, whatever pages the kernel was built for.
const PAGE_BYTES_MAX: u64 = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 64 << 10 };

/// A part of a file on disk, which is given back when nobody has it any more.
#[derive(Debug)]
pub(crate) struct Part {
    file: Arc<File>,
    /// A multiple of a page, so that it can be mapped.
    offset: u64,
    bytes: u64,
}

impl Part {
    pub(crate) fn place(&self) -> Place {
        Place { file: Arc::clone(&self.file), offset: self.offset }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The last part goes with its file. A file system that cannot punch holes gives all back then.
        if Arc::strong_count(&self.file) > 1 {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&*self.file, flags, self.offset, self.bytes);
        }
    }
}

/// A spilled object.
#[derive(Debug, Clone)]
pub(crate) struct SpilledFile {
    lies: Lies,
    size: u64,
    /// Nothing where clients write the file.
    checksum: Option<u32>,
}

/// Where a spilled object is.
#[derive(Debug, Clone)]
enum Lies {
    OnDisk(Arc<Part>),
    InStorage(Arc<StoredPart>),
}

/// Where bytes begin in a file.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) file: Arc<File>,
    pub(crate) offset: u64,
}

/// A copy to be made.
#[derive(Debug)]
pub(crate) enum Copy {
    /// No copy: makes a file with room for so many bytes.
    Nothing {
        size: u64,
    },
    ToDisk {
        memory: Place,
        size: u64,
        owner: JobId,
    },
    FromDisk {
        memory: Place,
        spilled: SpilledFile,
    },
    /// From one job's file into another's, wherever they lie.
    Duplicate {
        from: Place,
        to: Place,
        size: u64,
    },
    /// No copy: reads the file and compares its checksum.
    Check {
        spilled: SpilledFile,
    },
}

impl SpilledFile {
    /// One that the storage has.
    pub(crate) fn stored(stored: StoredPart, size: u64, checksum: u32) -> Self {
        Self { lies: Lies::InStorage(Arc::new(stored)), size, checksum: Some(checksum) }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn checksum(&self) -> Option<u32> {
        self.checksum
    }

    /// Its part of a file on this machine, once there is one.
    fn here(&self) -> Option<&Part> {
        match &self.lies {
            Lies::OnDisk(part) => Some(part),
            Lies::InStorage(stored) => stored.here(),
        }
    }

    fn part(&self) -> &Part {
        self.here().expect("what is read where it lies was brought here before")
    }

    /// Reads as many bytes as there is room for.
    pub(crate) fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.part().file.read_exact_at(bytes, self.part().offset + offset)
    }

    /// Writes into a file that is not sealed.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.part().file.write_all_at(bytes, self.part().offset + offset)
    }

    /// What a client maps of the descriptor.
    pub(crate) fn extent(&self) -> Extent {
        Extent { base: self.part().offset, bytes: self.size.max(1) }
    }

    pub(crate) fn place(&self) -> Place {
        self.part().place()
    }

    /// A descriptor for a client to read or write the file by.
    pub(crate) fn open(&self, access: Access) -> io::Result<OwnedFd> {
        open_as(&self.part().file, access)
    }
}

/// What came of a copy; the file where it went to disk.
pub(crate) type Copied = (CopyId, Result<Option<SpilledFile>, Failure>);

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum Work {
    Copy(CopyId, Copy),
    /// Remove a file from the storage.
    Delete(String),
    End,
}

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

    /// A part of the file with room for `bytes` where the file system can tell that beforehand; with whether it can.
    fn part(&self, file: &Arc<File>, offset: u64, bytes: u64) -> io::Result<(Part, bool)> {
        self.check_room(bytes)?;
        let part = Part { file: Arc::clone(file), offset, bytes };
        match fallocate(&**file, FallocateFlags::empty(), offset, bytes) {
            Ok(()) => Ok((part, true)),
            Err(Errno::OPNOTSUPP) => Ok((part, false)),
            Err(error) => Err(error.into()),
        }
    }

    fn nameless(&self, job: CopyId) -> io::Result<File> {
        let (mode, flags) = (Mode::RUSR, OFlags::RDWR | OFlags::CLOEXEC);
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
    /// As long as what the book has under way at once, and the files of the storage that go.
    work: Sender<Work>,
    copied: Mailbox<Copied>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Spiller {
    /// `fullness_max`: how full the file system may get, in thousandths. `storage`: where objects go in place of the
    /// directory, which then has files only that clients write, or read where they lie.
    pub(crate) fn start(directory: &Path, fullness_max: u32, storage: Option<&StorageOptions>) -> io::Result<Self> {
        let directory = Directory::open(directory, fullness_max)
            .map_err(|error| unusable("spill directory", &directory.display().to_string(), &error))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (work, incoming) = channel();
        let (outgoing, copied) = mailbox()?;
        let open_storage = |options: &StorageOptions| {
            Storage::open(options, outgoing.clone(), work.clone())
                .map_err(|error| unusable("spill storage", &options.url, &error))
        };
        let storage = storage.map(open_storage).transpose()?;
        let copier = Copier { directory, storage, open: HashMap::new(), incoming, outgoing, stop: Arc::clone(&stop) };
        let thread = oxiray_threads::spawn(oxiray_threads::STORE_SPILL, move || copier.run())?;
        Ok(Self { work, copied, stop, thread: Some(thread) })
    }

    pub(crate) fn submit(&self, job: CopyId, copy: Copy) -> JobResult {
        let gone = |_| Failure::Gone("the thread that spills objects is gone".to_owned());
        self.work.send(Work::Copy(job, copy)).map_err(gone)
    }

    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.copied.as_fd()
    }

    /// What was copied since the last call.
    pub(crate) fn copied(&self) -> impl Iterator<Item = Copied> {
        self.copied.take().into_iter().flatten()
    }
}

impl Drop for Spiller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.work.send(Work::End);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed; nobody waits for its copies any more.
            let _ = thread.join();
        }
    }
}

fn unusable(what: &str, place: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} `{place}`: {error}; name another one"))
}

/// A file that objects of one job are added to, as long as one lies in it.
struct Open {
    file: Weak<File>,
    end: u64,
}

struct Copier {
    directory: Directory,
    storage: Option<Storage>,
    open: HashMap<JobId, Open>,
    incoming: Receiver<Work>,
    outgoing: Post<Copied>,
    stop: Arc<AtomicBool>,
}

impl Copier {
    fn run(mut self) {
        let mut buffer = vec![0; STEP];
        while let Some(work) = self.next() {
            match work {
                // What is still in the storage goes with all else of the session.
                _ if self.stop.load(Ordering::Relaxed) => return,
                Work::End => return,
                Work::Copy(job, copy) => {
                    if let Some(result) = self.carry_out(job, copy, &mut buffer) {
                        self.outgoing.post((job, result));
                    }
                }
                Work::Delete(key) => {
                    if let Some(storage) = &self.storage {
                        storage.delete(key);
                    }
                }
            }
        }
    }

    /// What is to be done next. Where nothing is, what was gathered for the storage goes there first.
    fn next(&mut self) -> Option<Work> {
        match self.incoming.try_recv() {
            Err(TryRecvError::Empty) => {
                if let Some(storage) = &mut self.storage {
                    storage.flush();
                }
                self.incoming.recv().ok()
            }
            next => next.ok(),
        }
    }

    /// Nothing where the storage's program says later what came of it.
    fn carry_out(
        &mut self,
        job: CopyId,
        copy: Copy,
        buffer: &mut [u8],
    ) -> Option<Result<Option<SpilledFile>, Failure>> {
        let failed = |what: &str, error: io::Error| Failure::Gone(format!("{what}: {error}"));
        Some(match (copy, &mut self.storage) {
            (Copy::Nothing { size }, _) => {
                self.make(job, size, buffer).map(Some).map_err(|error| failed("making a file for an object", error))
            }
            (Copy::ToDisk { memory, size, owner }, Some(storage)) => {
                storage.save(Outgoing { job, memory, size, owner });
                return None;
            }
            (Copy::ToDisk { memory, size, owner }, None) => self
                .save(job, &memory, size, owner, buffer)
                .map(Some)
                .map_err(|error| failed("writing a spilled object", error)),
            (Copy::Duplicate { from, to, size }, _) => self
                .copy(&from, Some(&to), size, buffer)
                .map(|_| None)
                .map_err(|error| failed("its bytes could not be copied", error)),
            (Copy::FromDisk { memory, spilled }, storage) => {
                if let (Lies::InStorage(stored), None, Some(storage)) = (&spilled.lies, spilled.here(), storage) {
                    storage.restore(job, &memory, &spilled, stored);
                    return None;
                }
                self.load(Some(&memory), &spilled, buffer).map(|()| None)
            }
            (Copy::Check { spilled }, _) => match (&spilled.lies, spilled.here()) {
                (Lies::InStorage(stored), None) => return self.bring_here(job, &spilled, stored),
                _ => self.load(None, &spilled, buffer).map(|()| None),
            },
        })
    }

    /// Has the storage's program write an object to a file of this machine, so that clients can read it there.
    fn bring_here(
        &mut self,
        job: CopyId,
        spilled: &SpilledFile,
        stored: &Arc<StoredPart>,
    ) -> Option<Result<Option<SpilledFile>, Failure>> {
        let storage = self.storage.as_mut().expect("where something is in the storage, there is one");
        let made =
            self.directory.nameless(job).and_then(|file| self.directory.part(&Arc::new(file), 0, spilled.size.max(1)));
        match made {
            Ok((part, _)) => {
                storage.bring_here(job, spilled, stored, part);
                None
            }
            Err(error) => {
                let text = "no file could be made to read it from while memory has no room for it";
                Some(Err(Failure::Away(format!("{text}: {error}"))))
            }
        }
    }

    fn save(
        &mut self,
        job: CopyId,
        memory: &Place,
        size: u64,
        owner: JobId,
        buffer: &mut [u8],
    ) -> io::Result<SpilledFile> {
        let part = self.part_for(job, size, owner)?;
        let to = Place { file: Arc::clone(&part.file), offset: part.offset };
        let checksum = self.copy(memory, Some(&to), size, buffer)?;
        Ok(SpilledFile { lies: Lies::OnDisk(Arc::new(part)), size, checksum: Some(checksum) })
    }

    /// Room on disk for an object of `owner`, in a file that it shares where it is not large.
    fn part_for(&mut self, job: CopyId, size: u64, owner: JobId) -> io::Result<Part> {
        let bytes = size.max(1).next_multiple_of(PAGE_BYTES_MAX);
        if bytes > SHARED_BYTES / SHARED_PART {
            let file = Arc::new(self.directory.nameless(job)?);
            return Ok(self.directory.part(&file, 0, bytes)?.0);
        }
        self.open.retain(|_, open| open.file.strong_count() > 0);
        let known = self.open.get(&owner).filter(|open| open.end + bytes <= SHARED_BYTES);
        let (file, offset) = match known.and_then(|open| Some((open.file.upgrade()?, open.end))) {
            Some(known) => known,
            // The full one stays as long as objects lie in it.
            None => (Arc::new(self.directory.nameless(job)?), 0),
        };
        let (part, _) = self.directory.part(&file, offset, bytes)?;
        self.open.insert(owner, Open { file: Arc::downgrade(&file), end: offset + bytes });
        Ok(part)
    }

    /// A file that a client can write through a mapping, without ever being killed for want of room.
    fn make(&self, job: CopyId, size: u64, buffer: &mut [u8]) -> io::Result<SpilledFile> {
        let room = size.max(1);
        let file = Arc::new(self.directory.nameless(job)?);
        let (part, is_there) = self.directory.part(&file, 0, room)?;
        if !is_there {
            buffer.fill(0);
            self.in_steps(room, |offset, step| file.write_all_at(&buffer[..step], offset))?;
        }
        Ok(SpilledFile { lies: Lies::OnDisk(Arc::new(part)), size, checksum: None })
    }

    fn load(&self, memory: Option<&Place>, spilled: &SpilledFile, buffer: &mut [u8]) -> JobResult {
        let SpilledFile { size, checksum, .. } = spilled;
        if memory.is_none() && checksum.is_none() {
            return Ok(());
        }
        let found = self
            .copy(&spilled.place(), memory, *size, buffer)
            .map_err(|error| Failure::Gone(format!("its spilled bytes could not be read back: {error}")))?;
        match checksum {
            Some(checksum) if found != *checksum => Err(Failure::Gone(format!(
                "its spilled bytes changed on disk (checksum {found:08x}, written as {checksum:08x})"
            ))),
            _ => Ok(()),
        }
    }

    fn copy(&self, from: &Place, to: Option<&Place>, size: u64, buffer: &mut [u8]) -> io::Result<u32> {
        let mut checksum = Checksum::new();
        self.in_steps(size, |offset, step| {
            let bytes = &mut buffer[..step];
            from.file.read_exact_at(bytes, from.offset + offset)?;
            checksum.update(bytes);
            to.map_or(Ok(()), |to| to.file.write_all_at(bytes, to.offset + offset))
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
        spiller.copied.wait(std::time::Duration::from_secs(60)).unwrap()
    }

    fn text_of(copied: Copied) -> String {
        copied.1.unwrap_err().to_string()
    }

    fn to_disk(memory: &Memory, size: u64, owner: u32) -> Copy {
        let owner = JobId::from_number(owner);
        Copy::ToDisk { memory: Place { file: memory.file(), offset: 0 }, size, owner }
    }

    #[test]
    fn small_objects_of_one_job_share_files_whose_parts_go_one_by_one() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let spiller = Spiller::start(directory.path(), 1000, None).unwrap();
        let memory = Memory::new(1 << 20).unwrap();
        memory.file().write_all_at(&vec![7; 1 << 20], 0).unwrap();
        let spill = |number: u64, owner: u32| {
            spiller.submit(CopyId(number), to_disk(&memory, 100_000, owner)).unwrap();
            let (_, Ok(Some(spilled))) = wait(&spiller) else { panic!("there is room") };
            spilled
        };
        let mut spilled: Vec<_> = (0..100).map(|number| spill(number, 1)).collect();
        let other = spill(100, 2);
        let file = Arc::clone(&spilled[0].part().file);
        assert!(spilled.iter().all(|spilled| Arc::ptr_eq(&spilled.part().file, &file)));
        assert!(!Arc::ptr_eq(&other.part().file, &file), "STORE-6");
        assert!(spilled.iter().all(|spilled| spilled.extent().base % PAGE_BYTES_MAX == 0));
        let blocks = file.metadata().unwrap().blocks();
        spilled.retain(|spilled| spilled.part().offset == 0);
        assert!(file.metadata().unwrap().blocks() <= blocks / 50, "what nobody has any more is given back");
        let mut bytes = vec![0; 100_000];
        spilled[0].read(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn bytes_come_back_and_changed_bytes_are_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let spiller = Spiller::start(directory.path(), 1000, None).unwrap();
        let size = STEP as u64 + 5;
        let memory = Memory::new(2 << 20).unwrap();
        memory.file().write_all_at(&vec![7; STEP + 5], 0).unwrap();
        spiller.submit(CopyId(1), to_disk(&memory, size, 1)).unwrap();
        let (CopyId(1), Ok(Some(spilled))) = wait(&spiller) else { panic!("the copy to disk works") };
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "STORE-5");

        let back = Memory::new(2 << 20).unwrap();
        let copy = || Copy::FromDisk { memory: Place { file: back.file(), offset: 0 }, spilled: spilled.clone() };
        spiller.submit(CopyId(2), copy()).unwrap();
        assert!(wait(&spiller).1.is_ok());
        let mut bytes = vec![0; STEP + 6];
        back.file().read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..STEP + 5].iter().all(|&byte| byte == 7) && bytes[STEP + 5] == 0);

        spilled.write(&[8], 1000).unwrap();
        spiller.submit(CopyId(3), copy()).unwrap();
        assert!(text_of(wait(&spiller)).contains("changed on disk"));
        spilled.part().file.set_len(10).unwrap();
        spiller.submit(CopyId(4), copy()).unwrap();
        assert!(text_of(wait(&spiller)).contains("could not be read back"));
    }

    #[test]
    fn a_file_to_be_written_has_room_and_one_too_many_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let spiller = Spiller::start(directory.path(), 1000, None).unwrap();
        let size = 3 * STEP as u64;
        spiller.submit(CopyId(1), Copy::Nothing { size }).unwrap();
        let (_, Ok(Some(file))) = wait(&spiller) else { panic!("there is room") };
        assert_eq!(file.part().file.metadata().unwrap().len(), size);
        let writer = File::from(file.open(Access::ReadWrite).unwrap());
        writer.write_all_at(&[7], size - 1).unwrap();
        assert!(File::from(file.open(Access::ReadOnly).unwrap()).write_at(&[7], 0).is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "STORE-5");

        let full = Spiller::start(directory.path(), 0, None).unwrap();
        full.submit(CopyId(1), Copy::Nothing { size }).unwrap();
        let refused = text_of(wait(&full));
        assert!(refused.contains("may get 0.0 % full"), "{refused}");
    }

    #[test]
    fn a_directory_that_the_store_makes_is_private_and_goes_with_it() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("spill");
        let spiller = Spiller::start(&path, 1000, None).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        drop(spiller);
        assert!(!path.exists());
        assert!(Spiller::start(&parent.path().join("a/b"), 1000, None).is_err());
    }
}
