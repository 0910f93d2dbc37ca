//! Functions that run in other processes.

use crate::context;
use crate::error::Result;
use crate::options::{Settled, TaskOptions, retried};
use crate::outgoing::Outgoing;
use crate::process;
use crate::reference::Returned;
use bytes::Bytes;
use oxiray_client::assigned;
use oxiray_runtime::{Arguments, Class, ClassIndex, Routine, Runtime, Streaming, Work};
use parking_lot::Mutex;
use std::sync::Arc;

/// What all calls of one function share, on one connection.
struct Prepared {
    generation: u64,
    class: ClassIndex,
    work: Work,
}

/// A function with the options that its `#[remote(…)]` says.
#[doc(hidden)]
pub struct RemoteFunction {
    path: &'static str,
    options: fn() -> TaskOptions,
    prepared: Mutex<Option<Prepared>>,
}

/// One use of a class, while a call is made.
struct Used<'runtime> {
    runtime: &'runtime Runtime,
    class: ClassIndex,
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        self.runtime.release_class(self.class);
    }
}

/// A call of the function at `path`, which whoever runs it knows by that.
pub(crate) fn work<R: Returned>(code: Bytes, path: &str, settled: &Settled) -> Work {
    let digest = ring::digest::digest(&ring::digest::SHA256, &code);
    let routine = Routine {
        function: Bytes::copy_from_slice(&digest.as_ref()[..16]),
        code,
        name: settled.name.clone().unwrap_or_else(|| path.rsplit("::").next().unwrap_or(path).to_owned()),
        results: R::RESULTS,
        stream: R::STREAMS.then_some(Streaming { ahead: settled.max_unread, per_yield: 1 }),
        max_calls: settled.max_calls,
        retry_exceptions: retried(settled.retry_exceptions),
        ..Routine::default()
    };
    Work { routine: Arc::new(routine), retries: settled.max_retries, ..Work::default() }
}

/// Calls once, with options that no other call has.
pub(crate) fn submit_once<R: Returned>(runtime: &Runtime, class: Class, work: Work, arguments: Arguments) -> R {
    let used = Used { runtime, class: runtime.class(class) };
    submit(runtime, used.class, Work { arguments, ..work })
}

fn submit<R: Returned>(runtime: &Runtime, class: ClassIndex, work: Work) -> R {
    R::adopt(runtime, runtime.submit(class, Work { parent: context::current_task(), ..work }))
}

impl RemoteFunction {
    /// Named once, in a static.
    pub const fn new(path: &'static str, options: fn() -> TaskOptions) -> Self {
        Self { path, options, prepared: Mutex::new(None) }
    }

    /// Runs it elsewhere.
    pub fn call<R: Returned>(&self, options: Option<TaskOptions>, outgoing: Outgoing) -> Result<R> {
        let (runtime, arguments, kept) = outgoing.finish()?;
        let code = || Bytes::from_static(self.path.as_bytes());
        let called = if let Some(options) = options {
            let settled = options.over((self.options)()).settle(None)?;
            let work = work::<R>(code(), self.path, &settled);
            submit_once(&runtime, settled.class, work, arguments)
        } else if assigned::captures() {
            // Where it runs depends on who calls.
            let settled = (self.options)().settle(None)?;
            let work = work::<R>(code(), self.path, &settled);
            submit_once(&runtime, settled.class, work, arguments)
        } else {
            let generation = process::generation();
            let mut prepared = self.prepared.lock();
            let ready = match &mut *prepared {
                Some(ready) if ready.generation == generation => ready,
                stale => {
                    let settled = (self.options)().settle(None)?;
                    let work = work::<R>(code(), self.path, &settled);
                    stale.insert(Prepared { generation, class: runtime.class(settled.class), work })
                }
            };
            let (class, work) = (ready.class, Work { arguments, ..ready.work.clone() });
            drop(prepared);
            submit(&runtime, class, work)
        };
        drop(kept);
        Ok(called)
    }
}
