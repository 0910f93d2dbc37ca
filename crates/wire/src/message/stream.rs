//! Results that come one by one: a generator's items, between owner and worker.
//!
//! A call whose [`super::Call::stream`] is set has one result, `None` when it has ended, and any number of
//! items besides: its objects 2, 3, …. Items of one attempt are sent in order. An attempt that follows
//! another is told how many items arrived before, counts those without sending them, and goes on from there.

use super::Value;
use oxiray_fields::Fields;
use oxiray_ids::TaskId;

/// How a call's items are to come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct StreamTerms {
    /// The worker pauses while this many items are not read; 0 for no limit.
    #[field(1)]
    pub ahead: u32,
    /// How many items each yield has; more than 1 come as a tuple or list of that length.
    #[field(2)]
    pub per_yield: u32,
    /// How many items arrived from earlier attempts: they are not sent again.
    #[field(3)]
    pub arrived: u32,
    /// How many of those were read.
    #[field(4)]
    pub read: u32,
}

/// worker → owner: the next item of a call. The owner holds what it names, as with a [`super::Reply`].
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct StreamItem {
    /// `TaskId`.
    #[field(1)]
    pub task: TaskId,
    /// Its number among the items, from 0.
    #[field(2)]
    pub index: u32,
    /// The item.
    #[field(3)]
    pub value: Option<Value>,
}

/// owner → worker: so many items were read. Sent only where [`StreamTerms::ahead`] limits what is not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct StreamRead {
    /// `TaskId`.
    #[field(1)]
    pub task: TaskId,
    /// Items read altogether.
    #[field(2)]
    pub read: u32,
}

/// owner → worker: nobody reads any more. The generator is closed at its next yield, and the call replied to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct StreamStop {
    /// `TaskId`.
    #[field(1)]
    pub task: TaskId,
}
