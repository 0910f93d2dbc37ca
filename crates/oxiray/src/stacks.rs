//! Where the threads of this process are, for whoever asks the cluster.
//!
//! - STACKS-1: each thread notes the addresses of its own frames, in the handler of a signal, and does nothing else there: the
//!   handler allocates nothing and takes no lock. What lies at the addresses is looked up by the thread that asked.
//! - STACKS-2: one thread at most answers, however often somebody asks, and asks one thread after the other.
//! - STACKS-3: a thread that does not come to note them within [`PATIENCE`], as one that waits for a disk, is told of, and
//!   writes to no place that is meant for another when it comes.
//! - STACKS-4: where the program handles the signal itself, that is left as it is, and the question is answered with that.

use crate::addresses::Program;
use crate::process;
use oxiray_wire::message::{Stack, StackQuery, StackReport};
use parking_lot::Mutex;
use std::ffi::{c_int, c_void};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How many real-time signals lie below the one for stacks: it is the same as in Python programs.
const BELOW: i32 = 20;
/// STACKS-3, and how long all threads together may take.
const PATIENCE: Duration = Duration::from_millis(200);
const PATIENCE_WITH_ALL: Duration = Duration::from_secs(5);
/// The most frames of a thread.
const FRAMES_MAX: usize = 128;
/// The most threads that are asked.
const THREADS_MAX: usize = 200;
/// What the names of the runtime's own threads begin with; those that run calls are not meant.
const OWN_THREADS: &str = "oxiray";
/// The name of the first thread, as in Python.
const MAIN: &str = "MainThread";

/// What a thread notes, and who is to.
struct Slot {
    /// The thread that is asked, [`NOBODY`], [`NOTING`] while it writes, or [`NOTED`].
    asked: AtomicI32,
    count: AtomicUsize,
    frames: [AtomicUsize; FRAMES_MAX],
}

const NOBODY: i32 = 0;
const NOTING: i32 = -1;
const NOTED: i32 = -2;

static SLOT: Slot = Slot {
    asked: AtomicI32::new(NOBODY),
    count: AtomicUsize::new(0),
    frames: [const { AtomicUsize::new(0) }; FRAMES_MAX],
};

/// The questions that the answering thread has yet to see; nothing where there is no such thread (STACKS-2).
static ASKED: Mutex<Option<Vec<u64>>> = Mutex::new(None);

fn signal_number() -> c_int {
    libc::SIGRTMIN() + BELOW
}

/// From here on this process tells its stacks when it is asked.
pub(crate) fn tell(runtime: &oxiray_runtime::Runtime) {
    runtime.tell_stacks_by(wanted);
}

/// Somebody asks. Called by a thread that must not wait.
fn wanted(query: &StackQuery) -> Result<(), String> {
    if query.profile.is_some() {
        return Err(
            "programs in Rust are not profiled: `oxiray stack` tells where their threads are, and `perf` profiles \
                    them"
                .to_owned(),
        );
    }
    let mut asked = ASKED.lock();
    if let Some(asked) = asked.as_mut() {
        asked.push(query.number);
        return Ok(());
    }
    oxiray_threads::spawn(oxiray_threads::STACKS, answer)
        .map_err(|error| format!("the thread that takes its stacks could not be started: {error}"))?;
    *asked = Some(vec![query.number]);
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
    let mut asked = ASKED.lock();
    if asked.as_ref().is_none_or(Vec::is_empty) {
        *asked = None;
    }
    asked.as_mut().map(std::mem::take)
}

fn take() -> StackReport {
    let (stacks, note) = match prepare().and_then(|()| threads()) {
        Ok(threads) => stacks_of(threads),
        Err(error) => (Vec::new(), format!("its stacks could not be taken: {error}")),
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

/// Has the handler in place.
fn prepare() -> io::Result<()> {
    // What unwinds is loaded, and finds its tables, before a handler needs them.
    note_frames(0);
    let handler = note as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
    // SAFETY: `action` is plain data for which zeroes are a value; what handles the signal has the signature that
    // `SA_SIGINFO` asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal_number(), std::ptr::null(), &raw mut action);
        if action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = handler;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
            libc::sigaction(signal_number(), &raw const action, std::ptr::null_mut());
        } else if action.sa_sigaction != handler {
            // STACKS-4.
            let text = format!("the program handles signal {} itself, which is for its stacks", signal_number());
            return Err(io::Error::other(text));
        }
    }
    Ok(())
}

