//! Workers that are forked from a template of the program, and those that are started anew.

#![expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]

use crate::LIMIT;
use oxiray::Result;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};

/// Set where this program is to show on a cluster of its own what its workers are; with `thread` or the name
/// of a thread, it has one more before `init()`.
const INNER: &str = "TEST_WORKERS_OF";

/// The process that ran `main`, as the memory of each process has it.
static BEGAN: AtomicU32 = AtomicU32::new(0);

/// What `main` does before `init()`, in a template too.
pub(crate) fn prepare() {
    BEGAN.store(std::process::id(), Ordering::Relaxed);
    let Some(name) = std::env::var(INNER).ok().filter(|name| !name.is_empty()) else { return };
    let named = Arc::new(Barrier::new(2));
    let has_name = Arc::clone(&named);
    let spawned = std::thread::Builder::new().name(name).spawn(move || {
        has_name.wait();
        loop {
            std::thread::park();
        }
    });
    spawned.unwrap();
    named.wait();
}

pub(crate) fn is_inner() -> bool {
    std::env::var_os(INNER).is_some()
}

/// Whether the worker has its memory from another process's `main`, or ran that itself.
#[oxiray::remote]
fn is_forked() -> bool {
    BEGAN.load(Ordering::Relaxed) != std::process::id()
}

struct Summing {
    sum: i64,
}

#[oxiray::remote]
impl Summing {
    pub fn new(start: i64) -> Self {
        Self { sum: start }
    }

    pub fn add(&mut self, number: i64) -> i64 {
        self.sum += number;
        self.sum
    }
}

fn shown() -> Result<String> {
    let forked = is_forked::remote()?.get_timeout(LIMIT)?;
    let actor = Summing::remote(1)?;
    actor.add(2)?;
    Ok(format!("forked: {forked}, sum: {}", actor.add(3)?.get_timeout(LIMIT)?))
}

/// What the program does when it is the inner one.
pub(crate) fn show() -> ExitCode {
    println!("{}", shown().unwrap());
    ExitCode::SUCCESS
}

pub(crate) fn are_forked_from_a_template_with_one_thread() {
    assert_eq!(shown().unwrap(), "forked: true, sum: 6");
}

fn shown_with(thread: &str) -> String {
    let mut inner = Command::new(std::env::current_exe().unwrap());
    let done = inner.env(INNER, thread).stderr(Stdio::inherit()).output().unwrap();
    assert!(done.status.success(), "{:?}", done.status);
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

pub(crate) fn are_started_anew_where_the_template_has_threads() {
    assert_eq!(shown_with("thread"), "forked: false, sum: 6");
}

pub(crate) fn are_forked_beside_a_thread_that_has_fork_handlers() {
    assert_eq!(shown_with("jemalloc_bg_thd"), "forked: true, sum: 6");
}
