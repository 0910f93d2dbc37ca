//! Objects and packages in storage that speaks S3.
//!
//! A binary of its own, so that no daemon has an HTTP client in it: the store of a daemon starts it where objects are to be
//! spilled to a URL, the front where a package is to be fetched from one, and the dashboard where history is kept at one. It
//! reads the credentials from its environment, and hands them to nobody.

mod files;
mod patience;
mod place;
mod spill;
mod transfer;
mod trouble;

use clap::{Parser, Subcommand};
use object_store::ObjectStoreExt as _;
use place::Place;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::task::LocalSet;
use trouble::Trouble;

/// Copies objects and packages to and from storage that speaks S3.
#[derive(Debug, Parser)]
#[command(name = "oxiray-storage", version, about)]
struct Arguments {
    #[command(subcommand)]
    order: Order,
}

#[derive(Debug, Subcommand)]
enum Order {
    /// Serves an object store, over the socket that is the standard input, until it closes; then removes what is left of the
    /// session.
    Spill {
        /// Where objects go: `s3://bucket/prefix`.
        #[arg(long)]
        url: String,
        /// The name below it that is this store's alone.
        #[arg(long)]
        session: String,
    },
    /// Fetches one file.
    Get {
        /// Where it lies: `s3://bucket/path`.
        url: String,
        /// Where it goes. It is there whole, or not at all.
        path: PathBuf,
    },
    /// Writes, reads, lists and removes files for the program at its standard input and output, until that closes.
    Files {
        /// Where they lie: `s3://bucket/prefix`.
        #[arg(long)]
        url: String,
    },
}

fn main() -> ExitCode {
    // Reqwest takes whichever the process has.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(Arguments::parse().order) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where it cannot be written there is nobody to tell.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(order: Order) -> Result<(), Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(transfer::READERS)
        .build()
        .map_err(|error| Trouble::here("start", &error))?;
    match order {
        Order::Spill { url, session } => LocalSet::new().block_on(&runtime, spill::serve(&url, &session)),
        Order::Get { url, path } => runtime.block_on(fetch(&url, &path)),
        Order::Files { url } => files::serve(&url, &runtime),
    }
}

async fn fetch(url: &str, path: &Path) -> Result<(), Trouble> {
    use futures::StreamExt as _;

    let place = Place::of_file(url)?;
    let got = place.store.get(&place.prefix).await.map_err(|error| place.trouble("reading it", &error))?;
    let beside = path.with_extension(format!("{}.partial", std::process::id()));
    let here = |error: io::Error| Trouble::here(&format!("write {}", path.display()), &error);
    let mut file = std::fs::File::create(&beside).map_err(here)?;
    let mut pieces = got.into_stream();
    while let Some(piece) = pieces.next().await {
        let written = match piece {
            Ok(piece) => file.write_all(&piece).map_err(here),
            Err(error) => Err(place.trouble("reading it", &error)),
        };
        if let Err(trouble) = written {
            let _ = std::fs::remove_file(&beside);
            return Err(trouble);
        }
    }
    std::fs::rename(&beside, path).map_err(here)
}
