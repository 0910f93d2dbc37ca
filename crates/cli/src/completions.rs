//! `oxiray completions`.

use crate::arguments::{Arguments, CompletionsOptions};
use crate::{called, python_commands};
use clap::CommandFactory as _;
use std::io::Write as _;

/// What stands below the help of the command.
pub(crate) const HOW_TO_LOAD: &str = "\
To load it in this shell:
  bash:  source <(oxiray completions bash)
  zsh:   source <(oxiray completions zsh)
  fish:  oxiray completions fish | source
Write that line into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish to have it in every shell.";

pub(crate) fn run(options: &CompletionsOptions) {
    let mut script = Vec::new();
    clap_complete::generate(
        options.shell,
        &mut python_commands::with_those_of(&Arguments::command()),
        called::command(),
        &mut script,
    );
    // A reader that went away has seen enough.
    let _ = std::io::stdout().write_all(&script);
}
