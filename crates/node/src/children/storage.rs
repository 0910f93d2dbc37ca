//! The program that copies objects to storage beyond the disk, where they are to be spilled to a URL.
//!
//! It is a companion: the store starts it and has it end, and it removes what the session left in the storage, also where this
//! process was killed.

use crate::session::Session;
use oxiray_processes::Companions;
use oxiray_store::storage::{StorageOptions, StorageProgram};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The program, beside this one.
const PROGRAM: &str = "oxiray-storage";

/// How the store starts it.
#[derive(Debug)]
struct Program {
    companions: Companions,
    url: String,
    /// The name below it that is this store's alone.
    name: String,
    /// Where it writes what it has to say.
    log: PathBuf,
}

impl StorageProgram for Program {
    fn start(&self, socket: OwnedFd) -> io::Result<u32> {
        let program = std::env::current_exe()?.with_file_name(PROGRAM);
        let mut command = Command::new(&program);
        command.arg("spill").arg("--url").arg(&self.url).arg("--session").arg(&self.name);
        // A group of its own: what ends this process at a terminal leaves it the time to tidy up.
        command.stdin(Stdio::from(socket)).stdout(Stdio::null()).stderr(append(&self.log)?).process_group(0);
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("the program {} cannot be started: {error}", program.display()))
        };
        self.companions.start(&mut command).map_err(named)
    }

    fn kill(&self, pid: u32) {
        self.companions.kill(pid);
    }
}

/// The storage at a URL, for the store of the node that is called `name`, which no other node ever is.
pub(crate) fn storage(companions: Companions, url: String, name: String, session: &Session) -> StorageOptions {
    let log = session.logs().join("storage.log");
    StorageOptions { program: Arc::new(Program { companions, url: url.clone(), name, log }), url }
}

fn append(log: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(log)
}
