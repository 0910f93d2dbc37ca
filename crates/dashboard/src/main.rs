//! What a cluster answers over HTTP: Ray's jobs API, its lists of the cluster's state, and the page.
//!
//! A program of its own, which the head's daemon starts where it was asked for one, and which is a visitor of that daemon
//! ([decision 34](../../../docs/decisions/0034-http-is-spoken-by-a-program-of-its-own.md)). The daemon neither waits for it nor ends with it.
//!
//! ```text
//! stranger ── porch (a thread, crate `network`) ── head of a request, host, secret
//!                └── server ── routes ── jobs, packages, tail, logs, profiles, page_api ── daemon (the session's socket)
//!                                                                          history ────────┘
//! ```
//!
//! The same program records history, and shows what was recorded of clusters that are gone (`history.rs`); and sends calls as
//! spans to a collector of OpenTelemetry (`spans.rs`), and what happens as Ray's events to a collector of those (`export.rs`).
//!
//! Who did what is recorded beside that (`audit.rs`).
//!
//! - HTTP-1: each request of a connection is judged anew by the porch's rules; a proof holds for one request.
//! - HTTP-2: what a request may bring is bounded, and so is what is kept of an answer that nobody reads.
//! - HTTP-3: nothing is read from disk by a name that came from outside: names are looked up first.

mod access;
mod address;
mod answer;
mod audit;
mod certificate;
mod cluster;
mod daemon;
mod export;
mod history;
mod jobs;
mod log;
mod logs;
mod metrics;
mod options;
mod packages;
mod page;
mod page_api;
mod paths;
mod profiles;
mod query;
mod routes;
mod sending;
mod server;
mod spans;
mod state;
mod stream;
mod table;
mod tail;
mod task_questions;
mod uploads;
mod websocket;

use clap::Parser as _;
use options::{Order, Program};
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The daemon that starts it asks it to end by a signal.
    oxiray_processes::unblock_signals();
    // It is the one program that strangers' bytes reach: what it starts gains no rights over its own. A kernel that cannot
    // promise that leaves all as it is.
    let _ = rustix::thread::set_no_new_privs(true);
    let result = match Program::parse().order {
        Order::Serve(options) => server::run(&options),
        Order::Health(options) => server::tell_health(&options),
        Order::History(options) => history::serve(&options),
        Order::Report(options) => history::report(&options),
        Order::Spans(options) => spans::run(&options),
        Order::Events(options) => export::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where stderr is gone there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
