//! The store's side: orders to the program, its answers, and the program started again where it dies.

use super::StorageOptions;
use super::orders::{RANGES_MAX, Range, StorageAnswer, StorageOrder, receive, send};
use crate::book::{CopyId, Failure};
use crate::spill::{Copied, Part, Place, SHARED_BYTES, SHARED_PART, SpilledFile, Work};
use oxiray_ids::JobId;
use oxiray_threads::Post;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long the storage may take to answer when the store is made.
const PROBE_LIMIT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
/// How long the program may take to remove what the session left there; it goes on for a while where the store cannot wait.
const END_LIMIT: Duration = Duration::from_secs(20);
/// How many programs may die over an order.
const TRIES_MAX: u32 = 3;

/// A file in the storage, which goes when nobody has a part of it any more (STORAGE-1).
#[derive(Debug)]
pub(crate) struct StoredFile {
    key: String,
    copier: Sender<Work>,
}

impl Drop for StoredFile {
    fn drop(&mut self) {
        // Where the copier is gone, so is the session.
        let _ = self.copier.send(Work::Delete(std::mem::take(&mut self.key)));
    }
}

/// An object's part of it.
#[derive(Debug)]
pub(crate) struct StoredPart {
    file: Arc<StoredFile>,
    offset: u64,
    /// A copy on this machine's disk, for readers that memory has no room for.
    here: OnceLock<Part>,
}

impl StoredPart {
    /// The copy on disk, once there is one.
    pub(crate) fn here(&self) -> Option<&Part> {
        self.here.get()
    }
}

/// An object that is to be written.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) job: CopyId,
    pub(crate) memory: Place,
    pub(crate) size: u64,
    pub(crate) owner: JobId,
}

/// What follows from an answer.
#[derive(Debug)]
enum Purpose {
    Save { key: String, objects: Vec<(CopyId, u64)> },
    Restore(CopyId),
    BringHere { job: CopyId, stored: Arc<StoredPart>, part: Part },
}

#[derive(Debug)]
struct Pending {
    order: StorageOrder,
    files: Vec<Arc<File>>,
    purpose: Purpose,
    tries: u32,
}

impl Pending {
    fn send(&self, socket: &OwnedFd) -> io::Result<()> {
        let files: Vec<_> = self.files.iter().map(|file| file.as_fd()).collect();
        send(socket, &self.order, &files)
    }
}

/// The program that lives, and what it was asked.
#[derive(Debug)]
struct Line {
    socket: Arc<OwnedFd>,
    pid: u32,
    pending: BTreeMap<u64, Pending>,
    /// Why there is no program any more.
    broken: Option<String>,
    ends: bool,
}

#[derive(Debug)]
struct Shared {
    options: StorageOptions,
    line: Mutex<Line>,
    /// Something is asked of a program that may be dead, or it is to end.
    asked: Condvar,
    copied: Post<Copied>,
    copier: Sender<Work>,
}

/// The copier's handle.
#[derive(Debug)]
pub(crate) struct Storage {
    shared: Arc<Shared>,
    /// Over when the program has ended, and the thread that hears it.
    over: Receiver<()>,
    last: u64,
    gathered: Vec<Outgoing>,
}

fn start(options: &StorageOptions) -> io::Result<(Arc<OwnedFd>, u32)> {
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok((Arc::new(near), options.program.start(far)?))
}

/// Asks whether the storage takes objects, before anybody leans on it.
fn probe(socket: &OwnedFd) -> io::Result<()> {
    // A program that has given up already has said why.
    let _ = send(socket, &StorageOrder::Probe { id: 0 }, &[]);
    let mut waited = [PollFd::new(socket, PollFlags::IN)];
    if poll(&mut waited, Some(&PROBE_LIMIT))? == 0 {
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", PROBE_LIMIT.tv_sec)));
    }
    match receive::<StorageAnswer>(socket)? {
        Some((StorageAnswer::Done { .. }, _)) => Ok(()),
        Some((StorageAnswer::Gone { reason, .. } | StorageAnswer::Away { reason, .. }, _)) => {
            Err(io::Error::other(reason))
        }
        None => Err(io::Error::other("the program that speaks to it ended at once")),
    }
}

