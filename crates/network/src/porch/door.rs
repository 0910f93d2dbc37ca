//! The thread that accepts peers, hears what they ask first, and hands inwards those that may.

use super::certificate::PorchTls;
use super::head::{HeadError, RequestHead, parse_head};
use super::keys::KeyKind;
use super::rules::{OpenPath, PorchRefusal, PorchRules, PorchVerdict};
use super::stream::PorchStream;
use super::{HEAD_BYTES_MAX, HEAD_LIMIT};
use oxiray_threads::{PORCH, Waker, spawn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ServerConfig, ServerConnection};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many peers may be heard that have proven nothing.
const UNPROVEN_MAX: usize = 64;
/// How many wrong secrets wait for their answers.
const GUESSES_MAX: usize = 16;
/// How long a wrong secret waits for its answer.
const GUESS_DELAY: Duration = Duration::from_secs(1);
/// How many peers may be on their way out.
const LEAVING_MAX: usize = 64;
/// How long a peer has to take its last answer and go.
const LEAVING_LIMIT: Duration = Duration::from_secs(2);
/// How much of what a refused peer goes on sending is read, so that it hears its answer, in bytes.
const LEAVING_BYTES_MAX: usize = 4 << 20;
/// How many peers may be inside.
const INSIDE_MAX: usize = 512;
/// How often a peer may ask for what is open before its connection is closed.
const ASKED_MAX: u32 = 100;
/// How long nobody is accepted where the system has nothing for another peer.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How many peers are accepted before the others are heard.
const ACCEPTED_AT_ONCE: usize = 32;

/// A peer that has proven itself.
#[derive(Debug)]
pub struct ProvenPeer {
    /// Its connection.
    pub stream: PorchStream,
    /// What it said so far, which begins with the head that let it in.
    pub heard: Vec<u8>,
    /// Its place, which is free again when this is dropped.
    pub place: PorchPlace,
    /// From where it comes.
    pub peer: SocketAddr,
}

/// A request that is refused, for whoever keeps account of them. The secret that it showed is not told.
#[derive(Debug)]
pub struct RefusedRequest {
    /// From where it comes.
    pub peer: SocketAddr,
    /// Where it came to.
    pub local: Option<SocketAddr>,
    /// Its method.
    pub method: String,
    /// Its path, without the query.
    pub path: String,
    /// Which secret it showed, where that is one.
    pub key: Option<KeyKind>,
    /// Why.
    pub refusal: PorchRefusal,
}

/// One of the places inside.
#[derive(Debug)]
pub struct PorchPlace(Arc<AtomicUsize>);

impl PorchPlace {
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        // Only this thread takes places.
        if taken.load(Ordering::Relaxed) >= INSIDE_MAX {
            return None;
        }
        taken.fetch_add(1, Ordering::Relaxed);
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for PorchPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why there is no porch.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address cannot be listened at.
    #[error("{address} cannot be listened at: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The certificate is of no use.
    #[error("the certificate or its key cannot be used: {0}")]
    Certificate(String),
    /// The system has no more descriptors or threads.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// What a porch is opened with.
#[derive(Debug)]
pub struct PorchOptions {
    /// Where peers come.
    pub listener: TcpListener,
    /// What it goes by.
    pub rules: Arc<PorchRules>,
    /// What TLS is spoken with, where it is.
    pub tls: Option<PorchTls>,
}

/// An open porch. It closes when this is dropped.
#[derive(Debug)]
pub struct Porch {
    address: SocketAddr,
    waker: Waker,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Porch {
    /// Opens it. Those that may are handed to `admit`, and what is refused to others by their heads is told to `refused`; both return
    /// at once.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn open(
        options: PorchOptions,
        admit: impl FnMut(ProvenPeer) + Send + 'static,
        refused: impl FnMut(RefusedRequest) + Send + 'static,
    ) -> Result<Self, OpenError> {
        let PorchOptions { listener, rules, tls } = options;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let waker = Waker::new()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let door = Door {
            listener,
            rules,
            tls: tls.map(|tls| tls.config()),
            admit,
            refused,
            inside: Arc::new(AtomicUsize::new(0)),
            paused: None,
            heard: VecDeque::new(),
            guesses: VecDeque::new(),
            leaving: VecDeque::new(),
        };
        let (its_waker, its_end) = (waker.clone(), Arc::clone(&is_over));
        let thread = spawn(PORCH, move || door.serve(&its_waker, &its_end))?;
        Ok(Self { address, waker, is_over, thread: Some(thread) })
    }

