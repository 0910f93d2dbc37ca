//! What is known of one object, and where it is.

use super::{Book, ClientId, CopyId, ObjectId, ObjectState, SegmentId, Stats, StoreError, Ticket};

#[derive(Debug)]
pub(super) struct Object {
    pub(super) size: u64,
    /// The bytes of its segment, wherever it is now.
    pub(super) capacity: u64,
    pub(super) place: Place,
    /// Its writer was given the room before it had anything to write (LENT-1).
    pub(super) is_lent: bool,
    /// Where the storage still has what was read back from it.
    pub(super) kept: Option<CopyId>,
    /// Pins to be granted as soon as the bytes are there.
    pub(super) waiters: Vec<Ticket>,
}

impl Object {
    /// Why it cannot be created once more, where it cannot. One that was deleted and is still read is kept after all.
    pub(super) fn refuse_another(&mut self, object: ObjectId) -> Option<StoreError> {
        match &mut self.place {
            Place::Lost { .. } => None,
            Place::Sought(_) | Place::Queued(_) | Place::Making { .. } | Place::Writing { .. } => {
                Some(StoreError::Exists { object })
            }
            Place::Pinned { deleted, .. } | Place::OnDisk { deleted, .. } => {
                *deleted = false;
                Some(StoreError::Sealed { object })
            }
            Place::Idle { .. }
            | Place::Spilling { .. }
            | Place::Spilled { .. }
            | Place::Restoring { .. }
            | Place::Checking { .. } => Some(StoreError::Sealed { object }),
        }
    }
}

#[derive(Debug)]
pub(super) enum Place {
    /// Another job's copy, whose original is being pinned.
    Sought(Ticket),
    /// Its create waits for room.
    Queued(Ticket),
    /// Its create found no memory, and waits for a file on disk.
    Making {
        ticket: Ticket,
        job: CopyId,
    },
    Writing {
        segment: SegmentId,
        writer: ClientId,
        deleted: bool,
        /// The file that the segment is, where it takes no memory.
        file: Option<CopyId>,
    },
    /// Sealed and not pinned since `since`: may be spilled.
    Idle {
        segment: SegmentId,
        since: u64,
    },
    Pinned {
        segment: SegmentId,
        pins: u32,
        deleted: bool,
    },
    Spilling {
        segment: SegmentId,
        job: CopyId,
    },
    /// On disk; waits for room where it has waiters.
    Spilled {
        file: CopyId,
    },
    Restoring {
        segment: SegmentId,
        job: CopyId,
        file: CopyId,
    },
    /// On disk, and being compared with what was written, to be read from there.
    Checking {
        file: CopyId,
        job: CopyId,
    },
    /// Read from disk, since memory had no room; the segment is the file's name to clients and takes no memory.
    OnDisk {
        segment: SegmentId,
        file: CopyId,
        pins: u32,
        deleted: bool,
    },
    Lost {
        reason: String,
    },
}

impl Book {
    pub(crate) fn size_of(&self, object: ObjectId) -> Option<u64> {
        self.objects.get(&object).map(|known| known.size)
    }

    /// Nothing for an object that was deleted, though somebody may still look at its bytes.
    pub(crate) fn state_of(&self, object: ObjectId) -> Option<ObjectState> {
        let is_deleted = |place: &Place| {
            matches!(
                place,
                Place::Writing { deleted: true, .. }
                    | Place::Pinned { deleted: true, .. }
                    | Place::OnDisk { deleted: true, .. }
            )
        };
        let known = self.objects.get(&object).filter(|known| !is_deleted(&known.place) && !self.copies.has(object));
        known.map(|known| match known.place {
            Place::Writing { .. } if known.is_lent => ObjectState::Lent,
            Place::Sought(_) | Place::Queued(_) | Place::Making { .. } | Place::Writing { .. } => ObjectState::Unsealed,
            Place::Idle { .. } | Place::Pinned { .. } | Place::Spilling { .. } => ObjectState::InMemory,
            Place::Spilled { .. } | Place::Restoring { .. } | Place::Checking { .. } | Place::OnDisk { .. } => {
                ObjectState::Spilled
            }
            Place::Lost { .. } => ObjectState::Lost,
        })
    }

    /// LENT-1.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.segments.used() - self.lent
    }

    pub(crate) fn stats(&self) -> Stats {
        let owned = || self.objects.values().filter(|object| !object.is_lent);
        let count = |wanted: fn(&Place) -> bool| owned().filter(|object| wanted(&object.place)).count();
        Stats {
            capacity: self.limits.capacity,
            used: self.used_bytes(),
            pooled: self.segments.pooled() + self.lent,
            spilled_bytes: self.disk.used(),
            spill_limit: self.limits.disk,
            objects: owned().count(),
            pinned: count(|place| matches!(place, Place::Pinned { .. } | Place::OnDisk { .. })),
            unsealed: count(|place| {
                matches!(place, Place::Sought(_) | Place::Queued(_) | Place::Making { .. } | Place::Writing { .. })
            }),
            spilled: count(|place| {
                !matches!(
                    place,
                    Place::Sought(_)
                        | Place::Queued(_)
                        | Place::Making { .. }
                        | Place::Writing { .. }
                        | Place::Idle { .. }
                        | Place::Pinned { .. }
                        | Place::Spilling { .. }
                        | Place::Lost { .. }
                )
            }),
            spills: self.disk.spills,
            restores: self.disk.restores,
            waiting: self.waiting.len(),
            files: self.segments.len(),
        }
    }
}
