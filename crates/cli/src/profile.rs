//! `oxiray profile`: what threads of programs and workers spend their time or memory on.

use crate::arguments::ProfileOptions;
use crate::{say, stack, visit};
use anyhow::{Context as _, bail};
use clap::ValueEnum;
use oxiray_visitor::{json, profile};
use oxiray_wire::message::{Profile, StateQuery};
use oxiray_wire::plain;
use oxiray_wire::state::{ProcessStacks, ProfileKind, StateKind};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Functions that are printed.
const FUNCTIONS_MAX: usize = 20;
const EXPECT: &str = "writing to a string does not fail";

/// How a profile is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A flame graph, as an SVG picture.
    Svg,
    /// A file for <https://www.speedscope.app>.
    Speedscope,
    /// A line for each stack, the outermost call first, with its weight: microseconds or bytes.
    Folded,
}

impl Format {
    /// The format that goes by the end of a file's name.
    fn of(file: &Path) -> anyhow::Result<Self> {
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("json") => Ok(Self::Speedscope),
            Some("txt" | "folded") => Ok(Self::Folded),
            _ => bail!(
                "the name {} has no ending that names a format: let it end with .svg, .json, .txt or .folded, or add --format",
                file.display()
            ),
        }
    }

    fn written(self, processes: &[ProcessStacks], profile: &Profile) -> String {
        match self {
            Self::Svg => profile::flame_graph(processes, profile),
            Self::Speedscope => profile::speedscope(processes, profile).to_string(),
            Self::Folded => profile::folded(processes),
        }
    }
}

pub(crate) fn run(options: &ProfileOptions) -> anyhow::Result<()> {
    let (address, profile) = (options.address.as_deref(), asked(options)?);
    let format = match (options.format, options.output.as_deref()) {
        (None, Some(file)) => Some(Format::of(file)?),
        (format, _) => format,
    };
    let filters = stack::meant(address, &options.target)?;
    let query =
        StateQuery { kind: StateKind::Stacks, filters, limit: 1000, profile: Some(profile), ..StateQuery::default() };
    let limit = visit::LIST_LIMIT + Duration::from_millis(profile.duration_ms.into());
    let report = visit::state(&mut visit::begin(&visit::find(address)?)?, query.clone(), limit)?;
    if options.json {
        say(&serde_json::to_string_pretty(&json::answer(&query, &report)?)?);
        return Ok(());
    }
    json::check(report.version)?;
    let processes = report.tables.map(|tables| tables.stacks).unwrap_or_default();
    if processes.is_empty() {
        bail!("`{}` runs in no process of the cluster's, or its process ended meanwhile", options.target);
    }
    if profile::total(&processes) == 0 && format.is_some() {
        bail!("there is nothing to write: {}", text(&processes, &profile).trim_end());
    }
    match (format, options.output.as_deref()) {
        (None, _) => say(text(&processes, &profile).trim_end()),
        (Some(format), None) => say(format.written(&processes, &profile).trim_end()),
        (Some(format), Some(file)) => {
            let written = format.written(&processes, &profile);
            fs::write(file, written).with_context(|| format!("{} cannot be written", file.display()))?;
            say(&format!("{}\n{}", text(&processes, &profile), file.display()));
        }
    }
    Ok(())
}

fn asked(options: &ProfileOptions) -> anyhow::Result<Profile> {
    let kind = match (options.memory, options.wall) {
        (true, _) => ProfileKind::Memory,
        (_, true) => ProfileKind::Wall,
        _ => ProfileKind::Cpu,
    };
    // What is no such number is refused by the check: it becomes 0 or the largest there is.
    let profile = Profile { kind, duration_ms: (options.seconds * 1e3) as u32, rate_hz: options.rate };
    profile.check().map_err(anyhow::Error::msg)?;
    Ok(profile)
}

