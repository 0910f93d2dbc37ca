//! Values: kept, read, waited for.

use crate::error::{Error, Result};
use crate::items::Items;
use crate::process;
use crate::reference::{ObjectRef, collecting};
use bytes::Bytes;
use oxiray_ids::ObjectId;
use oxiray_runtime::{
    AskedPin, Gathered, INLINE_BYTES, Pinned, PinsAhead, Runtime, RuntimeError, ScannedValue, Waitable,
};
use oxiray_values::{Common, Decoded, Encoded};
use oxiray_wire::message::{Content, FailureCode, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};

mod sealed {
    pub trait Sealed {}
}

/// What a call gave back, which can be waited for and cancelled: an [`ObjectRef`], or [`Items`], of which the next one is
/// waited for. Several kinds are waited for together as `&dyn Awaited`.
pub trait Awaited: sealed::Sealed {
    /// What is waited for.
    #[doc(hidden)]
    fn awaited_on(&self, runtime: &Runtime) -> Result<Waitable>;
    /// What the call is cancelled by.
    #[doc(hidden)]
    fn result_on(&self, runtime: &Runtime) -> Result<ObjectId>;
}

impl<T> sealed::Sealed for ObjectRef<T> {}

impl<T> Awaited for ObjectRef<T> {
    fn awaited_on(&self, runtime: &Runtime) -> Result<Waitable> {
        self.id_on(runtime).map(Waitable::Object)
    }

    fn result_on(&self, runtime: &Runtime) -> Result<ObjectId> {
        self.id_on(runtime)
    }
}

impl<T> sealed::Sealed for Items<T> {}

impl<T> Awaited for Items<T> {
    fn awaited_on(&self, runtime: &Runtime) -> Result<Waitable> {
        self.result_on(runtime).map(|completion| Waitable::Item(completion.task()))
    }

    fn result_on(&self, runtime: &Runtime) -> Result<ObjectId> {
        self.completed().id_on(runtime)
    }
}

macro_rules! pointers {
    ($($pointer:ty),+) => {$(
        impl<W: Awaited + ?Sized> sealed::Sealed for $pointer {}

        impl<W: Awaited + ?Sized> Awaited for $pointer {
            fn awaited_on(&self, runtime: &Runtime) -> Result<Waitable> {
                (**self).awaited_on(runtime)
            }

            fn result_on(&self, runtime: &Runtime) -> Result<ObjectId> {
                (**self).result_on(runtime)
            }
        }
    )+};
}

pointers!(&W, &mut W, Box<W>);

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
pub(crate) fn blob(
    runtime: &Runtime,
    id: ObjectId,
    seen: ScannedValue,
    mut asked: Option<AskedPin>,
    deadline: Option<Instant>,
) -> Result<Bytes> {
    blob_with(runtime, id, seen, deadline, || runtime.pin(id, asked.take(), deadline))
}

