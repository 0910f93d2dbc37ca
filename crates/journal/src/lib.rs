//! What must outlive the head: rows in tables, written and synced before they are answered for.
//!
//! A [`Store`] knows nothing of what its rows mean. [`LogFile`] keeps them in a file of this machine, [`EtcdStore`] where
//! another machine may go on with them.
//!
//! - JOURNAL-1: a batch whose commit returned is there after any crash, whole and in order.
//! - JOURNAL-2: a batch whose commit failed is not there, and the next commit is tried like the first.
//! - JOURNAL-3: what was changed by anybody but a store is refused when it is opened, never read as something else. Only
//!   what is behind the last record, and is none, is cut off: nobody was told of it.

mod etcd;
mod file;
mod record;

pub use etcd::{AccessFault, Claim, EtcdAccess, EtcdAddress, EtcdFiles, EtcdStore};
pub use file::{LogFile, Opened};

use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A kind of row.
pub type Table = u32;

/// All rows of a store, by table and key.
pub type Rows = BTreeMap<(Table, Bytes), Bytes>;

/// One row is to become this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The kind of row.
    pub table: Table,
    /// Which of them.
    pub key: Bytes,
    /// What it holds from then on; nothing where the row is to go.
    pub value: Option<Bytes>,
}

/// Why rows cannot be written, or are not to be trusted.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The operating system refused.
    #[error("the head's journal {} cannot be {step}: {source}{}", path.display(), way_out(source))]
    System {
        /// The file.
        path: PathBuf,
        /// What was to be done with it.
        step: &'static str,
        /// What happened.
        source: io::Error,
    },
    /// Its bytes are not what was written.
    #[error(
        "the head's journal {} was changed by something else than a head, or its disk is at fault: {what} at byte {at} of {size}. Put a copy of it back, or give up what it holds with `oxiray start --head --fresh`", path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: &'static str,
        /// Where.
        at: u64,
        /// The size of the file in bytes.
        size: u64,
    },
    /// etcd does not answer, or not as it should.
    #[error(
        "the head's journal in {store} cannot be used: {reason}. Nothing that was acknowledged is lost; see that etcd runs there and can be reached, and ask again"
    )]
    Etcd {
        /// Where it is.
        store: String,
        /// What happened.
        reason: String,
    },
    /// Another is the head.
    #[error("another head writes the journal in {store} now, or this one's lease of it was lost: this head ends")]
    Fenced {
        /// Where it is.
        store: String,
    },
    /// A later version wrote it.
    #[error(
        "the head's journal {} has version {found}, and this is a version of Oxiray that knows {known} and older: start the version that wrote it, or give up what it holds with `oxiray start --head --fresh`", path.display()
    )]
    Later {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The latest that can be read.
        known: u32,
    },
}

fn way_out(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ". Nothing that was acknowledged is lost; free some space there, and ask again"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ". Make its folder writable for this user, or choose another with --temp-dir"
        }
        _ => "",
    }
}

/// Until when a process is sure to be the only one that writes, for whoever asks, on any thread.
#[derive(Debug, Clone)]
pub struct Tenure(Arc<AtomicU64>);

impl Tenure {
    fn new(until: Duration) -> Self {
        Self(Arc::new(AtomicU64::new(until.as_nanos() as u64)))
    }

    fn set(&self, until: Duration) {
        self.0.store(until.as_nanos() as u64, Ordering::Release);
    }

    /// As time since the machine was started, suspension included. It may have become later whenever it is asked.
    pub fn until(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }
}

/// Where rows are kept.
pub trait Store: std::fmt::Debug + Send {
    /// Makes all the changes or none, and returns when they are safe (JOURNAL-1, JOURNAL-2).
    ///
    /// # Errors
    /// Where they are not.
    fn commit(&mut self, batch: &[Change]) -> Result<(), Fault>;

    /// All rows that were there when it was opened.
    fn rows(&self) -> &Rows;

    /// Until when this process is sure to be the only one that writes; nothing where no other can.
    fn tenure(&self) -> Option<Tenure> {
        None
    }

    /// The cluster ends for good, and so does what is kept of it.
    fn finish(&mut self) {}
}

#[cfg(test)]
mod tests;
