//! A vendor's command, run for a bounded time.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most a command may print; a listing of 16 devices is some kilobytes.
pub(super) const OUTPUT_BYTES_LIMIT: usize = 1024 * 1024;

/// How long one is waited for that was killed. A setuid program is not killed by a plain user, and one that waits for its driver
/// dies when that answers.
const DEATH_LIMIT: Duration = Duration::from_secs(1);

/// The processes of commands that did not die in time.
static LEFT_RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// The processes of commands that were stopped and did not die in time, each told once: children of this process, which are still
/// to be reaped.
pub fn take_left_running() -> Vec<u32> {
    std::mem::take(&mut *LEFT_RUNNING.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs `program` and returns what it prints; `Ok(None)` where there is no such program. The program and its children
/// are killed when it takes longer than `limit` or prints more than [`OUTPUT_BYTES_LIMIT`].
pub(super) fn run(program: &Path, arguments: &[&str], limit: Duration) -> Result<Option<String>, String> {
    run_and_stop(program, arguments, limit, kill_all)
}

fn run_and_stop(
    program: &Path,
    arguments: &[&str],
    limit: Duration,
    stop: impl FnOnce(&mut Child),
) -> Result<Option<String>, String> {
    let name = program.display();
    let spawned = Command::new(program)
        .env("PATH", search_path(std::env::var_os("PATH")))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("`{name}` could not be started: {error}")),
    };
    let stdout = child.stdout.take().expect("stdout was asked for as a pipe");
    let deadline = Instant::now() + limit;
    let outcome = read_all(stdout, deadline).and_then(|output| {
        let exit = pidfd(&child)?;
        ready(exit.as_raw_fd(), deadline)?;
        Ok(output)
    });
    if let Err(error) = &outcome {
        stop(&mut child);
        if !dies(&child, Instant::now() + DEATH_LIMIT) {
            let pid = child.id();
            LEFT_RUNNING.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
            return Err(format!(
                "`{name}` was stopped: {error}; its process {pid} cannot be killed, and is left running"
            ));
        }
    }
    let status = child.wait().map_err(|error| format!("`{name}` could not be waited for: {error}"))?;
    let output = outcome.map_err(|error| format!("`{name}` was stopped: {error}"))?;
    if !status.success() {
        return Err(format!("`{name}` failed ({status})"));
    }
    Ok(Some(String::from_utf8_lossy(&output).into_owned()))
}

/// Where a program is looked for, and looks for others: never in the working directory, where others may write. Where
/// nothing is left, an empty list would mean that one.
fn search_path(given: Option<OsString>) -> OsString {
    let folders =
        std::env::split_paths(&given.unwrap_or_default()).filter(|folder| folder.is_absolute()).collect::<Vec<_>>();
    let joined = std::env::join_paths(folders).unwrap_or_default();
    if joined.is_empty() { "/usr/local/bin:/usr/bin:/bin".into() } else { joined }
}

fn read_all(mut stdout: ChildStdout, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    let mut piece = [0; 8192];
    loop {
        ready(stdout.as_raw_fd(), deadline)?;
        let count = stdout.read(&mut piece)?;
        if count == 0 {
            return Ok(output);
        }
        if output.len() + count > OUTPUT_BYTES_LIMIT {
            return Err(io::Error::other(format!("it printed more than {OUTPUT_BYTES_LIMIT} bytes")));
        }
        output.extend_from_slice(&piece[..count]);
    }
}

fn ready(descriptor: RawFd, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // One millisecond more, for `as_millis` rounds down and a wait of zero would spin.
        let milliseconds = i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX);
        // SAFETY: one valid `pollfd` that lives through the call.
        let count = unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
        match count {
            0 if left.is_zero() => return Err(io::Error::other("it took too long")),
            0 => {}
            1.. => return Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    // SAFETY: a system call without pointers; the child is not yet waited for, so its id is still its own.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
}

/// Whether it is dead, or will be before that moment.
fn dies(child: &Child, deadline: Instant) -> bool {
    match pidfd(child) {
        Ok(exit) => ready(exit.as_raw_fd(), deadline).is_ok(),
        // Where the kernel has no such descriptors, it is waited for.
        Err(_) => true,
    }
}

fn kill_all(child: &mut Child) {
    // SAFETY: a system call without pointers; the child leads its own group and is not yet waited for.
    unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
    // One that has left its group is not hit by that.
    let _ = child.kill();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<Option<String>, String> {
        run(Path::new("/bin/sh"), &["-c", script], limit)
    }

    #[test]
    fn no_program_is_looked_for_in_the_working_directory() {
        for (given, expected) in [
            (None, "/usr/local/bin:/usr/bin:/bin"),
            (Some(""), "/usr/local/bin:/usr/bin:/bin"),
            (Some(".:relative"), "/usr/local/bin:/usr/bin:/bin"),
            (Some("/a:"), "/a"),
            (Some(":/a:./b:/c"), "/a:/c"),
        ] {
            assert_eq!(search_path(given.map(OsString::from)), expected, "{given:?}");
        }
    }

    #[test]
    fn output_comes_back() {
        assert_eq!(shell("echo two; echo lines", Duration::from_secs(10)), Ok(Some("two\nlines\n".to_owned())));
    }

    #[test]
    fn a_missing_program_is_no_error() {
        assert_eq!(run(Path::new("/no/such/program"), &[], Duration::from_secs(1)), Ok(None));
    }

    #[test]
    fn a_failure_names_the_command_and_its_status() {
        let error = shell("exit 3", Duration::from_secs(10)).unwrap_err();
        assert!(error.contains("/bin/sh") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_command_that_hangs_is_stopped_with_its_children() {
        let started = Instant::now();
        let error = shell("sleep 100 & sleep 100", Duration::from_millis(100)).unwrap_err();
        assert!(error.contains("too long"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn a_command_that_cannot_be_killed_is_left_and_told_of_once() {
        let (started, mut pid) = (Instant::now(), 0);
        let is_not_hit = |child: &mut Child| pid = child.id();
        let arguments = ["-c", "sleep 100"];
        let error = run_and_stop(Path::new("/bin/sh"), &arguments, Duration::from_millis(100), is_not_hit).unwrap_err();
        assert!(
            error.contains("too long") && error.contains(&format!("its process {pid} cannot be killed")),
            "{error}"
        );
        assert!(started.elapsed() < Duration::from_secs(50));
        assert_eq!((take_left_running(), take_left_running()), (vec![pid], vec![]));
        // SAFETY: system calls without pointers, but for none; the child leads its own group and is not yet waited for.
        unsafe {
            libc::kill(-pid.cast_signed(), libc::SIGKILL);
            assert_eq!(
                libc::waitpid(pid.cast_signed(), std::ptr::null_mut(), 0),
                pid.cast_signed(),
                "it is a child still"
            );
        }
    }

    #[test]
    fn a_command_that_closes_its_output_and_stays_is_stopped() {
        let error = shell("exec >&-; sleep 100", Duration::from_millis(100)).unwrap_err();
        assert!(error.contains("too long"), "{error}");
    }

    #[test]
    fn a_command_that_never_stops_printing_is_stopped() {
        let error = shell("while :; do echo endless; done", Duration::from_secs(30)).unwrap_err();
        assert!(error.contains("more than"), "{error}");
    }
}