/// The functions that weigh most, and what is missing.
fn text(processes: &[ProcessStacks], profile: &Profile) -> String {
    let (kind, total) = (profile.kind, profile::total(processes));
    let pids: Vec<String> = processes.iter().map(process).collect();
    let mut text = format!("{} of {}: {}\n", profile::title(profile), pids.join(", "), profile::amount(kind, total));
    for process in processes.iter().filter(|process| !process.note.is_empty()) {
        writeln!(text, "note: {}: {}", self::process(process), plain(&process.note)).expect(EXPECT);
    }
    if total == 0 {
        let hint = match kind {
            ProfileKind::Cpu => "No thread of it computed: --wall shows where threads wait.",
            ProfileKind::Wall => "No thread of it runs Python code.",
            ProfileKind::Memory => "Nothing was allocated that is still there.",
        };
        writeln!(text, "{hint}").expect(EXPECT);
        return text;
    }
    writeln!(text, "{:>12} {:>6} {:>12} {:>6}  FUNCTION", "SELF", "", "TOTAL", "").expect(EXPECT);
    let functions = profile::functions(kind, processes);
    for one in functions.iter().take(FUNCTIONS_MAX) {
        let (own, all) = (profile::amount(kind, one.own), profile::amount(kind, one.total));
        let (own_part, all_part) = (percent(one.own, total), percent(one.total, total));
        let place = if one.file.is_empty() { String::new() } else { format!(" ({}:{})", plain(&one.file), one.line) };
        writeln!(text, "{own:>12} {own_part:>6} {all:>12} {all_part:>6}  {}{place}", plain(&one.function))
            .expect(EXPECT);
    }
    if let Some(more) = functions.len().checked_sub(FUNCTIONS_MAX).filter(|more| *more > 0) {
        writeln!(text, "and {more} more: --output profile.svg writes all of them as a flame graph").expect(EXPECT);
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "it is shown with one digit after the point")]
fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", 100.0 * part as f64 / whole.max(1) as f64)
}

fn process(process: &ProcessStacks) -> String {
    let name = if process.is_driver { "driver" } else { process.name.as_str() };
    let pid = process.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    format!("pid {pid} on {} ({})", plain(&process.ip), plain(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_wire::message::{Stack, StackFrame};

    fn profiled(weight: u64, note: &str) -> Vec<ProcessStacks> {
        let frames = vec![StackFrame { function: "work".into(), file: "/a.py".into(), line: 3 }];
        let stacks = vec![Stack { name: "MainThread".into(), frames, weight, ..Stack::default() }];
        let (name, ip, note) = ("f".to_owned(), "10.0.0.1".to_owned(), note.to_owned());
        vec![ProcessStacks { pid: Some(7), name, ip, note, stacks, ..ProcessStacks::default() }]
    }

    #[test]
    fn functions_are_told_with_their_parts() {
        let profile = Profile { kind: ProfileKind::Cpu, duration_ms: 1000, rate_hz: 100 };
        let expected = "CPU time over 1 s, 100 samples a second of pid 7 on 10.0.0.1 (f): 0.500 s\n\
                        \x20       SELF               TOTAL         FUNCTION\n\
                        \x20    0.500 s 100.0%      0.500 s 100.0%  work (/a.py:3)\n";
        assert_eq!(text(&profiled(500_000, ""), &profile), expected);
    }

    #[test]
    fn where_nothing_was_seen_it_says_what_to_do() {
        let profile = Profile { kind: ProfileKind::Cpu, duration_ms: 1000, rate_hz: 100 };
        let told = text(&profiled(0, "it is stopped"), &profile);
        assert!(told.contains("note: pid 7 on 10.0.0.1 (f): it is stopped") && told.contains("--wall"), "{told}");
    }

    #[test]
    fn a_files_name_tells_its_format() {
        let of = |name: &str| Format::of(Path::new(name));
        assert_eq!(of("a.svg").ok(), Some(Format::Svg));
        assert_eq!(of("a.b.json").ok(), Some(Format::Speedscope));
        assert_eq!((of("a.folded").ok(), of("a.txt").ok()), (Some(Format::Folded), Some(Format::Folded)));
        assert!(of("profile").is_err_and(|error| error.to_string().contains("--format")));
    }
}
