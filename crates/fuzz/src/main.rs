//! `oxiray-fuzz`: says anything for a while, and tells which seed did harm.

#![expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]

use clap::Parser;
use oxiray_fuzz::cluster::{self, FRAMES_PER_CLUSTER};
use oxiray_fuzz::{daemon, frames, hostile, journal, porch, run};
use oxiray_ids::NodeId;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How many requests are made of one seed.
const REQUESTS_PER_CLUSTER: u64 = 20_000;

/// Says anything to the core and to connections, as clients, workers and members that were let in.
#[derive(Debug, Parser)]
#[command(name = "oxiray-fuzz", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    hostile: Option<Hostile>,
    /// For how long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The first seed; each cluster has the next one.
    #[arg(long)]
    seed: Option<u64>,
    /// Say it to the daemon of this program, too, for a third of the time.
    #[arg(long)]
    daemon: Option<PathBuf>,
    /// Run the cluster of this seed alone.
    #[arg(long, conflicts_with_all = ["seconds", "seed"])]
    only: Option<u64>,
}

/// What every hostile process is told.
#[derive(Debug, clap::Args)]
struct HostileOrders {
    /// Tells what is said.
    #[arg(long)]
    seed: u64,
    /// After how many milliseconds it ends.
    #[arg(long)]
    lasts_ms: u64,
    /// Where it reports what it did.
    #[arg(long)]
    report: PathBuf,
}

/// One hostile process beside the honest load of `make chaos`.
#[derive(Debug, clap::Subcommand)]
enum Hostile {
    /// Interrupts at ports and sockets without anything that lets it in.
    Stranger {
        #[command(flatten)]
        told: HostileOrders,
        /// Where a daemon listens.
        #[arg(long = "address", required = true)]
        addresses: Vec<SocketAddr>,
        /// A directory in which a daemon has its sessions.
        #[arg(long = "root", required = true)]
        roots: Vec<PathBuf>,
    },
    /// Lies on the stream of a worker, which is its standard input.
    Worker {
        #[command(flatten)]
        told: HostileOrders,
    },
    /// Joins a cluster as a node, and lies.
    Member {
        #[command(flatten)]
        told: HostileOrders,
        /// The head's address.
        #[arg(long)]
        address: String,
        /// The file with the join token.
        #[arg(long)]
        token_file: PathBuf,
        /// Another node of the cluster, by its identifier.
        #[arg(long = "node", value_parser = node)]
        nodes: Vec<NodeId>,
    },
}

fn node(text: &str) -> Result<NodeId, String> {
    NodeId::from_hex(text).map_err(|error| error.to_string())
}

impl Hostile {
    fn run(self) -> io::Result<()> {
        let lasts = |told: &HostileOrders| Duration::from_millis(told.lasts_ms);
        match self {
            Self::Stranger { told, addresses, roots } => {
                let options = hostile::stranger::Options { addresses, roots };
                hostile::stranger::run(&options, told.seed, lasts(&told), &told.report)
            }
            Self::Worker { told } => hostile::worker::run(told.seed, lasts(&told), &told.report),
            Self::Member { told, address, token_file, nodes } => {
                let options = hostile::member::Options { address, token_file, nodes };
                hostile::member::run(&options, told.seed, lasts(&told), &told.report)
            }
        }
    }
}

fn main() -> io::Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(hostile) = arguments.hostile {
        return hostile.run().map(|()| ExitCode::SUCCESS);
    }
    let mut out = io::stdout().lock();
    if let Some(seed) = arguments.only {
        return match run(seed) {
            Ok(told) => writeln!(out, "seed {seed}: {told:?}").map(|()| ExitCode::SUCCESS),
            Err(failed) => writeln!(out, "{failed:#?}").map(|()| ExitCode::FAILURE),
        };
    }
    let first = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 48));
    writeln!(out, "seeds from {first} on, for {} s", arguments.seconds)?;
    let mut seconds = arguments.seconds;
    if let Some(binary) = &arguments.daemon {
        speak_to_daemon(&mut out, binary, seconds / 3, first)?;
        seconds -= seconds / 3;
    }
    speak_to_cores(&mut out, seconds, first)
}

/// Says anything to a real daemon.
fn speak_to_daemon(out: &mut impl io::Write, binary: &Path, seconds: u64, seed: u64) -> io::Result<()> {
    let told = daemon::run(binary, seconds, seed)?;
    writeln!(
        out,
        "{} frames to a daemon over {} connections; the daemon had {} MiB at most",
        told.frames,
        told.connections,
        told.memory_bytes >> 20
    )?;
    for (who, answers) in [("a bystander", told.answers), ("newcomers", told.newcomers)] {
        writeln!(
            out,
            "{who} had {} answers, the slowest after {:.1} ms (the daemon computed for {:.1} ms at most)",
            answers.count,
            milliseconds(answers.slowest),
            milliseconds(answers.computed)
        )?;
    }
    Ok(())
}

/// Says anything to cores and to connections, from one seed on.
fn speak_to_cores(out: &mut impl io::Write, seconds: u64, first: u64) -> io::Result<ExitCode> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let (next, is_over, total, connections) =
        (AtomicU64::new(first), AtomicBool::new(false), Mutex::new(cluster::CoreRun::default()), AtomicU64::new(0));
    let failures = Mutex::new(Vec::new());
    let folder = tempfile::tempdir()?;
    let work = || {
        while Instant::now() < until && !is_over.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            connections.fetch_add(frames::run(seed, FRAMES_PER_CLUSTER / 8), Ordering::Relaxed);
            journal::run(seed, folder.path());
            porch::run(seed, REQUESTS_PER_CLUSTER);
            match run(seed) {
                Ok(told) => total.lock().expect("nobody panics with it").add(&told),
                Err(failed) => {
                    failures.lock().expect("nobody panics with it").push(failed);
                    is_over.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let total = total.into_inner().expect("all threads are over");
    writeln!(
        out,
        "{} frames to the core, {} of them messages; {} messages over connections; {} peers were ended; the slowest message \
         ({}) took {:.1} ms",
        total.frames,
        total.messages,
        connections.into_inner(),
        total.expelled,
        total.slowest.1,
        milliseconds(total.slowest.0)
    )?;
    writeln!(out, "answers by kind: {:?}", total.effective)?;
    let failures = failures.into_inner().expect("all threads are over");
    for failed in &failures {
        writeln!(out, "{failed:#?}\nagain: cargo run --release -p oxiray-fuzz -- --only {}", failed.seed)?;
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
