//! What calls cost, beside a bare round trip over a unix socket: `benches/rust.py` runs it.
//!
//! Each row is a line `RESULT {"name": …, "value": …}`; values are calls in a second. Arguments name the rows wanted, all
//! where there are none.

#![expect(unreachable_pub, reason = "the public methods of an actor are what its handle offers")]
#![expect(clippy::print_stdout, reason = "it prints its measurements")]

use oxiray::{Blob, Builder, ObjectRef, Result};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a row is measured.
const TIME: Duration = Duration::from_secs(2);
const TASKS_IN_FLIGHT: usize = 5_000;
const CALLS_IN_FLIGHT: usize = 10_000;

#[oxiray::remote]
fn nothing() {}

#[oxiray::remote]
fn takes(argument: Blob) -> usize {
    argument.len()
}

struct Idle;

#[oxiray::remote]
impl Idle {
    pub fn new() -> Self {
        Self
    }

    pub fn nothing(&self) {}
}

/// How often `call` is done in a second; it says how many calls it made.
fn rate(name: &str, mut call: impl FnMut() -> Result<usize>) -> Result<()> {
    if std::env::args().len() > 1 && !std::env::args().any(|wanted| wanted == name) {
        return Ok(());
    }
    // Workers and caches are warm then.
    let warm = Instant::now();
    while warm.elapsed() < TIME / 4 {
        call()?;
    }
    let (begun, mut calls) = (Instant::now(), 0);
    while begun.elapsed() < TIME {
        calls += call()?;
    }
    println!("RESULT {{\"name\": \"{name}\", \"value\": {:.1}}}", calls as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` hands the error over")]
fn broken(error: std::io::Error) -> oxiray::Error {
    oxiray::Error::Invalid(error.to_string())
}

/// One byte there and back, to another process and with blocking calls.
fn socket(name: &str) -> Result<()> {
    let (mut near, far) = UnixStream::pair().map_err(broken)?;
    let mut echo = Command::new("/proc/self/exe");
    let mut echo = echo.arg("echo").stdin(OwnedFd::from(far)).spawn().map_err(broken)?;
    let mut byte = [0];
    rate(name, || near.write_all(&byte).and_then(|()| near.read_exact(&mut byte)).map(|()| 1).map_err(broken))?;
    drop(near);
    echo.wait().map(drop).map_err(broken)
}

/// The other process.
fn echo() -> Result<()> {
    let mut stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().map_err(broken)?);
    let mut byte = [0];
    while stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte)).is_ok() {}
    Ok(())
}

#[oxiray::main]
fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some("echo") {
        return echo();
    }
    socket("unix-socket")?;
    let _cluster = Builder::new().address("local").num_cpus(2.0).init()?;
    rate("task-sync", || nothing::remote()?.get().map(|()| 1))?;
    rate("tasks-in-flight", || {
        let references = (0..TASKS_IN_FLIGHT).map(|_| nothing::remote()).collect::<Result<Vec<ObjectRef<()>>>>()?;
        oxiray::get(&references).map(|results| results.len())
    })?;
    let actor = Idle::remote()?;
    rate("actor-sync", || actor.nothing()?.get().map(|()| 1))?;
    rate("actor-in-flight", || {
        let references = (0..CALLS_IN_FLIGHT).map(|_| actor.nothing()).collect::<Result<Vec<ObjectRef<()>>>>()?;
        oxiray::get(&references).map(|results| results.len())
    })?;
    let mebibyte = Blob::from(vec![7; 1 << 20]);
    rate("argument-mib", || takes::remote(mebibyte.clone())?.get().map(|_| 1))
}
