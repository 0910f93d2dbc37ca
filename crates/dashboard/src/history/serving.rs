//! The page over a history, and the same as JSON.

use super::reading::{Asked, read};
use super::views::Archive;
use crate::address;
use crate::options::HistoryOptions;
use crate::server::{connection, limit_memory, open};
use anyhow::Context as _;
use oxiray_network::porch::{Porch, PorchOptions, PorchRules, Right, new_secret};
use std::io::{BufWriter, ErrorKind, Write as _};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

/// How much memory what is read may take, in bytes.
pub(crate) const MOST_BYTES: usize = 96 << 20;
/// How long the link that is printed opens the page.
const LINK_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Shows a history until a signal ends it, or prints it.
pub(crate) fn serve(options: &HistoryOptions) -> anyhow::Result<()> {
    limit_memory()?;
    let asked = Asked {
        place: options.place.clone(),
        session: options.session.clone(),
        job: options.job.clone(),
        most_bytes: MOST_BYTES,
    };
    let past = read(&asked)?;
    anyhow::ensure!(
        !past.is_empty(),
        "the history at {} has no line that can be read: {}",
        options.place,
        past.notes().join("; ")
    );
    let rules = Arc::new(PorchRules { open: open(false), ..PorchRules::default() });
    let archive = Archive::new(past, Arc::clone(&rules));
    if options.once_json {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let written = archive.write(archive.within(options.at), &mut out).and_then(|()| out.flush());
        return printed(written);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, show(options, archive, rules))
}

/// Writes a line for whoever asked.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    printed(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// That nobody reads any more is no error.
fn printed(written: std::io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("it cannot be printed"),
        _ => Ok(()),
    }
}

async fn show(options: &HistoryOptions, archive: Archive, rules: Arc<PorchRules>) -> anyhow::Result<()> {
    let (sender, mut arrivals) = mpsc::unbounded_channel();
    let listener = address::listen(Ipv4Addr::LOCALHOST.into(), options.port)?;
    let token = match oxiray_visitor::http_token(|name| std::env::var(name).ok())? {
        Some(token) => token,
        None => new_secret()?,
    };
    rules.keys.add(&token, Right::Read)?;
    let key = rules.keys.lend(Right::Trade, Instant::now(), LINK_LIFETIME)?;
    let porch =
        Porch::open(PorchOptions { listener, rules, tls: None }, move |arrival| drop(sender.send(arrival)), drop)?;
    // Whoever opens the page sees the last moment first.
    let _ = archive.tables_at(archive.within(None));
    let session = &archive.past().begin().session;
    print(&format!(
        "the history of {session} is shown until this command is interrupted:\n  http://{}/#key={key}\nthe link opens it once; this token does again: {token}",
        porch.address()
    ))?;
    for note in archive.past().notes() {
        print(&format!("note: {note}"))?;
    }
    let archive = Rc::new(archive);
    let (mut ends, mut interrupts) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = ends.recv() => {}
        _ = interrupts.recv() => {}
        () = async {
            while let Some(arrival) = arrivals.recv().await {
                spawn_local(connection(Rc::clone(&archive), arrival));
            }
        } => {}
    }
    Ok(())
}