    /// Where peers come.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Porch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.waker.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What a peer that is not inside is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Its request is heard.
    Hearing,
    /// It is answered, and may ask again.
    Answering,
    /// It is answered for the last time.
    Leaving,
    /// It was answered, and what it goes on sending is thrown away.
    Left,
}

/// A peer that has proven nothing.
#[derive(Debug)]
struct Stranger {
    stream: PorchStream,
    peer: SocketAddr,
    doing: Doing,
    said: Vec<u8>,
    answer: Vec<u8>,
    answered: usize,
    thrown_away: usize,
    asked: u32,
    until: Instant,
}

/// What a stranger's words come to.
enum Heard {
    /// It has an answer to send, and is in its place for that.
    Answered,
    /// It has proven itself.
    Proven,
    /// It showed a wrong secret.
    Guess,
}

/// Where a stranger goes next.
enum Next {
    /// It stays.
    Stays(Stranger),
    /// It goes inwards.
    Enters(Stranger),
    /// It waits for the answer to a wrong secret.
    Guessed(Stranger),
    /// It is closed.
    Closes,
}

struct Door<A, R> {
    listener: TcpListener,
    rules: Arc<PorchRules>,
    tls: Option<Arc<ServerConfig>>,
    admit: A,
    refused: R,
    inside: Arc<AtomicUsize>,
    /// Until when nobody is accepted.
    paused: Option<Instant>,
    /// PORCH-3: those that are heard or answered, those that guessed, and those on their way out; who came first at first.
    heard: VecDeque<Stranger>,
    guesses: VecDeque<Stranger>,
    leaving: VecDeque<Stranger>,
}

impl<A: FnMut(ProvenPeer), R: FnMut(RefusedRequest)> Door<A, R> {
    fn serve(mut self, waker: &Waker, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Acquire) {
            let Some(ready) = self.wait(waker) else { return };
            let now = Instant::now();
            let [is_called, ready_heard, ready_leaving] = ready;
            self.hear(&ready_heard, now);
            self.let_go(&ready_leaving, now);
            self.answer_guesses(now);
            self.paused = self.paused.filter(|until| *until > now);
            if is_called.first() == Some(&true) {
                self.accept(now);
            }
        }
    }

    /// Waits until somebody says something, or has waited for too long. Returns who does; nothing where the system fails.
    fn wait(&self, waker: &Waker) -> Option<[Vec<bool>; 3]> {
        let waits = |stranger: &Stranger| match stranger.doing {
            Doing::Hearing if stranger.stream.wants_write() => PollFlags::IN | PollFlags::OUT,
            Doing::Hearing | Doing::Left => PollFlags::IN,
            Doing::Answering | Doing::Leaving => PollFlags::OUT,
        };
        let comes = if self.paused.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut watched = vec![PollFd::new(waker, PollFlags::IN), PollFd::new(&self.listener, comes)];
        let strangers = self.heard.iter().chain(&self.leaving);
        watched.extend(strangers.map(|stranger| PollFd::from_borrowed_fd(stranger.stream.as_fd(), waits(stranger))));
        let all = self.heard.iter().chain(&self.leaving).chain(&self.guesses);
        let left = all
            .map(|stranger| stranger.until)
            .chain(self.paused)
            .min()
            .map(|at| at.saturating_duration_since(Instant::now()));
        let limit = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match poll(&mut watched, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        waker.silence();
        let ready: Vec<bool> = watched.iter().skip(1).map(|one| !one.revents().is_empty()).collect();
        let (called, others) = ready.split_at(1);
        let (heard, leaving) = others.split_at(self.heard.len());
        Some([called.to_vec(), heard.to_vec(), leaving.to_vec()])
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let (socket, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if is_transient(&error) => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // There are no descriptors until somebody goes.
                Err(_) => {
                    self.paused = Some(now + ACCEPT_PAUSE);
                    return;
                }
            };
            if socket.set_nonblocking(true).is_err() || socket.set_nodelay(true).is_err() {
                continue;
            }
            let Ok(tls) = self.tls.clone().map(ServerConnection::new).transpose() else { continue };
            let stranger = Stranger {
                stream: PorchStream::new(socket, tls),
                peer,
                doing: Doing::Hearing,
                said: Vec::new(),
                answer: Vec::new(),
                answered: 0,
                thrown_away: 0,
                asked: 0,
                until: now + HEAD_LIMIT,
            };
            if self.heard.len() >= UNPROVEN_MAX {
                self.heard.pop_front();
            }
            self.heard.push_back(stranger);
        }
    }

