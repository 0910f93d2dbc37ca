//! A parent that starts a process anew where the dead man's switch has ended it.
//!
//! A process that was stopped for too long is killed, and can neither say so nor go on. Its parent, which does nothing but
//! wait, sees its end and forks another in its place.
//!
//! - SUPERVISE-1: the supervisor starts another process only where the switch has ended the last one. After any other end it
//!   ends in the same way, so that whoever started it sees what it would have seen of the process itself.
//! - SUPERVISE-2: the process dies with its supervisor, and another one begins when nothing that descended from the last one
//!   is left.
//! - SUPERVISE-3: what asks the supervisor to end is passed on to the process.

use crate::call::{die_with_parent, since_boot, stop_signals};
use crate::child_reaper::{ChildReaper, ReaperError};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::time::Duration;

/// The longest note that a process leaves to its successor.
const NOTE_BYTES_MAX: usize = 16 << 10;
/// Where a note's length is in the lifeline's memory; the switch's time is before it.
const LENGTH_AT: u64 = 8;
/// Where the note itself is.
const NOTE_AT: u64 = 16;
/// What is added to a signal's number in the status of a process that cannot die by it, as shells do.
const SIGNALLED: i32 = 128;
/// What the supervisor is called in listings of processes: the command line is that of the process.
const NAME: &std::ffi::CStr = c"oxiray-parent";

static LIFELINE: OnceLock<Lifeline> = OnceLock::new();

/// Memory that a process and its supervisor share.
#[derive(Debug)]
pub(crate) struct Lifeline {
    file: File,
    supervisor: u32,
}

impl Lifeline {
    fn make() -> Result<Self, Errno> {
        let file = File::from(rustix::fs::memfd_create("oxiray-lifeline", MemfdFlags::CLOEXEC)?);
        Ok(Self { file, supervisor: std::process::id() })
    }

    /// The switch ends this process at that time since the machine was started; `None` where it does not.
    pub(crate) fn set_end(&self, at: Option<Duration>) {
        let nanoseconds = at.map_or(0, |at| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        // It is memory. Where there is none left, the process is not started anew.
        let _ = self.file.write_all_at(&nanoseconds.to_ne_bytes(), 0);
    }

    /// Whether the switch's time is over. That is asked of a process that was killed: whoever else kills one does so before
    /// that time, since none lives longer.
    fn is_over(&self) -> bool {
        let mut bytes = [0; 8];
        let end = self.file.read_exact_at(&mut bytes, 0).map_or(0, |()| u64::from_ne_bytes(bytes));
        end > 0 && since_boot() >= Duration::from_nanos(end)
    }

    fn leave(&self, note: &[u8]) -> io::Result<()> {
        if note.len() > NOTE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a note for a successor is too long"));
        }
        self.file.write_all_at(note, NOTE_AT)?;
        self.file.write_all_at(&(note.len() as u64).to_ne_bytes(), LENGTH_AT)
    }

    fn note(&self) -> io::Result<Vec<u8>> {
        let mut length = [0; 8];
        self.file.read_exact_at(&mut length, LENGTH_AT)?;
        let mut note = vec![0; (u64::from_ne_bytes(length) as usize).min(NOTE_BYTES_MAX)];
        self.file.read_exact_at(&mut note, NOTE_AT)?;
        Ok(note)
    }
}

/// This process's way to tell its supervisor, where it has one.
pub(crate) fn lifeline() -> Option<&'static Lifeline> {
    LIFELINE.get()
}

/// Who supervises this process.
pub fn supervisor() -> Option<u32> {
    lifeline().map(|lifeline| lifeline.supervisor)
}

/// Leaves a note to the process that is started in this one's place, should the switch end it.
///
/// # Errors
/// Where there is no memory, or the note is too long.
pub fn leave_note(note: &[u8]) -> io::Result<()> {
    lifeline().map_or(Ok(()), |lifeline| lifeline.leave(note))
}

/// Makes this process the supervisor, and returns in the process that it starts: with `None`, and in each that takes the
/// place of another, with what that one has left as its note. The supervisor itself never returns. The calling process must
/// have one thread.
///
/// # Errors
/// Where the kernel refuses; the supervisor tells of no later fault, and ends.
pub fn supervise(keeps_output: bool) -> Result<Option<Vec<u8>>, ReaperError> {
    let failed = |step: &'static str| move |source| ReaperError { step, source };
    let lifeline = Lifeline::make().map_err(failed("memfd_create"))?;
    let mut reaper = ChildReaper::new()?;
    let stop = stop_signals().map_err(failed("signalfd(SIGTERM)"))?;
    let name = rustix::thread::name().map_err(failed("prctl(PR_GET_NAME)"))?;
    let mut note = None;
    loop {
        let Some(child) = fork().map_err(failed("fork"))? else {
            die_with_parent(lifeline.supervisor).map_err(failed("prctl(PR_SET_PDEATHSIG)"))?;
            let _ = rustix::thread::set_name(&name);
            let _ = LIFELINE.set(lifeline);
            return Ok(note);
        };
        reaper.register(child);
        if note.is_none() {
            become_quiet(keeps_output);
        }
        let (status, was_asked) = wait_for(&mut reaper, child, &stop);
        if was_asked || status != libc::SIGKILL || !lifeline.is_over() {
            end_as(status);
        }
        note = Some(lifeline.note().unwrap_or_default());
        lifeline.set_end(None);
    }
}

fn fork() -> Result<Option<u32>, Errno> {
    // SAFETY: this process has one thread, as its caller promises, so that the child finds nothing half done.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        child if child > 0 => Ok(Some(child as u32)),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::AGAIN)),
    }
}

/// Whoever reads what the process prints waits for its end, which must not be this one's.
fn become_quiet(keeps_output: bool) {
    let _ = rustix::thread::set_name(NAME);
    if keeps_output {
        return;
    }
    if let Ok(nothing) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stdout(&nothing);
        let _ = rustix::stdio::dup2_stderr(&nothing);
    }
}

/// Waits until the child and all that descended from it are gone: how it ended, and whether that was asked for.
fn wait_for(reaper: &mut ChildReaper, child: u32, stop: &OwnedFd) -> (i32, bool) {
    let mut was_asked = false;
    loop {
        if let Some(departed) = reaper.reap().iter().find(|departed| departed.pid == child) {
            return (departed.status, was_asked);
        }
        let mut watched =
            [PollFd::from_borrowed_fd(reaper.watch_fd(), PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        // Whatever ends it, both are looked at.
        let _ = poll(&mut watched, None);
        let mut told = [0; size_of::<libc::signalfd_siginfo>()];
        while rustix::io::read(stop, &mut told).is_ok_and(|read| read > 0) {
            was_asked = true;
            if let (true, Some(pid)) = (reaper.living().any(|pid| pid == child), Pid::from_raw(child as i32)) {
                // It keeps its number until it is reaped.
                let _ = rustix::process::kill_process(pid, Signal::TERM);
            }
        }
    }
}

/// SUPERVISE-1.
#[expect(clippy::exit, reason = "the status of this process is that of another")]
fn end_as(status: i32) -> ! {
    let signal = status & 0x7f;
    if signal == 0 {
        std::process::exit((status >> 8) & 0xff);
    }
    // The memory of this process tells nothing of why.
    let _ = rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    crate::call::reset_signals_after_fork();
    // SAFETY: the call takes a number.
    unsafe { libc::raise(signal) };
    // The first process of a container does not die by its own signals.
    std::process::exit(SIGNALLED + signal);
}