impl Storage {
    /// Starts the program, and asks the storage whether it can be used.
    pub(crate) fn open(options: &StorageOptions, copied: Post<Copied>, copier: Sender<Work>) -> io::Result<Self> {
        let (socket, pid) = start(options)?;
        if let Err(error) = probe(&socket) {
            options.program.kill(pid);
            return Err(error);
        }
        let line = Mutex::new(Line { socket, pid, pending: BTreeMap::new(), broken: None, ends: false });
        let shared = Arc::new(Shared { options: options.clone(), line, asked: Condvar::new(), copied, copier });
        let (heard, (lives, over)) = (Arc::clone(&shared), channel());
        oxiray_threads::spawn(oxiray_threads::STORE_STORAGE, move || {
            heard.hear();
            drop(lives);
        })?;
        Ok(Self { shared, over, last: 0, gathered: Vec::new() })
    }

    /// Has an object written, together with others that come with it.
    pub(crate) fn save(&mut self, outgoing: Outgoing) {
        self.gathered.push(outgoing);
    }

    /// Nothing more comes for now: what was gathered goes, as few files.
    pub(crate) fn flush(&mut self) {
        let mut groups: BTreeMap<JobId, Vec<Outgoing>> = BTreeMap::new();
        for outgoing in std::mem::take(&mut self.gathered) {
            let size = outgoing.size;
            if size > SHARED_BYTES / SHARED_PART {
                self.put(&[outgoing]);
                continue;
            }
            let owner = outgoing.owner;
            let group = groups.entry(owner).or_default();
            let full = group.iter().map(|other| other.size).sum::<u64>() + size > SHARED_BYTES;
            if full || group.len() == RANGES_MAX {
                let whole = std::mem::take(group);
                group.push(outgoing);
                self.put(&whole);
            } else {
                group.push(outgoing);
            }
        }
        for group in groups.into_values() {
            self.put(&group);
        }
    }

    fn put(&mut self, group: &[Outgoing]) {
        self.last += 1;
        let (id, key) = (self.last, self.last.to_string());
        let mut files: Vec<Arc<File>> = Vec::new();
        let mut ranges = Vec::with_capacity(group.len());
        for Outgoing { memory, size, .. } in group {
            let known = files.iter().position(|file| Arc::ptr_eq(file, &memory.file));
            let file = known.unwrap_or_else(|| {
                files.push(Arc::clone(&memory.file));
                files.len() - 1
            });
            ranges.push(Range { file: file as u32, offset: memory.offset, bytes: *size });
        }
        let objects = group.iter().map(|outgoing| (outgoing.job, outgoing.size)).collect();
        let order = StorageOrder::Put { id, key: key.clone(), ranges };
        self.ask(id, Pending { order, files, purpose: Purpose::Save { key, objects }, tries: 0 });
    }

    /// Has an object read back into memory.
    pub(crate) fn restore(&mut self, job: CopyId, memory: &Place, spilled: &SpilledFile, stored: &StoredPart) {
        self.get(memory, spilled, stored, Purpose::Restore(job));
    }

    /// Has an object read back into a file of this machine, `part`.
    pub(crate) fn bring_here(&mut self, job: CopyId, spilled: &SpilledFile, stored: &Arc<StoredPart>, part: Part) {
        let place = part.place();
        let purpose = Purpose::BringHere { job, stored: Arc::clone(stored), part };
        self.get(&place, spilled, stored, purpose);
    }

    fn get(&mut self, place: &Place, spilled: &SpilledFile, stored: &StoredPart, purpose: Purpose) {
        self.last += 1;
        let to = Range { file: 0, offset: place.offset, bytes: spilled.size() };
        let checksum = spilled.checksum().expect("what is in the storage was summed up as it went there");
        let order =
            StorageOrder::Get { id: self.last, key: stored.file.key.clone(), offset: stored.offset, to, checksum };
        self.ask(self.last, Pending { order, files: vec![Arc::clone(&place.file)], purpose, tries: 0 });
    }

    /// Where it cannot be sent, the program is dead, and whoever hears that starts another.
    fn ask(&self, id: u64, pending: Pending) {
        let mut line = self.shared.line.lock();
        if let Some(reason) = &line.broken {
            return self.shared.failed(&pending.purpose, &Failure::Away(reason.clone()));
        }
        let _ = pending.send(&line.socket);
        line.pending.insert(id, pending);
        self.shared.asked.notify_one();
    }

