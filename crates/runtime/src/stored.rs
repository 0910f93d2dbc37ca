//! Values in the machine's store, as the language front uses them.

use crate::core::client::object_log::size_of;
use crate::core::client::program::Retained;
use crate::core::questions::DaemonAnswer;
use crate::core::retrying::MemoryRetries;
use crate::core::{DAEMON, INLINE_BYTES};
use crate::lead::Shared;
use crate::pins_ahead::AskedPin;
use crate::runtime::{Runtime, RuntimeError, unexpected};
use crate::shell::State;
use oxiray_ids::{ObjectId, TaskId};
use oxiray_store::{PrivateMapping, ReadMapping, SegmentId, WriteMapping};
use oxiray_wire::Message;
use oxiray_wire::message::{
    Abort, Allocate, CollectGarbage, DeviceErrorRaised, DeviceErrorsQuery, Failure, FailureCode, Holdings,
    HoldingsQuery, Pin, SegmentsUnmapped, Unpin,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often a grant may cross the unmapping of its segment.
const GRANTS_LIMIT: usize = 8;

/// How long a call that raised waits for its machine's word on its devices.
const DEVICE_ERRORS_LIMIT: Duration = Duration::from_secs(1);

/// A stored object mapped for reading; it stays in memory until this is dropped.
#[derive(Debug)]
pub struct Pinned {
    mapping: ReadMapping,
    id: ObjectId,
    /// The head under which it was mapped: on that one's machine, the next daemon knows nothing of it.
    epoch: u64,
    shared: Arc<Shared>,
}

impl Pinned {
    /// The object's bytes, 64-byte aligned.
    pub fn bytes(&self) -> &[u8] {
        self.mapping.as_slice()
    }

    /// Memory with these of the object's bytes that is the caller's own, without a copy; for as long as this is pinned.
    /// Nothing where that cannot be had.
    pub fn private(&self, bytes: Range<usize>) -> Option<PrivateMapping> {
        // Where the kernel has no more mappings for this process, the caller copies.
        self.mapping.private(bytes).ok().flatten()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if !self.shared.abandoned.load(Ordering::Relaxed) {
            self.shared.with(|state| {
                if state.away_since(self.epoch) {
                    return;
                }
                if let Some(count) = state.io.pinned.get_mut(&self.id) {
                    *count -= 1;
                    if *count == 0 {
                        state.io.pinned.remove(&self.id);
                    }
                }
                state.io.links.post_late(&Unpin { object: self.id });
            });
        }
    }
}

/// What a process keeps: all of it returns to zero when its program lets go of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Objects known.
    pub objects: usize,
    /// Tasks that have not ended.
    pub tasks: usize,
    /// Workers leased.
    pub leases: usize,
    /// Tasks that can be run again where their results are lost.
    pub task_specs: usize,
    /// Bytes of the records for that.
    pub task_spec_bytes: usize,
    /// Files of the store that are mapped.
    pub segments: usize,
}

impl Runtime {
    /// For the next object that this process puts, of `size` bytes: a task of the connection's own, and the object's
    /// number there. An object larger than [`INLINE_BYTES`] is stored next under that name.
    pub fn next_put(&self, size: usize) -> (TaskId, u32) {
        let with_room =
            if size > INLINE_BYTES { self.shared.with_time(|state| state.name_with_room(size)) } else { None };
        with_room.unwrap_or_else(|| self.new_name())
    }

    pub(crate) fn new_name(&self) -> (TaskId, u32) {
        self.shared.puts.next(self.shared.identity.job)
    }

    /// Room in the store for an object, written by `write` and sealed; nothing where an earlier attempt of the same task
    /// wrote it.
    pub fn store(&self, id: ObjectId, size: usize, write: impl FnOnce(&mut [u8])) -> Result<(), RuntimeError> {
        let object = id;
        let mut lent = self.shared.with(|state| state.take_room(id));
        for _ in 0..GRANTS_LIMIT {
            let is_lent = lent.is_some();
            let (answer, epoch) = match lent.take() {
                Some((question, epoch)) => (self.answer_to(question, None, None), epoch),
                None => self.ask_for_room(object, size),
            };
            let segment = match answer {
                Ok(DaemonAnswer::Allocated(segment)) => segment,
                Err(RuntimeError::Failed(_)) if is_lent => {
                    self.shared.with_time(State::no_allocation_credit);
                    continue;
                }
                Ok(_) => return Err(unexpected()),
                // An earlier attempt got that far; the daemon counts this process as a holder as if it had written it.
                Err(RuntimeError::Failed(failure)) if failure.code == FailureCode::ObjectSealed => return Ok(()),
                Err(error) => return Err(error),
            };
            let mapping: Option<WriteMapping> = self.shared.with(|state| {
                let is_of_this_daemon = !state.away_since(epoch);
                state.io.segments.writer(segment, size).filter(|_| is_of_this_daemon)
            });
            let Some(mapping) = mapping else {
                self.shared.with(|state| state.daemon.questions.writing.remove(&id));
                self.give_up(segment, &Abort { object }.into());
                continue;
            };
            mapping.edit(write);
            self.shared.with_time(|state| state.seal(id, size, || self.new_name()));
            return Ok(());
        }
        Err(unexpected())
    }

