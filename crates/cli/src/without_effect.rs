//! Options of `ray start` that change nothing here: they are taken, so that scripts run, and told of.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, value_parser};

/// What an option takes.
#[derive(Debug, Clone, Copy)]
enum Takes {
    Nothing,
    Text,
    Port,
    /// `true` or `false`, the first where neither is said.
    Truth,
}

/// Each option, what it takes, and why it changes nothing.
const OPTIONS: &[(&str, Takes, &str)] = &[
    ("dashboard-agent-grpc-port", Takes::Port, "the dashboard has no agents on other nodes"),
    ("proxy-server-url", Takes::Text, "the dashboard is one program"),
    ("ray-client-server-port", Takes::Port, "there is no client server"),
    ("min-worker-port", Takes::Port, "workers need no ports"),
    ("max-worker-port", Takes::Port, "workers need no ports"),
    ("worker-port-list", Takes::Text, "workers need no ports"),
    ("object-manager-port", Takes::Port, "objects travel through --node-manager-port"),
    ("runtime-env-agent-port", Takes::Port, "the daemon itself makes environments"),
    ("plasma-directory", Takes::Text, "objects lie in memory without a name"),
    ("autoscaling-config", Takes::Text, "--autoscale names groups of machines"),
    ("no-redirect-output", Takes::Nothing, "the daemon writes to its log"),
    ("ray-debugger-external", Takes::Nothing, "the debugger opens no port"),
    ("include-log-monitor", Takes::Truth, "the daemon itself reads what workers print"),
    ("log-style", Takes::Text, "the command prints in one style"),
    ("log-color", Takes::Text, "the command prints without colors"),
    ("verbose", Takes::Nothing, "the command says all there is"),
    ("enable-resource-isolation", Takes::Nothing, "no control groups are made for the daemon"),
    ("system-reserved-cpu", Takes::Text, "no control groups are made for the daemon"),
    ("system-reserved-memory", Takes::Text, "no control groups are made for the daemon"),
    ("cgroup-path", Takes::Text, "no control groups are made for the daemon"),
    ("disable-usage-stats", Takes::Nothing, "nothing is reported to anyone"),
];

/// What holds without them: nobody has to be told.
const HOLDS_ANYWAY: &[&str] = &["disable-usage-stats", "log-style", "log-color", "verbose", "include-log-monitor"];

/// Those that were given.
#[derive(Debug, Clone, Default)]
pub(crate) struct WithoutEffect {
    given: Vec<&'static str>,
}

impl WithoutEffect {
    /// Those that ask for something that does not happen, with why.
    pub(crate) fn told(&self) -> Vec<String> {
        let asked = |name: &&str| self.given.contains(name) && !HOLDS_ANYWAY.contains(name);
        OPTIONS.iter().filter(|(name, ..)| asked(name)).map(|(name, _, why)| format!("--{name} ({why})")).collect()
    }
}

impl clap::FromArgMatches for WithoutEffect {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut found = Self::default();
        found.update_from_arg_matches(matches)?;
        Ok(found)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let is_given = |name: &str, takes: Takes| {
            let is_said = matches.value_source(name) == Some(ValueSource::CommandLine);
            is_said && (!matches!(takes, Takes::Truth) || matches.get_one::<bool>(name) != Some(&false))
        };
        self.given.extend(OPTIONS.iter().filter(|(name, takes, _)| is_given(name, *takes)).map(|(name, ..)| *name));
        Ok(())
    }
}

impl clap::Args for WithoutEffect {
    fn augment_args(command: Command) -> Command {
        OPTIONS.iter().fold(command, |command, (name, takes, why)| {
            let option =
                Arg::new(*name).long(*name).help(format!("Changes nothing: {why}")).help_heading("Without effect");
            let option = match takes {
                Takes::Nothing => option.action(ArgAction::SetTrue),
                Takes::Text => option.value_name("TEXT"),
                Takes::Port => option.value_name("PORT").value_parser(value_parser!(u16)),
                Takes::Truth => {
                    let truth = clap::builder::BoolishValueParser::new();
                    option.num_args(0..=1).default_missing_value("true").value_parser(truth).value_name("BOOLEAN")
                }
            };
            command.arg(if *name == "verbose" { option.short('v') } else { option })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