    pub(crate) fn delete(&self, key: String) {
        // What is not deleted goes at the end.
        let _ = send(&self.shared.line.lock().socket, &StorageOrder::Delete { key }, &[]);
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let pid = {
            let mut line = self.shared.line.lock();
            line.ends = true;
            self.shared.asked.notify_one();
            let _ = shutdown(&line.socket, Shutdown::Write);
            line.pid
        };
        if self.over.recv_timeout(END_LIMIT) == Err(RecvTimeoutError::Timeout) {
            self.shared.options.program.kill(pid);
        }
    }
}

impl Shared {
    /// Hears the program until it has ended and is not to be started again.
    fn hear(&self) {
        loop {
            let (socket, pid) = {
                let line = self.line.lock();
                (Arc::clone(&line.socket), line.pid)
            };
            // The end of the socket is that of the program's last thread.
            loop {
                match receive::<StorageAnswer>(&socket) {
                    Ok(Some((answer, _))) => self.answered(answer),
                    Ok(None) => break,
                    // Whoever says what is no answer is good for nothing.
                    Err(_) => self.options.program.kill(pid),
                }
            }
            if !self.go_on() {
                return;
            }
        }
    }

    fn answered(&self, answer: StorageAnswer) {
        let (StorageAnswer::Done { id, .. } | StorageAnswer::Gone { id, .. } | StorageAnswer::Away { id, .. }) = answer;
        let Some(pending) = self.line.lock().pending.remove(&id) else { return };
        match answer {
            StorageAnswer::Done { checksums, .. } => self.done(pending.purpose, &checksums),
            StorageAnswer::Gone { reason, .. } => self.failed(&pending.purpose, &Failure::Gone(reason)),
            StorageAnswer::Away { reason, .. } => self.failed(&pending.purpose, &Failure::Away(reason)),
        }
    }

    fn done(&self, purpose: Purpose, checksums: &[u32]) {
        match purpose {
            Purpose::Save { key, objects } => {
                let file = Arc::new(StoredFile { key, copier: self.copier.clone() });
                let mut offset = 0;
                for ((job, size), checksum) in objects.into_iter().zip(checksums) {
                    let stored = StoredPart { file: Arc::clone(&file), offset, here: OnceLock::new() };
                    self.copied.post((job, Ok(Some(SpilledFile::stored(stored, size, *checksum)))));
                    offset += size;
                }
            }
            Purpose::Restore(job) => self.copied.post((job, Ok(None))),
            Purpose::BringHere { job, stored, part } => {
                // Whoever was first brought the same bytes.
                let _ = stored.here.set(part);
                self.copied.post((job, Ok(None)));
            }
        }
    }

    fn failed(&self, purpose: &Purpose, failure: &Failure) {
        match purpose {
            Purpose::Save { objects, .. } => {
                for (job, _) in objects {
                    self.copied.post((*job, Err(failure.clone())));
                }
            }
            Purpose::Restore(job) | Purpose::BringHere { job, .. } => self.copied.post((*job, Err(failure.clone()))),
        }
    }

    /// The program is dead. Starts another as soon as there is something to ask, and asks it what the last did not answer
    /// (STORAGE-2); returns whether one is to be heard.
    fn go_on(&self) -> bool {
        let mut line = self.line.lock();
        self.asked.wait_while(&mut line, |line| line.pending.is_empty() && !line.ends);
        if line.ends {
            return false;
        }
        let started = start(&self.options);
        let (tries_max, reason) = match &started {
            Ok(_) => (TRIES_MAX, format!("the program that speaks to {} died over it", self.options.url)),
            Err(error) => (0, error.to_string()),
        };
        line.pending.retain(|_, pending| {
            let is_kept = pending.tries + 1 < tries_max;
            if !is_kept {
                self.failed(&pending.purpose, &Failure::Away(reason.clone()));
            }
            is_kept
        });
        let Ok((socket, pid)) = started else {
            line.broken = Some(reason);
            return false;
        };
        (line.socket, line.pid) = (Arc::clone(&socket), pid);
        for pending in line.pending.values_mut() {
            pending.tries += 1;
            let _ = pending.send(&socket);
        }
        true
    }
}
