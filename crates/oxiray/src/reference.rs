//! References to values, typed.

use crate::context::current_task;
use crate::error::{Error, Result};
use crate::{client_events, objects, process};
use oxiray_client::borrowing;
use oxiray_ids::{ObjectId, TaskId, WorkerId};
use oxiray_runtime::Runtime;
use oxiray_values::{Blob, REFERENCE};
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

thread_local! {
    /// Whether references are noted that are met while a value is written in this thread, and how many were. Most values
    /// have none, and no list is looked at for those.
    static CONTAINING: Cell<(bool, usize)> = const { Cell::new((false, 0)) };
    static CONTAINED: RefCell<Vec<ObjectId>> = const { RefCell::new(Vec::new()) };
}

/// What `write` writes, and the references inside of it.
pub(crate) fn collecting<R>(write: impl FnOnce() -> R) -> (R, Vec<ObjectId>) {
    let (is_within, before) = CONTAINING.get();
    CONTAINING.set((true, before));
    let result = write();
    let (_, count) = CONTAINING.replace((is_within, before));
    let has_any = count > before;
    (result, if has_any { CONTAINED.with_borrow_mut(|ids| ids.split_off(before)) } else { Vec::new() })
}

/// Whether a value is being written in this thread that is to hold the object.
pub(crate) fn note_contained(id: ObjectId) -> bool {
    let (notes, count) = CONTAINING.get();
    if notes {
        CONTAINED.with_borrow_mut(|ids| ids.push(id));
        CONTAINING.set((true, count + 1));
    }
    notes
}

/// One use of an object, given up when it is dropped.
pub(crate) struct Held {
    pub(crate) runtime: Runtime,
    pub(crate) id: ObjectId,
}

impl Clone for Held {
    /// One more use.
    fn clone(&self) -> Self {
        if !self.runtime.is_abandoned() {
            self.runtime.retain(self.id);
        }
        Self { runtime: self.runtime.clone(), id: self.id }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.runtime.is_abandoned() {
            self.runtime.release(self.id);
        }
    }
}

/// A value of type `T` that is here, elsewhere, or still being made.
///
/// The value is kept for as long as a reference to it exists, in any process: references may be passed to functions and
/// actors, returned from them, and be part of other values. Await one, or call [`ObjectRef::get`].
pub struct ObjectRef<T> {
    held: Held,
    value: PhantomData<fn() -> T>,
}

impl<T> Clone for ObjectRef<T> {
    fn clone(&self) -> Self {
        Self { held: self.held.clone(), value: PhantomData }
    }
}

impl<T> fmt::Debug for ObjectRef<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ObjectRef({})", self.held.id)
    }
}

impl<T> PartialEq for ObjectRef<T> {
    fn eq(&self, other: &Self) -> bool {
        self.held.id == other.held.id
    }
}

impl<T> Eq for ObjectRef<T> {}

impl<T> std::hash::Hash for ObjectRef<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.held.id.hash(state);
    }
}

impl<T> ObjectRef<T> {
    /// Takes over one use that was counted already.
    pub(crate) fn adopt(runtime: Runtime, id: ObjectId) -> Self {
        Self { held: Held { runtime, id }, value: PhantomData }
    }

    /// One more use.
    pub(crate) fn held(&self) -> Held {
        self.held.clone()
    }

    pub(crate) fn id_on(&self, runtime: &Runtime) -> Result<ObjectId> {
        if self.held.runtime.is(runtime) {
            return Ok(self.held.id);
        }
        Err(objects::of_ended_connection(self.held.id))
    }

    /// The object's identifier: 56 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.held.id.hex()
    }

    /// The same reference, for a value that is known to have another type: what a Python program put, for example.
    pub fn cast<U>(self) -> ObjectRef<U> {
        ObjectRef { held: self.held, value: PhantomData }
    }
}

impl<T: DeserializeOwned> ObjectRef<T> {
    /// The value; waits for it.
    pub fn get(&self) -> Result<T> {
        objects::load(&self.held.runtime, self.held.id, None)
    }

    /// The value, waited for at most this long.
    ///
    /// # Errors
    /// [`Error::TimedOut`] where it was not there by then.
    pub fn get_timeout(&self, limit: Duration) -> Result<T> {
        objects::load(&self.held.runtime, self.held.id, Instant::now().checked_add(limit))
    }
}

