//! The thread's loop: strangers let in or turned away, streams carried.
//!
//! - EXCHANGE-1: a peer that has proven nothing has [`Limits::proving`](crate::Limits) for it, and there are at most
//!   [`STRANGERS_MAX`] such (CROWD-2). A certificate that was verified ends that: its bearers have places of their own.
//! - EXCHANGE-2: a ticket serves once, for the node that it was made out for; who comes with one that is not known yet
//!   waits for [`Limits::ticket`](crate::Limits), and so does a ticket that nobody comes with.
//! - EXCHANGE-3: a node that dials says nothing more before its ticket was taken, and dials again until its time is over:
//!   what was said on a stream has reached the right node, and a stream that was not made has carried nothing.

use crate::carrier::{Carrier, Scratch};
use crate::expectation::{Expectation, Ticket};
use crate::failed_proofs::{FailedProofs, Places};
use crate::greeting::{ADMITTED, JoinGreeting, stream_greeting};
use crate::mailbox::{Command, Counter, Event};
use crate::options::Options;
use crate::socket;
use crate::stream_side::StreamStanding;
use oxiray_ids::NodeId;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write as _};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many strangers there may be at once.
pub(crate) const STRANGERS_MAX: usize = 64;
/// How many bearers may wait for their tickets to be known.
pub(crate) const BEARERS_MAX: usize = 256;
/// How often the log tells of strangers that were turned away.
pub(crate) const TELLING_PERIOD: Duration = Duration::from_secs(1);
/// How long a listener rests that could not accept, for want of descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a node waits before it dials again.
const REDIAL_PAUSE: Duration = Duration::from_millis(200);
/// The most descriptors served before deadlines are looked at.
const EVENTS_LIMIT: usize = 128;

/// What the kernel says of a side that will give no more than it has.
const ENDING: epoll::EventFlags = epoll::EventFlags::RDHUP.union(epoll::EventFlags::HUP).union(epoll::EventFlags::ERR);

pub(crate) const LISTENER: u64 = 0;
const COMMANDED: u64 = 1;
/// Connections are numbered from here; the lowest bit tells their two sides apart.
pub(crate) const FIRST: u64 = 2;

/// How far a connection has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Dialled, and not taken yet.
    Dialling(Box<Dial>),
    /// Accepted: it has proven nothing.
    Stranger { until: Instant, early: Vec<u8> },
    /// It has proven that it has a token or a certificate, and waits for the daemon's word.
    Newcomer { until: Instant, greeting: Box<JoinGreeting>, before: Option<NodeId> },
    /// A node that shows a ticket which is not known here yet.
    Bearer { until: Instant, node: NodeId, ticket: Ticket, early: Vec<u8> },
    /// Bytes are carried.
    Open,
}

/// A stream that this node is to make.
#[derive(Debug)]
pub(crate) struct Dial {
    address: SocketAddr,
    expectation: Expectation,
    until: Instant,
}

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) carrier: Carrier,
    pub(crate) stage: Stage,
    /// Who is at the other end, once that is proven or where it was dialled.
    pub(crate) node: Option<NodeId>,
    pub(crate) address: Option<IpAddr>,
    /// Room was waited for: on the one side, on the other.
    waits: (bool, bool),
    /// The peer is listened to.
    hears_peer: bool,
}

impl Line {
    pub(crate) fn new(carrier: Carrier, stage: Stage, node: Option<NodeId>, address: Option<IpAddr>) -> Self {
        Self { carrier, stage, node, address, waits: (false, false), hears_peer: true }
    }
}

/// All that the thread has.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) options: Options,
    /// None where nobody is to come: with a visitor of a head.
    pub(crate) listener: Option<TcpListener>,
    pub(crate) listens: bool,
    /// Until when the listener rests, since nothing could be accepted.
    pub(crate) rests_until: Option<Instant>,
    pub(crate) counter: Arc<Counter>,
    pub(crate) epoll: OwnedFd,
    pub(crate) lines: BTreeMap<u64, Line>,
    last: u64,
    pub(crate) expected: BTreeMap<Ticket, (Expectation, Instant)>,
    /// Streams that could not be made yet, and when they are dialled again.
    redials: Vec<(Instant, Dial)>,
    pub(crate) crowd: FailedProofs,
    pub(crate) strangers: Places<IpAddr>,
    pub(crate) bearers: Places<NodeId>,
    /// Strangers turned away since the log was told, the last one's reason, and when it was told.
    pub(crate) turned_away: (u32, String, Option<Instant>),
    /// Lines with more to move at once.
    pub(crate) busy: Vec<u64>,
    pub(crate) finish_at: Option<Instant>,
    scratch: Scratch,
}

