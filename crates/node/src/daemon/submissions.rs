//! Submitted jobs: what the command line asks of them, and what their processes say.

use super::Daemon;
use crate::children::submissions::{Submissions, printed_by};
use crate::interpreters::own;
use crate::turn::now_ms;
use oxiray_head::Word;
use oxiray_machine::{Key, SubmissionOrder};
use oxiray_processes::describe_status;
use oxiray_wire::message::{FailureCode, SubmissionAction, SubmissionAnswer, SubmissionAsked, SubmissionSpec};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;

/// The most that one answer holds of what a job printed.
const PRINTED_BYTES_MAX: usize = 256 << 10;

impl Daemon {
    pub(super) fn submission_asked(&mut self, from: Key, asked: &SubmissionAsked) {
        let known = self.core.submission(&asked.id).cloned();
        if asked.action == SubmissionAction::Delete && known.as_ref().is_some_and(|job| job.state.is_final()) {
            // It may have printed nothing.
            let _ = fs::remove_file(printed_by(&asked.id, &self.session));
        }
        let Some(job) = known.filter(|_| asked.action == SubmissionAction::Read) else {
            return self.core.submission_asked(from, asked, now_ms());
        };
        let mut printed = vec![0; PRINTED_BYTES_MAX];
        let read =
            File::open(printed_by(&asked.id, &self.session)).and_then(|file| file.read_at(&mut printed, asked.offset));
        let (count, failure) = match read {
            Ok(count) => (count, None),
            // A job that has not begun has no file yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => (0, None),
            Err(error) => {
                let text = format!("what the job printed cannot be read: {error}");
                (0, Some(FailureCode::Unreadable.because(text)))
            }
        };
        printed.truncate(count);
        let told = SubmissionAnswer { request: asked.request, jobs: vec![job], printed: printed.into(), failure };
        self.queue(from, &told.into(), Vec::new());
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
                if !self.children.submissions.end(&id, self.turn.now) {
                    let text = "it had no process any more".to_owned();
                    self.core.submission_heard(&id, Word::Failed(text), now_ms());
                }
            }
        }
    }

    fn start_submission(&mut self, id: &str, spec: &SubmissionSpec) -> io::Result<()> {
        let begun = Submissions::begin(id, spec, &self.membership.address, &self.session)?;
        self.children.reaper.register(begun.pid);
        let key = self.core.new_key();
        self.children.submissions.add(&self.poller, key, id, begun)
    }

    /// The process of a job says something.
    pub(super) fn submission_says(&mut self, key: Key) {
        if let Some((id, words)) = self.children.submissions.said(&self.poller, key) {
            for word in words {
                self.core.submission_heard(&id, word, now_ms());
            }
        }
    }

    /// A child of the daemon died; `false` where it ran no job.
    pub(super) fn submission_ended(&mut self, pid: u32, status: i32) -> bool {
        let Some(key) = self.children.submissions.of_pid(pid) else { return false };
        self.submission_says(key);
        if let Some(id) = self.children.submissions.remove(&self.poller, key) {
            let text = format!(
                "the process that ran it {} without a word; the end of what it printed may say more",
                describe_status(status)
            );
            self.core.submission_heard(&id, Word::Failed(text), now_ms());
        }
        true
    }

    pub(super) fn end_overdue_submissions(&mut self) {
        for pid in self.children.submissions.take_overdue(self.turn.now) {
            self.children.reaper.kill(pid);
        }
    }
}
