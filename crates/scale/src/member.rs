//! A member: the real core of a node, its own connection over TLS, and workers that exist by name only.

use oxiray_accelerators::{Detection, offer};
use oxiray_ids::{NodeId, WorkerNumber};
use oxiray_machine::{Effect, IsolationPlan, Key, NodeCore, Numbers, Plan};
use oxiray_network::{Expectation, Gateway, JoinToken, Limits, Local, Newcomer, Ticket, Way, join};
use oxiray_node::lease::MemberLease;
use oxiray_processes::since_boot;
use oxiray_resources::{Inventory, ResourceName};
use oxiray_wire::connection::promise_pair;
use oxiray_wire::frame::protocol;
use oxiray_wire::message::{
    ActorReady, ConnectionTicket, DaemonToNode, Direction as _, HeadToNewcomer, HeadToNode, Heartbeat, NodeAdmitted,
    WorkerToNode,
};
use oxiray_wire::{Connection, Message};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long each step of joining may take: the head is one daemon on a busy machine.
const STEP_LIMIT: Duration = Duration::from_secs(60);
/// Where its listener would be; nobody is sent there, since no worker is real.
const LISTENS: &str = "127.0.0.1:9";
/// The stream to the head; workers have larger numbers.
const HEAD: Key = 1;

/// One played member.
#[derive(Debug)]
pub(crate) struct Member {
    core: NodeCore,
    connection: Connection,
    /// Carries the connection; its thread ends with it.
    gateway: Gateway,
    /// Where the head is dialled.
    head: SocketAddr,
    lease: MemberLease,
    last_pid: u32,
    progress: Arc<Progress>,
    /// This member's ends of connections that its gateway is making.
    connecting: Vec<OwnedFd>,
}

/// How far the work of all members has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Actors whose constructors have returned.
    pub(crate) ready_actors: AtomicU64,
    /// Connections that the head asked for and that were made or have failed.
    pub(crate) connected: AtomicU64,
}

impl AsFd for Member {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl Member {
    /// Joins the head as the member of that number.
    pub(crate) fn join(
        address: &str,
        token: &JoinToken,
        number: u32,
        cpus: u32,
        progress: Arc<Progress>,
    ) -> io::Result<Self> {
        let (asked, protocol) = (since_boot(), protocol());
        let mut bytes = [0; NodeId::BYTES];
        bytes[..4].copy_from_slice(&(number + 1).to_be_bytes());
        let node = NodeId::new(bytes);
        let newcomer =
            Newcomer { address, token, node, predecessor: None, before: None, protocol: &protocol, limit: STEP_LIMIT };
        let joined = join(&newcomer).map_err(io::Error::other)?;
        let head = joined.head;
        let (gateway, control) = Gateway::start_visiting(joined, protocol.clone(), Limits::default())?;
        let mut connection = Connection::new(control)?;
        let admitted = first_answer(&mut connection)?;
        let numbers = Numbers::default();
        numbers.begin_at(HEAD);
        let about = ("/played".to_owned(), address.to_owned());
        let mut core = NodeCore::new(plan(node, number, cpus), about, BTreeSet::new(), numbers, Instant::now());
        core.seed(u64::from(number));
        core.begin_epoch(admitted.epoch);
        connection.send(&Message::from(core.serve(Some(HEAD), LISTENS.to_owned())));
        let lease = MemberLease::new(Duration::from_millis(admitted.lease_ms), asked);
        let mut member = Self { core, connection, gateway, head, lease, last_pid: 1, progress, connecting: Vec::new() };
        member.flush()?;
        Ok(member)
    }

    /// This member's ends of connections that its gateway is making since the last call; each is readable once it is made
    /// or has failed.
    pub(crate) fn take_connecting(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.connecting)
    }

    /// Hears the head, and does what it says.
    pub(crate) fn hear(&mut self) -> io::Result<()> {
        let mut inbox = Vec::new();
        self.connection.receive(&mut inbox).map_err(io::Error::other)?;
        self.core.set_now(Instant::now());
        for received in inbox {
            match HeadToNode::of(received.message).map_err(io::Error::other)? {
                HeadToNode::Order(order) => self.core.head_said(order),
                HeadToNode::Daemon(DaemonToNode::HeartbeatHeard(heard)) => self.lease.heard(heard.number),
                HeadToNode::Daemon(DaemonToNode::Refused(refused)) => return Err(io::Error::other(refused.text)),
                HeadToNode::Daemon(DaemonToNode::Relay(relayed)) => {
                    relayed.connection_ticket.iter().try_for_each(|connection_ticket| self.dial(connection_ticket))?;
                }
                HeadToNode::Daemon(_) => {}
            }
            self.settle();
        }
        self.flush()
    }

