//! `oxiray-sim`: runs seeds, and shows those that fail.

#![expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]

use clap::Parser;
use oxiray_sim::{Options, Outcome, Seen, run};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Runs simulated clusters; each is told by its seed alone.
#[derive(Debug, Parser)]
#[command(name = "oxiray-sim")]
struct Arguments {
    /// Run this seed, and show its last events where it fails.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run these seeds, as in `0..2000`, the last one excluded, or so many from 0 on, as in `2000`.
    #[arg(long, value_parser = range)]
    seeds: Option<Range<u64>>,
    /// Where all events of the one seed go.
    #[arg(long, requires = "seed")]
    log: Option<PathBuf>,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (first, end) = text.split_once("..").unwrap_or(("0", text));
    let number = |text: &str| {
        text.trim()
            .parse::<u64>()
            .map_err(|error| format!("{text:?} is no number: {error}; give two, as in 0..2000, or one"))
    };
    let range = number(first)?..number(end)?;
    if range.is_empty() { Err("there is no seed in that".to_owned()) } else { Ok(range) }
}

fn show(outcome: &Outcome, out: &mut impl Write) -> io::Result<()> {
    let Outcome { seed, hash, events, failure, last_lines, .. } = outcome;
    let Some(failure) = failure else {
        return writeln!(out, "seed {seed}: ok, {events} events, hash {hash:016x}");
    };
    for line in last_lines {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "seed {seed} fails after {events} events, hash {hash:016x}: {failure}")?;
    writeln!(out, "options: {:?}", Options::of_seed(*seed))?;
    writeln!(out, "again, with all events: cargo run -p oxiray-sim --release -- --seed {seed} --log events.txt")
}

/// Runs all of them on as many threads as there are processors, and shows the first that fails.
fn run_all(seeds: Range<u64>) -> io::Result<bool> {
    let next = AtomicU64::new(seeds.start);
    let failed: Mutex<Vec<Outcome>> = Mutex::new(Vec::new());
    let events = AtomicU64::new(0);
    let seen = Mutex::new(Seen::default());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    let outcome = run(Options::of_seed(seed), None);
                    events.fetch_add(outcome.events, Ordering::Relaxed);
                    seen.lock().expect("nobody panics with it").add(outcome.seen);
                    if outcome.failure.is_some() {
                        failed.lock().expect("nobody panics with it").push(outcome);
                    }
                }
            });
        }
    });
    let mut out = io::stdout().lock();
    let mut failed = failed.into_inner().expect("nobody panics with it");
    failed.sort_by_key(|outcome| outcome.seed);
    if let Some(first) = failed.first() {
        show(first, &mut out)?;
    }
    for outcome in &failed {
        let text = outcome.failure.as_deref().unwrap_or_default();
        writeln!(out, "FAILED seed {}: {}", outcome.seed, text.lines().next().unwrap_or_default())?;
    }
    let (count, events) = (seeds.end - seeds.start, events.into_inner());
    let Seen { instances, memory, deadlocks } = seen.into_inner().expect("nobody panics with it");
    writeln!(
        out,
        "{instances} grants of instances, {memory} of memory of GPUs, {deadlocks} calls that failed for a deadlock"
    )?;
    writeln!(out, "{count} seeds, {events} events, {} failed", failed.len())?;
    Ok(failed.is_empty())
}

fn main() -> io::Result<ExitCode> {
    let arguments = Arguments::parse();
    let passed = match arguments.seed {
        Some(seed) => {
            let file = arguments.log.map(File::create).transpose()?;
            let outcome = run(Options::of_seed(seed), file);
            show(&outcome, &mut io::stdout().lock())?;
            outcome.failure.is_none()
        }
        None => run_all(arguments.seeds.unwrap_or(0..2000))?,
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
