//! ClientEvent from the runtime: workers' output, notices, errors nobody looked at, values that futures wait for.

use crate::error::Error;
use oxiray_ids::ObjectId;
use oxiray_runtime::{ClientEvent, Runtime};
use oxiray_wire::message::LogLines;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

static WAITING: Mutex<Option<FxHashMap<ObjectId, Vec<Waker>>>> = Mutex::new(None);
static IS_STARTED: AtomicBool = AtomicBool::new(false);
/// Whether the thread is gone again.
static OVER: (Mutex<bool>, Condvar) = (Mutex::new(true), Condvar::new());

/// Starts the thread that hears the news, once a connection.
pub(crate) fn start(runtime: &Runtime) {
    if IS_STARTED.swap(true, Ordering::AcqRel) {
        return;
    }
    *OVER.0.lock() = false;
    let runtime = runtime.clone();
    let began = oxiray_threads::spawn(oxiray_threads::NEWS, move || hear(&runtime));
    if began.is_err() {
        // Without threads nothing else of the runtime would work either; futures wait for nothing.
        finish();
    }
}

/// Waits until the last news was heard, or this long.
pub(crate) fn await_end(limit: Duration) {
    let until = Instant::now() + limit;
    let mut over = OVER.0.lock();
    while !*over {
        if OVER.1.wait_until(&mut over, until).timed_out() {
            return;
        }
    }
}

fn finish() {
    IS_STARTED.store(false, Ordering::Release);
    *OVER.0.lock() = true;
    OVER.1.notify_all();
}

/// Has the waker woken when there is news of the object, where `ask` says that there will be some; `false` where not.
pub(crate) fn wake_when_told(runtime: &Runtime, id: ObjectId, waker: &Waker, ask: impl FnOnce() -> bool) -> bool {
    start(runtime);
    WAITING.lock().get_or_insert_default().entry(id).or_default().push(waker.clone());
    let is_to_come = ask();
    if !is_to_come {
        wake(id);
    }
    is_to_come
}

/// Nobody waits for news of the object any more.
pub(crate) fn forget(id: ObjectId) {
    if let Some(waiting) = WAITING.lock().as_mut() {
        waiting.remove(&id);
    }
}

fn wake(id: ObjectId) {
    let wakers = WAITING.lock().as_mut().and_then(|waiting| waiting.remove(&id)).unwrap_or_default();
    wakers.into_iter().for_each(Waker::wake);
}

fn hear(runtime: &Runtime) {
    loop {
        match runtime.next_news() {
            ClientEvent::Lines(said) => print(&said),
            ClientEvent::Notice(text) => tell(&format!("(oxiray) {text}\n")),
            ClientEvent::Ready(id) => wake(id),
            // A Rust program asks (`preempted`): it has no handler that would make SIGTERM more than a sooner end.
            // Nor does it ask to hear of objects' ends.
            ClientEvent::Preempted { .. } | ClientEvent::Ended(_) => {}
            ClientEvent::Unseen(value) => {
                if let Some(error) = value.content.as_ref().and_then(Error::of) {
                    tell(&format!("(oxiray) an error that nobody looked at: {error}\n"));
                }
            }
            ClientEvent::Over => break,
        }
    }
    let left = WAITING.lock().take().unwrap_or_default();
    left.into_values().flatten().for_each(Waker::wake);
    finish();
}

fn tell(text: &str) {
    // A closed stream has no reader.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn print(said: &LogLines) {
    let place = if said.ip.is_empty() { String::new() } else { format!(", ip={}", said.ip) };
    let prefix = if said.name.is_empty() {
        format!("(pid={}{place}) ", said.pid)
    } else {
        format!("({} pid={}{place}) ", said.name, said.pid)
    };
    let mut text = Vec::with_capacity(said.lines.len() + prefix.len());
    for line in said.lines.split_inclusive(|byte| *byte == b'\n') {
        text.extend_from_slice(prefix.as_bytes());
        text.extend_from_slice(line);
    }
    let _ = if said.error {
        std::io::stderr().lock().write_all(&text)
    } else {
        let mut output = std::io::stdout().lock();
        output.write_all(&text).and_then(|()| output.flush())
    };
}
