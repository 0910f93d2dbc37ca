//! What each process refers to: collected for those who ask who keeps what.

use super::TaskStage;
use oxiray_fields::Fields;
use oxiray_ids::ObjectId;

/// daemon → client: to which objects do you refer? Answered by [`ObjectLog`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ObjectLogQuery {
    /// Names the question.
    #[field(1)]
    pub number: u64,
}

/// client → daemon: the objects that it refers to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ObjectLog {
    /// The question.
    #[field(1)]
    pub number: u64,
    /// The objects, up to a limit.
    #[field(2)]
    pub records: Vec<ObjectRecord>,
    /// Whether the sender records where references are made.
    #[field(3)]
    pub records_sites: bool,
}

/// One object, as one process knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct ObjectRecord {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
    /// Bytes of its value, where that is known there.
    #[field(2)]
    pub size: Option<u64>,
    /// How far the task is that makes it; unknown where another process owns it.
    #[field(3)]
    pub stage: TaskStage,
    /// Which attempt of the task, counted from 0.
    #[field(4)]
    pub attempt: u32,
    /// What keeps it there.
    #[field(5)]
    pub used: ObjectUse,
    /// Where its reference was made; empty where that was not recorded.
    #[field(6)]
    pub site: String,
    /// The device that tensors of the sender's are on which it keeps for this object, whose bytes `size` then is; empty otherwise.
    #[field(7)]
    pub device: String,
}

/// What keeps an object in a process; of several the first in this order but [`ObjectUse::Unknown`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum ObjectUse {
    /// None of what follows, such as records for making other values again.
    Unknown = 0,
    /// It stands for an actor.
    Actor = 1,
    /// Its bytes in the store are mapped.
    Mapped = 2,
    /// A call that has not ended takes it.
    Argument = 3,
    /// The program has references to it.
    Referred = 4,
    /// A value that is there contains it.
    Contained = 5,
    /// Tensors on a device are kept for it.
    Device = 6,
}
