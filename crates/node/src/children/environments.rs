//! The processes that make environments: started, read, ended.
//!
//! What is made lies in the user's cache; the daemon holds an open file of each folder in use, on which the
//! process that makes it has taken a lock, so that no other process evicts it.

use super::packages::{Packages, Wanted};
use crate::interpreters::{self, program};
use crate::line_log::LineLog;
use crate::session::Session;
use oxiray_processes::describe_status;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
struct Preparation {
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

/// What is made of environments, and what was made and is used.
#[derive(Debug, Default)]
pub(crate) struct Environments {
    preparations: BTreeMap<u64, Preparation>,
    pub(crate) packages: Packages,
}

impl Environments {
    /// Workers are forked by a program of the user's own, for which nothing is to be made. Returns the command that starts it.
    pub(crate) fn take_program(
        &mut self,
        number: u64,
        specification: &str,
        program: io::Result<(File, PathBuf)>,
    ) -> io::Result<Vec<String>> {
        let (file, path) = program?;
        let result = OwnedFd::from(file.try_clone()?);
        let lock = Some(OwnedFd::from(file));
        let specification = specification.to_owned();
        self.preparations.insert(number, Preparation { pid: 0, result, specification, _lock: lock });
        let text = path.to_str().map(str::to_owned);
        let command = text.ok_or_else(|| io::Error::other(format!("{} is no text", path.display())))?;
        Ok(vec![command])
    }

    /// Starts a preparation. Returns the process that makes it.
    pub(crate) fn start(&mut self, number: u64, wanted: &Wanted, session: &Session, log: &LineLog) -> io::Result<u32> {
        let preparation = self.order(number, wanted, session, log)?;
        let pid = preparation.pid;
        self.preparations.insert(number, preparation);
        Ok(pid)
    }

    fn order(&self, number: u64, wanted: &Wanted, session: &Session, log: &LineLog) -> io::Result<Preparation> {
        let Wanted { interpreter, specification, cached } = wanted;
        let (directory, logs) = (session.directory(), session.logs());
        let cache = directory.parent().unwrap_or(directory).join("cache");
        let lock = if cached.is_empty() { None } else { Some(lock_file(&cache, cached)?) };
        // A duplicate that is inherited; nothing else is started while it is open.
        let inherited = lock.as_ref().map(rustix::io::dup).transpose()?;
        let lock_number = inherited.as_ref().map(rustix::fd::AsRawFd::as_raw_fd);
        let daemon = std::process::id();
        let in_use = self.preparations.values().map(|preparation| preparation.specification.as_str()).collect();
        let order = Order {
            specification,
            session: directory,
            logs: &logs,
            cache: &cache,
            lock: lock_number,
            daemon,
            number,
            in_use,
        };
        let told = rustix::fs::memfd_create("oxiray-order", MemfdFlags::CLOEXEC)?;
        let text = serde_json::to_vec(&order)?;
        write_all(&told, &text)?;
        rustix::fs::seek(&told, rustix::fs::SeekFrom::Start(0))?;
        let result = rustix::fs::memfd_create("oxiray-outcome", MemfdFlags::CLOEXEC)?;
        let mut command = interpreters::command(interpreter)?;
        command.args(["-c", PROGRAM]);
        let output = rustix::io::fcntl_dupfd_cloexec(&result, 0)?;
        command.stdin(Stdio::from(told)).stdout(Stdio::from(output)).stderr(log.handle()?);
        let child = command.spawn()?;
        Ok(Preparation { pid: child.id(), result, specification: specification.clone(), _lock: lock })
    }

    /// A child of the daemon died. Returns which preparation that ends and what came of it, where it was one of these.
    pub(crate) fn ended(&mut self, pid: u32, status: i32, logs: &Path) -> Option<(u64, Result<Vec<String>, String>)> {
        let (number, preparation) = self.preparations.iter_mut().find(|(_, preparation)| preparation.pid == pid)?;
        preparation.pid = 0;
        let number = *number;
        let result = match read_outcome(&preparation.result) {
            Some(Outcome { error: Some(text), .. }) => Err(text),
            Some(Outcome { command, .. }) if status == 0 => Ok(command),
            _ => Err(format!(
                "the process that installs it {} without a word; {} says more",
                describe_status(status),
                logs.join("daemon.log").display()
            )),
        };
        if result.is_err() {
            self.preparations.remove(&number);
        }
        Some((number, result))
    }

    /// Lets go of what was prepared. Returns the process that is to be ended, where one still runs.
    pub(crate) fn end(&mut self, number: u64) -> Option<u32> {
        self.packages.withdraw(number);
        self.preparations.remove(&number).map(|preparation| preparation.pid).filter(|pid| *pid != 0)
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
