//! The processes that run submitted jobs: started, heard, ended.
//!
//! Each is a Python that is a driver of this cluster (`oxiray._submitted_job`): it has the entrypoint started in an actor,
//! which holds what was asked for and has its environment, and writes what that prints into the job's file. It says how
//! things are in lines of JSON on a pipe.

use super::entry::now_ms;
use super::interpreters::{own, program};
use super::processes::SESSION_VARIABLE;
use super::{Daemon, Token};
use crate::session::create;
use bytes::Bytes;
use oxiray_head::Word;
use oxiray_machine::{Key, SubmissionOrder};
use oxiray_processes::describe_status;
use oxiray_wire::message::{Failure, SubmissionAction, SubmissionAsked, SubmissionSpec, SubmissionTold};
use rustix::fs::MemfdFlags;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// What such a process runs.
const PROGRAM: &str = program!("oxiray._submitted_job");
/// How long one that is to end its job has before it is killed; it gives the entrypoint a third of that.
const ENDING_LIMIT: Duration = Duration::from_secs(15);
/// The most that one answer holds of what a job printed.
const PRINTED_BYTES_MAX: usize = 256 << 10;
/// The most that is kept of a line that has not ended.
const WORD_BYTES_MAX: usize = 64 << 10;

/// The process of one job.
#[derive(Debug)]
pub(crate) struct Submitted {
    id: String,
    pid: u32,
    words: File,
    partial: Vec<u8>,
    /// When it is killed.
    overdue: Option<Instant>,
}

#[derive(serde::Serialize)]
struct Order<'order> {
    id: &'order str,
    address: &'order str,
    entrypoint: &'order str,
    runtime_env: &'order str,
    resources: &'order std::collections::BTreeMap<String, f64>,
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

impl Daemon {
    pub(super) fn submission_asked(&mut self, from: Key, asked: &SubmissionAsked) {
        let known = self.core.submission(&asked.id).cloned();
        let Some(job) = known.filter(|_| asked.action == SubmissionAction::Read) else {
            return self.core.submission_asked(from, asked, now_ms());
        };
        let mut printed = vec![0; PRINTED_BYTES_MAX];
        let read = File::open(self.printed_by(&asked.id)).and_then(|file| file.read_at(&mut printed, asked.offset));
        let (count, failure) = match read {
            Ok(count) => (count, None),
            // A job that has not begun has no file yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => (0, None),
            Err(error) => {
                let text = format!("what the job printed cannot be read: {error}");
                (0, Some(Failure { code: "unreadable".into(), text, cause: Bytes::new() }))
            }
        };
        printed.truncate(count);
        let told = SubmissionTold { request: asked.request, jobs: vec![job], printed: printed.into(), failure };
        self.queue(from, &told.into(), Vec::new());
    }

    /// Where it is kept what a job prints.
    fn printed_by(&self, id: &str) -> PathBuf {
        self.session.logs().join(format!("submitted-{id}.log"))
    }

    pub(super) fn order_submission(&mut self, order: SubmissionOrder) {
        match order {
            SubmissionOrder::Start { id, spec } => {
                if let Err(error) = self.start_submission(&id, &spec) {
                    let text = format!("the process that runs it cannot be started with {}: {error}", own());
                    self.core.submission_heard(&id, Word::Failed(text), now_ms());
                }
            }
            SubmissionOrder::End { id } => {
                let found = self.submitted.values_mut().find(|job| job.id == id);
                let Some(job) = found else {
                    let text = "it had no process any more".to_owned();
                    return self.core.submission_heard(&id, Word::Failed(text), now_ms());
                };
                job.overdue = Some(self.now + ENDING_LIMIT);
                // Its number is its own until the daemon has reaped it.
                if let Some(pid) = Pid::from_raw(job.pid as i32) {
                    let _ = rustix::process::kill_process(pid, Signal::TERM);
                }
            }
        }
    }

    fn start_submission(&mut self, id: &str, spec: &SubmissionSpec) -> io::Result<()> {
        let (words, far) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&words, true)?;
        // A duplicate that is inherited; nothing else is started while it is open.
        let inherited: OwnedFd = rustix::io::dup(&far)?;
        let order = Order {
            id,
            address: &self.address,
            entrypoint: &spec.entrypoint,
            runtime_env: &spec.runtime_env,
            resources: &spec.resources,
            words: inherited.as_raw_fd(),
            daemon: std::process::id(),
        };
        let mut told = File::from(rustix::fs::memfd_create("oxiray-order", MemfdFlags::CLOEXEC)?);
        told.write_all(&serde_json::to_vec(&order)?)?;
        told.rewind()?;
        let output = create(&self.printed_by(id))?;
        let mut command = super::interpreters::command(&own())?;
        command.args(["-c", PROGRAM]).env(SESSION_VARIABLE, self.session.directory()).env_remove("RAY_ADDRESS");
        // It finds the session where this daemon keeps it, whatever is in the environment.
        if let Some(folder) = self.session.directory().ancestors().nth(2) {
            command.env("OXIRAY_TMPDIR", folder);
        }
        command.stdin(Stdio::from(told)).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn()?;
        self.brood.register(child.id());
        let key = self.core.new_key();
        self.poller.watch(&words, Token::Submission(key))?;
        let job =
            Submitted { id: id.to_owned(), pid: child.id(), words: words.into(), partial: Vec::new(), overdue: None };
        self.submitted.insert(key, job);
        Ok(())
    }

    /// The process of a job says something.
    pub(super) fn submission_says(&mut self, key: Key) {
        let Some(job) = self.submitted.get_mut(&key) else { return };
        match job.words.read(&mut self.scratch) {
            Ok(0) => self.poller.forget(&job.words),
            Ok(read) => {
                job.partial.extend_from_slice(&self.scratch[..read]);
                let (id, lines) = (job.id.clone(), whole_lines(&mut job.partial));
                for line in lines {
                    let word = match serde_json::from_slice(&line) {
                        Ok(Said::Started) => Word::Started,
                        Ok(Said::Ended(code)) => Word::Ended(code),
                        Ok(Said::Failed(why)) => Word::Failed(why),
                        Err(error) => Word::Failed(format!("the process that runs it said what nobody knows: {error}")),
                    };
                    self.core.submission_heard(&id, word, now_ms());
                }
            }
            Err(_) => {}
        }
    }

    /// A child of the daemon died; `false` where it ran no job.
    pub(super) fn submission_ended(&mut self, pid: u32, status: i32) -> bool {
        let found = self.submitted.iter().find(|(_, job)| job.pid == pid).map(|(key, _)| *key);
        let Some(key) = found else { return false };
        self.submission_says(key);
        if let Some(job) = self.submitted.remove(&key) {
            self.poller.forget(&job.words);
            let text = format!(
                "the process that ran it {} without a word; the end of what it printed may tell more",
                describe_status(status)
            );
            self.core.submission_heard(&job.id, Word::Failed(text), now_ms());
        }
        true
    }

    /// When a process that was to end its job is killed.
    pub(super) fn submission_deadline(&self) -> Option<Instant> {
        self.submitted.values().filter_map(|job| job.overdue).min()
    }

    pub(super) fn end_overdue_submissions(&mut self) {
        for job in self.submitted.values_mut().filter(|job| job.overdue.is_some_and(|at| at <= self.now)) {
            job.overdue = None;
            self.brood.kill(job.pid);
        }
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
