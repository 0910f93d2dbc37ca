//! The processes that run submitted jobs: started, heard, ended.
//!
//! Each is a Python that is a driver of this cluster (`oxiray._submitted_job`): it has the entrypoint started in an actor,
//! which holds what was asked for and has its environment, and writes what that prints into the job's file. It says how
//! things are in lines of JSON on a pipe.

use super::SESSION_VARIABLE;
use crate::interpreters::{self, own, program};
use crate::poller::{Poller, Token};
use crate::session::{Session, create};
use bytes::Bytes;
use oxiray_head::Word;
use oxiray_machine::Key;
use oxiray_wire::message::SubmissionSpec;
use rustix::fs::MemfdFlags;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// What such a process runs.
const PROGRAM: &str = program!("oxiray._submitted_job");
/// How long one that is to end its job has before it is killed; it gives the entrypoint a third of that, or as long as the job says.
const ENDING_LIMIT: Duration = Duration::from_secs(15);
/// The longest that a job may say, in seconds, and the variable of its environment that says it.
const GRACE_S_MAX: f64 = 3600.0;
const GRACE_VARIABLE: &str = "RAY_JOB_STOP_WAIT_TIME_S";
/// The most that is kept of a line that has not ended.
const WORD_BYTES_MAX: usize = 64 << 10;

/// The process of one job.
#[derive(Debug)]
struct Submitted {
    id: String,
    pid: u32,
    words: File,
    partial: Vec<u8>,
    /// How long it has to end.
    ending_limit: Duration,
    /// When it is killed.
    overdue: Option<Instant>,
}

#[derive(serde::Serialize)]
struct Order<'order> {
    id: &'order str,
    address: &'order str,
    entrypoint: &'order str,
    runtime_env: &'order str,
    resources: &'order BTreeMap<String, f64>,
    label_selector: &'order BTreeMap<String, String>,
    words: i32,
    daemon: u32,
}

/// One line of what such a process says.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Started,
    Ended(i32),
    Failed(String),
}

/// The processes of all submitted jobs.
#[derive(Debug, Default)]
pub(crate) struct Submissions {
    by_key: BTreeMap<Key, Submitted>,
}

/// A process that is to run a job.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) pid: u32,
    words: OwnedFd,
    ending_limit: Duration,
}

/// Where it is kept what a job prints.
pub(crate) fn printed_by(id: &str, session: &Session) -> PathBuf {
    oxiray_wire::session::printed_by(&session.logs(), id)
}

