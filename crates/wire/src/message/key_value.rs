//! Small values that the daemon keeps by name, for libraries that coordinate through them.

use super::Failure;
use bytes::Bytes;
use oxiray_fields::Fields;

/// client → daemon: put, get, delete or list kept values. Answered by [`KeyValueAnswer`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct KeyValueRequest {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// What is to be done.
    #[field(2)]
    pub action: KeyValueAction,
    /// Where the key lives; empty for where everybody's do.
    #[field(3)]
    pub namespace: Bytes,
    /// The key, or what keys begin with.
    #[field(4)]
    pub key: Bytes,
    /// The value to put.
    #[field(5)]
    pub value: Bytes,
    /// Put: whether a value that is there gives way. Delete: whether every key that begins so is meant.
    #[field(6)]
    pub widely: bool,
}

/// What is done with kept values. A question that does not say changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum KeyValueAction {
    /// Tell the value.
    Get = 2,
    /// Keep the value under the key.
    Put = 1,
    /// Forget the key, or every key that begins with it.
    Delete = 3,
    /// Tell the keys that begin with it.
    List = 4,
}

/// daemon → client: the answer to a [`KeyValueRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct KeyValueAnswer {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// Put and get: 1 where the key had a value before, else 0. Delete: how many were forgotten.
    #[field(2)]
    pub count: u64,
    /// Get: the value.
    #[field(3)]
    pub value: Bytes,
    /// List: the keys, in order.
    #[field(4)]
    pub keys: Vec<Bytes>,
    /// Why it was not done.
    #[field(5)]
    pub failure: Option<Failure>,
}
