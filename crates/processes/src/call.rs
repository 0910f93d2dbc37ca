//! The system calls around a process's birth and death.

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::time::{ClockId, clock_gettime};
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Has the kernel kill this process when its parent dies, and fails with `ESRCH` where the parent is
/// not `expected_parent` any more.
///
/// The kernel watches the *thread* that forked: call it from processes that a main thread forked.
pub fn die_with_parent(expected_parent: u32) -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u32);
    if parent == expected_parent { Ok(()) } else { Err(Errno::SRCH) }
}

/// Time since the machine was started, suspension included.
pub fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// From here on, descendants that lose their parent become children of this process.
pub fn become_subreaper() -> Result<(), Errno> {
    // The call takes a pid only to name a yes; any will do.
    rustix::process::set_child_subreaper(Some(Pid::INIT))
}

/// Has the kernel end this process and what it starts before others where memory is short: a worker can be replaced, its
/// daemon and its driver cannot.
pub fn go_first_where_memory_is_short() {
    // Everybody may raise their own; where `/proc` is not to be written to, all are equal as before.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// The nice value of a thread that goes first: its turns are short, and others wait for each of them.
const FIRST: i32 = -10;

/// Has the kernel run the calling thread before others where processors are short. What it starts, threads and processes,
/// runs as others do. Without the right to it, or where the process was given a nice value, all stays as it is.
pub fn go_first_where_processors_are_short() {
    if rustix::process::getpriority_process(None) != Ok(0) {
        return;
    }
    // SAFETY: all fields are numbers, for which zero is one.
    let mut wanted: libc::sched_attr = unsafe { std::mem::zeroed() };
    wanted.size = size_of::<libc::sched_attr>() as u32;
    wanted.sched_policy = libc::SCHED_OTHER as u32;
    wanted.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    wanted.sched_nice = FIRST;
    // SAFETY: the call reads what is pointed to, as long as it says, and nothing else. Zero is the calling thread.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
}

/// Has this process, which has one thread, enter control groups, by their files `cgroup.procs` or `tasks`; fails with the
/// first that it could not enter.
pub fn enter_control_groups(files: &[String]) -> std::io::Result<()> {
    let mut result = Ok(());
    for file in files {
        // Zero is whoever writes it.
        if let Err(error) = std::fs::OpenOptions::new().write(true).open(file).and_then(|mut door| door.write_all(b"0"))
        {
            result = result.and(Err(std::io::Error::new(error.kind(), format!("{file}: {error}"))));
        }
    }
    result
}

/// What a forked child of a [`ChildReaper`](crate::ChildReaper)'s process does first: nothing is blocked, and every
/// signal does what it does in a fresh program.
pub fn reset_signals_after_fork() {
    // SAFETY: `signal` and `sigprocmask` only read their arguments; SIG_DFL installs no code of ours, and a
    // number that names no signal, or SIGKILL and SIGSTOP, is refused without effect. The child has one thread.
    unsafe {
        for number in 1..=libc::SIGRTMAX() {
            libc::signal(number, libc::SIG_DFL);
        }
        // As in every Python: a write to a closed pipe is an error, not a death.
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Has a program hear all signals, whatever its parent had blocked: a daemon that has them as descriptors hands that on to what it
/// starts. It is called before there are other threads.
pub fn unblock_signals() {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised by `sigemptyset` before it is read, and the old one is not asked for.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Blocks SIGTERM, SIGINT and SIGHUP for this thread and returns a descriptor that is readable when one came.
pub fn stop_signals() -> Result<OwnedFd, Errno> {
    signals_as_descriptor(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP])
}

pub(crate) fn signals_as_descriptor(numbers: &[libc::c_int]) -> Result<OwnedFd, Errno> {
    let mut wanted = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised by `sigemptyset` before anything reads it; `signalfd` returns a new
    // descriptor that nobody else owns, or -1.
    unsafe {
        libc::sigemptyset(wanted.as_mut_ptr());
        for number in numbers {
            libc::sigaddset(wanted.as_mut_ptr(), *number);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, wanted.as_ptr(), std::ptr::null_mut());
        let descriptor = libc::signalfd(-1, wanted.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if descriptor < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// A descriptor that names a living process and becomes readable when it dies.
pub fn pidfd_of(pid: u32) -> Result<OwnedFd, Errno> {
    let pid = Pid::from_raw(pid as i32).ok_or(Errno::SRCH)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
}

/// Kills the process that a pidfd names; nothing else can be hit, and a dead one is no error.
pub fn kill_by_pidfd(pidfd: impl AsFd) -> Result<(), Errno> {
    match rustix::process::pidfd_send_signal(pidfd, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error),
    }
}

/// How a process ended, in words: `killed by signal 9 (SIGKILL)`, `exited with status 3`.
pub fn describe_status(status: i32) -> String {
    let signal = status & 0x7f;
    if signal == 0 {
        let status = (status >> 8) & 0xff;
        // Who handles a signal by leaving says so by this, as shells do.
        return match signal_name(status - 128) {
            Some(name) => format!("exited with status {status} ({name})"),
            None => format!("exited with status {status}"),
        };
    }
    let core = if status & 0x80 == 0 { "" } else { ", core dumped" };
    match signal_name(signal) {
        Some(name) => format!("killed by signal {signal} ({name}{core})"),
        None => format!("killed by signal {signal}"),
    }
}

fn signal_name(number: i32) -> Option<&'static str> {
    const NAMES: [(i32, &str); 14] = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    NAMES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_read_as_sentences() {
        assert_eq!(describe_status(3 << 8), "exited with status 3");
        assert_eq!(describe_status(143 << 8), "exited with status 143 (SIGTERM)");
        assert_eq!(describe_status(9), "killed by signal 9 (SIGKILL)");
        assert_eq!(describe_status(0x0b | 0x80), "killed by signal 11 (SIGSEGV, core dumped)");
        assert_eq!(describe_status(40), "killed by signal 40");
    }
}

/// The process at the other end of a local socket, as the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process id; 0 where it has none here, since it is in another PID namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// Who is at the other end of a local socket.
pub fn peer_of(socket: impl AsFd) -> std::io::Result<Peer> {
    let mut told = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes into `told`, whose fields are numbers of which every value is one.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut told).cast(),
            &raw mut bytes,
        )
    };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(Peer { pid: told.pid as u32, uid: told.uid }) }
}
