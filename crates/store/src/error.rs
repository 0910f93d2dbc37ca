//! Why the store refuses.

use crate::ClientId;
use oxiray_ids::{JobId, ObjectId};
use std::fmt;
use thiserror::Error;

/// A refused request: what was asked, what there is, what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The identifier is taken.
    #[error("object {object} exists already; objects are written once")]
    Exists {
        /// The object.
        object: ObjectId,
    },
    /// The object was written already, by an earlier attempt of the task that makes it: it can be pinned.
    #[error("object {object} is written already")]
    Sealed {
        /// The object.
        object: ObjectId,
    },
    /// Nothing is known of the object.
    #[error("object {object} is not in this store: it was never created here, or it was deleted")]
    Unknown {
        /// The object.
        object: ObjectId,
    },
    /// The object was known, and its bytes are gone.
    #[error("object {object} is lost: {reason}")]
    Lost {
        /// The object.
        object: ObjectId,
        /// What became of its bytes.
        reason: String,
    },
    /// Only processes of a job write its objects.
    #[error("object {object} is written by processes of job {}, and the one that asks is of job {job}", object.task().job())]
    Foreign {
        /// The object.
        object: ObjectId,
        /// The job of who asked.
        job: JobId,
    },
    /// The object lies in storage that does not answer.
    #[error("object {object} cannot be read back for now: {reason}")]
    Away {
        /// The object.
        object: ObjectId,
        /// What was asked of what, and what came of it.
        reason: String,
    },
    /// The object lies in another job's file, and could not be copied into one of the reader's job.
    #[error("object {object} could not be copied for the job that reads it: {reason}")]
    NotCopied {
        /// The object.
        object: ObjectId,
        /// Why not.
        reason: String,
    },
    /// A pin's time ran out while the object was on its way.
    #[error("object {object} is not ready: {reason}")]
    NotReady {
        /// The object.
        object: ObjectId,
        /// What it waited for.
        reason: &'static str,
    },
    /// Only the client that creates an object seals or aborts it, and once.
    #[error("client {} does not write object {object}: only its creator can seal or abort it, once", client.0)]
    NotWriter {
        /// The object.
        object: ObjectId,
        /// Who asked.
        client: ClientId,
    },
    /// The client gives back a pin that it does not hold.
    #[error("client {} holds no pin on object {object}", client.0)]
    NotPinned {
        /// The object.
        object: ObjectId,
        /// Who asked.
        client: ClientId,
    },
    /// The object alone is larger than the store.
    #[error(
        "an object of {} is larger than the whole object store of {}; raise object_store_memory or split the object",
        Bytes(*asked), Bytes(*capacity)
    )]
    TooLarge {
        /// The object's bytes.
        asked: u64,
        /// The store's.
        capacity: u64,
    },
    /// No room, and nothing that could be moved to disk would make enough.
    #[error(
        "no room for an object of {}: of the object store's {}, {} are in use and {} of these are pinned or being \
         written{}; release references, or raise object_store_memory",
        Bytes(*asked), Bytes(*capacity), Bytes(*used), Bytes(*held),
        if *spilling { "" } else { " (spilling to disk is off)" }
    )]
    ObjectStoreFull {
        /// The object's bytes.
        asked: u64,
        /// The store's.
        capacity: u64,
        /// Bytes that objects take.
        used: u64,
        /// Bytes of these that may not move.
        held: u64,
        /// Whether objects may be moved to disk at all.
        spilling: bool,
    },
    /// No room in memory, and the disk takes no more.
    #[error(
        "no room for an object of {}: the object store's {} are in use, and `{place}` holds {} of spilled objects of at \
         most {}{}; free space under `{place}`, raise the spill limit, or release references",
        Bytes(*asked), Bytes(*capacity), Bytes(*spilled), Bytes(*limit),
        reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default()
    )]
    OutOfDisk {
        /// The object's bytes.
        asked: u64,
        /// The store's.
        capacity: u64,
        /// Bytes on disk.
        spilled: u64,
        /// The most that may lie there.
        limit: u64,
        /// Where they lie.
        place: String,
        /// What the disk said, where it was the disk and not the limit.
        reason: Option<String>,
    },
    /// The operating system gave no memory file.
    #[error("no memory file of {} for the object: {reason}; where files are too many, raise `ulimit -n`", Bytes(*asked))]
    NoMemoryFile {
        /// The segment's bytes.
        asked: u64,
        /// What the operating system said.
        reason: String,
    },
    /// Room that was asked for ahead would cost somebody something.
    #[error(
        "no room for an object of {} is lent ahead: others wait for room, or half of the object store is in use",
        Bytes(*asked)
    )]
    NothingToSpare {
        /// The object's bytes.
        asked: u64,
    },
    /// The queue of waiting requests is full.
    #[error("{limit} requests wait for the object store already; ask again when some are answered")]
    TooManyWaiting {
        /// The most that may wait.
        limit: usize,
    },
}

/// Bytes as people read them.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} bytes", self.0);
        }
        if self.0 == u64::MAX {
            return write!(f, "what the disk has room for");
        }
        let power = (self.0.ilog2() / 10).min(4);
        write!(f, "{:.1} {}", self.0 as f64 / (1_u64 << (10 * power)) as f64, UNITS[power as usize - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_was_asked_what_there_is_and_what_to_do() {
        let full = StoreError::TooLarge { asked: 3 << 30, capacity: 1 << 20 };
        assert_eq!(
            full.to_string(),
            "an object of 3.0 GiB is larger than the whole object store of 1.0 MiB; raise object_store_memory or split \
             the object"
        );
        let disk = StoreError::OutOfDisk {
            asked: 1000,
            capacity: 1 << 20,
            spilled: 2048,
            limit: 3 << 40,
            place: "/spill".into(),
            reason: Some("no space left on device".into()),
        };
        assert_eq!(
            disk.to_string(),
            "no room for an object of 1000 bytes: the object store's 1.0 MiB are in use, and `/spill` holds 2.0 KiB of \
             spilled objects of at most 3.0 TiB (no space left on device); free space under `/spill`, raise the spill \
             limit, or release references"
        );
    }
}
