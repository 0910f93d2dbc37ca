//! The daemon's side of the store: the book's effects carried out.

use crate::book::{Book, CopyId, Effect, Failure, Limits};
use crate::class::SMALLEST;
use crate::error::StoreError;
use crate::mapping::{Region, WriteMapping};
use crate::mapping_cache::MappingCache;
use crate::memory::Memory;
use crate::spill::{Copy, Place, SpilledFile, Spiller};
use crate::storage::StorageOptions;
use crate::terms::{Access, ClientId, Event, Expired, Extent, FileId, ObjectState, SegmentId, Stats, Ticket};
use oxiray_ids::{JobId, ObjectId};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Copies to and from disk handed to the disk's thread at once.
const COPIES_LIMIT: usize = 8;
/// The same for the program that speaks to the storage, which puts small objects together and takes turns itself.
const STORED_COPIES_LIMIT: usize = 256;
/// How many bytes go to the storage at once, and which part of the capacity at most.
const BATCH_BYTES: u64 = 256 << 20;
const BATCH_PART: u64 = 4;
/// The most bytes that the daemon keeps mapped itself, and which part of the capacity at most.
const KEPT_MAPPED_BYTES: u64 = 2 << 30;
const KEPT_MAPPED_PART: u64 = 2;

/// How many bytes a memory file has that several objects share, and which part of the capacity at least: so files, their
/// descriptors and their mappings are hundreds, however large the store and however small its objects.
const SLAB_BYTES: u64 = 64 << 20;
const SLAB_PART: u64 = 128;

/// How large a store is and where it spills.
#[derive(Debug, Clone)]
pub struct Options {
    /// The most bytes of all segments together.
    pub capacity_bytes: u64,
    /// The most bytes of segments kept for the next object.
    pub pool_limit_bytes: u64,
    /// The smallest segment: what a smaller object takes. Whole pages.
    pub smallest_bytes: u64,
    /// Where objects go that memory has no room for; `None` turns spilling off. Made (0700) where it is missing, and
    /// removed then with the store; its parent must exist. Nothing in it ever has a name.
    pub spill_directory: Option<PathBuf>,
    /// Where objects go in place of that directory, which then has only files that clients write, or read where they lie.
    pub spill_storage: Option<StorageOptions>,
    /// The most bytes of objects on disk.
    pub spill_limit_bytes: u64,
    /// How full the file system of the spill directory may get, in thousandths.
    pub spill_fullness_max: u32,
    /// The most requests that wait at once.
    pub waiting_limit: usize,
}

impl Options {
    /// A store of this size that keeps all the memory it got and does not spill.
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            pool_limit_bytes: capacity_bytes,
            smallest_bytes: SMALLEST,
            spill_directory: None,
            spill_storage: None,
            spill_limit_bytes: u64::MAX,
            spill_fullness_max: 1000,
            waiting_limit: 16_384,
        }
    }
}

/// All objects of a node. See the crate's documentation for what clients and daemon owe each other.
///
/// Files take descriptors, of which objects up to 16 MiB share one for each 64 MiB: raise the soft limit of open files to
/// the hard one before a store is made.
#[derive(Debug)]
pub struct Store {
    book: Book,
    memory: HashMap<FileId, Memory>,
    spilled: HashMap<CopyId, SpilledFile>,
    /// Files that are read or written where they are.
    mapped: HashMap<FileId, SpilledFile>,
    spiller: Option<Spiller>,
    kept: MappingCache,
    events: Vec<Event>,
}

