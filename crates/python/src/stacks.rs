//! Where this process's Python threads are, for whoever asks the cluster; what they do over a time is in `profile`.
//!
//! - STACKS-1: whoever holds the interpreter is not waited for: where it is not given within [`PATIENCE`], `faulthandler`,
//!   whose handler of a signal needs no interpreter, writes the stacks into a file in memory, which is read here. What holds
//!   the interpreter for so long is a call of native code, during which no Python frame changes.
//! - STACKS-2: the signal is raised on a thread of its own, so that no system call of the program's is interrupted.
//! - STACKS-3: one thread at most answers, and one waits for the interpreter, however often somebody asks.
//! - STACKS-4: nothing is written to a file that is not ours: the program may have closed ours, and have another under its
//!   number, or a handler of its own for the signal.

use crate::profile;
use oxiray_client::process;
use oxiray_wire::message::{Stack, StackFrame, StackQuery, StackReport};
use pyo3::prelude::*;
use rustix::fs::{MemfdFlags, SeekFrom, fstat, ftruncate, memfd_create, seek};
use rustix::io::pread;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What takes stacks in Python.
const MODULE: &str = "oxiray._stacks";
/// Python's name for the main thread.
const MAIN: &str = "MainThread";
/// How many real-time signals lie below the one for stacks: it is next to the one that interrupts.
const BELOW: i32 = 20;
/// How long the interpreter is waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// How much of what `faulthandler` writes is read.
const DUMP_BYTES_MAX: usize = 1 << 20;

/// The file that `faulthandler` writes to.
struct Dump {
    file: OwnedFd,
    /// Device and inode of it (STACKS-4).
    identity: (u64, u64),
    handler: usize,
    main_thread: u64,
}

static DUMP: Mutex<Option<Dump>> = Mutex::new(None);
/// The questions that the answering thread has yet to see; nothing where there is no such thread (STACKS-3).
static ASKED: Mutex<Option<Vec<u64>>> = Mutex::new(None);
/// STACKS-3.
static IS_WAITED_FOR: AtomicBool = AtomicBool::new(false);

fn signal_number() -> i32 {
    libc::SIGRTMIN() + BELOW
}

/// Has the means ready by which this process tells its stacks.
pub(crate) fn prepare(py: Python<'_>) {
    let mut dump = DUMP.lock().unwrap_or_else(PoisonError::into_inner);
    if dump.is_none() {
        // Without it, stacks are told whenever the interpreter is given.
        *dump = listen(py).ok();
    }
}

/// From here on this process tells its stacks when it is asked.
pub(crate) fn tell(py: Python<'_>, runtime: &oxiray_runtime::Runtime) {
    prepare(py);
    runtime.tell_stacks_by(wanted);
}

fn listen(py: Python<'_>) -> PyResult<Dump> {
    let file = memfd_create("stacks", MemfdFlags::CLOEXEC).map_err(io::Error::from)?;
    let about = fstat(&file).map_err(io::Error::from)?;
    let main_thread = py.import(MODULE)?.getattr("listen")?.call1((signal_number(), file.as_raw_fd()))?.extract()?;
    Ok(Dump { identity: (about.st_dev, about.st_ino), file, handler: handler(), main_thread })
}

/// What the signal is handled by.
fn handler() -> usize {
    // SAFETY: `action` is plain data for which zeroes are a value, and `sigaction` fills it in.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal_number(), std::ptr::null(), &raw mut action);
        action.sa_sigaction
    }
}

/// Somebody asks. Called by a thread that must not wait.
fn wanted(query: &StackQuery) -> Result<(), String> {
    let number = query.number;
    if let Some(profile) = query.profile {
        return profile::wanted(number, profile);
    }
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(asked) = asked.as_mut() {
        asked.push(number);
        return Ok(());
    }
    oxiray_threads::spawn(oxiray_threads::STACKS, answer)
        .map_err(|error| format!("the thread that takes its stacks could not be started: {error}"))?;
    *asked = Some(vec![number]);
    Ok(())
}

/// Answers until nobody asks any more.
fn answer() {
    while let Some(numbers) = take_asked() {
        let taken = take();
        let Some(runtime) = process::current() else { continue };
        for number in numbers {
            runtime.tell_stacks(&StackReport { number, ..taken.clone() });
        }
    }
}

/// The questions to answer; nothing where there are none, and the answering thread is over.
fn take_asked() -> Option<Vec<u64>> {
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    if asked.as_ref().is_none_or(Vec::is_empty) {
        *asked = None;
    }
    asked.as_mut().map(std::mem::take)
}

fn take() -> StackReport {
    let (stacks, note) = match of_interpreter() {
        Some(Ok(stacks)) => (stacks, String::new()),
        Some(Err(text)) => (Vec::new(), format!("its stacks could not be taken: {text}")),
        // STACKS-1.
        None => match dumped() {
            Ok(stacks) => {
                let note = "native code holds the interpreter: the asyncio tasks and the threads' names are not known";
                (stacks, note.to_owned())
            }
            Err(text) => (Vec::new(), format!("native code holds the interpreter, and {text}")),
        },
    };
    let mut report = StackReport { number: 0, stacks, note };
    let left_out = report.surplus(StackReport::BYTES_MAX).len();
    if left_out > 0 {
        let comma = if report.note.is_empty() { "" } else { "; " };
        report.note =
            format!("{}{comma}{left_out} stacks are left out, for all are too long for one answer", report.note);
    }
    report
}

