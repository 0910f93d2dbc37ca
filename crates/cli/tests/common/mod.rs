//! A session of its own for each test: the real binary, in a directory that goes with the test.

use oxiray_wire::message::Hello;
use oxiray_wire::session::{LOGS, logs_of};
use oxiray_wire::{Connection, Message, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

pub(crate) struct Place {
    directory: tempfile::TempDir,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.run(&["stop", "--force"]);
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oxiray"));
        command.args(arguments);
        for name in ["CUDA_VISIBLE_DEVICES", "RAY_OVERRIDE_RESOURCES", "OXIRAY_HOST_ROOT", "RAY_TMPDIR"] {
            command.env_remove(name);
        }
        command.env("OXIRAY_TMPDIR", self.directory.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    /// Starts a cluster with these options besides.
    pub(crate) fn start(&self, options: &[&str]) -> String {
        let arguments = [&["start", "--head", "--object-store-memory", "104857600"][..], options].concat();
        let output = self.run(&arguments);
        assert!(output.status.success(), "{}", errors(&output));
        said(&output)
    }

    /// `<root>/oxiray-<uid>`
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join(format!("oxiray-{}", rustix::process::getuid().as_raw()))
    }

    /// The directories of all sessions, running or not.
    pub(crate) fn sessions(&self) -> Vec<PathBuf> {
        self.left().into_iter().filter(|path| path.is_dir()).collect()
    }

    /// What is there besides the logs, which stay.
    pub(crate) fn left(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.root()).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| !path.ends_with(LOGS)).collect()
    }

    pub(crate) fn session(&self) -> PathBuf {
        let [session] = <[PathBuf; 1]>::try_from(self.sessions()).expect("one session");
        session
    }

    pub(crate) fn description(&self) -> serde_json::Value {
        let text = std::fs::read_to_string(self.session().join("session.json")).expect("described");
        serde_json::from_str(&text).expect("JSON")
    }

    pub(crate) fn token(&self) -> String {
        self.description()["token"].as_str().expect("a token").to_owned()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(logs_of(&self.session()).join("daemon.log")).expect("a log")
    }

    /// The command under a limit of descriptors.
    pub(crate) fn limited(&self, descriptors: u32, arguments: &[&str]) -> Command {
        let own = self.command(arguments);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")]).arg(own.get_program());
        command.args(own.get_args());
        for (name, value) in own.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    pub(crate) fn folder(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn daemon(&self) -> rustix::process::Pid {
        let pid = self.description()["pid"].as_i64().expect("its process id");
        rustix::process::Pid::from_raw(pid as i32).expect("a process id")
    }

    /// Waits until the log tells of so many who were turned away; it does so once a second.
    pub(crate) fn wait_for_turned_away(&self, count: usize) {
        let told = |log: &str| -> usize {
            let of_line = |line: &str| {
                let more = line.split_once(" more such lines").map_or("0", |(before, _)| before);
                let more: usize = more.rsplit(' ').next().and_then(|more| more.parse().ok()).unwrap_or(0);
                more + usize::from(line.contains("was refused") || line.contains("the connection of client"))
            };
            log.lines().map(of_line).sum()
        };
        self.wait_for(|place| told(&place.log()) == count);
    }

    pub(crate) fn wait_for_line(&self, text: &str) {
        self.wait_for(|place| place.log().contains(text));
    }

    pub(crate) fn wait_for_session(&self) {
        self.wait_for(|place| place.sessions().iter().any(|session| session.join("session.json").exists()));
    }

    /// Waits until that holds of the log, or of the session.
    fn wait_for(&self, holds: impl Fn(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !holds(self) {
            assert!(Instant::now() < until, "{}", self.log());
            let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
        }
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer::new(UnixStream::connect(self.session().join("socket")).expect("connects"))
    }

    /// Somebody else is still served.
    pub(crate) fn assert_serves(&self) {
        let output = self.run(&["status"]);
        assert!(output.status.success() && said(&output).contains("Resources"), "{}", errors(&output));
    }
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A peer of the daemon that speaks the protocol, as long as it wants to.
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    inbox: Vec<Received>,
}

impl Peer {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { connection: Connection::new(stream.into()).expect("a connection"), inbox: Vec::new() }
    }

    pub(crate) fn say(&mut self, message: impl Into<Message>) {
        self.connection.send(&message.into());
        // A daemon that has hung up is found when its answer is read.
        let _ = self.connection.flush();
    }

    pub(crate) fn greet(&mut self, token: &str) {
        self.say(Hello { token: token.to_owned(), ..Hello::default() });
    }

    /// The next message; nothing where the daemon hangs up.
    pub(crate) fn hear(&mut self) -> Option<Message> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if !self.inbox.is_empty() {
                return Some(self.inbox.remove(0).message);
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the daemon neither answers nor hangs up");
            let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            poll(&mut [PollFd::new(&self.connection, PollFlags::IN)], Some(&limit)).expect("poll");
            let result = self.connection.receive(&mut self.inbox);
            if self.inbox.is_empty() && result.is_err() {
                return None;
            }
        }
    }
}

/// Waits until a process is gone.
pub(crate) fn wait_for_death(pid: u32) {
    let Ok(pidfd) = oxiray_processes::pidfd_of(pid) else { return };
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit)).expect("poll");
    assert!(ready > 0, "process {pid} is still there");
}

pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}