impl Store {
    /// An empty store. Fails where the capacity is less than the smallest segment, or the spill directory is not to
    /// be had.
    pub fn new(options: Options) -> io::Result<Self> {
        let smallest = options.smallest_bytes;
        if options.capacity_bytes < smallest {
            let text = format!(
                "an object store of {} bytes was asked for; it needs {smallest} or more (object_store_memory)",
                options.capacity_bytes
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let storage = options.spill_storage.as_ref();
        let start = |directory: &PathBuf| Spiller::start(directory, options.spill_fullness_max, storage);
        let spiller = options.spill_directory.as_ref().map(start).transpose()?;
        let directory = options.spill_directory.unwrap_or_default();
        let kept = KEPT_MAPPED_BYTES.min(options.capacity_bytes / KEPT_MAPPED_PART);
        let book = Book::new(Limits {
            capacity: options.capacity_bytes,
            pool: options.pool_limit_bytes,
            smallest,
            slab: SLAB_BYTES.max(options.capacity_bytes / SLAB_PART),
            disk: if spiller.is_some() { options.spill_limit_bytes } else { 0 },
            spill_place: storage.map_or_else(|| directory.display().to_string(), |storage| storage.url.clone()),
            is_storage: storage.is_some(),
            batch: storage.map_or(0, |_| BATCH_BYTES.min(options.capacity_bytes / BATCH_PART)),
            jobs: if storage.is_some() { STORED_COPIES_LIMIT } else { COPIES_LIMIT },
            waiting: options.waiting_limit,
        });
        Ok(Self {
            book,
            memory: HashMap::new(),
            spilled: HashMap::new(),
            mapped: HashMap::new(),
            spiller,
            kept: MappingCache::new(kept as usize),
            events: Vec::new(),
        })
    }

    /// Asks for room for a new object: [`Event::Created`], at once or when there is room, or [`Event::Refused`]: with
    /// [`StoreError::Sealed`] where the object is there already, which a second attempt of a task may find.
    ///
    /// Room is made by dropping pooled segments, then by spilling the objects that were not used for longest. Where
    /// everything left is pinned or being written, the request waits until [`Store::hurry`] or [`Store::expire`] have a
    /// file on disk made for it; so does at once what is larger than the store. Where only the disk is in the way, it is
    /// refused as soon as no copy is under way.
    pub fn create(&mut self, ticket: Ticket, client: ClientId, object: ObjectId, size: u64) {
        self.book.create(ticket, client, object, size);
        self.apply();
    }

    /// Asks for room for an object that the client may write next, or never: answered at once, like [`Store::create`] or
    /// with [`StoreError::NothingToSpare`]. Until the client seals or aborts it, the room counts as pooled.
    pub fn create_ahead(&mut self, ticket: Ticket, client: ClientId, object: ObjectId, size: u64) {
        self.book.create_ahead(ticket, client, object, size);
        self.apply();
    }

    /// The object is written: from now on it can be pinned, and its bytes stay as they are.
    pub fn seal(&mut self, client: ClientId, object: ObjectId) -> Result<(), StoreError> {
        let result = self.book.seal(client, object);
        self.apply();
        result
    }

    /// The client gives up an object that it has not sealed, and writes no more of it.
    pub fn abort(&mut self, client: ClientId, object: ObjectId) -> Result<(), StoreError> {
        let result = self.book.abort(client, object);
        self.apply();
        result
    }

    /// The client is a process of this job, until it is gone: it is given files of that job only (STORE-6). A client of
    /// which this is not said is the daemon itself.
    pub fn client_of(&mut self, client: ClientId, job: JobId) {
        self.book.client_of(client, job);
    }

    /// Asks for an object's bytes to stay in memory: [`Event::Pinned`], or [`Event::Refused`]. Waits for the seal of an
    /// unsealed object and for the disk of a spilled one, which is read where it is while memory has no room for it. Pins
    /// count: each is given back by one [`Store::unpin`]. Of another job's object, it is a copy that is pinned, which is
    /// made for the first reader of a job; the event then names the copy.
    pub fn pin(&mut self, ticket: Ticket, client: ClientId, object: ObjectId) {
        self.book.pin(ticket, client, object);
        self.apply();
    }

    /// Gives one pin back: the client no longer looks at the object's bytes.
    pub fn unpin(&mut self, client: ClientId, object: ObjectId) -> Result<(), StoreError> {
        let result = self.book.unpin(client, object);
        self.apply();
        result
    }

    /// Nobody refers to the object any more. Its memory is free when the last pin is given back, and when its writer
    /// seals or aborts it; until then its identifier stays taken. Unknown objects are ignored.
    pub fn delete(&mut self, object: ObjectId) {
        self.book.delete(object);
        self.apply();
    }

    /// The client's process is gone: its pins, its unsealed objects and its requests go, without events for it.
    pub fn client_gone(&mut self, client: ClientId) {
        self.book.client_gone(client);
        self.apply();
    }

    /// The request has waited for a while for others to let go of their memory: where it still does, its object is
    /// written to disk instead, and so are those of further requests until somebody lets go.
    pub fn hurry(&mut self, ticket: Ticket) {
        self.book.hurry(ticket);
        self.apply();
    }

    /// The ticket's deadline has passed: where it still waits, a file on disk is made for it, or it is refused now.
    pub fn expire(&mut self, ticket: Ticket) -> Expired {
        let expired = self.book.expire(ticket);
        self.apply();
        expired
    }

    /// A descriptor of `file` to be sent to `client`, and what to map of it; `None` where the client was given one with
    /// this access, so that it has the file mapped. Call it for the segment of each [`Event::Created`] (read and write) and
    /// each [`Event::Pinned`] (read only), and send what it gives along; where it fails, abort or unpin and refuse the
    /// client.
    pub fn descriptor(
        &mut self,
        file: FileId,
        client: ClientId,
        access: Access,
    ) -> io::Result<Option<(OwnedFd, Extent)>> {
        if !self.book.give(file, client, access).ok_or_else(|| gone(file))? {
            return Ok(None);
        }
        let opened = match (self.memory.get(&file), self.mapped.get(&file)) {
            (Some(memory), _) => {
                memory.open(access).map(|descriptor| (descriptor, Extent { base: 0, bytes: memory.bytes() }))
            }
            (None, Some(spilled)) => spilled.open(access).map(|descriptor| (descriptor, spilled.extent())),
            (None, None) => Err(gone(file)),
        };
        if opened.is_err() {
            self.book.take_back(file, client);
            self.apply();
        }
        opened.map(Some)
    }

    /// `client` dropped its mappings of `file` (see [`crate::SegmentCache::trim`]): the next [`Store::descriptor`] gives
    /// one again.
    pub fn mapping_dropped(&mut self, file: FileId, client: ClientId) {
        self.book.take_back(file, client);
        self.apply();
    }

    /// Bytes of an object that is pinned, by the segment that the pin named: for a daemon that gives them to others.
    pub fn read(&self, segment: SegmentId, offset: u64, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        match (self.memory.get(&segment.file), self.mapped.get(&segment.file)) {
            (Some(memory), _) => memory.file().read_exact_at(&mut bytes, segment.offset + offset)?,
            (None, Some(spilled)) => spilled.read(&mut bytes, offset)?,
            (None, None) => return Err(gone(segment.file)),
        }
        Ok(bytes)
    }

    /// Writes into an object that is not sealed, by the segment that was granted: for a daemon that fetches it from
    /// elsewhere.
    pub fn write(&self, segment: SegmentId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match (self.memory.get(&segment.file), self.mapped.get(&segment.file)) {
            (Some(memory), _) => memory.file().write_all_at(bytes, segment.offset + offset),
            (None, Some(made)) => made.write(bytes, offset),
            (None, None) => Err(gone(segment.file)),
        }
    }

    /// The segment of an object of `size` bytes that is pinned, or that was granted and is not sealed, mapped for the
    /// daemon itself; none where it is on disk or cannot be mapped. Whoever asks must touch it no more once that is over.
    pub fn mapping_of(&mut self, segment: SegmentId, size: u64) -> Option<Arc<WriteMapping>> {
        let memory = self.memory.get(&segment.file)?;
        let map = || Region::map(memory.file().as_fd(), Access::ReadWrite, 0, memory.bytes());
        self.kept.get(segment, usize::try_from(size).ok()?, map).ok()
    }

    /// Nobody uses a mapping any more that [`Store::mapping_of`] gave: what is beyond the limit of those kept goes.
    pub fn trim_mappings(&mut self) {
        self.kept.trim();
    }

    /// Gives pooled memory back to the machine until at most `keep_bytes` are pooled.
    pub fn trim(&mut self, keep_bytes: u64) {
        self.book.trim(keep_bytes);
        self.apply();
    }

    /// Has segments take so many bytes of the capacity at most, from now on: pooled ones go at once, idle objects to disk,
    /// and what is pinned or being written stays.
    pub fn set_bound(&mut self, bytes: u64) {
        self.book.set_bound(bytes);
        self.apply();
    }

    /// Bytes that the store is about to give back, since it may take less than it does.
    pub fn leaving_bytes(&self) -> u64 {
        self.book.leaving_bytes()
    }

    /// Becomes readable when [`Store::progress`] has something to do. `None` where spilling is off.
    pub fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.spiller.as_ref().map(Spiller::wake_fd)
    }

    /// Takes in what the disk's thread did.
    pub fn progress(&mut self) {
        let Some(spiller) = &self.spiller else { return };
        let copied: Vec<_> = spiller.copied().collect();
        for (job, result) in copied {
            let result = result.map(|file| {
                if let Some(file) = file {
                    self.spilled.insert(job, file);
                }
            });
            self.book.job_done(job, result);
        }
        self.apply();
    }

    /// What has been said since the last call, in order.
    pub fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Every object that is known.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.book.objects()
    }

