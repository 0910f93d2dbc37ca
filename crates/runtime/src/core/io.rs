//! What the core has done for it by the shell that it runs in: the only way out of the core.
//!
//! Each method is an effect. The shell of a real process writes to sockets and rings at once, so that a frame on the fast
//! path is copied nowhere on its way; the simulator keeps them in a list and carries them out in its own time.

use oxiray_ids::{ActorId, LeaseNumber, ObjectId, WorkerId};
use oxiray_store::{Access, Extent, FileId};
use oxiray_wire::message::{Failure, StackQuery};
use oxiray_wire::{Body, Received};

/// Names a stream for as long as it is open; never used again.
pub type Token = u64;

/// The stream to the daemon.
pub const DAEMON: Token = 0;

/// Who is at the other end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// This machine's daemon.
    Daemon,
    /// A leased worker that runs our tasks.
    Lease(LeaseNumber),
    /// An actor that runs our calls.
    Actor(ActorId),
    /// A client whose calls we run.
    Client(WorkerId),
}

/// The shell of a [`Client`](crate::core::Client).
pub trait Io {
    /// An end of a stream, or a file, as a message brings it.
    type Descriptor: std::fmt::Debug;

    // --- streams ---

    /// Begins to read a stream that the daemon introduced; `is_near` where it leads to a process on this machine that will
    /// take shared memory. Nothing where it cannot be watched: it is closed then.
    fn open(&mut self, end: Self::Descriptor, role: Role, is_near: bool) -> Option<Token>;

    /// Closes a stream, where it is open.
    fn close(&mut self, stream: Token);

    /// Sends a message together with others that follow. Nothing happens where the stream is gone.
    fn send(&mut self, stream: Token, message: &impl Body);

    /// Sends a message, and what was kept back before it, at once.
    fn send_now(&mut self, stream: Token, message: &impl Body);

    /// Sends a message at once where nothing was sent for a while, and together with others where one follows another.
    fn send_soon(&mut self, stream: Token, message: &impl Body);

    /// Sends everything that was kept back.
    fn flush(&mut self);

    /// Reads nothing more of a stream for now.
    fn stop_reading(&mut self, stream: Token);

    /// Reads a stream again.
    fn read_again(&mut self, stream: Token);

    /// Reads what has arrived on a stream by now; whether it is at its end.
    fn read_now(&mut self, stream: Token, inbox: &mut Vec<Received<Self::Descriptor>>) -> bool;

    /// Bytes that the peer has yet to take.
    fn unsent_bytes(&self, stream: Token) -> usize;

    // --- the object store ---

    /// Maps a part of one of the store's files.
    fn map(
        &mut self,
        file: FileId,
        access: Access,
        extent: Extent,
        descriptor: Self::Descriptor,
    ) -> Result<(), Failure>;

    /// The daemon uses a file of the store no more.
    fn retire(&mut self, file: FileId);

    /// Whether an object is mapped for reading.
    fn is_mapped(&self, object: ObjectId) -> bool;

    // --- the process ---

    /// Begins to look for the daemon, whose stream is over; `false` where that cannot be done.
    fn look_for_daemon(&mut self) -> bool;

    /// The daemon is lost for good: nobody looks for it any more.
    fn give_daemon_up(&mut self);

    /// Interrupts the thread that runs calls.
    fn interrupt(&mut self);

    /// Ends this process.
    fn end_process(&mut self);

    /// Has the stacks of the program's threads taken, now or over a time, which are told as the answer then.
    ///
    /// # Errors
    /// Why they are not.
    fn take_stacks(&mut self, asked: &StackQuery) -> Result<(), String>;
}