/// What a call gives back at once: an [`ObjectRef`], a tuple of several, or [`Items`](crate::Items).
pub trait Returned: Sized {
    /// How many results the call has.
    #[doc(hidden)]
    const RESULTS: u32;
    /// Whether they come one by one.
    #[doc(hidden)]
    const STREAMS: bool = false;
    /// Takes over one use of each of the call's results.
    #[doc(hidden)]
    fn adopt(runtime: &Runtime, task: TaskId) -> Self;
}

impl<T> Returned for ObjectRef<T> {
    const RESULTS: u32 = 1;

    fn adopt(runtime: &Runtime, task: TaskId) -> Self {
        Self::adopt(runtime.clone(), task.object(1))
    }
}

macro_rules! tuples {
    ($($count:literal: $($part:ident $place:tt),+;)+) => {$(
        impl<$($part),+> Returned for ($(ObjectRef<$part>,)+) {
            const RESULTS: u32 = $count;

            fn adopt(runtime: &Runtime, task: TaskId) -> Self {
                ($(ObjectRef::<$part>::adopt(runtime.clone(), task.object($place + 1)),)+)
            }
        }
    )+};
}

tuples! {
    2: A 0, B 1;
    3: A 0, B 1, C 2;
    4: A 0, B 1, C 2, D 3;
    5: A 0, B 1, C 2, D 3, E 4;
    6: A 0, B 1, C 2, D 3, E 4, F 5;
    7: A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}

/// What awaiting an [`ObjectRef`] awaits.
#[derive(Debug)]
pub struct Arrival<T>(ObjectRef<T>);

impl<T: DeserializeOwned> Future for Arrival<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let Held { runtime, id } = &self.0.held;
        // A cancelled call waits for nothing more, as `load` says.
        let is_pending = || runtime.peek(*id).is_none() && !runtime.is_cancelled(current_task());
        if is_pending() && client_events::wake_when_told(runtime, *id, context.waker(), || runtime.announce(*id)) {
            return Poll::Pending;
        }
        Poll::Ready(objects::load(runtime, *id, None))
    }
}

impl<T: DeserializeOwned> IntoFuture for ObjectRef<T> {
    type Output = Result<T>;
    type IntoFuture = Arrival<T>;

    fn into_future(self) -> Arrival<T> {
        Arrival(self)
    }
}

impl<T: DeserializeOwned> IntoFuture for &ObjectRef<T> {
    type Output = Result<T>;
    type IntoFuture = Arrival<T>;

    fn into_future(self) -> Arrival<T> {
        Arrival(self.clone())
    }
}

impl<T> Serialize for ObjectRef<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let Held { runtime, id } = &self.held;
        if !note_contained(*id) {
            return Err(S::Error::custom(
                "a reference travels in arguments, results and values that are put: written elsewhere, nobody would know \
                 when it is gone",
            ));
        }
        let parts = (Blob::from(&id.as_bytes()[..]), Blob::from(&runtime.owner(*id).as_bytes()[..]));
        serializer.serialize_newtype_struct(REFERENCE, &parts)
    }
}

impl<'de, T> Deserialize<'de> for ObjectRef<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct ReferenceVisitor<T>(PhantomData<fn() -> T>);
        impl<'de, T> Visitor<'de> for ReferenceVisitor<T> {
            type Value = ObjectRef<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a reference")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> std::result::Result<ObjectRef<T>, D::Error> {
                let (object, owner) = <(Blob, Blob)>::deserialize(deserializer)?;
                let ids = ObjectId::from_slice(&object).zip(WorkerId::from_slice(&owner));
                let (id, owner) = ids.ok_or_else(|| D::Error::custom("a reference has malformed identifiers"))?;
                let runtime = process::current().ok_or_else(|| D::Error::custom(Error::NotConnected))?;
                runtime.borrow(id, owner);
                borrowing::note(id);
                Ok(ObjectRef::adopt(runtime, id))
            }
        }
        deserializer.deserialize_newtype_struct(REFERENCE, ReferenceVisitor(PhantomData))
    }
}
