//! A member that lies: it joins over TLS with a join token, as a node that has nothing that honest work wants, says to the
//! head and to the other members what it may and may not say, goes, and joins anew.

use super::left_out::{self, RESOURCE};
use super::speech::{self, Speech};
use super::{Pace, Report, is_readable, pause, write_whole};
use crate::frames;
use crate::grammar::{self, Pool};
use bytes::Bytes;
use fastrand::Rng;
use oxiray_ids::{NodeId, WorkerId, WorkerNumber};
use oxiray_network::{
    Expectation, Gateway, JoinToken, Joined, LastCertificate, Limits, Local, Newcomer, Ticket, Way, join,
};
use oxiray_wire::frame::protocol;
use oxiray_wire::message::{
    Amount, Connect, ConnectionTicket, GroupPrepared, Heartbeat, Hello, NodeAdmitted, NodeJoin, NodeLeaves, NodeResume,
    NodeState, NodeToHead, NodeToNode, Numbered as _, Placed, Relay, RelayedOfVisitor, RelayedToHead, Sought,
};
use oxiray_wire::shape::Shape;
use oxiray_wire::{Connection, Message};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Frames that are said in a second at most.
const FRAMES_PER_SECOND: u32 = 1500;
/// Where others reach it.
const OWN_IP: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 200);
/// How long each step of joining may take.
const JOIN_LIMIT: Duration = Duration::from_secs(5);
/// How long it waits before it tries to join again where it was not let in.
const JOIN_PAUSE: Duration = Duration::from_millis(200);
/// How often it says that it lives.
const BEAT_PERIOD: Duration = Duration::from_millis(200);
/// How often it has itself connected to another node.
const CONNECT_PERIOD: Duration = Duration::from_millis(150);
/// The longest that it is one node, in milliseconds.
const LIFE_MS_MAX: u64 = 5000;
/// How many streams to other nodes it has at once.
const LINKS_MAX: usize = 8;

/// Where to join, and with what.
#[derive(Debug, Clone)]
pub struct Options {
    /// The head's address.
    pub address: String,
    /// The file with the join token.
    pub token_file: PathBuf,
    /// Other nodes, to which it has the head connect it.
    pub nodes: Vec<NodeId>,
}

/// Joins and lies, again and again, for that long.
pub fn run(options: &Options, seed: u64, lasts: Duration, report: &Path) -> io::Result<()> {
    let (until, mut report) = (Instant::now() + lasts, Report::open(report)?);
    let (mut speech, mut before) = (Speech::new(seed), None);
    while Instant::now() < until {
        // A head that came back waits for those that the last one knew.
        let returning = before.as_ref().filter(|_| speech.chance.bool()).map(|(node, _)| *node);
        let node = returning.unwrap_or_else(|| NodeId::new(std::array::from_fn(|_| speech.chance.u8(..))));
        match come(options, node, before.as_ref()) {
            Some(joined) => {
                report.count("joins", 1);
                before = speech.chance.bool().then(|| (node, joined.credentials.last_certificate()));
                if let Some(mut life) = Life::begin(joined, node, returning.is_some(), &mut speech)? {
                    life.live(options, &mut speech, until, &mut report);
                }
            }
            // The head is gone, or listens to nobody from here for now.
            None => pause(JOIN_PAUSE),
        }
    }
    Ok(())
}

fn come(options: &Options, node: NodeId, before: Option<&(NodeId, LastCertificate)>) -> Option<Joined> {
    let token = JoinToken::parse(&std::fs::read_to_string(&options.token_file).ok()?).ok()?;
    let (predecessor, before) = before.map(|(node, certificate)| (*node, certificate)).unzip();
    let predecessor = predecessor.filter(|predecessor| *predecessor != node);
    let protocol = protocol();
    let newcomer = Newcomer {
        address: &options.address,
        token: &token,
        node,
        predecessor,
        before,
        protocol: &protocol,
        limit: JOIN_LIMIT,
    };
    join(&newcomer).ok()
}

/// A stream, as what is heard and where is spoken.
#[derive(Debug)]
struct Line {
    connection: Connection,
    socket: OwnedFd,
}

impl Line {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { socket: rustix::io::dup(&socket)?, connection: Connection::new(socket)? })
    }

    /// What came, within that time; nothing where the stream is over.
    fn hear(&mut self, within: Duration) -> Option<Vec<Message>> {
        let mut inbox = Vec::new();
        if is_readable(&self.connection, within) {
            self.connection.receive(&mut inbox).ok()?;
        }
        Some(inbox.into_iter().map(|received| received.message).collect())
    }

    fn say(&self, message: impl Into<Message>) -> io::Result<()> {
        write_whole(&self.socket, &speech::frame_of(&message.into()))
    }
}

