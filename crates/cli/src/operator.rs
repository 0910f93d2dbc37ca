//! `oxiray operator`: another program takes this one's place, so that nobody else carries a Kubernetes client.

use crate::arguments::OperatorOptions;
use anyhow::bail;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The program, beside this one or in the path.
const PROGRAM: &str = "oxiray-operator";

pub(crate) fn run(options: &OperatorOptions) -> anyhow::Result<()> {
    let beside = std::env::current_exe()?.with_file_name(PROGRAM);
    let program = if beside.exists() { Ok(beside) } else { oxiray_processes::program(PROGRAM) };
    let error = program.map_or_else(|error| error, |program| Command::new(program).args(&options.rest).exec());
    bail!(
        "the program {PROGRAM} cannot be run ({error}): it is a part of the image that deploy/Dockerfile builds, and `cargo \
         build --release -p {PROGRAM}` makes it"
    )
}
