//! Values: kept, read, waited for.

use crate::error::{Error, Result};
use crate::process;
use crate::reference::{ObjectRef, collecting};
use bytes::Bytes;
use oxiray_ids::ObjectId;
use oxiray_runtime::{INLINE_BYTES, LOST, Pinned, Runtime, RuntimeError, Seen, Waitable};
use oxiray_values::{Common, Decoded, Encoded};
use oxiray_wire::message::{Content, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};

/// A stored object as memory.
struct Stored(Pinned);

impl AsRef<[u8]> for Stored {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// A value that is written, in the store where it is larger than `inline_bytes`.
pub(crate) fn keep(
    runtime: &Runtime,
    id: ObjectId,
    encoded: Encoded,
    contained: &[ObjectId],
    inline_bytes: usize,
) -> Result<Value> {
    let contained = if contained.is_empty() { Vec::new() } else { runtime.references(contained) };
    let size = encoded.size();
    if size <= inline_bytes {
        return Ok(Value { content: Some(Content::Inline(encoded.into_bytes())), contained });
    }
    runtime.store(id, size, |target| encoded.write(target, oxiray_store::copy))?;
    Ok(Value { content: Some(Content::Stored(size as u64)), contained })
}

/// The bytes of a value that was seen; those of a stored one in place.
pub(crate) fn blob(runtime: &Runtime, id: ObjectId, seen: Seen, deadline: Option<Instant>) -> Result<Bytes> {
    let mut seen = seen;
    loop {
        match seen.content {
            Some(Content::Inline(blob)) => return Ok(blob),
            Some(Content::Stored(_)) => match runtime.pin(id, deadline) {
                Ok(pinned) => return Ok(Bytes::from_owner(Stored(pinned))),
                Err(RuntimeError::Failed(failure)) if failure.code == LOST => {
                    seen = process::patiently(|| runtime.get(&[id], deadline))?.remove(0);
                }
                Err(error) => return Err(error.into()),
            },
            Some(content) => return Err(Error::of(&content).expect("all else is an error")),
            None => return Err(Error::Lost(format!("object {id} arrived without a value"))),
        }
    }
}

/// The value of an object; waits for it.
pub(crate) fn load<T: DeserializeOwned>(runtime: &Runtime, id: ObjectId, deadline: Option<Instant>) -> Result<T> {
    let seen = match runtime.peek(id) {
        Some(seen) => seen,
        None => process::patiently(|| runtime.get(&[id], deadline))?.remove(0),
    };
    let blob = blob(runtime, id, seen, deadline)?;
    Ok(Decoded::new(&blob)?.value()?)
}

fn put_encoded<T>(
    encode: impl FnOnce() -> std::result::Result<Encoded, oxiray_values::ValueError>,
) -> Result<ObjectRef<T>> {
    let runtime = process::required()?;
    let (encoded, contained) = collecting(encode);
    let (task, index) = runtime.next_put();
    let value = keep(&runtime, task.object(index), encoded?, &contained, INLINE_BYTES)?;
    let id = runtime.put(task, index, value);
    Ok(ObjectRef::adopt(runtime, id))
}

/// Keeps a value in the cluster; passing the reference to many calls writes it once.
pub fn put<T: Serialize>(value: &T) -> Result<ObjectRef<T>> {
    put_encoded(|| Encoded::native(value))
}

/// Keeps a value that Python programs read too, see [`crate::python`].
pub fn put_common<T: Serialize>(value: &T) -> Result<ObjectRef<T>> {
    put_encoded(|| Encoded::common(&Common::of(value)?))
}

/// The values of several references, in order. The first error among them is returned.
pub fn get<T: DeserializeOwned>(references: &[ObjectRef<T>]) -> Result<Vec<T>> {
    let runtime = process::required()?;
    let ids = references.iter().map(|reference| reference.id_on(&runtime)).collect::<Result<Vec<_>>>()?;
    // All are asked for before the first is read.
    let seen = process::patiently(|| runtime.get(&ids, None))?;
    ids.into_iter().zip(seen).map(|(id, seen)| Ok(Decoded::new(&blob(&runtime, id, seen, None)?)?.value()?)).collect()
}

/// The references that have their value, and the others.
pub type Waited<T> = (Vec<ObjectRef<T>>, Vec<ObjectRef<T>>);

/// Waits until `count` of the references have their value, or this long: those that have, at most `count`, and the rest.
pub fn wait<T>(references: Vec<ObjectRef<T>>, count: usize, limit: Option<Duration>) -> Result<Waited<T>> {
    let runtime = process::required()?;
    let waitable = |reference: &ObjectRef<T>| reference.id_on(&runtime).map(Waitable::Object);
    let waitables = references.iter().map(waitable).collect::<Result<Vec<_>>>()?;
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut places = process::patiently(|| runtime.wait(&waitables, count, deadline))?.into_iter().peekable();
    let (mut ready, mut rest) = (Vec::new(), Vec::new());
    for (place, reference) in references.into_iter().enumerate() {
        if places.next_if_eq(&place).is_some() { ready.push(reference) } else { rest.push(reference) }
    }
    Ok((ready, rest))
}

/// Cancels the call that makes a value, and what that has called. One that runs goes on unless it asks
/// [`crate::RuntimeContext::is_cancelled`], and what comes of it is dropped; with `force` a task's process is killed.
pub fn cancel<T>(reference: &ObjectRef<T>, force: bool) -> Result<()> {
    let runtime = process::required()?;
    let id = reference.id_on(&runtime)?;
    runtime.cancel(id, force, true).map_err(|oxiray_runtime::NotForced| {
        Error::Invalid(format!(
            "{id} is of an actor's method, whose process serves others too: cancel it without force, or kill the actor"
        ))
    })
}