impl Exchange {
    pub(crate) fn new(options: Options, listener: Option<TcpListener>, counter: Arc<Counter>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let level = epoll::EventFlags::IN;
        epoll::add(&epoll, &counter.commanded, epoll::EventData::new_u64(COMMANDED), level)?;
        if let Some(listener) = &listener {
            epoll::add(&epoll, listener, epoll::EventData::new_u64(LISTENER), level)?;
        }
        Ok(Self {
            options,
            listens: listener.is_some(),
            rests_until: None,
            listener,
            counter,
            epoll,
            lines: BTreeMap::new(),
            last: 0,
            expected: BTreeMap::new(),
            redials: Vec::new(),
            crowd: FailedProofs::default(),
            strangers: Places::new(STRANGERS_MAX),
            bearers: Places::new(BEARERS_MAX),
            turned_away: (0, String::new(), None),
            busy: Vec::new(),
            finish_at: None,
            scratch: Scratch::default(),
        })
    }

    /// The stream to the head that this node joined.
    pub(crate) fn carry_joined(
        &mut self,
        tls: rustls::Connection,
        tcp: TcpStream,
        local: UnixStream,
    ) -> io::Result<()> {
        tcp.set_read_timeout(None)?;
        tcp.set_write_timeout(None)?;
        tcp.set_nonblocking(true)?;
        socket::prepare(&tcp, self.options.limits.silence)?;
        let carrier = Carrier::new(tls, tcp).attach(OwnedFd::from(local).into(), &[])?;
        let number = self.add(Line::new(carrier, Stage::Open, None, None))?;
        self.busy.push(number);
        Ok(())
    }