    fn hear(&mut self, ready: &[bool], now: Instant) {
        let strangers = std::mem::take(&mut self.heard);
        for (stranger, is_ready) in strangers.into_iter().zip(ready) {
            let next = if *is_ready {
                stranger.go_on(&self.rules, now, &mut self.refused)
            } else if stranger.until <= now {
                Next::Closes
            } else {
                Next::Stays(stranger)
            };
            match next {
                Next::Stays(stranger) if matches!(stranger.doing, Doing::Leaving | Doing::Left) => {
                    self.leaves(stranger, now);
                }
                Next::Stays(stranger) => self.heard.push_back(stranger),
                Next::Enters(stranger) => self.enters(stranger, now),
                Next::Guessed(stranger) if self.guesses.len() < GUESSES_MAX => self.guesses.push_back(stranger),
                Next::Guessed(_) | Next::Closes => {}
            }
        }
    }

    fn enters(&mut self, mut stranger: Stranger, now: Instant) {
        if let Some(place) = PorchPlace::take(&self.inside) {
            let Stranger { stream, said: heard, peer, .. } = stranger;
            return (self.admit)(ProvenPeer { stream, heard, place, peer });
        }
        stranger.refuse(&PorchRefusal::FULL, now);
        self.leaves(stranger, now);
    }

    fn leaves(&mut self, mut stranger: Stranger, now: Instant) {
        stranger.until = now + LEAVING_LIMIT;
        if self.leaving.len() >= LEAVING_MAX {
            self.leaving.pop_front();
        }
        self.leaving.push_back(stranger);
    }

    fn let_go(&mut self, ready: &[bool], now: Instant) {
        let strangers = std::mem::take(&mut self.leaving);
        // Those that came since they were waited for are looked at in the next turn.
        for (index, stranger) in strangers.into_iter().enumerate() {
            let next = match ready.get(index) {
                Some(true) => stranger.go_on(&self.rules, now, &mut self.refused),
                _ if stranger.until <= now => Next::Closes,
                _ => Next::Stays(stranger),
            };
            if let Next::Stays(stranger) = next {
                self.leaving.push_back(stranger);
            }
        }
    }

    fn answer_guesses(&mut self, now: Instant) {
        while self.guesses.front().is_some_and(|stranger| stranger.until <= now) {
            self.guesses.pop_front().into_iter().for_each(|stranger| self.leaves(stranger, now));
        }
    }
}

impl Stranger {
    fn go_on(mut self, rules: &PorchRules, now: Instant, refused: &mut dyn FnMut(RefusedRequest)) -> Next {
        loop {
            let went_on = match self.doing {
                Doing::Hearing => match self.hear(rules, now, refused) {
                    Ok(Heard::Answered) => continue,
                    Ok(Heard::Proven) => return Next::Enters(self),
                    Ok(Heard::Guess) => return Next::Guessed(self),
                    Err(error) => Err(error),
                },
                Doing::Answering | Doing::Leaving => self.answer(),
                Doing::Left => self.throw_away(),
            };
            match went_on {
                Ok(()) if self.doing == Doing::Answering => {
                    (self.answered, self.until, self.doing) = (0, now + HEAD_LIMIT, Doing::Hearing);
                }
                Ok(()) if self.doing == Doing::Leaving && self.stream.finish().is_ok() => self.doing = Doing::Left,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Stays(self),
                Ok(()) | Err(_) => return Next::Closes,
            }
        }
    }

    /// Hears what there is, until it is a whole head.
    fn hear(&mut self, rules: &PorchRules, now: Instant, refused: &mut dyn FnMut(RefusedRequest)) -> io::Result<Heard> {
        loop {
            let refusal = match parse_head(&self.said) {
                Ok(None) => None,
                Ok(Some((head, length))) => match rules.judge(&head, now) {
                    PorchVerdict::Proven(_) => return Ok(Heard::Proven),
                    PorchVerdict::Open(open) => {
                        self.asked += 1;
                        let goes_on = goes_on(&head) && self.asked < ASKED_MAX;
                        self.answer = answer_open(&open, &head, goes_on);
                        self.doing = if goes_on { Doing::Answering } else { Doing::Leaving };
                        self.said.drain(..length);
                        return Ok(Heard::Answered);
                    }
                    PorchVerdict::Refused(refusal) => {
                        refused(self.refused_request(&head, rules.key_of(&head, now), refusal));
                        Some(refusal)
                    }
                },
                Err(HeadError::TooLong) => Some(PorchRefusal::TOO_LONG),
                Err(HeadError::Malformed) => Some(PorchRefusal::MALFORMED),
            };
            if let Some(refusal) = refusal {
                self.refuse(&refusal, now);
                return Ok(if refusal.is_slow { Heard::Guess } else { Heard::Answered });
            }
            self.read()?;
        }
    }