    /// The answer, and the head under which it was asked for.
    fn ask_for_room(&self, object: ObjectId, size: usize) -> (Result<DaemonAnswer, RuntimeError>, u64) {
        let epoch = self.shared.with(|state| state.peers.epoch());
        let asked = |request| Allocate { request, object, size: size as u64, ahead: false }.into();
        (self.ask(asked), epoch)
    }

    /// Maps a stored object, waiting until `deadline` for room to read it back into.
    ///
    /// Where it fails with code `object_lost`, the loss is reported: the object has no value until it is made again, and
    /// [`Runtime::get`] waits for that. `asked` is the pin where [`crate::PinsAhead`] asked for it.
    pub fn pin(
        &self,
        id: ObjectId,
        asked: Option<AskedPin>,
        deadline: Option<Instant>,
    ) -> Result<Pinned, RuntimeError> {
        self.pin_unless(id, asked, deadline, |state, seen| state.report_lost(id, seen))
    }

    /// Maps a stored object that a call was given which is about to begin: `call` is its task, or the one that makes its
    /// actor, and nothing for a method.
    ///
    /// Where it fails with code `given_back`, the bytes are lost, and the call goes back to its owner when it is replied to,
    /// whatever the reply. Where it fails with code `object_lost`, it is waited for as after [`Runtime::pin`].
    pub fn pin_argument(&self, id: ObjectId, losses: u32, call: Option<TaskId>) -> Result<Pinned, RuntimeError> {
        let mut goes_back = false;
        let pinned =
            self.pin_unless(id, None, None, |state, seen| goes_back = state.argument_lost(call, id, losses, seen));
        pinned.map_err(|error| match error {
            RuntimeError::Failed(failure) if goes_back => {
                RuntimeError::Failed(Failure { code: FailureCode::GivenBack, ..failure })
            }
            error => error,
        })
    }

    /// The same; `on_loss` is told how often the object was known to be lost before.
    fn pin_unless(
        &self,
        id: ObjectId,
        mut asked: Option<AskedPin>,
        deadline: Option<Instant>,
        on_loss: impl FnOnce(&mut State, u32),
    ) -> Result<Pinned, RuntimeError> {
        let object = id;
        for _ in 0..GRANTS_LIMIT {
            let is_asked = asked.is_some();
            let (answer, epoch, losses) = if let Some((question, epoch)) = asked.take().map(AskedPin::take) {
                (self.answer_to(question, deadline, Some(object)), epoch, 0)
            } else {
                let (epoch, losses) = self.shared.with(|state| (state.peers.epoch(), state.objects.losses(id)));
                let ask = |request| Pin { request, object }.into();
                (self.ask_until(deadline, Some(object), ask), epoch, losses)
            };
            let (segment, size) = match answer {
                Ok(DaemonAnswer::Pinned(segment, size)) => (segment, size as usize),
                Ok(_) => return Err(unexpected()),
                // Too many may have been asked for: this one alone is another matter.
                Err(RuntimeError::Failed(_)) if is_asked => continue,
                Err(error) => {
                    if matches!(&error, RuntimeError::Failed(failure) if failure.code == FailureCode::ObjectLost) {
                        self.shared.with_time(|state| on_loss(state, losses));
                    }
                    return Err(error);
                }
            };
            let mapping = self.shared.with(|state| {
                let is_of_this_daemon = !state.away_since(epoch);
                let mapping = state.io.segments.reader(segment, size).filter(|_| is_of_this_daemon)?;
                *state.io.pinned.entry(id).or_default() += 1;
                Some(mapping)
            });
            match mapping {
                Some(mapping) => return Ok(Pinned { mapping, id, epoch, shared: Arc::clone(&self.shared) }),
                None => self.give_up(segment, &Unpin { object }.into()),
            }
        }
        Err(unexpected())
    }