    /// Says that it lives, where it is time, and does what is due. Returns when it is to be called next.
    pub(crate) fn look_at_the_clock(&mut self) -> io::Result<Duration> {
        if let Some(number) = self.lease.word(since_boot()) {
            self.connection.send(&Message::from(Heartbeat { number }));
        }
        self.core.set_now(Instant::now());
        self.settle();
        self.flush()?;
        Ok(self.next_look())
    }

    /// When it is to look at the clock next, by the time since the machine was started.
    pub(crate) fn next_look(&self) -> Duration {
        let alarm = self.core.next_alarm().map(|at| since_boot() + at.saturating_duration_since(Instant::now()));
        self.lease.next().min(alarm.unwrap_or(Duration::MAX))
    }

    /// Makes the connection between a worker and a process of the head's machine. No worker is real, so that it ends once it
    /// is made.
    fn dial(&mut self, connection_ticket: &ConnectionTicket) -> io::Result<()> {
        let ticket = Ticket::from_slice(&connection_ticket.ticket).ok_or(io::ErrorKind::InvalidData)?;
        let (end, socket) = promise_pair()?;
        self.connecting.push(end);
        let local = Local { socket, way: Way::Given };
        self.gateway.dial(self.head, Expectation { ticket, node: connection_ticket.node, local });
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.connection.flush().map(|_| ()).map_err(io::Error::other)
    }

    /// Whether something is left to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.connection.unsent_bytes() > 0
    }

    /// Carries out what the core decides until it decides nothing more.
    fn settle(&mut self) {
        loop {
            self.core.settle();
            let effects = std::mem::take(self.core.effects());
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.carry_out(effect);
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to: HEAD, message } => self.connection.send(&message),
            Effect::Send { to, message: Message::Assign(assign) } if assign.actor.is_some() => {
                self.core.worker_said(to, &WorkerToNode::ActorReady(ActorReady::default()));
                self.connection.send(&Message::from(Message::from(ActorReady::default()).relayed(WorkerNumber(to))));
                self.progress.ready_actors.fetch_add(1, Ordering::Relaxed);
            }
            Effect::Fork { worker, .. } => {
                self.last_pid += 1;
                self.core.forked(worker, self.last_pid);
            }
            Effect::Kill { worker } => self.core.worker_gone(worker, "killed by signal 9 (SIGKILL)"),
            // There are no processes, no store and no devices here, and no worker listens.
            _ => {}
        }
    }
}

fn first_answer(connection: &mut Connection) -> io::Result<NodeAdmitted> {
    let first = connection.first_message(Some(Instant::now() + STEP_LIMIT)).map_err(io::Error::other)?;
    let (received, _) = first.ok_or(io::ErrorKind::TimedOut)?;
    match HeadToNewcomer::of(received.message).map_err(io::Error::other)? {
        HeadToNewcomer::NodeAdmitted(admitted) => Ok(*admitted),
        HeadToNewcomer::Refused(refused) => Err(io::Error::other(refused.text)),
    }
}

fn plan(node: NodeId, number: u32, cpus: u32) -> Plan {
    let requested = BTreeMap::from([("CPU".to_owned(), f64::from(cpus))]);
    let detection = Detection { families: Vec::new(), warnings: Vec::new(), ruled_out: Vec::new() };
    let offer = offer(&detection, &|_| None, &requested).expect("whole numbers of CPUs can be offered");
    let named = requested.iter().map(|(name, total)| (ResourceName::new(name).expect("a proper name"), *total));
    Plan {
        node,
        inventory: Inventory::new(named).expect("whole numbers of CPUs can be had"),
        offer,
        isolation: IsolationPlan::default(),
        labels: BTreeMap::from([("ray.io/node-id".to_owned(), node.hex())]),
        store_bytes: 1 << 30,
        started_ms: 0,
        hostname: format!("played-{number}"),
        name: format!("played-{number}"),
        ip: "127.0.0.1".into(),
        variables: BTreeMap::new(),
        spare_workers: 0,
        rules: oxiray_machine::Rules { node: Duration::from_secs(30), ..oxiray_machine::Rules::default() },
        warnings: Vec::new(),
        epoch: 0,
    }
}
