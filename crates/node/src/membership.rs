//! Where a daemon stands in its cluster: at which address that is, who joined on the head's machine, and on a member where
//! its head is and whom it let in for that.

use crate::join::Way;
use oxiray_ids::JobId;
use oxiray_machine::Key;
use oxiray_network::{JoinFailure, Joined};
use oxiray_wire::message::{Driver, Returning, Welcome};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// Members on the head's machine are told apart by addresses of the loopback network, the head's own excepted.
const FIRST_MEMBER: u32 = 2;
/// The shortest and the longest time between two tries to find the head again, in milliseconds.
const PAUSE_MS: (u64, u64) = (50, 250);

/// A driver that a member let in.
#[derive(Debug)]
pub(crate) struct ProxiedClient {
    pub(crate) driver: Driver,
    /// Who it is to the head.
    pub(crate) who: Option<Returning>,
}

/// A head that is away.
#[derive(Debug)]
pub(crate) struct HeadReconnect {
    since: Instant,
    next_try: Instant,
    /// The stream to whoever answers where the head was.
    dialled: Option<Key>,
    /// What becomes of dialling another machine.
    joining: Option<Receiver<Result<Joined, JoinFailure>>>,
}

/// What there is of a call to another machine.
#[derive(Debug)]
pub(crate) enum Dialling {
    /// Nobody is being called.
    Nobody,
    /// The call is under way, or was answered.
    UnderWay,
    /// The head was joined again, or cannot be for now.
    Over(Option<Box<Joined>>),
}

impl HeadReconnect {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, next_try: now, dialled: None, joining: None }
    }

    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Whether it is time for a try; the next one is due after a while.
    fn take_due(&mut self, now: Instant) -> bool {
        if self.next_try > now {
            return false;
        }
        let [random] = oxiray_ids::random::<1>();
        let pause = PAUSE_MS.0 + u64::from(random) * (PAUSE_MS.1 - PAUSE_MS.0) / 255;
        self.next_try = now + Duration::from_millis(pause);
        true
    }

    /// Whether somebody has answered where the head was.
    pub(crate) fn is_answered(&self) -> bool {
        self.dialled.is_some()
    }

    /// The stream to whoever answers, where there is one.
    pub(crate) fn answered(&mut self, stream: Option<Key>) {
        self.dialled = stream;
    }

    /// That stream is over.
    pub(crate) fn hung_up(&mut self, stream: Key) {
        self.dialled.take_if(|dialled| *dialled == stream);
    }

    /// Another machine is being called; this tells what comes of it.
    pub(crate) fn calls(&mut self, joining: Receiver<Result<Joined, JoinFailure>>) {
        self.joining = Some(joining);
    }

    pub(crate) fn take_call(&mut self) -> Dialling {
        let Some(joining) = &self.joining else { return Dialling::Nobody };
        let joined = match joining.try_recv() {
            Ok(joined) => joined.ok().map(Box::new),
            Err(TryRecvError::Empty) => return Dialling::UnderWay,
            Err(TryRecvError::Disconnected) => None,
        };
        self.joining = None;
        Dialling::Over(joined)
    }
}

/// This daemon's place in its cluster.
#[derive(Debug)]
pub(crate) struct Membership {
    /// Address of the cluster, which `init(address=…)` takes.
    pub(crate) address: String,
    /// On a member: where it finds its head again.
    pub(crate) way: Option<Way>,
    /// On a member: the head that it waits for.
    pub(crate) away: Option<HeadReconnect>,
    /// On a member: the drivers that it let in.
    pub(crate) proxied_clients: BTreeMap<Key, ProxiedClient>,
    /// What workers printed that drivers were not shown, as the head was away.
    pub(crate) unshown: UnshownByJob,
    /// On a head: whether it keeps what tasks printed last that failed on members.
    pub(crate) keeps_logs: bool,
    /// On a head: how many nodes of its machine were ever let in.
    admitted: u32,
}

/// How much a driver was not shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Unshown {
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
}

impl Unshown {
    /// All of these lines.
    pub(crate) fn of(lines: &[u8]) -> Self {
        let ends = lines.split(|byte| *byte == b'\n').count().saturating_sub(1);
        Self { lines: ends as u64, bytes: lines.len() as u64 }
    }

    /// What the driver is told.
    pub(crate) fn text(self, job: JobId) -> String {
        let Self { lines, bytes } = self;
        format!(
            "while the head of the cluster was away, tasks and actors of this program printed {lines} lines ({bytes} bytes) or more \
             that were not shown here: `oxiray logs job {job}` prints them, and adds standard error with --err"
        )
    }
}

/// The most jobs of which that is counted.
const UNSHOWN_MAX: usize = 10_000;

/// The same of each job.
#[derive(Debug, Default)]
pub(crate) struct UnshownByJob(BTreeMap<JobId, Unshown>);

impl UnshownByJob {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, job: JobId, more: Unshown) {
        if self.0.len() >= UNSHOWN_MAX && !self.0.contains_key(&job) {
            return;
        }
        let counted = self.0.entry(job).or_default();
        counted.lines = counted.lines.saturating_add(more.lines);
        counted.bytes = counted.bytes.saturating_add(more.bytes);
    }

    pub(crate) fn take(&mut self) -> BTreeMap<JobId, Unshown> {
        std::mem::take(&mut self.0)
    }
}

impl Membership {
    pub(crate) fn new(address: String, way: Option<Way>, keeps_logs: bool) -> Self {
        Self {
            address,
            way,
            away: None,
            proxied_clients: BTreeMap::new(),
            unshown: UnshownByJob::default(),
            keeps_logs,
            admitted: 0,
        }
    }

    // --- on a head ---

    /// The address of a member on this machine that was let in.
    pub(crate) fn next_address(&mut self) -> String {
        let [_, high, middle, low] = (FIRST_MEMBER + self.admitted).to_be_bytes();
        self.admitted += 1;
        format!("127.{high}.{middle}.{low}")
    }

    /// A member that comes back keeps its address.
    pub(crate) fn keep_address(&mut self, ip: &str) {
        let number = ip.parse::<Ipv4Addr>().ok().filter(Ipv4Addr::is_loopback).map(|ip| {
            let [_, high, middle, low] = ip.octets();
            u32::from_be_bytes([0, high, middle, low])
        });
        let after = number.and_then(|number| number.checked_sub(FIRST_MEMBER)).map_or(0, |it| it + 1);
        self.admitted = self.admitted.max(after);
    }

    // --- on a member ---

    /// When the head is looked for next.
    pub(crate) fn return_deadline(&self) -> Option<Instant> {
        self.away.as_ref().map(|away| away.next_try)
    }

    /// Where the head is to be looked for now, and since when it is away.
    pub(crate) fn is_to_look(&mut self, now: Instant) -> Option<(Way, Instant)> {
        let (away, way) = (self.away.as_mut()?, self.way.as_ref()?);
        away.take_due(now).then(|| (way.clone(), away.since))
    }

    /// The head tells a proxied client who it is, for the next head. Whether the proxied client knows already: an earlier head had told it.
    pub(crate) fn note_proxied_client(&mut self, key: Key, welcome: &Welcome) -> bool {
        let Some(proxied_client) = self.proxied_clients.get_mut(&key) else { return false };
        let who = Returning { worker: welcome.worker, job: welcome.job, epoch: welcome.epoch };
        proxied_client.who.replace(who).is_some()
    }

    /// The job that a proxied client works for, once the head has said so.
    pub(crate) fn job_of_proxied_client(&self, key: Key) -> Option<JobId> {
        Some(self.proxied_clients.get(&key)?.who.as_ref()?.job)
    }
}
