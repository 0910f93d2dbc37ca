//! A head of its own, in a directory that goes with it, and what it takes of the machine.

use oxiray_visitor::{Description, session};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The unit of processor times in `/proc/PID/stat`: `USER_HZ` is 100 on every architecture that Linux runs on today.
const TICK: Duration = Duration::from_millis(10);

/// A head that listens on loopback, and ends with this value.
#[derive(Debug)]
pub(crate) struct Head {
    program: PathBuf,
    place: tempfile::TempDir,
    directory: PathBuf,
    description: Description,
}

impl Head {
    /// Starts it without processors of its own, so that all work goes to members.
    pub(crate) fn start(program: &Path) -> io::Result<Self> {
        let place = tempfile::tempdir()?;
        // It is free when the head asks for it, unless somebody takes it within that moment; then the head says so.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let port = format!("--port={port}");
        let arguments = [
            "start",
            "--head",
            "--num-cpus=0",
            &port,
            "--node-ip-address=127.0.0.1",
            "--object-store-memory=104857600",
        ];
        if !oxiray(program, place.path(), &arguments)?.success() {
            return Err(io::Error::other("the head does not start"));
        }
        let root = place.path().join(format!("oxiray-{}", rustix::process::getuid().as_raw()));
        let found =
            session::living(&root).into_iter().next().ok_or_else(|| io::Error::other("the head has no session"))?;
        Ok(Self { program: program.to_owned(), place, directory: found.directory, description: found.description })
    }

    /// `HOST:PORT` of it.
    pub(crate) fn address(&self) -> &str {
        &self.description.address
    }

    /// What lets a member in, as text.
    pub(crate) fn join_token(&self) -> io::Result<String> {
        fs::read_to_string(self.directory.join("join-token"))
    }

    /// What lets a driver of this machine in.
    pub(crate) fn token(&self) -> &str {
        &self.description.token
    }

    /// A new connection to its socket.
    pub(crate) fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(self.directory.join("socket"))
    }

    /// Bytes of memory that it has now.
    pub(crate) fn memory_bytes(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.description.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.ok_or_else(|| io::Error::other("its status names no memory"))? << 10)
    }

    /// Processor time that all its threads have had.
    fn computed(&self) -> io::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.description.pid))?;
        // The second field is the program's name in parentheses; the 14th and 15th are user and system time.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
        let both = ticks(11).zip(ticks(12)).map(|(user, system)| user + system);
        Ok(TICK * both.ok_or_else(|| io::Error::other("its stat names no times"))?)
    }

    /// The share of one processor that it uses during that time.
    pub(crate) fn share_of_a_processor(&self, during: Duration) -> io::Result<f64> {
        let (began, before) = (Instant::now(), self.computed()?);
        while began.elapsed() < during {
            std::thread::park_timeout(during.saturating_sub(began.elapsed()));
        }
        Ok((self.computed()?.saturating_sub(before)).as_secs_f64() / began.elapsed().as_secs_f64())
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        // Whoever measures has what it wants by now, or an error to tell of.
        let _ = oxiray(&self.program, self.place.path(), &["stop"]);
    }
}

fn oxiray(program: &Path, place: &Path, arguments: &[&str]) -> io::Result<std::process::ExitStatus> {
    Command::new(program)
        .args(arguments)
        .env("OXIRAY_TMPDIR", place)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .status()
}
