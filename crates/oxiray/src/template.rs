//! What the daemon starts this program as: the process that forks workers, or the private daemon itself.
//!
//! A fork copies the thread that forks and no other, so that whatever another thread held would be held forever. Where
//! the program has one thread when it gets here, workers are forked from it and have all that it has prepared by then;
//! otherwise each is started anew, which takes a few milliseconds more.

use crate::worker;
use oxiray_node::{Config, Mode};
use oxiray_processes::Brood;
use oxiray_wire::message::{Fork, Forked, Gone, TemplateReady};
use oxiray_wire::{Connection, Message, Received};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The stream to the daemon of a process that is to fork workers.
const TEMPLATE_VARIABLE: &str = "OXIRAY_TEMPLATE_FD";
/// The stream to the daemon of a worker that was started rather than forked, and its template's process.
const WORKER_VARIABLE: &str = "OXIRAY_WORKER_OF";
/// The files by which a worker that was started enters its control groups, one in each line.
const GROUPS_VARIABLE: &str = "OXIRAY_WORKER_GROUPS";
/// What a private daemon is told.
pub(crate) const DAEMON_VARIABLE: &str = "OXIRAY_DAEMON_CONFIG";
/// Where a private daemon has the stream to its driver, and a started worker its stream to the daemon.
pub(crate) const STREAM: i32 = 3;

/// Where the daemon started this process as a worker of the program, or as the daemon itself, serves as that and never
/// returns. Otherwise does nothing.
///
/// [`crate::init`] and `#[oxiray::main]` call it. What `main` does before is done in every worker's template too.
pub fn serve_if_asked() {
    if let Some(descriptor) = take_variable(TEMPLATE_VARIABLE) {
        let status = descriptor.parse().map_err(io::Error::other).and_then(serve);
        leave(i32::from(told(status).is_none()));
    }
    if let Some(parent) = take_variable(WORKER_VARIABLE) {
        let groups = take_variable(GROUPS_VARIABLE).unwrap_or_default();
        let groups: Vec<String> = groups.lines().map(str::to_owned).collect();
        let born =
            parent.parse().map_err(io::Error::other).and_then(|parent| be_born(parent, &groups).map(|()| STREAM));
        leave(told(born).map_or(1, worker::main));
    }
    if let Some(config) = take_variable(DAEMON_VARIABLE) {
        leave(i32::from(told(be_daemon(&config)).is_none()));
    }
}

fn told<T>(result: io::Result<T>) -> Option<T> {
    result.map_err(|error| worker::say(&format!("{error}\n"))).ok()
}

/// Ends the process without what the program would do at its end: this is not the program's own process.
fn leave(status: i32) -> ! {
    worker::flush();
    // SAFETY: the call takes a number and does not return.
    unsafe { libc::_exit(status) }
}

fn take_variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    // SAFETY: where the program has other threads already, they may read variables at this moment; the daemon starts
    // programs with this one only to get here, where nothing of the user's runs besides what precedes `init`.
    unsafe { std::env::remove_var(name) };
    Some(value)
}

fn be_daemon(config: &str) -> io::Result<()> {
    let config: Config = serde_json::from_str(config)?;
    // SAFETY: whoever started this process passed the descriptor to it for this, and nothing else uses it.
    let driver = unsafe { OwnedFd::from_raw_fd(STREAM) };
    oxiray_node::run(&config, Mode::Private(driver), |_| {}).map_err(io::Error::other)
}

/// How a template makes workers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Fork,
    /// Other threads run.
    Start,
}

/// The names of threads that have fork handlers: jemalloc stops its own before a fork and makes its locks whole in
/// the child.
const FORKABLE_THREADS: [&str; 1] = ["jemalloc_bg_thd"];

fn way() -> Way {
    let may_be_forked = |thread: io::Result<std::fs::DirEntry>| {
        let name = thread.and_then(|thread| std::fs::read_to_string(thread.path().join("comm")));
        name.is_ok_and(|name| FORKABLE_THREADS.contains(&name.trim_end()))
    };
    let threads = std::fs::read_dir("/proc/self/task")
        .map_or(2, |tasks| tasks.filter_map(|thread| (!may_be_forked(thread)).then_some(())).count());
    if threads == 1 { Way::Fork } else { Way::Start }
}

