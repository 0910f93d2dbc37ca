//! A real daemon, over its socket: drivers and visitors that say anything, and one who asks something all the while.

use crate::frames;
use crate::grammar::Pool;
use fastrand::Rng;
use oxiray_wire::message::{ClusterQuery, Driver, Hello};
use oxiray_wire::{Connection, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How many say anything at once.
const SPEAKERS: usize = 6;
/// How many frames are said in a row.
const BURST: usize = 16;
/// How long the bystander waits between two questions.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// For how long the daemon may be silent before it is called deaf.
const SILENCE_LIMIT: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// Frames that were written.
    pub frames: u64,
    /// Connections that were made; each that the daemon ended has a successor.
    pub connections: u64,
    /// How often the bystander was answered, and what the longest took.
    pub answers: (u64, Duration),
    /// The most memory that the daemon had.
    pub memory_bytes: u64,
}

/// A daemon of its own, in a directory that goes with it.
#[derive(Debug)]
struct Session {
    binary: PathBuf,
    place: PathBuf,
    directory: PathBuf,
    token: String,
    pid: u64,
}

impl Session {
    fn start(binary: &Path) -> io::Result<Self> {
        let place = std::env::temp_dir().join(format!("oxiray-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&place)?;
        let mut session =
            Self { binary: binary.to_owned(), place, directory: PathBuf::new(), token: String::new(), pid: 0 };
        if !session.command(&["start", "--head", "--num-cpus", "2", "--object-store-memory", "104857600"])?.success() {
            return Err(io::Error::other("the daemon does not start"));
        }
        let root = session.place.join(format!("oxiray-{}", rustix::process::getuid().as_raw()));
        let entries = std::fs::read_dir(root)?.flatten().map(|entry| entry.path());
        let found = entries.into_iter().find(|path| path.join("session.json").is_file());
        session.directory = found.ok_or_else(|| io::Error::other("the daemon has no session"))?;
        let told: serde_json::Value = serde_json::from_slice(&std::fs::read(session.directory.join("session.json"))?)?;
        told["token"].as_str().unwrap_or_default().clone_into(&mut session.token);
        session.pid = told["pid"].as_u64().unwrap_or_default();
        Ok(session)
    }

    fn command(&self, arguments: &[&str]) -> io::Result<std::process::ExitStatus> {
        let quiet = std::process::Stdio::null;
        Command::new(&self.binary)
            .args(arguments)
            .env("OXIRAY_TMPDIR", &self.place)
            .stdout(quiet())
            .stderr(quiet())
            .status()
    }

    fn connect(&self, driver: bool) -> io::Result<(UnixStream, Connection)> {
        let stream = UnixStream::connect(self.directory.join("socket"))?;
        let mut connection = Connection::new(stream.try_clone()?.into())?;
        let pid = std::process::id();
        let driver = driver.then(|| Driver { pid, interpreter: "/bin/false".into(), ..Driver::default() });
        connection.send(&Hello { token: self.token.clone(), driver, ..Hello::default() });
        connection.flush().map_err(io::Error::other)?;
        Ok((stream, connection))
    }

    fn memory_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.command(&["stop", "--force"]);
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

/// Asks how things are, again and again; the error says that there was no answer.
fn stand_by(session: &Session, is_over: &AtomicBool) -> io::Result<(u64, Duration)> {
    let (_stream, mut connection) = session.connect(false)?;
    let (mut answers, mut longest, mut inbox) = (0, Duration::ZERO, Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        connection.send(&ClusterQuery { request: answers });
        connection.flush().map_err(io::Error::other)?;
        while inbox.is_empty() {
            if poll(&mut [PollFd::new(&connection, PollFlags::IN)], Some(&SILENCE_LIMIT))? == 0 {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the daemon is deaf"));
            }
            connection.receive(&mut inbox).map_err(io::Error::other)?;
        }
        inbox.clear();
        (answers, longest) = (answers + 1, longest.max(began.elapsed()));
        poll(&mut [], Some(&PAUSE))?;
    }
    Ok((answers, longest))
}

/// Says anything, over one connection after another, until it is time.
fn speak(session: &Session, seed: u64, until: Instant) -> io::Result<(u64, u64)> {
    let (mut chance, mut pool) = (Rng::with_seed(seed), Pool::default());
    let (mut frames, mut connections) = (0, 0);
    while Instant::now() < until {
        let (mut stream, mut connection) = session.connect(chance.bool())?;
        connections += 1;
        let mut inbox = Vec::new();
        'connected: while Instant::now() < until {
            for _ in 0..BURST {
                let kind = frames::kind(&mut chance);
                let frame = frames::frame(&mut chance, &pool, kind);
                if is_meant(&frame) {
                    continue;
                }
                frames += 1;
                // It blocks where the daemon does not read, whose own answers are small.
                if stream.write_all(&frame).is_err() {
                    break 'connected;
                }
            }
            if connection.receive(&mut inbox).is_err() {
                break;
            }
            inbox.drain(..).for_each(|received| pool.learn(&received.message));
        }
    }
    Ok((frames, connections))
}

/// Whether a frame asks for what the daemon is to do when it is asked.
fn is_meant(frame: &[u8]) -> bool {
    let kind = u16::from_le_bytes([frame[4], frame[5]]);
    Message::decode(kind, bytes::Bytes::new())
        .ok()
        .flatten()
        .is_some_and(|message| matches!(message, Message::Stop(_) | Message::SubmissionAsked(_)))
}

/// Runs against the daemon of that program.
pub fn run(binary: &Path, seconds: u64, seed: u64) -> io::Result<Told> {
    let session = Session::start(binary)?;
    let until = Instant::now() + Duration::from_secs(seconds);
    let is_over = AtomicBool::new(false);
    let mut told = Told::default();
    thread::scope(|scope| {
        let bystander = scope.spawn(|| stand_by(&session, &is_over));
        let speakers: Vec<_> = (0..SPEAKERS as u64)
            .map(|number| (seed + number, &session))
            .map(|(seed, session)| scope.spawn(move || speak(session, seed, until)))
            .collect();
        let spoken: Vec<_> =
            speakers.into_iter().map(|speaker| speaker.join().expect("speakers do not panic")).collect();
        is_over.store(true, Ordering::Relaxed);
        for result in spoken {
            let (frames, connections) = result?;
            told.frames += frames;
            told.connections += connections;
        }
        told.answers = bystander.join().expect("the bystander does not panic")?;
        io::Result::Ok(())
    })?;
    told.memory_bytes = session.memory_bytes();
    Ok(told)
}
