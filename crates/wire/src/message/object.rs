//! Objects that travel: clients and daemon.
//!
//! Until a reference leaves the process that made it, the daemon has never heard of the object. Then
//! its owner promises it, and publishes the value when there is one; other clients subscribe. A client
//! holds an object as long as it has references to it, and whoever hands a reference on registers the
//! receiver's hold before it gives up its own, so counts never touch zero in between. Counts are kept
//! per client and may arrive out of order, so they are signed.

use super::{Reference, Value};
use oxiray_fields::Fields;
use oxiray_ids::{ObjectId, WorkerId};

/// owner → daemon: these will be published. The owner holds them from here on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Promise {
    /// `ObjectId`s.
    #[field(1)]
    pub objects: Vec<ObjectId>,
}

/// owner → daemon: a promised object's value. Large ones lie in the store already.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Publish {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
    /// The value. The daemon holds what it contains as long as it keeps the value.
    #[field(2)]
    pub value: Option<Value>,
}

/// client → daemon: tell me the value when it is known. Answered once by [`Published`]; an object
/// whose owner died before it published is answered with failure `owner_died`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Subscribe {
    /// What, and whose. The owner may not have promised it yet.
    #[field(1)]
    pub reference: Option<Reference>,
}

/// daemon → client: a value subscribed to.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Published {
    /// `ObjectId`.
    #[field(1)]
    pub object: ObjectId,
    /// The value.
    #[field(2)]
    pub value: Option<Value>,
}

/// client → daemon: count one more hold of `holder` on each object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Hold {
    /// `ObjectId`s.
    #[field(1)]
    pub objects: Vec<ObjectId>,
    /// `WorkerId` of the holder: the sender itself, or the process it hands the references to.
    #[field(2)]
    pub holder: WorkerId,
    /// The references travel in a reply or an item, which may be lost with the sender: the holder confirms what came.
    #[field(3)]
    pub until_confirmed: bool,
}

/// client → daemon: replies of another process brought these references, so that what that process had counted for the
/// sender stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Confirm {
    /// `WorkerId` of the process that replied.
    #[field(1)]
    pub giver: WorkerId,
    /// `ObjectId`s, each as often as it came.
    #[field(2)]
    pub objects: Vec<ObjectId>,
    /// The giver is dead, and everything it said was read: what it had counted for the sender and is not confirmed is
    /// taken back.
    #[field(3)]
    pub is_over: bool,
}

/// client → daemon: count one hold of the sender less on each object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Unhold {
    /// `ObjectId`s.
    #[field(1)]
    pub objects: Vec<ObjectId>,
}
