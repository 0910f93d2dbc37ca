//! Futures, driven to their end in the thread that wants it.
//!
//! - DRIVE-1: what an `async` remote function does is dropped where it awaits, as soon as its call is cancelled.

use crate::error::{Error, Result};
use crate::{client_events, context, process};
use oxiray_ids::{ObjectId, TaskId};
use oxiray_runtime::Runtime;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// A thread that sleeps until its future may go on.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end in this thread.
///
/// It brings no timers and no sockets of its own: futures that need a runtime for those are run within one, say with
/// `tokio::runtime::Handle::block_on`. With the feature `tokio`, `async` remote functions are run within one.
///
/// In a call that is cancelled, what the future awaits of this crate ends with [`Error::Cancelled`].
pub fn block_on<F: Future>(future: F) -> F::Output {
    let task = context::current_task();
    let Some(runtime) = process::current().filter(|_| !task.is_nil()) else { return sleep_through(future) };
    let mut watch = Watch { runtime, task, waker: None };
    let mut future = pin!(future);
    sleep_through(poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            watch.note(context.waker());
        }
        polled
    }))
}

/// Polls a future whenever it says that it may go on, and sleeps in between.
fn sleep_through<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Sleeper(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Runs the future of a remote function or method: within a tokio runtime of this thread, where that was asked for.
fn run<F: Future>(future: F) -> F::Output {
    #[cfg(feature = "tokio")]
    {
        thread_local! {
            static TOKIO: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("tokio has its descriptors");
        }
        TOKIO.with(|runtime| runtime.block_on(future))
    }
    #[cfg(not(feature = "tokio"))]
    sleep_through(future)
}

/// Who is woken when a call is cancelled.
struct Watch {
    runtime: Runtime,
    task: TaskId,
    /// Known to those who tell the news.
    waker: Option<Waker>,
}

impl Watch {
    /// What stands for the call in the news.
    fn id(&self) -> ObjectId {
        self.task.object(1)
    }

    fn is_cancelled(&self) -> bool {
        self.runtime.is_cancelled(self.task)
    }

    fn note(&mut self, waker: &Waker) {
        if self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return;
        }
        self.waker = Some(waker.clone());
        client_events::wake_when_told(&self.runtime, self.id(), waker, || !self.is_cancelled());
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.waker.is_some() {
            client_events::forget(self.id());
        }
    }
}

/// DRIVE-1: runs the future of the call that this thread runs.
#[doc(hidden)]
pub fn drive<F: Future>(future: F) -> Result<F::Output> {
    let mut watch = Watch { runtime: process::required()?, task: context::current_task(), waker: None };
    let mut future = pin!(future);
    run(poll_fn(|context| {
        if watch.is_cancelled() {
            return Poll::Ready(Err(Error::Cancelled("it was cancelled where it awaited something".into())));
        }
        let polled = future.as_mut().poll(context).map(Ok);
        if polled.is_pending() {
            watch.note(context.waker());
        }
        polled
    }))
}
