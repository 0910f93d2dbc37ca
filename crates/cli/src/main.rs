//! The `oxiray` command.

mod arguments;
mod autoscaler;
mod daemon;
mod drain;
mod explain;
mod hardware;
mod job;
mod labels;
mod list;
mod memory;
mod metrics;
mod operator;
mod show;
mod start;
mod status;
mod stop;
mod visit;

use arguments::{Arguments, Order};
use clap::Parser as _;
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.order {
        Order::Daemon(options) => daemon::run(&options),
        Order::Autoscaler(options) => autoscaler::run(&options),
        Order::Start(options) => start::run(&options),
        Order::Stop(options) => stop::run(&options),
        Order::Status(options) => status::run(&options),
        Order::List(options) => list::run(&options),
        Order::Get(options) => list::get(&options),
        Order::Explain(options) => explain::run(&options),
        Order::Drain(options) => drain::run(&options),
        Order::Summary(options) => list::summary(&options),
        Order::Memory(options) => memory::run(&options),
        Order::Metrics(options) => metrics::run(&options),
        Order::Job(options) => job::run(&options),
        Order::Hardware(options) => hardware::run(&options),
        Order::Operator(options) => operator::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where stderr is gone there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "error: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes, each cause once: many errors say theirs themselves.
fn told(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Prints for people. A reader that went away, such as `head`, has seen enough.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
