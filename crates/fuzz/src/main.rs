//! `oxiray-fuzz`: says anything for a while, and tells which seed did harm.

use clap::Parser;
use oxiray_fuzz::cluster::{FRAMES_PER_CLUSTER, Told};
use oxiray_fuzz::{daemon, frames, run};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Says anything to the core and to connections, as clients, workers and members that were let in.
#[derive(Debug, Parser)]
#[command(name = "oxiray-fuzz")]
struct Arguments {
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

fn main() -> io::Result<ExitCode> {
    let arguments = Arguments::parse();
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
        let told = daemon::run(binary, seconds / 3, first)?;
        let (answers, longest) = told.answers;
        writeln!(
            out,
            "{} frames to a daemon over {} connections; a bystander had {answers} answers, the slowest after {:.1} ms; the \
             daemon had {} MiB at most",
            told.frames,
            told.connections,
            longest.as_secs_f64() * 1000.0,
            told.memory_bytes >> 20
        )?;
        seconds -= seconds / 3;
    }
    let until = Instant::now() + Duration::from_secs(seconds);
    let (next, is_over, total, connections) =
        (AtomicU64::new(first), AtomicBool::new(false), Mutex::new(Told::default()), AtomicU64::new(0));
    let failures = Mutex::new(Vec::new());
    let work = || {
        while Instant::now() < until && !is_over.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            connections.fetch_add(frames::run(seed, FRAMES_PER_CLUSTER / 8), Ordering::Relaxed);
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
        total.slowest.0.as_secs_f64() * 1000.0
    )?;
    writeln!(out, "answers by kind: {:?}", total.effective)?;
    let failures = failures.into_inner().expect("all threads are over");
    for failed in &failures {
        writeln!(out, "{failed:#?}\nagain: cargo run --release -p oxiray-fuzz -- --only {}", failed.seed)?;
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