    pub(crate) fn run(mut self) {
        loop {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(error) => {
                    return self.counter.tell(Event::Told(format!("the network thread cannot wait: {error}")));
                }
            };
            let now = Instant::now();
            for number in std::mem::take(&mut self.busy) {
                self.serve(number, now);
            }
            for (token, is_ending) in ready {
                match token {
                    LISTENER => self.accept(now),
                    COMMANDED => self.obey(now),
                    token => {
                        let (number, is_local) = ((token - FIRST) >> 1, (token - FIRST) & 1 == 1);
                        if let Some(line) = self.lines.get_mut(&number) {
                            line.carrier.told(is_local, is_ending);
                        }
                        self.serve(number, now);
                    }
                }
            }
            self.expire(now);
            self.tell_of_strangers(now);
            if self.finish_at.is_some_and(|at| now >= at || self.lines.is_empty()) {
                return;
            }
        }
    }

    /// What is ready, and whether it ends.
    fn wait(&mut self) -> Result<Vec<(u64, bool)>, Errno> {
        if !self.busy.is_empty() {
            return self.poll(Some(Duration::ZERO));
        }
        let now = Instant::now();
        self.poll(self.next_deadline().map(|at| at.saturating_duration_since(now)))
    }

    fn poll(&self, limit: Option<Duration>) -> Result<Vec<(u64, bool)>, Errno> {
        let limit =
            limit.map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) });
        let mut buffer = [MaybeUninit::uninit(); EVENTS_LIMIT];
        match epoll::wait(&self.epoll, &mut buffer, limit.as_ref()) {
            Ok((events, _)) => {
                let told = |event: &epoll::Event| {
                    let (data, flags) = (event.data, event.flags);
                    (data.u64(), flags.intersects(ENDING))
                };
                Ok(events.iter().map(told).collect())
            }
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let of_lines = self.lines.values().filter_map(|line| line.stage.deadline());
        let of_tickets = self.expected.values().map(|(_, until)| *until);
        let of_log = self.turned_away.2.filter(|_| self.turned_away.0 > 0).map(|told| told + TELLING_PERIOD);
        let of_dials = self.redials.iter().map(|(at, _)| *at);
        of_lines.chain(of_tickets).chain(of_log).chain(of_dials).chain(self.rests_until).chain(self.finish_at).min()
    }

    // --- commands ---

    fn obey(&mut self, now: Instant) {
        for command in self.counter.commands() {
            match command {
                Command::Expect(expectation) => self.expect(expectation, now),
                Command::Dial(address, expectation) => {
                    self.dial(Dial { address, expectation, until: now + self.options.limits.ticket }, now);
                }
                Command::Carry(tls, tcp, local) => {
                    // What fails closes the local socket, which its daemon notices.
                    if let Err(error) = self.carry_joined(*tls, tcp, local) {
                        self.counter.tell(Event::Told(format!("the stream to the head cannot be carried: {error}")));
                    }
                }
                Command::Forget(node) => {
                    self.expected.retain(|_, (expectation, _)| expectation.node != node);
                    self.redials.retain(|(_, dial)| dial.expectation.node != node);
                    let of_node = self.lines.iter().filter(|(_, line)| line.node == Some(node));
                    for number in of_node.map(|(number, _)| *number).collect::<Vec<_>>() {
                        self.drop_line(number);
                    }
                }
                Command::Admit(number) => self.admit(number, now),
                Command::Refuse(number, why) => self.refuse(number, why, now),
                Command::Tokens(tokens) => {
                    if let Some((_, known)) = &mut self.options.authority {
                        *known = tokens;
                    }
                }
                Command::Renew(credentials) => self.options.credentials = *credentials,
                Command::Finish(limit) => self.finish(now + limit),
            }
        }
    }

    fn expect(&mut self, expectation: Expectation, now: Instant) {
        let is_shown =
            |line: &Line| matches!(&line.stage, Stage::Bearer { ticket, .. } if *ticket == expectation.ticket);
        let bearer = self.lines.iter().find(|(_, line)| is_shown(line)).map(|(number, _)| *number);
        self.expected.insert(expectation.ticket, (expectation, now + self.options.limits.ticket));
        if let Some(number) = bearer {
            self.present(number, now);
        }
    }

    fn dial(&mut self, dial: Dial, now: Instant) {
        let (node, address) = (dial.expectation.node, dial.address);
        match self.connect(&dial) {
            Ok(carrier) => {
                let line = Line::new(carrier, Stage::Dialling(Box::new(dial)), Some(node), Some(address.ip()));
                match self.add(line) {
                    Ok(number) => self.watch_room(number),
                    Err(error) => self.tell(unreached(node, address, &error)),
                }
            }
            Err(error) => self.dial_later(dial, &error, now),
        }
    }

    fn connect(&self, dial: &Dial) -> io::Result<Carrier> {
        let Expectation { node, ticket, local } = &dial.expectation;
        let mut tls = self.options.credentials.dialing(*node, &local.way).map_err(io::Error::other)?;
        // It goes out with the end of the handshake, when the other side has proven who it is.
        tls.writer().write_all(&stream_greeting(ticket.as_bytes()))?;
        Ok(Carrier::new(tls, socket::dial(dial.address)?))
    }

    /// A stream was not made: it is dialled again, unless its time is over or the other side said no (EXCHANGE-3).
    fn dial_later(&mut self, dial: Dial, error: &io::Error, now: Instant) {
        let at = now + REDIAL_PAUSE;
        if error.kind() != ErrorKind::InvalidData && at < dial.until && self.finish_at.is_none() {
            return self.redials.push((at, dial));
        }
        self.tell(unreached(dial.expectation.node, dial.address, error));
    }

    fn finish(&mut self, at: Instant) {
        self.finish_at = Some(self.finish_at.map_or(at, |earlier| earlier.min(at)));
        self.expected.clear();
        self.redials.clear();
        self.lines.retain(|_, line| matches!(line.stage, Stage::Open));
        self.listen_no_more();
    }

    // --- lines ---

    pub(crate) fn add(&mut self, line: Line) -> io::Result<u64> {
        self.last += 1;
        let number = self.last;
        epoll::add(&self.epoll, &line.carrier.tcp, epoll::EventData::new_u64(FIRST + (number << 1)), watched(false))?;
        if let Some(local) = line.carrier.local() {
            epoll::add(&self.epoll, local, epoll::EventData::new_u64(FIRST + (number << 1 | 1)), watched(false))?;
        }
        self.lines.insert(number, line);
        Ok(number)
    }

    pub(crate) fn serve(&mut self, number: u64, now: Instant) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        let result = match &line.stage {
            Stage::Dialling(_) => self.go_on_dialling(number),
            Stage::Stranger { .. } => self.greet(number, now).map(|()| StreamStanding::Idle),
            // It is heard when its ticket is known, or the daemon's word.
            Stage::Bearer { .. } | Stage::Newcomer { .. } => Ok(StreamStanding::Idle),
            Stage::Open => line.carrier.carry(&mut self.scratch),
        };
        match result {
            Ok(StreamStanding::Idle) => self.watch_room(number),
            Ok(StreamStanding::Busy) => self.busy.push(number),
            Ok(StreamStanding::Over) => self.drop_line(number),
            Err(error) => self.broken(number, &error, now),
        }
    }

    fn go_on_dialling(&mut self, number: u64) -> io::Result<StreamStanding> {
        let Some(line) = self.lines.get_mut(&number) else { return Ok(StreamStanding::Idle) };
        if line.carrier.tcp.peer_addr().is_err() {
            // Not there yet, or failed.
            socket::dialled(&line.carrier.tcp)?;
            return Ok(StreamStanding::Idle);
        }
        if !line.carrier.shake()? {
            return Ok(StreamStanding::Idle);
        }
        let mut answer = [0];
        match line.carrier.read_early(&mut answer)? {
            None => return Ok(StreamStanding::Idle),
            Some(_) if answer[0] == ADMITTED => {}
            Some(_) => return Err(io::Error::new(ErrorKind::InvalidData, "it does not know the stream's ticket")),
        }
        socket::prepare(&line.carrier.tcp, self.options.limits.silence)?;
        if let Stage::Dialling(dial) = std::mem::replace(&mut line.stage, Stage::Open) {
            self.open(number, dial.expectation.node, dial.expectation.local, &[])?;
        }
        Ok(StreamStanding::Idle)
    }

    fn broken(&mut self, number: u64, error: &io::Error, now: Instant) {
        let Some(line) = self.remove(number) else { return };
        let Line { stage, node, address, .. } = line;
        match (stage, node, address) {
            (Stage::Stranger { .. }, _, address) => self.turn_away(address, &error.to_string(), now),
            (Stage::Dialling(dial), ..) => self.dial_later(*dial, error, now),
            (_, Some(node), Some(address)) if error.kind() == ErrorKind::TimedOut => {
                self.tell(format!("the stream to node {node} at {address} broke: {error}"));
            }
            _ => {}
        }
    }

    pub(crate) fn drop_line(&mut self, number: u64) {
        // Closing forgets its descriptors too, unless somebody shares one, and nobody does.
        drop(self.remove(number));
    }

    fn remove(&mut self, number: u64) -> Option<Line> {
        self.strangers.leave(number);
        self.bearers.leave(number);
        self.lines.remove(&number)
    }

    /// Has the kernel tell when there is room where some is waited for, and nothing of a peer that others listen to.
    fn watch_room(&mut self, number: u64) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        let hears_peer = line.carrier.hears_peer();
        if hears_peer != line.hears_peer {
            let token = epoll::EventData::new_u64(FIRST + (number << 1));
            // It fails only where it is so already.
            let _ = if hears_peer {
                epoll::add(&self.epoll, &line.carrier.tcp, token, watched(false))
            } else {
                epoll::delete(&self.epoll, &line.carrier.tcp)
            };
            line.hears_peer = hears_peer;
        }
        let is_dialling = matches!(line.stage, Stage::Dialling(_));
        let wanted = (line.carrier.tcp_is_full || is_dialling, line.carrier.local_is_full);
        if wanted.0 != line.waits.0 {
            watch(&self.epoll, &line.carrier.tcp, FIRST + (number << 1), wanted.0);
        }
        if let Some(local) = line.carrier.local().filter(|_| wanted.1 != line.waits.1) {
            watch(&self.epoll, local, FIRST + (number << 1 | 1), wanted.1);
        }
        line.waits = wanted;
    }

    fn expire(&mut self, now: Instant) {
        let late: Vec<Ticket> =
            self.expected.iter().filter(|(_, (_, until))| *until <= now).map(|(ticket, _)| *ticket).collect();
        for (Expectation { node, .. }, _) in
            late.iter().filter_map(|ticket| self.expected.remove(ticket)).collect::<Vec<_>>()
        {
            self.tell(format!("node {node} did not come for a stream that was made out for it"));
        }
        let late = self.lines.iter().filter(|(_, line)| line.stage.deadline().is_some_and(|until| until <= now));
        for number in late.map(|(number, _)| *number).collect::<Vec<_>>() {
            let error = io::Error::new(ErrorKind::TimedOut, "it did not show in time that it may speak");
            self.broken(number, &error, now);
        }
        for (at, dial) in std::mem::take(&mut self.redials) {
            if at <= now {
                self.dial(dial, now);
            } else {
                self.redials.push((at, dial));
            }
        }
        if self.rests_until.is_some_and(|until| until <= now) {
            self.rests_until = None;
            self.listen_again();
        }
    }
}

fn unreached(node: NodeId, address: SocketAddr, error: &io::Error) -> String {
    format!("no stream to node {node} at {address} could be made: {error}")
}

impl Stage {
    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Dialling(dial) => Some(dial.until),
            Self::Stranger { until, .. } | Self::Newcomer { until, .. } | Self::Bearer { until, .. } => Some(*until),
            Self::Open => None,
        }
    }
}

/// Edges: what is ready is served until it is not.
pub(crate) fn watched(room: bool) -> epoll::EventFlags {
    let room = if room { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
    epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET | room
}

fn watch(epoll: &OwnedFd, descriptor: impl AsFd, token: u64, room: bool) {
    // It fails only for a descriptor that is not watched any more.
    let _ = epoll::modify(epoll, descriptor, epoll::EventData::new_u64(token), watched(room));
}