/// STACKS-1: the handler.
extern "C" fn note(_signal: c_int, _about: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: it is a number of this thread's.
    let thread = unsafe { libc::gettid() };
    // STACKS-3: who comes late is not asked any more.
    if SLOT.asked.compare_exchange(thread, NOTING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: the system gives a handler with `SA_SIGINFO` this context; the code that was interrupted keeps its error.
    unsafe {
        let errno = *libc::__errno_location();
        note_frames(interrupted_at(context));
        SLOT.asked.store(NOTED, Ordering::Release);
        libc::syscall(libc::SYS_futex, SLOT.asked.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
        *libc::__errno_location() = errno;
    }
}

/// Where the thread was when the signal came.
///
/// # Safety
/// It is what a handler was given.
unsafe fn interrupted_at(context: *mut c_void) -> usize {
    let context: *const libc::ucontext_t = context.cast();
    // SAFETY: as the caller says.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        return (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
        #[cfg(target_arch = "aarch64")]
        return (*context).uc_mcontext.pc as usize;
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        return 0;
    }
}

/// Notes the frames of this thread from there on; those of the handler before it are left out.
fn note_frames(from: usize) {
    let mut frames = [std::ptr::null_mut::<c_void>(); FRAMES_MAX];
    // SAFETY: it writes no more than there is room for.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES_MAX as c_int) };
    let all = &frames[..usize::try_from(count).unwrap_or(0).min(FRAMES_MAX)];
    let own = all.iter().position(|frame| *frame as usize == from).unwrap_or(0);
    for (place, frame) in SLOT.frames.iter().zip(&all[own..]) {
        place.store(*frame as usize, Ordering::Relaxed);
    }
    SLOT.count.store(all.len() - own, Ordering::Release);
}

/// The threads to ask: the first one, and those that are not the runtime's own.
fn threads() -> io::Result<Vec<(i32, String)>> {
    // SAFETY: these are numbers.
    let (own, first) = unsafe { (libc::gettid(), libc::getpid()) };
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that has ended meanwhile has no name.
        let Ok(name) = fs::read_to_string(entry.path().join("comm")) else { continue };
        let name = if thread == first { MAIN } else { name.trim_end() };
        let is_of_runtime = name.starts_with(OWN_THREADS) && name != oxiray_threads::CALL.name;
        if thread != own && !is_of_runtime {
            found.push((thread, name.to_owned()));
        }
    }
    found.sort_by_key(|(thread, _)| (*thread != first, *thread));
    Ok(found)
}

/// The stacks of these threads, and what there is to say of those that have none.
fn stacks_of(threads: Vec<(i32, String)>) -> (Vec<Stack>, String) {
    let until = Instant::now() + PATIENCE_WITH_ALL;
    let mut program = Program::loaded();
    let (mut stacks, mut silent, mut left) = (Vec::new(), Vec::new(), 0);
    for (index, (thread, name)) in threads.into_iter().enumerate() {
        if index >= THREADS_MAX || Instant::now() >= until {
            left += 1;
            continue;
        }
        match frames_of(thread) {
            Noted::Frames(frames) => {
                let frames = frames.iter().enumerate().flat_map(|(at, frame)| program.at(*frame, at == 0)).collect();
                stacks.push(Stack { name, frames, ..Stack::default() });
            }
            Noted::Gone => {}
            Noted::Silent => silent.push(format!("{name} ({thread})")),
        }
    }
    let mut notes = Vec::new();
    if !silent.is_empty() {
        notes.push(format!(
            "threads that do not answer, as they wait in the kernel or block signals: {}",
            silent.join(", ")
        ));
    }
    if left > 0 {
        notes.push(format!("{left} threads were not asked, for there are many"));
    }
    (stacks, notes.join("; "))
}

/// What a thread noted.
enum Noted {
    Frames(Vec<usize>),
    Gone,
    Silent,
}

fn frames_of(thread: i32) -> Noted {
    SLOT.asked.store(thread, Ordering::Release);
    // SAFETY: the handler is in place, and a number of a thread that has ended is refused.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal_number()) };
    if sent != 0 {
        SLOT.asked.store(NOBODY, Ordering::Release);
        return Noted::Gone;
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let state = SLOT.asked.load(Ordering::Acquire);
        if state == NOTED {
            let count = SLOT.count.load(Ordering::Acquire).min(FRAMES_MAX);
            return Noted::Frames(SLOT.frames[..count].iter().map(|frame| frame.load(Ordering::Relaxed)).collect());
        }
        // One that has begun to note them is waited for: it needs no more than its turn on a processor.
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() && SLOT.asked.compare_exchange(thread, NOBODY, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Noted::Silent;
        }
        await_change(state, left.max(TURN));
    }
}

/// How long a thread that notes its frames is waited for before it is looked again.
const TURN: Duration = Duration::from_millis(10);

/// Waits until the slot is in another state, or this long.
fn await_change(state: i32, limit: Duration) {
    let limit = libc::timespec { tv_sec: limit.as_secs() as libc::time_t, tv_nsec: limit.subsec_nanos().into() };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the slot is there for good, and so is the limit during the call.
    unsafe { libc::syscall(libc::SYS_futex, SLOT.asked.as_ptr(), operation, state, &raw const limit) };
}
