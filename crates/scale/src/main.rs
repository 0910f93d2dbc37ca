//! How a head bears a large cluster: a real daemon, members that this program plays over TLS, and a driver.
//!
//! For each number of members a new head is started. Every member holds actors and bundles of placement groups; then lone
//! requests for workers are timed, and at last so many requests are queued that nothing more has room. What the head
//! takes of memory and of a processor is read from `/proc`.

#![expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: this program plays many processes")]

mod driver;
mod head;
mod member;
mod members;
mod report;
mod run;

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, Write as _};
use std::path::PathBuf;

/// Plays large clusters to a real head and measures it.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program `oxiray`.
    #[arg(long)]
    daemon: PathBuf,
    /// How many members, one number after the other.
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000")]
    members: Vec<u32>,
    /// Actors that each member holds.
    #[arg(long, default_value_t = 40)]
    actors: u32,
    /// Placement groups of one bundle that each member holds.
    #[arg(long, default_value_t = 1)]
    groups: u32,
    /// Requests for workers that wait in the head's queue.
    #[arg(long, default_value_t = 1_000_000)]
    tasks: u64,
    /// How many placements are timed, alone and beside the full queue.
    #[arg(long, default_value_t = 5_000)]
    samples: usize,
    /// Where to write the table.
    #[arg(long)]
    write: Option<PathBuf>,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    // A member is some ten descriptors here, and some six at the head.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    let mut rows = Vec::new();
    for members in &arguments.members {
        let row = run::measure(&arguments, *members)
            .map_err(|error| io::Error::new(error.kind(), format!("with {members} members: {error}")))?;
        writeln!(io::stdout(), "{}", report::line(&row))?;
        rows.push(row);
    }
    arguments.write.as_ref().map_or(Ok(()), |path| std::fs::write(path, report::page(&arguments, &rows)))
}
