//! The check of a device, made by a process of its own: a driver may hang, and what uses a device holds memory of it.

use oxiray_machine::CheckOutcome;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a check may take.
const LIMIT: Duration = Duration::from_secs(30);
/// The most that one prints.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;

/// A check that is under way.
#[derive(Debug)]
pub(crate) struct DeviceTest {
    output: ChildStdout,
    process: OwnedFd,
}

impl DeviceTest {
    /// Starts a check with what `variable` is to be in it. Its process, whose number is returned, is the caller's to reap.
    pub(crate) fn start(program: &Path, variable: (&OsStr, &OsStr)) -> io::Result<(Self, u32)> {
        let mut child = Command::new(program)
            .arg("device-check")
            .env(variable.0, variable.1)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let pid = Pid::from_child(&child);
        let output = child.stdout.take().expect("it was asked for as a pipe");
        Ok((Self { output, process: pidfd_open(pid, PidfdFlags::empty())? }, child.id()))
    }

    /// Waits for what it prints, and ends it where that takes too long.
    pub(crate) fn outcome(self) -> CheckOutcome {
        let until = Instant::now() + LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&limit)) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) | Err(_) => {
                    let _ = pidfd_send_signal(&self.process, Signal::KILL);
                    return CheckOutcome::Failed(format!("the check did not end within {} s", LIMIT.as_secs()));
                }
                // What it says fits into the pipe.
                Ok(_) => return self.said(),
            }
        }
    }

    fn said(self) -> CheckOutcome {
        let mut text = String::new();
        let read = self.output.take(OUTPUT_BYTES_MAX).read_to_string(&mut text);
        match (read, text.trim().split_once(' ')) {
            (Err(error), _) => CheckOutcome::NotMade(format!("what the check says cannot be read: {error}")),
            (Ok(_), Some(("failed:", how))) => CheckOutcome::Failed(how.to_owned()),
            (Ok(_), Some(("not-made:", why))) => CheckOutcome::NotMade(why.to_owned()),
            (Ok(_), _) if text.trim() == "passed" => CheckOutcome::Passed,
            (Ok(_), _) => CheckOutcome::Failed("the process of the check died in it".to_owned()),
        }
    }
}
