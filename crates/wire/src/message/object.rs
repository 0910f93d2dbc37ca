//! Objects that travel: clients and daemon.
//!
//! Until a reference leaves the process that made it, the daemon has never heard of the object. Then
//! its owner promises it, and publishes the value when there is one; other clients subscribe. A client
//! holds an object as long as it has references to it, and whoever hands a reference on registers the
//! receiver's hold before it gives up its own, so counts never touch zero in between. Counts are kept
//! per client and may arrive out of order, so they are signed.

use super::{Reference, Value};
use bytes::Bytes;

/// owner → daemon: these will be published. The owner holds them from here on.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Promise {
    /// `ObjectId`s.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub objects: Vec<Bytes>,
}

/// owner → daemon: a promised object's value. Large ones lie in the store already.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Publish {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
    /// The value. The daemon holds what it contains as long as it keeps the value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<Value>,
}

/// client → daemon: tell me the value when it is known. Answered once by [`Published`]; an object
/// whose owner died before it published is answered with failure `owner_died`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Subscribe {
    /// What, and whose. The owner may not have promised it yet.
    #[prost(message, optional, tag = "1")]
    pub reference: Option<Reference>,
}

/// daemon → client: a value subscribed to.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Published {
    /// `ObjectId`.
    #[prost(bytes = "bytes", tag = "1")]
    pub object: Bytes,
    /// The value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<Value>,
}

/// client → daemon: count one more hold of `holder` on each object.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Hold {
    /// `ObjectId`s.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub objects: Vec<Bytes>,
    /// `WorkerId` of the holder: the sender itself, or the process it hands the references to.
    #[prost(bytes = "bytes", tag = "2")]
    pub holder: Bytes,
}

/// client → daemon: count one hold of the sender less on each object.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Unhold {
    /// `ObjectId`s.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub objects: Vec<Bytes>,
}
