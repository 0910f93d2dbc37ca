//! The processes that make environments: started, read, ended.
//!
//! What is made lies in the user's cache; the daemon holds an open file of each folder in use, on which the
//! process that makes it has taken a lock, so that no other process evicts it.

use super::Daemon;
use super::interpreters::program;
use oxiray_processes::describe_status;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// What such a process runs.
const PROGRAM: &str = program!("oxiray._environment_setup");
/// The most bytes of a result that are read.
const RESULT_BYTES_MAX: usize = 64 << 10;

/// A preparation from its start until nothing uses what it made.
#[derive(Debug)]
pub(crate) struct Preparation {
    /// 0 once it has ended.
    pid: u32,
    result: OwnedFd,
    specification: String,
    /// Keeps the lock that the process took.
    _lock: Option<OwnedFd>,
}

#[derive(Serialize)]
struct Order<'order> {
    specification: &'order str,
    session: &'order Path,
    logs: &'order Path,
    cache: &'order Path,
    lock: Option<i32>,
    daemon: u32,
    number: u64,
    /// The specifications of all that is prepared and used.
    in_use: Vec<&'order str>,
}

#[derive(Deserialize)]
struct Outcome {
    #[serde(default)]
    command: Vec<String>,
    error: Option<String>,
}

impl Daemon {
    pub(super) fn start_preparation(&mut self, number: u64, interpreter: &str, specification: &str, cached: &str) {
        if !self.await_packages(number, interpreter, specification, cached) {
            self.begin_preparation(number, interpreter, specification, cached);
        }
    }

    /// Starts it: all that it needs is on this machine, or will not be.
    pub(super) fn begin_preparation(&mut self, number: u64, interpreter: &str, specification: &str, cached: &str) {
        if let Some(program) = self.program(specification) {
            return self.take_program(number, specification, program);
        }
        match self.order_preparation(number, interpreter, specification, cached) {
            Ok(preparation) => {
                self.brood.register(preparation.pid);
                self.preparations.insert(number, preparation);
            }
            Err(error) => {
                let text = format!("the process that installs it cannot be started with {interpreter}: {error}");
                self.core.prepared(number, Err(text));
            }
        }
    }

    /// Workers are forked by a program of the user's own, for which nothing is to be made.
    fn take_program(&mut self, number: u64, specification: &str, program: io::Result<(File, PathBuf)>) {
        let taken = program.and_then(|(file, path)| {
            let result = OwnedFd::from(file.try_clone()?);
            let lock = Some(OwnedFd::from(file));
            let specification = specification.to_owned();
            self.preparations.insert(number, Preparation { pid: 0, result, specification, _lock: lock });
            let text = path.to_str().map(str::to_owned);
            text.ok_or_else(|| io::Error::other(format!("{} is no text", path.display())))
        });
        let command = taken.map(|path| vec![path]);
        self.core.prepared(number, command.map_err(|error| format!("the program of its workers: {error}")));
    }

    fn order_preparation(
        &self,
        number: u64,
        interpreter: &str,
        specification: &str,
        cached: &str,
    ) -> io::Result<Preparation> {
        let session = self.session.directory();
        let cache = session.parent().unwrap_or(session).join("cache");
        let lock = if cached.is_empty() { None } else { Some(lock_file(&cache, cached)?) };
        // A duplicate that is inherited; nothing else is started while it is open.
        let inherited = lock.as_ref().map(rustix::io::dup).transpose()?;
        let lock_number = inherited.as_ref().map(rustix::fd::AsRawFd::as_raw_fd);
        let daemon = std::process::id();
        let in_use = self.preparations.values().map(|preparation| preparation.specification.as_str()).collect();
        let logs = self.session.logs();
        let order =
            Order { specification, session, logs: &logs, cache: &cache, lock: lock_number, daemon, number, in_use };
        let told = rustix::fs::memfd_create("oxiray-order", MemfdFlags::CLOEXEC)?;
        let text = serde_json::to_vec(&order)?;
        write_all(&told, &text)?;
        rustix::fs::seek(&told, rustix::fs::SeekFrom::Start(0))?;
        let result = rustix::fs::memfd_create("oxiray-outcome", MemfdFlags::CLOEXEC)?;
        let mut command = super::interpreters::command(interpreter)?;
        command.args(["-c", PROGRAM]);
        let output = rustix::io::fcntl_dupfd_cloexec(&result, 0)?;
        command.stdin(Stdio::from(told)).stdout(Stdio::from(output)).stderr(self.log.handle()?);
        let child = command.spawn()?;
        Ok(Preparation { pid: child.id(), result, specification: specification.to_owned(), _lock: lock })
    }

    /// A child of the daemon died; `false` where it was none of these.
    pub(super) fn preparation_ended(&mut self, pid: u32, status: i32) -> bool {
        let found = self.preparations.iter_mut().find(|(_, preparation)| preparation.pid == pid);
        let Some((number, preparation)) = found else { return false };
        preparation.pid = 0;
        let number = *number;
        let outcome = read_outcome(&preparation.result);
        let result = match outcome {
            Some(Outcome { error: Some(text), .. }) => Err(text),
            Some(Outcome { command, .. }) if status == 0 => Ok(command),
            _ => Err(format!(
                "the process that installs it {} without a word; {} tells more",
                describe_status(status),
                self.session.logs().join("daemon.log").display()
            )),
        };
        if result.is_err() {
            self.preparations.remove(&number);
        }
        self.core.prepared(number, result);
        true
    }

    /// Lets go of what was prepared, and ends the process where it still runs.
    pub(super) fn end_preparation(&mut self, number: u64) {
        self.packages.withdraw(number);
        if let Some(preparation) = self.preparations.remove(&number)
            && preparation.pid != 0
        {
            self.brood.kill(preparation.pid);
        }
    }
}

/// The file whose lock says that a folder of the cache is in use.
fn lock_file(cache: &Path, cached: &str) -> io::Result<OwnedFd> {
    let is_plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let parts: Vec<&str> = cached.split('/').collect();
    let [folder, name] = parts[..] else { return Err(io::Error::other(format!("`{cached}` names no cached folder"))) };
    if !is_plain(folder) || !is_plain(name) {
        return Err(io::Error::other(format!("`{cached}` names no cached folder")));
    }
    for made in [cache.to_owned(), cache.join(folder)] {
        match rustix::fs::mkdir(&made, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let path = cache.join(folder).join(format!("{name}.lock"));
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?)
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::write(file, bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

fn read_outcome(file: &OwnedFd) -> Option<Outcome> {
    let mut bytes = vec![0; RESULT_BYTES_MAX];
    let read = rustix::io::pread(file, &mut bytes, 0).ok()?;
    serde_json::from_slice(&bytes[..read]).ok()
}
