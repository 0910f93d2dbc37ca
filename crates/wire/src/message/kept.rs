//! Small values that the daemon keeps by name, for libraries that coordinate through them.

use super::Failure;
use bytes::Bytes;

/// client → daemon: put, get, delete or list kept values. Answered by [`KeptAnswer`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeptRequest {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// What is to be done.
    #[prost(enumeration = "KeptAction", tag = "2")]
    pub action: i32,
    /// Where the key lives; empty for where everybody's do.
    #[prost(bytes = "bytes", tag = "3")]
    pub namespace: Bytes,
    /// The key, or what keys begin with.
    #[prost(bytes = "bytes", tag = "4")]
    pub key: Bytes,
    /// The value to put.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
    /// Put: whether a value that is there gives way. Delete: whether every key that begins so is meant.
    #[prost(bool, tag = "6")]
    pub widely: bool,
}

/// What is done with kept values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum KeptAction {
    /// Nothing: what a peer says that knows more actions than this one.
    Unknown = 0,
    /// Keep the value under the key.
    Put = 1,
    /// Tell the value.
    Get = 2,
    /// Forget the key, or every key that begins with it.
    Delete = 3,
    /// Tell the keys that begin with it.
    List = 4,
}

/// daemon → client: the answer to a [`KeptRequest`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeptAnswer {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Put and get: 1 where the key had a value before, else 0. Delete: how many were forgotten.
    #[prost(uint64, tag = "2")]
    pub count: u64,
    /// Get: the value.
    #[prost(bytes = "bytes", tag = "3")]
    pub value: Bytes,
    /// List: the keys, in order.
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub keys: Vec<Bytes>,
    /// Why it was not done.
    #[prost(message, optional, tag = "5")]
    pub failure: Option<Failure>,
}
