//! What the daemon starts this program as: the process that forks workers, or a worker that could not be forked.
//!
//! A fork copies the thread that forks and no other, so that whatever another thread held would be held forever. Where
//! the program has one thread when it gets here, workers are forked from it and have all that it has prepared by then;
//! otherwise each is started anew, which takes a few milliseconds more.

use crate::worker;
use oxiray_client::template::{TemplateService, WorkerWanted, be_born};
use oxiray_processes::Start;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::time::Instant;

/// The stream to the daemon of a process that is to fork workers.
const TEMPLATE_VARIABLE: &str = "OXIRAY_TEMPLATE_FD";
/// The stream to the daemon of a worker that was started rather than forked, and its template's process.
const WORKER_VARIABLE: &str = "OXIRAY_WORKER_OF";
/// The files by which a worker that was started enters its control groups, one in each line.
const GROUPS_VARIABLE: &str = "OXIRAY_WORKER_GROUPS";
/// Those of them without which it is not to begin.
const FENCES_VARIABLE: &str = "OXIRAY_WORKER_FENCES";
/// Where a started worker has its stream to the daemon.
const STREAM: i32 = 3;

/// Where the daemon started this process as a worker of the program, serves as that and never returns. Otherwise does
/// nothing.
///
/// [`crate::init`] and `#[oxiray::main]` call it. What `main` does before is done in every worker's template too.
pub fn serve_if_asked() {
    if let Some(descriptor) = take_variable(TEMPLATE_VARIABLE) {
        let status = descriptor.parse().map_err(io::Error::other).and_then(serve);
        leave(i32::from(told(status).is_none()));
    }
    if let Some(template) = take_variable(WORKER_VARIABLE) {
        let [groups, fences] = [GROUPS_VARIABLE, FENCES_VARIABLE].map(|name| {
            let files = take_variable(name).unwrap_or_default();
            files.lines().map(str::to_owned).collect::<Vec<String>>()
        });
        let born = template.parse().map_err(io::Error::other);
        let born = born.and_then(|template| be_born(template, &groups, &fences));
        // SAFETY: the template passed the descriptor to this process alone, for this.
        let stream = told(born).map(|()| unsafe { OwnedFd::from_raw_fd(STREAM) });
        leave(stream.map_or(1, worker::main));
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
    let way = way();
    let mut template = TemplateService::begin(socket, started.elapsed(), String::new())?;
    while let Some(wanted) = template.next_wanted() {
        let request = wanted.request;
        let made = match way {
            Way::Start => start_worker(&wanted),
            // SAFETY: this process has one thread, so that the child finds nothing held by another.
            Way::Fork => match unsafe { libc::fork() } {
                -1 => Err(io::Error::last_os_error()),
                0 => be_worker(template, wanted),
                pid => Ok(pid as u32),
            },
        };
        template.tell(request, made);
    }
    Ok(())
}

/// In a forked child.
fn be_worker(template: TemplateService, wanted: WorkerWanted) -> ! {
    let status = match template.become_worker(wanted) {
        Ok(stream) => worker::main(stream),
        Err(error) => {
            worker::say(&format!("a worker cannot begin: {error}\n"));
            1
        }
    };
    leave(status)
}

/// Starts the program anew.
fn start_worker(wanted: &WorkerWanted) -> io::Result<u32> {
    let nothing = File::open("/dev/null")?;
    let [stream, output, errors] = &wanted.descriptors;
    let own = [
        (WORKER_VARIABLE, std::process::id().to_string()),
        (GROUPS_VARIABLE, wanted.groups.join("\n")),
        (FENCES_VARIABLE, wanted.fences.join("\n")),
    ];
    let own = own.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let start = Start {
        program: Path::new("/proc/self/exe"),
        arguments: &[],
        variables: std::env::vars_os().chain(own).collect(),
        descriptors: &[(nothing.as_fd(), 0), (output.as_fd(), 1), (errors.as_fd(), 2), (stream.as_fd(), STREAM)],
        in_own_session: false,
    };
    start.start()
}
