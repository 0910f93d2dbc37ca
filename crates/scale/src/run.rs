//! One cluster from its head's start to its end, measured.

use crate::Arguments;
use crate::driver::{Driver, Word};
use crate::head::Head;
use crate::members::Members;
use oxiray_ids::LeaseNumber;
use oxiray_network::JoinToken;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How many CPUs of each member neither actors nor groups hold.
const CPUS_LEFT: u32 = 1;
/// How many connections to actors may be under way before no more actors are made: they are all this one program's.
const CONNECTING_MAX: u64 = 256;
/// For how long the driver listens before it looks again how many actors are ready.
const MOMENT: Duration = Duration::from_millis(1);
/// For how long an idle head is watched.
const IDLE: Duration = Duration::from_secs(10);

/// What was measured with one number of members.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) members: u32,
    pub(crate) actors: u64,
    pub(crate) groups: u64,
    pub(crate) queued: u64,
    /// Resident bytes of a head alone, with its members, with actors and groups as well, and with the queue.
    pub(crate) memory: [u64; 4],
    /// Members joined in a second, actors made, groups created, requests queued.
    pub(crate) rates: [f64; 4],
    /// The share of one processor while all of that is there and nothing happens.
    pub(crate) idle_share: f64,
    /// From a request to its worker, where there is room and nobody waits.
    pub(crate) alone: Latencies,
    /// From a worker's return to the next grant, where all others wait.
    pub(crate) queue: Latencies,
}

/// Placement latencies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latencies {
    pub(crate) median: Duration,
    pub(crate) p999: Duration,
}

impl Latencies {
    fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let at = |part: usize| samples[(samples.len() * part / 1000).min(samples.len() - 1)];
        Self { median: at(500), p999: at(999) }
    }
}

/// Measures a cluster of so many members.
pub(crate) fn measure(arguments: &Arguments, members: u32) -> io::Result<Row> {
    let head = Head::start(&arguments.daemon)?;
    let token = JoinToken::parse(&head.join_token()?).map_err(io::Error::other)?;
    let empty = head.memory_bytes()?;
    let cpus = arguments.actors + arguments.groups + CPUS_LEFT;

    let began = Instant::now();
    let mut played = Members::join(head.address(), &token, members, cpus)?;
    let joined = began.elapsed();
    let with_members = head.memory_bytes()?;

    let mut driver = Driver::greet(&head)?;
    let (groups, actors) =
        (u64::from(arguments.groups) * u64::from(members), u64::from(arguments.actors) * u64::from(members));
    let grouped = timed(|| {
        (0..groups).try_for_each(|_| driver.create_group())?;
        driver.await_all(groups).map(drop)
    })?;
    let acted = timed(|| {
        for number in 0..actors {
            driver.create_actor()?;
            while played.progress()?.connected.load(Ordering::Relaxed) + CONNECTING_MAX <= number {
                driver.serve(MOMENT)?;
            }
        }
        while played.progress()?.ready_actors.load(Ordering::Relaxed) < actors {
            driver.serve(MOMENT)?;
        }
        driver.await_all(actors).map(drop)
    })?;
    let with_actors = head.memory_bytes()?;

    let alone = time_alone(&mut driver, arguments.samples)?;
    let room = u64::from(CPUS_LEFT) * u64::from(members);
    let mut leases = Vec::new();
    let queued = timed(|| {
        (0..room + arguments.tasks).try_for_each(|_| driver.request_lease())?;
        driver.send_all()?;
        leases = driver.await_all(room)?;
        // What was queued last has been heard when this is answered.
        head_has_heard(&mut driver)
    })?;
    let with_queue = head.memory_bytes()?;
    let idle_share = head.share_of_a_processor(IDLE)?;
    let queue = time_in_queue(&mut driver, leases, arguments.samples)?;
    played.check()?;
    Ok(Row {
        members,
        actors,
        groups,
        queued: arguments.tasks,
        memory: [empty, with_members, with_actors, with_queue],
        rates: [
            f64::from(members) / joined.as_secs_f64(),
            actors as f64 / acted.as_secs_f64(),
            groups as f64 / grouped.as_secs_f64(),
            (room + arguments.tasks) as f64 / queued.as_secs_f64(),
        ],
        idle_share,
        alone,
        queue,
    })
}

fn timed(act: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let began = Instant::now();
    act()?;
    Ok(began.elapsed())
}

fn unexpected(word: Word) -> io::Error {
    io::Error::other(format!("a lease was awaited, and {word:?} came"))
}

fn next_lease(driver: &mut Driver) -> io::Result<LeaseNumber> {
    match driver.next()? {
        Word::Lease(lease) => Ok(lease),
        other => Err(unexpected(other)),
    }
}

fn time_alone(driver: &mut Driver, samples: usize) -> io::Result<Latencies> {
    let mut took = Vec::with_capacity(samples);
    for _ in 0..samples {
        let began = Instant::now();
        driver.request_lease()?;
        let lease = next_lease(driver)?;
        took.push(began.elapsed());
        driver.return_lease(lease)?;
        driver.send_all()?;
    }
    Ok(Latencies::of(took))
}

fn time_in_queue(driver: &mut Driver, leases: Vec<LeaseNumber>, samples: usize) -> io::Result<Latencies> {
    let mut held = std::collections::VecDeque::from(leases);
    let mut took = Vec::with_capacity(samples);
    for _ in 0..samples {
        let lease = held.pop_front().ok_or_else(|| io::Error::other("no lease is held"))?;
        let began = Instant::now();
        driver.return_lease(lease)?;
        held.push_back(next_lease(driver)?);
        took.push(began.elapsed());
    }
    Ok(Latencies::of(took))
}

fn head_has_heard(driver: &mut Driver) -> io::Result<()> {
    driver.look_up_nobody()?;
    match driver.next()? {
        Word::NoActor => Ok(()),
        other => Err(io::Error::other(format!("an answer about a name was awaited, and {other:?} came"))),
    }
}