/// The stacks by the interpreter; nothing where it is not given in time.
fn of_interpreter() -> Option<Result<Vec<Stack>, String>> {
    if IS_WAITED_FOR.swap(true, Ordering::AcqRel) {
        return None;
    }
    let (told, heard) = sync_channel(1);
    let look = move || {
        let stacks = Python::try_attach(|py| taken(py).map_err(|error| error.to_string()));
        IS_WAITED_FOR.store(false, Ordering::Release);
        // Nobody listens any more where it took too long.
        drop(told.send(stacks.unwrap_or_else(|| Err("the interpreter is ending".to_owned()))));
    };
    if let Err(error) = oxiray_threads::spawn(oxiray_threads::STACKS, look) {
        IS_WAITED_FOR.store(false, Ordering::Release);
        return Some(Err(error.to_string()));
    }
    match heard.recv_timeout(PATIENCE) {
        Ok(stacks) => Some(stacks),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(Err("the interpreter is ending".to_owned())),
    }
}

/// Function, file and line.
pub(crate) type Frame = (String, String, u32);
type Taken = (String, bool, Vec<Frame>);

fn taken(py: Python<'_>) -> PyResult<Vec<Stack>> {
    let taken: Vec<Taken> = py.import(MODULE)?.getattr("taken")?.call0()?.extract()?;
    let stack = |(name, is_task, frames): Taken| {
        let frames = frames.into_iter().map(frame_of).collect();
        Stack { name, is_task, frames, ..Stack::default() }
    };
    Ok(taken.into_iter().map(stack).collect())
}

pub(crate) fn frame_of((function, file, line): Frame) -> StackFrame {
    StackFrame { function, file, line }
}

/// The stacks of threads as `faulthandler` writes them.
fn dumped() -> Result<Vec<Stack>, String> {
    let dump = DUMP.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(dump) = dump.as_ref() else { return Err("faulthandler could not be set up".to_owned()) };
    let about = fstat(&dump.file).map_err(|error| format!("the file for its stacks is gone: {error}"))?;
    if (about.st_dev, about.st_ino) != dump.identity {
        return Err("the program has closed the file for its stacks".to_owned());
    }
    if handler() != dump.handler {
        return Err(format!("the program handles signal {} itself, which is for its stacks", signal_number()));
    }
    let text = written_by_signal(dump).map_err(|error| format!("its stacks could not be read: {error}"))?;
    let stacks = parsed(&text, dump.main_thread);
    if stacks.is_empty() { Err("faulthandler wrote nothing".to_owned()) } else { Ok(stacks) }
}

/// STACKS-2.
fn written_by_signal(dump: &Dump) -> io::Result<String> {
    let file = dump.file.as_fd();
    ftruncate(file, 0)?;
    seek(file, SeekFrom::Start(0))?;
    // SAFETY: this thread is ours and runs nothing else. It is given no alternative stack, which may be too small for the
    // handler, and lets the signal through; the handler has run when `raise` returns.
    unsafe {
        let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        libc::sigaltstack(&raw const none, std::ptr::null_mut());
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, signal_number());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, std::ptr::null_mut());
        libc::raise(signal_number());
    }
    let size = usize::try_from(fstat(file)?.st_size).unwrap_or(0).min(DUMP_BYTES_MAX);
    let mut text = vec![0; size];
    let read = pread(file, &mut text, 0)?;
    text.truncate(read);
    ftruncate(file, 0)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// What stands in the text of `faulthandler`; the main thread comes first. Others that run no Python code are left out: one
/// of them is the thread that waits for the interpreter.
fn parsed(text: &str, main_thread: u64) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = Vec::new();
    for line in text.lines() {
        if let Some(thread) = thread(line) {
            let name = if thread == main_thread { MAIN.to_owned() } else { format!("thread {thread:#x}") };
            stacks.push(Stack { name, ..Stack::default() });
        } else if let Some(stack) = stacks.last_mut() {
            stack.frames.extend(frame(line));
        }
    }
    stacks.retain(|stack| stack.name == MAIN || !stack.frames.is_empty());
    stacks.sort_by_key(|stack| stack.name != MAIN);
    stacks
}

/// `Current thread 0x00007f0cb2ffd6c0 (most recent call first):`
fn thread(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("hread 0x").filter(|_| line.ends_with("(most recent call first):"))?;
    u64::from_str_radix(rest.split(' ').next()?, 16).ok()
}

/// `  File "/usr/lib/python3.11/threading.py", line 320 in wait`
fn frame(line: &str) -> Option<StackFrame> {
    let (file, rest) = line.strip_prefix("  File \"")?.rsplit_once("\", line ")?;
    let (line, function) = rest.split_once(" in ")?;
    Some(StackFrame { function: function.to_owned(), file: file.to_owned(), line: line.parse().unwrap_or(0) })
}
