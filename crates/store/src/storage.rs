//! Objects beyond one disk: in storage that speaks S3, through a program of its own, which is the only one that knows of
//! HTTP. It is started with the store where objects are to go there, and again when it dies; what it was about is then
//! asked of it anew. Once the store is gone, however its process ended, the program removes what the session left in the
//! storage, and ends.
//!
//! - STORAGE-1: a file in the storage holds objects of one job, and goes with the last of them.
//! - STORAGE-2: of an order, at most one program works on it: it is handed to the next one only when the last is dead, so
//!   that nobody writes into memory which the store has given to another object.

pub(crate) mod client;
mod orders;

pub use orders::{RANGES_MAX, Range, StorageAnswer, StorageOrder, receive, send};

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How the program is started, and ended where it does not end by itself: the business of whoever minds the children of
/// this process.
pub trait StorageProgram: Debug + Send + Sync {
    /// Starts it with the socket as its standard input, and returns its process.
    fn start(&self, socket: OwnedFd) -> io::Result<u32>;
    /// Kills that process, where it is still there.
    fn kill(&self, pid: u32);
}

/// The storage of one store.
#[derive(Debug, Clone)]
pub struct StorageOptions {
    /// The program that speaks to it.
    pub program: Arc<dyn StorageProgram>,
    /// Where objects go, for messages: `s3://bucket/prefix`.
    pub url: String,
}
