//! The `oxiray` command.

mod arguments;
mod autoscaler;
mod called;
mod completions;
mod daemon;
mod dashboard;
mod device;
mod device_check;
mod drain;
mod explain;
mod hardware;
mod http;
mod identifiers;
mod job;
mod labels;
mod list;
mod logs;
mod memory;
mod metrics;
mod operator;
mod profile;
mod python_commands;
mod ray_commands;
mod show;
mod stack;
mod start;
mod status;
mod stop;
mod symmetric_run;
mod table;
mod token;
mod top;
mod visit;
mod without_effect;

use arguments::{Arguments, Order};
use clap::{CommandFactory as _, Parser as _};
use oxiray_wire::plain_lines;
use std::io::Write as _;
use std::process::ExitCode;

/// A daemon's loop makes and drops many small messages: with this allocator a placement group costs it a fifth less of a
/// processor than with the C library's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The version of Ray whose API programs find.
const RAY_VERSION: &str = "2.60.0";

fn main() -> ExitCode {
    if called::is_ray() && std::env::args_os().skip(1).eq(["--version"]) {
        say(&format!("ray, version {RAY_VERSION}"));
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::try_parse().unwrap_or_else(|error| refuse(&error));
    let result = match arguments.order {
        Order::Daemon(options) => daemon::run(&options),
        Order::Autoscaler(options) => autoscaler::run(&options),
        Order::Start(options) => start::run(&options),
        Order::SymmetricRun(options) => match symmetric_run::run(&options) {
            Ok(status) => std::process::exit(status),
            Err(error) => Err(error),
        },
        Order::Stop(options) => stop::run(&options),
        Order::Status(options) => status::run(&options),
        Order::Top(options) => top::run(&options),
        Order::HealthCheck(options) => visit::health_check(options.address.as_deref()),
        Order::List(options) => list::run(&options),
        Order::Get(options) => list::get(&options),
        Order::Explain(options) => explain::run(&options),
        Order::Stack(options) => stack::run(&options),
        Order::Profile(options) => profile::run(&options),
        Order::Drain(options) => drain::run(&options),
        Order::Device(options) => device::run(&options),
        Order::DeviceCheck => {
            device_check::run();
            Ok(())
        }
        Order::Summary(options) => list::summary(&options),
        Order::Memory(options) => memory::run(&options),
        Order::Logs(options) => logs::run(&options),
        Order::Metrics(options) => metrics::run(&options),
        Order::Dashboard(order) => dashboard::run(&order),
        Order::Report(options) => dashboard::report(&options),
        Order::Token(options) => token::run(&options),
        Order::Job(options) => job::run(&options),
        Order::Hardware(options) => hardware::run(&options),
        Order::Completions(options) => {
            completions::run(&options);
            Ok(())
        }
        Order::Operator(options) => operator::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where stderr is gone there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "error: {}", plain_lines(&told(&error)));
            ExitCode::FAILURE
        }
    }
}

/// Ends with what is wrong with the command line, or with the help that was asked for. A command of Ray's that is not
/// there is answered with what to do instead.
fn refuse(error: &clap::Error) -> ! {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    // What stands below a command that has none is an argument.
    let word = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg].into_iter().find_map(|kind| error.get(kind));
    if matches!(error.kind(), ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument)
        && let Some(ContextValue::String(command)) = word
        && let Some(advice) = ray_commands::advice(command)
    {
        Arguments::command().error(ErrorKind::InvalidSubcommand, advice).exit();
    }
    error.exit()
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

/// Prints for people, text of programs as well: nothing in it is obeyed by a terminal. A reader that went away, such as
/// `head`, has seen enough.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", plain_lines(text));
}
