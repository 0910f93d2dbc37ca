//! A real daemon, over its socket: drivers and visitors that say anything, one who asks something all the while, and one
//! who comes anew for each question.

#![expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]

use crate::frames;
use crate::grammar::Pool;
use fastrand::Rng;
use oxiray_wire::message::{
    ClientToDaemon, ClusterQuery, Driver, Hello, Numbered as _, Stop, SubmissionAsked, VisitorToDaemon,
};
use oxiray_wire::{Connection, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Write as _};
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
/// One in so many bursts is a speaker's last on a connection, which it leaves with whatever is unread.
const BURSTS_PER_CONNECTION: u32 = 1000;
/// How long bystanders wait between two questions.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// For how long the daemon may be silent before it is called deaf.
const SILENCE_LIMIT: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct DaemonRun {
    /// Frames that were written.
    pub frames: u64,
    /// Connections that were made; each that the daemon ended has a successor.
    pub connections: u64,
    /// To who asked over one connection.
    pub answers: Answers,
    /// To who connected, greeted and asked, each time anew.
    pub newcomers: Answers,
    /// The most memory that the daemon had.
    pub memory_bytes: u64,
}

/// How often a bystander was answered, and how late.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answers {
    /// How many there were.
    pub count: u64,
    /// What the slowest took.
    pub slowest: Duration,
    /// For how long the daemon computed, at most, between a question and its answer: the speakers and whatever else runs take
    /// all processors that there are, and what anybody waits for one is no doing of the daemon's.
    pub computed: Duration,
}

/// What one question takes.
#[derive(Debug)]
struct Question {
    began: Instant,
    computed: Duration,
}

impl Question {
    fn begin(session: &Session) -> Self {
        Self { began: Instant::now(), computed: session.computed() }
    }

    fn end(self, session: &Session, answers: &mut Answers) {
        answers.count += 1;
        answers.slowest = answers.slowest.max(self.began.elapsed());
        answers.computed = answers.computed.max(session.computed().saturating_sub(self.computed));
    }
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

    /// For how long the daemon has computed.
    fn computed(&self) -> Duration {
        // Its first thread serves everybody.
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.pid)).unwrap_or_default();
        Duration::from_nanos(text.split_whitespace().next().and_then(|time| time.parse().ok()).unwrap_or(0))
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

/// Asks how things are and waits for the answer; the error says that there was none.
fn ask(connection: &mut Connection, request: u64) -> io::Result<()> {
    connection.send(&ClusterQuery { request });
    connection.flush().map_err(io::Error::other)?;
    let mut inbox = Vec::new();
    while inbox.is_empty() {
        if poll(&mut [PollFd::new(&*connection, PollFlags::IN)], Some(&SILENCE_LIMIT))? == 0 {
            return Err(io::Error::new(ErrorKind::TimedOut, "the daemon is deaf"));
        }
        connection.receive(&mut inbox).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Asks again and again over one connection, or over a new one each time.
fn stand_by(session: &Session, is_over: &AtomicBool, comes_anew: bool) -> io::Result<Answers> {
    let mut answers = Answers::default();
    let mut connection = session.connect(false)?.1;
    while !is_over.load(Ordering::Relaxed) {
        let question = Question::begin(session);
        if comes_anew {
            connection = session.connect(false)?.1;
        }
        ask(&mut connection, answers.count)?;
        question.end(session, &mut answers);
        poll(&mut [], Some(&PAUSE))?;
    }
    Ok(answers)
}

/// One connection of a speaker.
#[derive(Debug)]
struct Speaker {
    stream: UnixStream,
    connection: Connection,
    inbox: Vec<Received>,
    /// It leaves where the daemon does not read at once, with all unread that it has said.
    is_impatient: bool,
}

impl Speaker {
    /// Writes all of it, and reads meanwhile; `false` where the connection is over.
    fn say(&mut self, mut bytes: &[u8], until: Instant) -> io::Result<bool> {
        while !bytes.is_empty() && Instant::now() < until {
            match self.stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock && !self.is_impatient => {
                    let left = until.saturating_duration_since(Instant::now());
                    let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
                    poll(&mut [PollFd::new(&self.stream, PollFlags::IN | PollFlags::OUT)], Some(&limit))?;
                }
                Err(_) => return Ok(false),
            }
            if self.connection.receive(&mut self.inbox).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Says anything, over one connection after another, until it is time.
fn speak(session: &Session, seed: u64, until: Instant) -> io::Result<(u64, u64)> {
    let (mut chance, mut pool) = (Rng::with_seed(seed), Pool::default());
    let (mut frames, mut connections) = (0, 0);
    while Instant::now() < until {
        let is_driver = chance.bool();
        let (stream, connection) = session.connect(is_driver)?;
        let mut speaker = Speaker { stream, connection, inbox: Vec::new(), is_impatient: chance.bool() };
        connections += 1;
        let mut stays = true;
        while stays && Instant::now() < until {
            let mut burst = Vec::new();
            for _ in 0..BURST {
                let kind = if is_driver {
                    frames::kind_said::<ClientToDaemon>(&mut chance)
                } else {
                    frames::kind_said::<VisitorToDaemon>(&mut chance)
                };
                let frame = frames::frame(&mut chance, &pool, kind);
                if !is_meant(&frame) {
                    frames += 1;
                    burst.extend(frame);
                }
            }
            stays = speaker.say(&burst, until)? && chance.u32(..BURSTS_PER_CONNECTION) > 0;
            speaker.inbox.drain(..).for_each(|received| pool.learn(&received.message));
        }
    }
    Ok((frames, connections))
}

/// Whether a frame asks for what the daemon is to do when it is asked.
fn is_meant(frame: &[u8]) -> bool {
    let kind = u16::from_le_bytes([frame[4], frame[5]]);
    [Stop::KIND, SubmissionAsked::KIND].contains(&kind)
}

/// Runs against the daemon of that program.
pub fn run(binary: &Path, seconds: u64, seed: u64) -> io::Result<DaemonRun> {
    let session = Session::start(binary)?;
    let until = Instant::now() + Duration::from_secs(seconds);
    let is_over = AtomicBool::new(false);
    let mut told = DaemonRun::default();
    thread::scope(|scope| {
        let bystanders = [false, true].map(|comes_anew| {
            let (session, is_over) = (&session, &is_over);
            scope.spawn(move || stand_by(session, is_over, comes_anew))
        });
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
        let [stays, comes_anew] = bystanders.map(|bystander| bystander.join().expect("bystanders do not panic"));
        (told.answers, told.newcomers) = (stays?, comes_anew?);
        io::Result::Ok(())
    })?;
    told.memory_bytes = session.memory_bytes();
    Ok(told)
}