    /// A grant came for a segment that was unmapped while it was on its way: `back` gives it back, so that the next
    /// brings the descriptor again.
    fn give_up(&self, segment: SegmentId, back: &Message) {
        self.shared.with(|state| {
            state.io.links.post(DAEMON, back);
            state.io.links.post_now(DAEMON, &SegmentsUnmapped { files: vec![segment.file.0] });
        });
    }

    /// Gives the memory of these objects back, whoever refers to them: reading them fails from here on.
    pub fn free(&self, ids: &[ObjectId]) {
        self.shared.with_time(|state| state.free(ids));
    }

    /// Asks every other process of the cluster to collect garbage. A worker does when its task is done.
    pub fn collect_garbage(&self) {
        self.shared.with(|state| state.io.links.post_now(DAEMON, &CollectGarbage {}));
    }

    /// Tells that code which ran here raised an error of a device.
    pub fn device_error_raised(&self, text: String) {
        self.shared.with(|state| state.io.links.post_now(DAEMON, &DeviceErrorRaised { text }));
    }

    /// What drivers reported of this process's devices while a call ran here that has raised, in words; nothing where its
    /// machine does not say in time.
    pub fn device_errors(&self, task: TaskId) -> Vec<String> {
        let now = Instant::now();
        let Some(began) = self.shared.with(|state| state.log.began(task)) else { return Vec::new() };
        // Whole milliseconds, and the first in full.
        let lasted_ms = now.saturating_duration_since(began).as_millis() as u64 + 1;
        let asked = |request| DeviceErrorsQuery { request, lasted_ms }.into();
        match self.ask_until(Some(now + DEVICE_ERRORS_LIMIT), None, asked) {
            Ok(DaemonAnswer::DeviceErrors(texts)) => texts,
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    /// Whether lost values are made again, and how many bytes the records for that may take.
    pub fn configure_lineage(&self, enabled: bool, bytes_limit: usize) {
        self.shared.with(|state| state.lineage.configure(enabled, bytes_limit));
    }

    /// How long a task waits at least before it is run again, and how often and when one is that memory was short for.
    pub fn configure_retries(&self, delay: Duration, memory: MemoryRetries) {
        self.shared.with(|state| (state.calls.retries.delay, state.calls.retries.memory) = (delay, memory));
    }

    /// Parts of objects that are mapped from now on may be had as memory of this process's own ([`Pinned::private`]). It
    /// costs a descriptor for each large file of the store that is mapped.
    pub fn keep_descriptors(&self) {
        self.shared.with(|state| state.io.segments.keep_descriptors());
    }

    /// What this process keeps.
    pub fn figures(&self) -> Figures {
        self.shared.with(|state| {
            let Retained { objects, tasks, leases, task_specs, task_spec_bytes } = state.kept();
            Figures { objects, tasks, leases, task_specs, task_spec_bytes, segments: state.io.segments.len() }
        })
    }

    /// References to these were made at a place in the program, which is remembered as long as they are known.
    pub fn record_site(&self, ids: &[ObjectId], site: &str) {
        self.shared.with(|state| state.objects.record_site(ids, site));
    }

    /// What runs in this process runs in this runtime environment, given as JSON.
    pub fn note_environment(&self, described: String) {
        self.shared.with(|state| state.note_environment(described));
    }

    /// Where references to an object were made, where that was recorded.
    pub fn site(&self, id: ObjectId) -> String {
        self.shared.with(|state| state.objects.site(id).unwrap_or_default().to_owned())
    }

    /// The bytes of an object, where this process knows its value.
    pub fn size_of(&self, id: ObjectId) -> Option<u64> {
        self.shared.with(|state| state.objects.value(id).and_then(size_of))
    }

    /// Which of these objects the head knows, who holds them and where they lie; all that it knows where none is named.
    pub fn holdings(&self, objects: &[ObjectId], deadline: Option<Instant>) -> Result<Holdings, RuntimeError> {
        let asked = |request| HoldingsQuery { request, objects: objects.to_vec() }.into();
        match self.ask_until(deadline, None, asked)? {
            DaemonAnswer::Holdings(told) => Ok(told),
            _ => Err(unexpected()),
        }
    }
}