impl Submissions {
    /// Starts the process of a job, on the cluster at `address`.
    pub(crate) fn begin(id: &str, spec: &SubmissionSpec, address: &str, session: &Session) -> io::Result<Begun> {
        let (words, far) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&words, true)?;
        // A duplicate that is inherited; nothing else is started while it is open.
        let inherited: OwnedFd = rustix::io::dup(&far)?;
        let order = Order {
            id,
            address,
            entrypoint: &spec.entrypoint,
            runtime_env: &spec.runtime_env,
            resources: &spec.resources,
            label_selector: &spec.label_selector,
            words: inherited.as_raw_fd(),
            daemon: std::process::id(),
        };
        let mut told = File::from(rustix::fs::memfd_create("oxiray-order", MemfdFlags::CLOEXEC)?);
        told.write_all(&serde_json::to_vec(&order)?)?;
        told.rewind()?;
        let output = create(&printed_by(id, session))?;
        let mut command = interpreters::command(&own())?;
        command.args(["-c", PROGRAM]).env(SESSION_VARIABLE, session.directory()).env_remove("RAY_ADDRESS");
        // It finds the session where this daemon keeps it, whatever is in the environment.
        if let Some(folder) = session.directory().ancestors().nth(2) {
            command.env("OXIRAY_TMPDIR", folder);
        }
        command.stdin(Stdio::from(told)).stdout(output.try_clone()?).stderr(output);
        Ok(Begun { pid: command.spawn()?.id(), words, ending_limit: ending_limit(&spec.runtime_env) })
    }

    /// From here on it is heard what the process of a job says.
    pub(crate) fn add(&mut self, poller: &Poller, key: Key, id: &str, begun: Begun) -> io::Result<()> {
        let Begun { pid, words, ending_limit } = begun;
        poller.watch(&words, Token::Submission(key))?;
        let (id, words) = (id.to_owned(), words.into());
        let job = Submitted { id, pid, words, partial: Vec::new(), ending_limit, overdue: None };
        self.by_key.insert(key, job);
        Ok(())
    }

    /// Asks the process of a job to end it, and has it killed where it has not by then; `false` where it has none any more.
    pub(crate) fn end(&mut self, id: &str, now: Instant) -> bool {
        let Some(job) = self.by_key.values_mut().find(|job| job.id == id) else { return false };
        job.overdue = Some(now + job.ending_limit);
        // Its number is its own until the daemon has reaped it.
        if let Some(pid) = Pid::from_raw(job.pid as i32) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        true
    }

    /// What the process of a job has said, and which job that is.
    pub(crate) fn said(&mut self, poller: &Poller, key: Key) -> Option<(String, Vec<Word>)> {
        let job = self.by_key.get_mut(&key)?;
        let mut said = vec![0; WORD_BYTES_MAX];
        match job.words.read(&mut said) {
            Ok(0) => {
                poller.forget(&job.words);
                None
            }
            Ok(read) => {
                job.partial.extend_from_slice(&said[..read]);
                Some((job.id.clone(), whole_lines(&mut job.partial).iter().map(|line| word(line)).collect()))
            }
            Err(_) => None,
        }
    }

    /// The job whose process that is.
    pub(crate) fn of_pid(&self, pid: u32) -> Option<Key> {
        self.by_key.iter().find(|(_, job)| job.pid == pid).map(|(key, _)| *key)
    }

    /// The process is gone. Returns which job it ran.
    pub(crate) fn remove(&mut self, poller: &Poller, key: Key) -> Option<String> {
        let job = self.by_key.remove(&key)?;
        poller.forget(&job.words);
        Some(job.id)
    }

    /// When a process that was to end its job is killed.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.by_key.values().filter_map(|job| job.overdue).min()
    }

    /// The processes that are to be killed now, since they have not ended their jobs.
    pub(crate) fn take_overdue(&mut self, now: Instant) -> Vec<u32> {
        let overdue = |job: &mut Submitted| job.overdue.take_if(|at| *at <= now).map(|_| job.pid);
        self.by_key.values_mut().filter_map(overdue).collect()
    }
}

/// How long the process of a job with this environment has to end it.
fn ending_limit(runtime_env: &str) -> Duration {
    let environment: serde_json::Value = serde_json::from_str(runtime_env).unwrap_or_default();
    let said = environment["env_vars"][GRACE_VARIABLE].as_str().and_then(|text| text.parse::<f64>().ok());
    let said = said.filter(|seconds| *seconds >= 0.0).map(|seconds| seconds.min(GRACE_S_MAX));
    said.map_or(ENDING_LIMIT, |seconds| ENDING_LIMIT + Duration::from_secs_f64(2.0 * seconds))
}

fn word(line: &[u8]) -> Word {
    match serde_json::from_slice(line) {
        Ok(Said::Started) => Word::Started,
        Ok(Said::Ended(code)) => Word::Ended(code),
        Ok(Said::Failed(why)) => Word::Failed(why),
        Err(error) => Word::Failed(format!("the process that runs it said what nobody knows: {error}")),
    }
}

/// Takes the lines that have ended.
fn whole_lines(partial: &mut Vec<u8>) -> Vec<Bytes> {
    let Some(end) = partial.iter().rposition(|byte| *byte == b'\n') else {
        partial.truncate(WORD_BYTES_MAX);
        return Vec::new();
    };
    let rest = partial.split_off(end + 1);
    let whole = std::mem::replace(partial, rest);
    whole[..end].split(|byte| *byte == b'\n').map(Bytes::copy_from_slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_says_how_long_it_has_to_end() {
        let limit = |seconds: &str| ending_limit(&format!(r#"{{"env_vars": {{"{GRACE_VARIABLE}": "{seconds}"}}}}"#));
        assert_eq!([limit("10"), limit("0")].map(|limit| limit.as_secs()), [35, 15]);
        for nonsense in ["", "soon", "-1", "NaN"] {
            assert_eq!(limit(nonsense), ENDING_LIMIT, "{nonsense}");
        }
        assert_eq!((ending_limit(""), limit("1e300").as_secs()), (ENDING_LIMIT, 7215));
    }
}
