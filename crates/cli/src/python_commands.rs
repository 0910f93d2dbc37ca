//! Commands that the Python package adds to this one, which hands all others to it: their names stand in help and completions.

/// Each with what it does. A test compares them with those of the package.
const COMMANDS: &[(&str, &str)] = &[
    ("compat", "Lists the names of Ray that a program uses, and whether Oxiray has them"),
    ("debug", "Lists processes that stopped at a breakpoint, and debugs one"),
    ("doctor", "Checks the installation and this machine, and says what to do"),
    ("kill-actor", "Ends a named actor"),
    ("ray", "Makes a distribution named `ray` for pip, with Ray's own libraries"),
    ("timeline", "Writes when each call ran to a file, for a viewer of Chrome traces"),
];

/// Whether the Python package has that command.
pub(crate) fn is_one(name: &str) -> bool {
    COMMANDS.iter().any(|(known, _)| *known == name)
}

/// What stands below the help of `oxiray`.
pub(crate) fn in_words() -> String {
    let lines: Vec<String> = COMMANDS.iter().map(|(name, words)| format!("  {name:<12}  {words}")).collect();
    format!("Commands of the Python package `oxiray`:\n{}", lines.join("\n"))
}

/// All commands that users see: those of the command line, and these without their options.
pub(crate) fn with_those_of(native: &clap::Command) -> clap::Command {
    let visible = native.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let ours = COMMANDS.iter().map(|(name, words)| clap::Command::new(*name).about(*words));
    clap::Command::new("oxiray").subcommands(visible.chain(ours))
}
