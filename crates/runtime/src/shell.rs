//! What surrounds the core of a real process: sockets and rings, mapped files, threads, and the clock.

mod interrupts;
mod unfinished;

use crate::away::DaemonReconnect;
use crate::core::{Client, DAEMON, Io, Role, Token};
use crate::interrupts::Interrupter;
use crate::lead::protocol::Lead;
use crate::links::Links;
use crate::metrics::Telling;
use crate::spin::Spin;
use crate::unfinished::Unfinished;
use crate::watched::{Noticed, Sign};
use oxiray_ids::{ObjectId, TaskId};
use oxiray_store::{Access, Extent, FileId, SegmentCache};
use oxiray_wire::message::{Failure, FailureCode, SegmentsUnmapped, StackQuery};
use oxiray_wire::{Body, Received};
use rustc_hash::FxHashMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Files of the store that stay mapped though nothing in them is read or written, about.
const FILES_LIMIT: usize = 1024;

/// The core of a real process, changed only under its one lock.
pub(crate) type State = Client<Shell>;

/// What the core of a real process has its effects carried out by.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) links: Links,
    pub(crate) unfinished: Unfinished,
    pub(crate) lead: Lead,
    pub(crate) spin: Spin,
    /// Streams of which something is noticed: a list that is kept, since one a turn is felt.
    pub(crate) noticed: Vec<Noticed>,
    pub(crate) metrics: Telling,
    /// How a driver finds its daemon again.
    pub(crate) away: Option<DaemonReconnect>,
    pub(crate) segments: SegmentCache,
    /// Stored objects that are mapped for reading, and how often.
    pub(crate) pinned: FxHashMap<ObjectId, u32>,
    /// How the thread that runs calls is interrupted.
    pub(crate) knocker: Option<Interrupter>,
    /// Tells the call that the asking thread runs, where threads know.
    pub(crate) here: Option<fn() -> TaskId>,
    /// Has the stacks of the program's threads taken, in a thread of its own.
    pub(crate) stacks: Option<TakeStacks>,
    /// A list that is kept for what is read, since one a turn is felt.
    received: Vec<Received>,
}

/// Begins to answer a question about stacks, or says why not.
pub(crate) type TakeStacks = fn(&StackQuery) -> Result<(), String>;

impl Shell {
    pub(crate) fn new(links: Links) -> Self {
        Self {
            links,
            unfinished: Unfinished::default(),
            lead: Lead::default(),
            spin: Spin::default(),
            noticed: Vec::new(),
            metrics: Telling::default(),
            away: None,
            segments: SegmentCache::default(),
            pinned: FxHashMap::default(),
            knocker: None,
            here: None,
            stacks: None,
            received: Vec::new(),
        }
    }
}

impl Io for Shell {
    type Descriptor = OwnedFd;

    fn open(&mut self, end: OwnedFd, role: Role, is_near: bool) -> Option<Token> {
        self.links.adopt(end, role, is_near).ok()
    }

    fn close(&mut self, stream: Token) {
        self.links.remove(stream);
    }

    fn send(&mut self, stream: Token, message: &impl Body) {
        self.links.post(stream, message);
    }

    fn send_now(&mut self, stream: Token, message: &impl Body) {
        self.links.post_now(stream, message);
    }

    fn send_soon(&mut self, stream: Token, message: &impl Body) {
        self.links.post_soon(stream, message);
    }

    fn flush(&mut self) {
        self.links.flush_all();
    }

    fn stop_reading(&mut self, stream: Token) {
        self.links.hold_back(stream);
    }

    fn read_again(&mut self, stream: Token) {
        self.links.read_on(stream);
    }

    fn read_now(&mut self, stream: Token, inbox: &mut Vec<Received>) -> bool {
        self.links.receive(stream, Sign::Readable, inbox)
    }

    fn unsent_bytes(&self, stream: Token) -> usize {
        self.links.unsent_bytes(stream)
    }

    fn map(&mut self, file: FileId, access: Access, extent: Extent, descriptor: OwnedFd) -> Result<(), Failure> {
        self.segments.insert(file, access, &descriptor, extent).map_err(|error| {
            FailureCode::System.because(format!(
                "{} bytes of the object store could not be mapped into this process: {error}",
                extent.bytes
            ))
        })?;
        let files: Vec<u64> = self.segments.trim(FILES_LIMIT, file).into_iter().map(|file| file.0).collect();
        if !files.is_empty() {
            // The daemon is to hear of that before it is asked for anything else.
            self.links.post_now(DAEMON, &SegmentsUnmapped { files });
        }
        Ok(())
    }

    fn retire(&mut self, file: FileId) {
        self.segments.retire(file);
    }

    fn take_stacks(&mut self, asked: &StackQuery) -> Result<(), String> {
        let nobody = "its stacks are not available: it is no Python program, and takes none of its own";
        self.stacks.ok_or(nobody)?(asked)
    }

    fn is_mapped(&self, object: ObjectId) -> bool {
        self.pinned.contains_key(&object)
    }

    fn look_for_daemon(&mut self) -> bool {
        self.away.as_mut().is_some_and(DaemonReconnect::begin_to_look)
    }

    fn give_daemon_up(&mut self) {
        self.away = None;
    }

    fn interrupt(&mut self) {
        if let Some(knocker) = &self.knocker {
            knocker.knock();
        }
    }

    fn end_process(&mut self) {
        // The signal ends this process before the call returns; the daemon sees to what it started.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

impl State {
    /// Handles everything that epoll reported.
    pub(crate) fn serve(&mut self, events: &[Noticed]) {
        for (stream, sign) in events.iter().copied() {
            if !self.io.links.is_open(stream) {
                self.io.links.receive(stream, sign, &mut Vec::new());
                continue;
            }
            let mut received = std::mem::take(&mut self.io.received);
            let mut over = self.io.links.receive(stream, sign, &mut received);
            // A generator may wait for room.
            self.signals.changed |= std::mem::take(&mut self.io.links.made_room) || sign == Sign::Writable;
            for received in received.drain(..) {
                self.heard(stream, received);
            }
            self.io.received = received;
            while !over {
                match self.io.links.next(stream) {
                    Ok(Some(received)) => self.heard(stream, received),
                    Ok(None) => break,
                    Err(_) => over = true,
                }
            }
            self.watch_progress(stream);
            if over {
                let was_made = !self.io.links.was_unmade(stream);
                self.ended(stream, was_made);
            }
        }
        self.settle();
    }

    /// When [`State::do_what_is_due`] has something to do next.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        let own = [self.io.links.flush_at(), self.io.unfinished.looks_at, self.io.metrics.at];
        own.into_iter().chain([self.next_timer()]).flatten().min()
    }

    pub(crate) fn do_what_is_due(&mut self, now: Instant) {
        if self.io.links.flush_at().is_some_and(|at| at <= now) {
            self.io.links.flush_all();
        }
        if self.io.metrics.at.is_some_and(|at| at <= now) {
            self.tell_of_metrics();
        }
        if self.io.unfinished.looks_at.is_some_and(|at| at <= now) {
            self.look_at_unfinished(now);
        }
        self.run_timers(now);
    }
}
