//! Results that come one by one.

use crate::context::current_task;
use crate::error::Result;
use crate::reference::{ObjectRef, Returned};
use crate::{client_events, process};
use oxiray_ids::TaskId;
use oxiray_runtime::{Next, Runtime};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The results of a function that returns an `impl Iterator<Item = T>`: references to them, in the order in which they are
/// made, each as soon as it is.
///
/// An error is the last item: the reference is there, and its value is the error. The function is stopped, at its next
/// item, when this is dropped while it is being read.
pub struct Items<T> {
    runtime: Runtime,
    task: TaskId,
    /// How the call ended; dropped after it was said that nobody reads any more.
    completion: ObjectRef<()>,
    value: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Items<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Items({})", self.task.hex())
    }
}

impl<T> Drop for Items<T> {
    fn drop(&mut self) {
        if !self.runtime.is_abandoned() {
            self.runtime.leave_stream(self.task);
        }
    }
}

impl<T> Returned for Items<T> {
    const RESULTS: u32 = 1;
    const STREAMS: bool = true;

    fn adopt(runtime: &Runtime, task: TaskId) -> Self {
        let completion = ObjectRef::adopt(runtime.clone(), task.object(1));
        Self { runtime: runtime.clone(), task, completion, value: PhantomData }
    }
}

impl<T> Items<T> {
    fn reference(&self, next: Next) -> Option<ObjectRef<T>> {
        match next {
            Next::Item(id) => Some(ObjectRef::adopt(self.runtime.clone(), id)),
            Next::End => None,
        }
    }

    fn next_until(&self, deadline: Option<Instant>) -> Option<Result<ObjectRef<T>>> {
        let next = process::patiently(|| self.runtime.next_item(self.task, deadline));
        next.map(|next| self.reference(next)).transpose()
    }

    /// The next item, waited for at most this long; nothing at the end.
    ///
    /// # Errors
    /// [`crate::Error::TimedOut`] where it was not there by then.
    pub fn next_timeout(&mut self, limit: Duration) -> Option<Result<ObjectRef<T>>> {
        self.next_until(Instant::now().checked_add(limit))
    }

    /// The next item, to be awaited; nothing at the end.
    pub fn next_item(&mut self) -> NextItem<'_, T> {
        NextItem(self)
    }

    /// A reference that has its value when the call is over, whether all items were read or not.
    pub fn completed(&self) -> ObjectRef<()> {
        self.completion.clone()
    }

    /// Whether the call is over and all items were read.
    pub fn is_finished(&self) -> bool {
        self.runtime.is_stream_over(self.task)
    }
}

/// Waits for each item.
impl<T> Iterator for Items<T> {
    type Item = Result<ObjectRef<T>>;

    fn next(&mut self) -> Option<Result<ObjectRef<T>>> {
        self.next_until(None)
    }
}

/// What awaiting the next of [`Items`] awaits.
#[derive(Debug)]
#[must_use = "nothing is waited for unless it is awaited"]
pub struct NextItem<'items, T>(&'items mut Items<T>);

impl<T> Future for NextItem<'_, T> {
    type Output = Option<Result<ObjectRef<T>>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let items = &*self.0;
        let (runtime, task) = (&items.runtime, items.task);
        let id = runtime.next_item_id(task);
        if !runtime.is_next_ready(task)
            && !runtime.is_cancelled(current_task())
            && client_events::wake_when_told(runtime, id, context.waker(), || runtime.announce_item(task))
        {
            return Poll::Pending;
        }
        Poll::Ready(items.next_until(None))
    }
}
