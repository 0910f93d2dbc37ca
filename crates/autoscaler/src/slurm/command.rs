//! Slurm's commands, each for a bounded time.

use oxiray_processes::{describe_status, pidfd_of, program};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The most that is read of what a command prints: lines of 100,000 jobs.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;
/// The most of what it says of an error.
const ERROR_CHARS_MAX: usize = 2000;
/// Variables of Slurm that say where it is and who asks; all others would have a job that this process runs in be taken for
/// what is to be asked for.
const KEPT: [&str; 3] = ["SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"];
/// What all of Slurm's own begin with; those of `squeue` would hide jobs.
const OWN: [&str; 2] = ["SLURM_", "SQUEUE_"];

/// Why a command has not done what it was to.
#[derive(Debug, Error)]
pub(super) enum CommandError {
    /// It cannot be started.
    #[error("`{command}` cannot be started: {source}. The head's machine needs Slurm's commands")]
    Start {
        /// Its name.
        command: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// It failed.
    #[error("`{command}` {status}: {said}")]
    Failed {
        /// With its arguments.
        command: String,
        /// How it ended.
        status: String,
        /// Its standard error.
        said: String,
    },
    /// It was stopped, and what it was to do may be done.
    #[error("`{command}` was stopped since it took more than {} s: {said}", limit.as_secs())]
    Late {
        /// With its arguments.
        command: String,
        /// How long it might take.
        limit: Duration,
        /// Its standard error.
        said: String,
    },
    /// The system refuses something.
    #[error("`{command}` cannot be waited for: {source}")]
    System {
        /// Its name.
        command: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// Runs one of Slurm's commands, with `input` at its standard input; returns what it prints.
pub(super) fn run(
    name: &'static str,
    arguments: &[String],
    input: &str,
    limit: Duration,
) -> Result<String, CommandError> {
    let system = |source| CommandError::System { command: name, source };
    // Files instead of pipes: whatever is printed, and whoever goes on having them open, nobody waits for it.
    let (output, errors) = (memory("output").map_err(system)?, memory("errors").map_err(system)?);
    let given = memory_with(input).map_err(system)?;
    let path = program(name).map_err(|source| CommandError::Start { command: name, source })?;
    let mut command = Command::new(path);
    command.args(arguments).process_group(0).stdin(Stdio::from(given));
    command.stdout(copy(&output).map_err(system)?).stderr(copy(&errors).map_err(system)?);
    for variable in std::env::vars_os().map(|(variable, _)| variable).filter(is_not_kept) {
        command.env_remove(variable);
    }
    let mut child = command.spawn().map_err(|source| CommandError::Start { command: name, source })?;
    let ended = wait(&mut child, limit).map_err(system)?;
    let said = || read(&errors).map(|said| said.trim().chars().take(ERROR_CHARS_MAX).collect::<String>());
    let shown = || std::iter::once(name).chain(arguments.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    match ended {
        None => Err(CommandError::Late { command: shown(), limit, said: said().map_err(system)? }),
        Some(status) if status != 0 => Err(CommandError::Failed {
            command: shown(),
            status: describe_status(status),
            said: said().map_err(system)?,
        }),
        Some(_) => read(&output).map_err(system),
    }
}

fn is_not_kept(variable: &OsString) -> bool {
    let name = variable.to_string_lossy();
    OWN.iter().any(|own| name.starts_with(own)) && !KEPT.contains(&&*name)
}

/// How it ended, as the system counts it; nothing where it was killed since it took too long.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<i32>> {
    let until = Instant::now() + limit;
    let ended = pidfd_of(child.id())?;
    let mut is_late = false;
    while !is_late {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => is_late = true,
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if is_late && let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It leads its own group, and nobody has waited for it yet. Where it fails it has just ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait()?;
    Ok((!is_late).then(|| status.into_raw()))
}

fn memory(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

fn memory_with(text: &str) -> io::Result<File> {
    let mut file = memory("input")?;
    file.write_all(text.as_bytes())?;
    seek(&file, SeekFrom::Start(0))?;
    Ok(file)
}

fn copy(file: &File) -> io::Result<Stdio> {
    file.try_clone().map(Stdio::from)
}

fn read(mut file: &File) -> io::Result<String> {
    seek(file, SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    (&mut file).take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > OUTPUT_BYTES_MAX {
        return Err(io::Error::other(format!("it printed more than {OUTPUT_BYTES_MAX} bytes")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, input: &str, limit: Duration) -> Result<String, CommandError> {
        run("sh", &["-c".to_owned(), script.to_owned()], input, limit)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_given_goes_in_and_what_is_printed_comes_out() {
        assert_eq!(shell("cat; echo more", "given\n", LONG).expect("it ends"), "given\nmore\n");
    }

    #[test]
    fn a_failure_names_the_command_its_status_and_what_it_said() {
        let told = shell("echo why >&2; exit 3", "", LONG).expect_err("it fails").to_string();
        assert_eq!(told, "`sh -c echo why >&2; exit 3` exited with status 3: why");
        let told = run("no-such-command", &[], "", LONG).expect_err("there is none").to_string();
        assert!(told.starts_with("`no-such-command` cannot be started: no absolute folder of PATH"), "{told}");
    }

    #[test]
    fn a_command_that_takes_too_long_is_stopped_with_its_children() {
        let begun = Instant::now();
        // The shell may take some of that to begin.
        let limits = [5, 60].map(Duration::from_secs);
        let has_said = |told: &CommandError| matches!(told, CommandError::Late { said, .. } if said == "slow");
        let mut told =
            limits.iter().map(|limit| shell("echo slow >&2; sleep 600 & sleep 600", "", *limit).expect_err("late"));
        assert!(told.any(|told| has_said(&told)));
        assert!(begun.elapsed() < Duration::from_secs(500));
    }

    #[test]
    fn variables_of_a_job_are_not_handed_on() {
        for (variable, is_kept) in [
            ("SLURM_JOB_ID", false),
            ("SLURM_CPUS_PER_TASK", false),
            ("SQUEUE_STATES", false),
            ("SLURM_CONF", true),
            ("SBATCH_ACCOUNT", true),
            ("PATH", true),
        ] {
            assert_eq!(!is_not_kept(&OsString::from(variable)), is_kept, "{variable}");
        }
    }
}