/// It, as one node.
#[derive(Debug)]
struct Life {
    gateway: Gateway,
    head: Line,
    head_address: SocketAddr,
    links: Vec<Line>,
    beats: u64,
    last_worker: u64,
}

impl Life {
    /// Waits to be admitted, and describes itself, most of the time; nothing where the head goes meanwhile.
    fn begin(joined: Joined, node: NodeId, returns: bool, speech: &mut Speech) -> io::Result<Option<Self>> {
        let head_address = joined.head;
        let listen = SocketAddr::new(IpAddr::V4(OWN_IP), 0);
        let (gateway, local) = Gateway::start_joined(joined, listen, protocol(), Limits::default())?;
        let mut head = Line::new(local)?;
        let admitted = head.hear(JOIN_LIMIT).and_then(|heard| match heard.into_iter().next() {
            Some(Message::NodeAdmitted(admitted)) => Some(*admitted),
            _ => None,
        });
        let Some(NodeAdmitted { head: head_node, .. }) = admitted else { return Ok(None) };
        speech.pool.bytes(head_node.map(|node| Bytes::copy_from_slice(node.as_bytes())).unwrap_or_default());
        let told = described(node, &gateway.address().to_string());
        let told: Message = if returns { resumed(told, speech).into() } else { told.into() };
        let life = Self { gateway, head, head_address, links: Vec::new(), beats: 0, last_worker: 0 };
        // At times it speaks before it has said what it is.
        let is_silent = speech.chance.u8(..) < 16;
        Ok((is_silent || life.head.say(told).is_ok()).then_some(life))
    }

    /// Lies until its time is over, or the head has had enough of it.
    fn live(&mut self, options: &Options, speech: &mut Speech, end: Instant, report: &mut Report) {
        let until = end.min(Instant::now() + Duration::from_millis(speech.chance.u64(50..LIFE_MS_MAX)));
        let (mut pace, mut beat, mut connect) = (Pace::new(FRAMES_PER_SECOND), Instant::now(), Instant::now());
        // One that says no such word is given up when its lease is over.
        let beats = speech.chance.u8(..) < 224;
        while Instant::now() < until {
            if beats && beat <= Instant::now() {
                self.beats += 1;
                beat = Instant::now() + BEAT_PERIOD;
                if self.head.say(Heartbeat { number: self.beats }).is_err() {
                    return;
                }
            }
            if connect <= Instant::now() && !options.nodes.is_empty() {
                connect = Instant::now() + CONNECT_PERIOD;
                let node = options.nodes[speech.chance.usize(..options.nodes.len())];
                if self.head.say(Connect { node }).is_err() {
                    return;
                }
            }
            let Some(heard) = self.head.hear(Duration::ZERO) else { return };
            for message in heard {
                speech.learn(&message);
                if self.answer(&message, speech).is_err() {
                    return;
                }
            }
            let said = speech.chance.u32(1..16);
            for _ in 0..said {
                let frame = speech.next(left_out::of_member, member_frame);
                if write_whole(&self.head.socket, &frame).is_err() {
                    return;
                }
            }
            report.count("frames", u64::from(said));
            report.count("frames to other nodes", self.say_to_nodes(speech));
            pace.keep(said);
        }
    }