    /// Where an object is; `None` for an unknown or deleted one.
    pub fn state(&self, object: ObjectId) -> Option<ObjectState> {
        self.book.state_of(object)
    }

    /// An object's bytes, wherever it is; `None` for an unknown one.
    pub fn size(&self, object: ObjectId) -> Option<u64> {
        self.book.size_of(object)
    }

    /// What the store holds.
    pub fn stats(&self) -> Stats {
        self.book.stats()
    }

    /// Bytes of segments that belong to objects.
    pub fn used_bytes(&self) -> u64 {
        self.book.used_bytes()
    }

    fn apply(&mut self) {
        while let Some(effect) = self.book.next_effect() {
            match effect {
                Effect::Make { file, bytes } => match Memory::new(bytes) {
                    Ok(memory) => drop(self.memory.insert(file, memory)),
                    Err(error) => self.book.make_failed(file, error.to_string()),
                },
                Effect::Discard { segment, capacity } => self.memory[&segment.file].discard(segment.offset, capacity),
                Effect::Drop { file } => match self.memory.remove(&file) {
                    Some(memory) => {
                        self.kept.forget(file);
                        memory.discard(0, memory.bytes());
                    }
                    None => drop(self.mapped.remove(&file).expect("files are dropped once")),
                },
                Effect::Map { name, file } => drop(self.mapped.insert(name, self.spilled[&file].clone())),
                Effect::Check { job, file } => {
                    let spilled = self.spilled[&file].clone();
                    self.submit(job, Copy::Check { spilled });
                }
                Effect::File { job, size } => self.submit(job, Copy::Nothing { size }),
                Effect::Spill { job, segment, size, owner } => {
                    self.submit(job, Copy::ToDisk { memory: self.place_of(segment), size, owner });
                }
                Effect::Restore { job, segment, file } => {
                    let spilled = self.spilled[&file].clone();
                    self.submit(job, Copy::FromDisk { memory: self.place_of(segment), spilled });
                }
                Effect::Duplicate { job, from, to, size } => {
                    self.submit(job, Copy::Duplicate { from: self.place_of(from), to: self.place_of(to), size });
                }
                Effect::Forget { file } => drop(self.spilled.remove(&file).expect("files are forgotten once")),
                Effect::Tell(event) => self.events.push(event),
            }
        }
    }

    fn place_of(&self, segment: SegmentId) -> Place {
        match self.memory.get(&segment.file) {
            Some(memory) => Place { file: memory.file(), offset: segment.offset },
            None => self.mapped[&segment.file].place(),
        }
    }

    fn submit(&mut self, job: CopyId, copy: Copy) {
        let submitted = match &self.spiller {
            Some(spiller) => spiller.submit(job, copy),
            None => Err(Failure::Gone("there is no thread that copies where spilling is off".to_owned())),
        };
        if let Err(reason) = submitted {
            self.book.job_done(job, Err(reason));
        }
    }
}

fn gone(file: FileId) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("file {} is gone", file.0))
}