fn serve(descriptor: i32) -> io::Result<()> {
    let started = Instant::now();
    // SAFETY: the daemon passed this descriptor to this process alone, for this.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    let way = way();
    let mut brood = Brood::new().map_err(io::Error::other)?;
    let mut daemon = Connection::new(socket)?;
    daemon.send(&TemplateReady { started_us: started.elapsed().as_micros() as u64, notice: String::new() });
    let mut asked: Vec<Received> = Vec::new();
    loop {
        for departed in brood.reap() {
            let gone = Gone { pid: departed.pid, status: departed.status, stragglers: departed.stragglers };
            daemon.send(&gone);
        }
        for Received { message, descriptors } in std::mem::take(&mut asked) {
            if let Message::Fork(fork) = message {
                make_worker(way, &mut daemon, &mut brood, &fork, descriptors);
            }
        }
        if daemon.flush().is_err() {
            break;
        }
        wait_readable(&[daemon.as_fd(), brood.watch_fd()], daemon.unsent_bytes() > 0);
        if daemon.receive(&mut asked).is_err() {
            break;
        }
    }
    // The daemon is gone: nothing forked here outlives it.
    brood.kill_all();
    while !brood.is_empty() {
        wait_readable(&[brood.watch_fd()], false);
        brood.reap();
    }
    Ok(())
}

fn make_worker(way: Way, daemon: &mut Connection, brood: &mut Brood, fork: &Fork, descriptors: Vec<OwnedFd>) {
    let made = <[OwnedFd; 3]>::try_from(descriptors)
        .map_err(|_| io::Error::other("three descriptors belong to a wish"))
        .and_then(|descriptors| match way {
            Way::Fork => {
                fork_worker(descriptors, &fork.groups, [daemon.as_fd().as_raw_fd(), brood.watch_fd().as_raw_fd()])
            }
            Way::Start => start_worker(descriptors, &fork.groups),
        });
    let (pid, text, descriptors) = match made {
        Ok(pid) => {
            brood.register(pid);
            (pid, String::new(), oxiray_processes::pidfd_of(pid).into_iter().collect())
        }
        Err(error) => (0, error.to_string(), Vec::new()),
    };
    daemon.send_with(&Forked { request: fork.request, pid, text }.into(), descriptors);
}

/// Forks; the child becomes a worker here and never returns. `own` are the parent's, which the child has no use for.
fn fork_worker([control, output, errors]: [OwnedFd; 3], groups: &[String], own: [i32; 2]) -> io::Result<u32> {
    let parent = std::process::id();
    // SAFETY: this process has one thread, so that the child finds nothing held by another; the child touches neither the
    // parent's stream nor its children.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            for descriptor in own {
                // SAFETY: what owns them in this copy of the parent is never used nor dropped, since the child only leaves.
                unsafe { libc::close(descriptor) };
            }
            let redirected = rustix::stdio::dup2_stdout(&output).and_then(|()| rustix::stdio::dup2_stderr(&errors));
            drop((output, errors));
            let born = redirected.map_err(io::Error::from).and_then(|()| be_born(parent, groups));
            let status = match born {
                Ok(()) => worker::main(std::os::fd::IntoRawFd::into_raw_fd(control)),
                Err(error) => {
                    worker::say(&format!("a worker cannot begin: {error}\n"));
                    1
                }
            };
            leave(status)
        }
        pid => Ok(pid as u32),
    }
}

/// Starts the program anew.
fn start_worker([control, output, errors]: [OwnedFd; 3], groups: &[String]) -> io::Result<u32> {
    let mut command = Command::new("/proc/self/exe");
    command.env(WORKER_VARIABLE, std::process::id().to_string()).env(GROUPS_VARIABLE, groups.join("\n"));
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    let number = control.as_raw_fd();
    // SAFETY: the closure runs in the child between fork and exec, and only calls `dup2` and `fcntl`, which are allowed
    // there; `control` is open until the child was started.
    unsafe {
        command.pre_exec(move || inherit(number));
    }
    Ok(command.spawn()?.id())
}

/// Between fork and exec: has the started program find this descriptor at [`STREAM`].
pub(crate) fn inherit(number: i32) -> io::Result<()> {
    // SAFETY: the calls take numbers; that which is replaced is a duplicate that the child has for nothing.
    let result =
        unsafe { if number == STREAM { libc::fcntl(STREAM, libc::F_SETFD, 0) } else { libc::dup2(number, STREAM) } };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// In a new worker: it has its limits, dies with its template, and keeps its descendants.
fn be_born(parent: u32, groups: &[String]) -> io::Result<()> {
    if let Err(error) = oxiray_processes::enter_control_groups(groups) {
        worker::say(&format!("no limit of memory and processes holds for this worker: {error}\n"));
    }
    oxiray_processes::reset_signals_after_fork();
    oxiray_processes::go_first_where_memory_is_short();
    oxiray_processes::die_with_parent(parent)?;
    oxiray_processes::become_subreaper()?;
    Ok(())
}

/// Waits until one of the descriptors can be read, or the first written where that is wanted.
fn wait_readable(descriptors: &[BorrowedFd<'_>], or_first_writable: bool) {
    let mut watched: Vec<PollFd<'_>> =
        descriptors.iter().map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN)).collect();
    if or_first_writable && let Some(first) = watched.first_mut() {
        *first = PollFd::from_borrowed_fd(descriptors[0], PollFlags::IN | PollFlags::OUT);
    }
    // A signal ends the wait early; the caller looks again.
    let _ = rustix::event::poll(&mut watched, None);
}