/// The same; `pin` pins the bytes of a stored one.
pub(crate) fn blob_with(
    runtime: &Runtime,
    id: ObjectId,
    mut seen: ScannedValue,
    deadline: Option<Instant>,
    mut pin: impl FnMut() -> std::result::Result<Pinned, RuntimeError>,
) -> Result<Bytes> {
    loop {
        match seen.content {
            Some(Content::Inline(blob)) => return Ok(blob),
            Some(Content::Stored(_)) => match pin() {
                Ok(pinned) => return Ok(Bytes::from_owner(Stored(pinned))),
                Err(RuntimeError::Failed(failure)) if failure.code == FailureCode::ObjectLost => {
                    seen = process::patiently(|| runtime.get_one(id, deadline))?;
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
    read(runtime, id, deadline).map_err(|error| {
        let is_over = || !process::current().is_some_and(|current| current.is(runtime));
        if matches!(error, Error::System { .. }) && is_over() { of_ended_connection(id) } else { error }
    })
}

/// The object is of a connection that was ended.
pub(crate) fn of_ended_connection(id: ObjectId) -> Error {
    Error::Invalid(format!(
        "object {id} is of a connection that has ended: values do not outlive their cluster, so make it anew"
    ))
}

fn read<T: DeserializeOwned>(runtime: &Runtime, id: ObjectId, deadline: Option<Instant>) -> Result<T> {
    let seen = process::patiently(|| runtime.get_one(id, deadline))?;
    let blob = blob(runtime, id, seen, None, deadline)?;
    Ok(Decoded::new(&blob)?.value()?)
}

fn put_encoded<T>(
    encode: impl FnOnce() -> std::result::Result<Encoded, oxiray_values::ValueError>,
) -> Result<ObjectRef<T>> {
    let runtime = process::required()?;
    let (encoded, contained) = collecting(encode);
    let encoded = encoded?;
    let (task, index) = runtime.next_put(encoded.size());
    let value = keep(&runtime, task.object(index), encoded, &contained, INLINE_BYTES)?;
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

/// The values of several references, in order. An error is returned as soon as it is known, though others are still to
/// come.
pub fn get<T: DeserializeOwned>(references: &[ObjectRef<T>]) -> Result<Vec<T>> {
    get_until(references, None)
}

/// The same, waited for at most this long.
///
/// # Errors
/// [`Error::TimedOut`] where not all were there by then.
pub fn get_timeout<T: DeserializeOwned>(references: &[ObjectRef<T>], limit: Duration) -> Result<Vec<T>> {
    get_until(references, Instant::now().checked_add(limit))
}

fn get_until<T: DeserializeOwned>(references: &[ObjectRef<T>], deadline: Option<Instant>) -> Result<Vec<T>> {
    let runtime = process::required()?;
    let ids = references.iter().map(|reference| reference.id_on(&runtime)).collect::<Result<Vec<_>>>()?;
    // All are asked for before the first is read.
    let seen = match process::patiently(|| runtime.get(&ids, deadline))? {
        Gathered::All(seen) => seen,
        Gathered::Failed(place, seen) => {
            return Err(blob(&runtime, ids[place], seen, None, deadline).expect_err("a failed value is an error"));
        }
    };
    let mut ahead = PinsAhead::new(&runtime, &ids, &seen);
    let value = |(id, seen): (ObjectId, ScannedValue)| {
        let asked = ahead.next(id);
        Ok(Decoded::new(&blob(&runtime, id, seen, asked, deadline)?)?.value()?)
    };
    ids.iter().copied().zip(seen).map(value).collect()
}

/// Those that are there, and the others.
pub type Waited<W> = (Vec<W>, Vec<W>);

/// Waits until `count` of them are there, or this long: those that are, at most `count`, and the rest, each in the order
/// given. A reference is there with its value, or with its error; [`Items`] are with their next one, or at their end.
///
/// ```standalone_crate
/// use oxiray::Awaited;
/// use std::time::Duration;
///
/// #[oxiray::remote]
/// fn answer() -> i64 {
///     42
/// }
///
/// #[oxiray::remote]
/// fn numbers(count: u32) -> impl Iterator<Item = u32> {
///     0..count
/// }
///
/// fn main() -> oxiray::Result<()> {
///     let _cluster = oxiray::init()?;
///     let (one, items) = (answer::remote()?, numbers::remote(3)?);
///     let both = vec![&one as &dyn Awaited, &items];
///     let (ready, rest) = oxiray::wait(both, 2, Some(Duration::from_secs(60)))?;
///     assert_eq!((ready.len(), rest.len()), (2, 0));
///     Ok(())
/// }
/// ```
pub fn wait<W: Awaited>(all: Vec<W>, count: usize, limit: Option<Duration>) -> Result<Waited<W>> {
    let runtime = process::required()?;
    let waitables = all.iter().map(|one| one.awaited_on(&runtime)).collect::<Result<Vec<_>>>()?;
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let found = process::patiently(|| runtime.wait(&waitables, count, deadline))?;
    let mut places = found.places.into_iter().peekable();
    let (mut ready, mut rest) = (Vec::new(), Vec::new());
    for (place, one) in all.into_iter().enumerate() {
        if places.next_if_eq(&place).is_some() { ready.push(one) } else { rest.push(one) }
    }
    Ok((ready, rest))
}

/// Cancels the call that makes a value or items, and what that has called.
///
/// One that has not begun never does. In one that runs, every wait of this crate ends with [`Error::Cancelled`], now and
/// from now on, and an `async` function is dropped where it awaits; one that computes goes on unless it asks
/// [`crate::RuntimeContext::is_cancelled`]. What comes of it is dropped. With `force` a task's process is killed.
///
/// # Errors
/// [`Error::Invalid`] where an actor's method is to be cancelled by force, since its process serves others too.
pub fn cancel(call: &(impl Awaited + ?Sized), force: bool) -> Result<()> {
    cancel_call(call, force, true)
}

/// The same, and what the call has called goes on.
///
/// # Errors
/// As those of [`cancel`].
pub fn cancel_alone(call: &(impl Awaited + ?Sized), force: bool) -> Result<()> {
    cancel_call(call, force, false)
}

fn cancel_call(call: &(impl Awaited + ?Sized), force: bool, recursive: bool) -> Result<()> {
    let runtime = process::required()?;
    let id = call.result_on(&runtime)?;
    runtime.cancel(id, force, recursive).map_err(|oxiray_runtime::NotForced| {
        Error::Invalid(format!(
            "{id} is of an actor's method, whose process serves others too: cancel it without force, or kill the actor"
        ))
    })
}