    /// Does what a member does, or nearly so, that further lies may be believed.
    fn answer(&mut self, message: &Message, speech: &mut Speech) -> io::Result<()> {
        let chance = &mut speech.chance;
        match message {
            Message::Place(asked) if chance.bool() => {
                self.last_worker += 1;
                let (worker, once) = (self.last_worker, chance.bool());
                speech.pool.number(worker);
                let id = WorkerId::new(std::array::from_fn(|_| speech.chance.u8(..)));
                self.head.say(Placed {
                    order: asked.order,
                    worker: WorkerNumber(worker),
                    id,
                    once,
                    ..Placed::default()
                })
            }
            Message::GroupPrepare(asked) => {
                self.head.say(GroupPrepared { order: asked.order, is_refused: chance.bool() })
            }
            // Where it says nothing, whoever reads waits until it goes.
            Message::Seek(asked) if chance.u8(..) < 192 => {
                self.head.say(Sought { search: asked.search, is_here: false })
            }
            Message::NodePeer(said) => {
                if let Some(link) =
                    said.connection_ticket.as_ref().and_then(|connection_ticket| self.link(connection_ticket))
                {
                    self.links.push(link);
                    if self.links.len() > LINKS_MAX {
                        self.links.swap_remove(chance.usize(..LINKS_MAX));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Its end of a stream to another node, as a member makes it.
    fn link(&self, connection_ticket: &ConnectionTicket) -> Option<Line> {
        let (ticket, node) = (Ticket::from_slice(&connection_ticket.ticket)?, connection_ticket.node);
        let (near, far) = oxiray_wire::connection::socket_pair().ok()?;
        let local = Local { socket: far, way: Way::DirectTransfer(Arc::default()) };
        let expectation = Expectation { ticket, node, local };
        match connection_ticket.address.parse() {
            _ if connection_ticket.is_head => self.gateway.dial(self.head_address, expectation),
            Ok(address) => self.gateway.dial(address, expectation),
            Err(_) => self.gateway.expect(expectation),
        }
        Line::new(near).ok()
    }

    /// Says something to each node that it has a stream to; how much.
    fn say_to_nodes(&mut self, speech: &mut Speech) -> u64 {
        let mut said = 0;
        self.links.retain_mut(|link| {
            let Some(heard) = link.hear(Duration::ZERO) else { return false };
            for message in &heard {
                speech.learn(message);
            }
            let frame = speech.next(left_out::of_member, node_frame);
            said += 1;
            write_whole(&link.socket, &frame).is_ok()
        });
        said
    }
}

/// A node that has nothing but what nobody wants.
fn described(node: NodeId, listens: &str) -> NodeJoin {
    let amounts = || vec![Amount { resource: RESOURCE.to_owned(), units: 1_000_000 }];
    NodeJoin {
        node,
        ip: OWN_IP.to_string(),
        hostname: RESOURCE.to_owned(),
        totals: amounts(),
        state: Some(NodeState { free: amounts(), ..NodeState::default() }),
        session: "/hostile".to_owned(),
        name: RESOURCE.to_owned(),
        listens: listens.to_owned(),
        ..NodeJoin::default()
    }
}

/// The same, and what it says of workers and jobs that it had under the last head.
fn resumed(described: NodeJoin, speech: &mut Speech) -> NodeResume {
    let kind = Message::from(NodeResume::default()).kind();
    let body = Shape::of(kind).map(|shape| grammar::body(&mut speech.chance, shape, &speech.pool)).unwrap_or_default();
    let lie = match Message::decode(kind, body.into()) {
        Ok(Some(Message::NodeResume(lie))) => *lie,
        _ => NodeResume::default(),
    };
    NodeResume { node: Some(described), stored: Vec::new(), ..lie }
}

/// A frame to the head: what members say, what is relayed of their workers and proxied clients, or anything.
fn member_frame(chance: &mut Rng, pool: &Pool) -> Vec<u8> {
    if chance.u8(..) < 100 {
        return relayed_frame(chance, pool);
    }
    let kind = frames::kind_said::<NodeToHead>(chance);
    if is_final(kind) && chance.u8(..) < 240 {
        return member_frame(chance, pool);
    }
    frames::frame(chance, pool, kind)
}

/// What a worker or a proxied client is said to say.
fn relayed_frame(chance: &mut Rng, pool: &Pool) -> Vec<u8> {
    let kind = if chance.bool() {
        frames::kind_said::<RelayedToHead>(chance)
    } else {
        frames::kind_said::<RelayedOfVisitor>(chance)
    };
    let (worker, frame) = (grammar::number(chance, pool), frames::frame(chance, pool, kind));
    let body = Bytes::copy_from_slice(&frame[oxiray_wire::frame::HEADER_BYTES..]);
    speech::frame_of(
        &Relay { worker: WorkerNumber(worker), kind: u32::from(kind), body, connection_ticket: None }.into(),
    )
}

/// A frame to another node: what nodes say to each other, or anything.
fn node_frame(chance: &mut Rng, pool: &Pool) -> Vec<u8> {
    speech::said_frame::<NodeToNode>(chance, pool)
}

/// What ends a member nearly always, said to a head that knows it: seldom said, so that others are heard too.
fn is_final(kind: u16) -> bool {
    [NodeJoin::KIND, NodeResume::KIND, NodeLeaves::KIND, Hello::KIND, Placed::KIND].contains(&kind)
}