    fn refused_request(&self, head: &RequestHead<'_>, key: Option<KeyKind>, refusal: PorchRefusal) -> RefusedRequest {
        let (method, path) = (head.method.to_owned(), head.path().to_owned());
        RefusedRequest { peer: self.peer, local: self.stream.local(), method, path, key, refusal }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut piece = [0; 4096];
        let size = (HEAD_BYTES_MAX - self.said.len()).min(piece.len());
        match self.stream.read(&mut piece[..size])? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            read => {
                self.said.extend_from_slice(&piece[..read]);
                Ok(())
            }
        }
    }

    fn refuse(&mut self, refusal: &PorchRefusal, now: Instant) {
        let PorchRefusal { status: (code, name), text, .. } = refusal;
        self.answer = format!(
            "HTTP/1.1 {code} {name}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
             connection: close\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n\r\n{text}",
            text.len()
        )
        .into_bytes();
        let delay = if refusal.is_slow { GUESS_DELAY } else { LEAVING_LIMIT };
        (self.answered, self.doing, self.until) = (0, Doing::Leaving, now + delay);
    }

    /// Sends what it is answered; done where all of it is sent.
    fn answer(&mut self) -> io::Result<()> {
        while self.answered < self.answer.len() {
            match self.stream.write(&self.answer[self.answered..])? {
                0 => return Err(ErrorKind::WriteZero.into()),
                written => self.answered += written,
            }
        }
        self.stream.flush()
    }

    /// Reads on, so that the peer is not told of an end before it has read its answer; done where it has gone.
    fn throw_away(&mut self) -> io::Result<()> {
        let mut piece = [0; 16 << 10];
        while self.thrown_away < LEAVING_BYTES_MAX {
            match self.stream.read(&mut piece)? {
                0 => break,
                read => self.thrown_away += read,
            }
        }
        Ok(())
    }
}

/// Whether the peer may ask again on this connection after an answer from the porch: what follows is a head.
fn goes_on(head: &RequestHead<'_>) -> bool {
    let has_body = head.all("content-length").any(|length| length.trim_ascii() != b"0")
        || head.all("transfer-encoding").next().is_some();
    let closes = head.all("connection").any(|value| !value.trim_ascii().eq_ignore_ascii_case(b"keep-alive"));
    !has_body && !closes
}

/// Whether whoever asks understands gzip.
fn takes_gzip(head: &RequestHead<'_>) -> bool {
    head.all("accept-encoding").any(names_gzip)
}

/// Whether a field `Accept-Encoding` says that gzip is understood: a weight of 0 says that it is not.
pub fn names_gzip(field: &[u8]) -> bool {
    let is_zero = |parameter: &[u8]| {
        let Some((name, weight)) = std::str::from_utf8(parameter).ok().and_then(|text| text.split_once('=')) else {
            return false;
        };
        name.trim().eq_ignore_ascii_case("q") && weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0)
    };
    let is_gzip = |coding: &[u8]| {
        let mut parts = coding.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(b"gzip"));
        is_named && !parts.any(is_zero)
    };
    field.split(|byte| *byte == b',').any(is_gzip)
}

fn answer_open(open: &OpenPath, head: &RequestHead<'_>, goes_on: bool) -> Vec<u8> {
    let connection = if goes_on { "keep-alive" } else { "close" };
    let (body, coding) = match open.packed {
        [] => (open.body, ""),
        packed if takes_gzip(head) => (packed, "content-encoding: gzip\r\nvary: accept-encoding\r\n"),
        _ => (open.body, "vary: accept-encoding\r\n"),
    };
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ncontent-length: {}\r\n{coding}connection: {connection}\r\n",
        open.content_type,
        body.len()
    )
    .into_bytes();
    for (name, value) in super::SECURITY_FIELDS {
        answer.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    answer.extend_from_slice(b"\r\n");
    if head.method != "HEAD" {
        answer.extend_from_slice(body);
    }
    answer
}

/// Errors of one peer, which say nothing of the next.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted)
}
