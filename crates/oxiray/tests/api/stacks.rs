//! Where the threads of workers and of this program are, as `oxiray stack` tells it.

use crate::LIMIT;
use oxiray_visitor::{Visitor, session};
use oxiray_wire::message::{Stack, StateQuery, StateReport};
use oxiray_wire::state::{ProcessStacks, StateKind};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The stacks of all processes of this program's cluster.
fn stacks() -> Vec<ProcessStacks> {
    let own = std::process::id();
    let sessions = session::living(&session::root().unwrap());
    let told = sessions.iter().map(|found| {
        let stream = session::connect(&found.directory).unwrap();
        let mut visitor = Visitor::greet(stream.into(), found.description.token.clone()).unwrap();
        let asked = StateQuery { kind: StateKind::Stacks, limit: 1000, ..StateQuery::default() };
        let StateReport { tables, .. } = visitor.ask(asked, LIMIT).unwrap();
        tables.unwrap_or_default().stacks
    });
    told.into_iter()
        .find(|stacks| stacks.iter().any(|process| process.pid == Some(own)))
        .expect("this program's cluster")
}

fn functions(process: &ProcessStacks) -> Vec<String> {
    let frames = process.stacks.iter().flat_map(|stack| &stack.frames);
    frames.map(|frame| frame.function.clone()).collect()
}

fn where_is(function: &str) -> Option<ProcessStacks> {
    stacks().into_iter().find(|process| functions(process).iter().any(|name| name.contains(function)))
}

/// Looks until a function is on some stack.
fn wait_for(function: &str) -> ProcessStacks {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(found) = where_is(function) {
            return found;
        }
        assert!(Instant::now() < until, "{function} is nowhere: {:?}", stacks());
    }
}

/// Its name is what is looked for, so that it is not to become a part of its caller.
#[inline(never)]
fn reads_a_pipe(path: &str) -> String {
    let mut text = String::new();
    std::fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
    text
}

struct Reader;

#[oxiray::remote(num_cpus = 0, max_concurrency = 2)]
impl Reader {
    pub fn new() -> Self {
        Self
    }

    pub fn read(&self, path: String) -> String {
        reads_a_pipe(&path)
    }
}

fn pipe(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    path
}

fn writer(pipe: &Path) -> File {
    OpenOptions::new().write(true).open(pipe).unwrap()
}

pub(crate) fn each_thread_is_shown_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let pipes = ["one", "other"].map(|name| pipe(folder.path(), name));
    let reader = Reader::remote().unwrap();
    let texts = pipes.clone().map(|pipe| reader.read(pipe.to_str().unwrap().to_owned()).unwrap());
    let until = Instant::now() + LIMIT;
    loop {
        let process = wait_for("reads_a_pipe");
        let is_there = |stack: &&Stack| stack.frames.iter().any(|frame| frame.function.contains("reads_a_pipe"));
        if process.stacks.iter().filter(is_there).count() == 2 {
            break;
        }
        assert!(Instant::now() < until, "{process:?}");
    }
    let own = stacks().into_iter().find(|process| process.pid == Some(std::process::id())).expect("this program");
    assert_eq!(own.stacks[0].name, "MainThread");
    assert!(functions(&own).iter().any(|name| name.contains("each_thread_is_shown_where_it_is")), "{own:?}");
    for (pipe, text) in pipes.iter().zip(texts) {
        writer(pipe).write_all(b"read").unwrap();
        assert_eq!(text.get_timeout(LIMIT).unwrap(), "read");
    }
}

pub(crate) fn who_waits_in_the_kernel_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = pipe(folder.path(), "pipe");
    let reader = Reader::remote().unwrap();
    let text = reader.read(pipe.to_str().unwrap().to_owned()).unwrap();
    for _ in 0..5 {
        wait_for("reads_a_pipe");
    }
    let mut pipe = writer(&pipe);
    wait_for("reads_a_pipe");
    pipe.write_all(b"what was waited for").unwrap();
    drop(pipe);
    assert_eq!(text.get_timeout(LIMIT).unwrap(), "what was waited for");
}

#[oxiray::remote(num_cpus = 0)]
fn handles_the_signal(path: String) -> bool {
    extern "C" fn own(_signal: libc::c_int) {}
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGRTMIN() + 20, own as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    drop(std::fs::File::open(path).unwrap());
    // SAFETY: it is asked what handles the signal.
    let before = unsafe { libc::signal(libc::SIGRTMIN() + 20, libc::SIG_DFL) };
    before == own as extern "C" fn(libc::c_int) as libc::sighandler_t
}

pub(crate) fn a_program_s_own_handler_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = pipe(folder.path(), "pipe");
    let is_own = handles_the_signal::remote(pipe.to_str().unwrap().to_owned()).unwrap();
    let until = Instant::now() + LIMIT;
    while !stacks().iter().any(|process| process.note.contains("the program handles signal")) {
        assert!(Instant::now() < until, "{:?}", stacks());
    }
    drop(writer(&pipe));
    assert!(is_own.get_timeout(LIMIT).unwrap());
}
