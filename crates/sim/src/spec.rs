//! What a call does, written into its arguments; and identifiers as they travel.

use crate::agenda::Micros;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use oxiray_ids::{ObjectId, WorkerId};
use oxiray_wire::message::Reference;

/// The bytes of the identifiers of objects and of processes.
const ID_BYTES: usize = 28;

/// What the result of a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A small value.
    Small,
    /// It lies in the store.
    Stored,
    /// It refers to an object that the call has made.
    WithPut,
    /// It refers to an object that the call was given.
    WithGiven,
}

/// What a call does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    /// Names the call; no other has it.
    pub(crate) number: u64,
    pub(crate) time: Micros,
    /// How many tasks it makes and waits for.
    pub(crate) children: u32,
    pub(crate) form: Form,
    /// Objects that it is given within its arguments, and their owners.
    pub(crate) contained: Vec<(ObjectId, WorkerId)>,
}

impl Spec {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u64_le(self.number);
        bytes.put_u64_le(self.time);
        bytes.put_u32_le(self.children);
        bytes.put_u8(self.form as u8);
        for (id, owner) in &self.contained {
            bytes.put_slice(id.as_bytes());
            bytes.put_slice(owner.as_bytes());
        }
        bytes.freeze()
    }

    pub(crate) fn decode(mut bytes: Bytes) -> Self {
        let (number, time, children) = (bytes.get_u64_le(), bytes.get_u64_le(), bytes.get_u32_le());
        let form = match bytes.get_u8() {
            0 => Form::Small,
            1 => Form::Stored,
            2 => Form::WithPut,
            _ => Form::WithGiven,
        };
        let mut contained = Vec::new();
        while bytes.has_remaining() {
            let id = ObjectId::from_slice(&bytes.split_to(ID_BYTES)).expect("an identifier has so many bytes");
            let owner = WorkerId::from_slice(&bytes.split_to(ID_BYTES)).expect("an identifier has so many bytes");
            contained.push((id, owner));
        }
        Self { number, time, children, form, contained }
    }
}

/// An object as it travels.
pub(crate) fn reference(id: ObjectId, owner: WorkerId) -> Reference {
    Reference { object: id, owner: Some(owner) }
}
