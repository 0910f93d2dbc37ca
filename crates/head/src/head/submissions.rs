//! Submitted jobs: taken on, written down, started, ended, told of.
//!
//! - CORE-7: the process of a job is started once, and only when the job's row is safe.

use super::HeadCore;
use crate::journal::{Row, Undo};
use crate::submissions::{Stopping, Submitted, Word};
use oxiray_machine::{Effect, Key, SubmissionOrder};
use oxiray_wire::Message;
use oxiray_wire::message::{
    Failure, FailureCode, Submission, SubmissionAction, SubmissionAnswer, SubmissionAsked, SubmissionSpec,
};

impl HeadCore {
    /// Somebody submits, stops, deletes, or asks for jobs. What one printed is the shell's to read.
    pub(crate) fn submission_asked(&mut self, from: Key, asked: &SubmissionAsked, now_ms: u64) {
        let mut told = SubmissionAnswer { request: asked.request, ..SubmissionAnswer::default() };
        let known = self.jobs.submitted.get(&asked.id).cloned();
        match (asked.action, known) {
            (SubmissionAction::Submit, _) => return self.submit(from, asked, now_ms),
            (SubmissionAction::List, _) if asked.id.is_empty() => told.jobs = self.jobs.submitted.all(),
            (SubmissionAction::List | SubmissionAction::Read, Some(known)) => told.jobs.push(known),
            (SubmissionAction::Stop, Some(_)) => {
                self.stop_submission(&asked.id);
                told.jobs.extend(self.jobs.submitted.get(&asked.id).cloned());
            }
            (SubmissionAction::Delete, Some(known)) if known.state.is_final() => {
                self.jobs.submitted.remove(&asked.id);
                self.durable.touch(Row::Submission(asked.id.clone()));
                told.jobs.push(known);
            }
            (SubmissionAction::Delete, Some(known)) => {
                let text = format!(
                    "Attempted to delete job '{}', but it is in a non-terminal state {}: stop it first with `oxiray job stop`",
                    asked.id,
                    known.state.name()
                );
                told.failure = Some(FailureCode::Invalid.because(text));
            }
            (
                SubmissionAction::List | SubmissionAction::Read | SubmissionAction::Stop | SubmissionAction::Delete,
                None,
            ) => {
                let text = format!(
                    "no job was submitted as `{}`, or it ended long ago: `oxiray job list` names those that there are",
                    asked.id
                );
                told.failure = Some(FailureCode::NotFound.because(text));
            }
        }
        self.send(from, told);
    }

    fn submit(&mut self, from: Key, asked: &SubmissionAsked, now_ms: u64) {
        let (request, none) = (asked.request, SubmissionSpec::default());
        let id = if asked.id.is_empty() { self.new_submission_name() } else { asked.id.clone() };
        let mut told = SubmissionAnswer { request, ..SubmissionAnswer::default() };
        match self.jobs.submitted.submit(&id, asked.spec.as_ref().unwrap_or(&none), now_ms) {
            Ok(Submitted::New) => {
                self.durable.touch(Row::Submission(id.clone()));
                self.note_submission(&id);
                self.answered_by_next(from, Undo::Submission { request, id: id.clone() });
                told.jobs.extend(self.jobs.submitted.get(&id).cloned());
            }
            Ok(Submitted::Known) => told.jobs.extend(self.jobs.submitted.get(&id).cloned()),
            Err(why) => told.failure = Some(FailureCode::Invalid.because(why.to_string())),
        }
        self.send(from, told);
    }

    /// The job could not be written down: it never was.
    pub(super) fn unsubmit(&mut self, request: u64, id: &str, failure: Failure) -> Message {
        self.jobs.submitted.remove(id);
        SubmissionAnswer { request, failure: Some(failure), ..SubmissionAnswer::default() }.into()
    }

    /// A name that nobody else gives.
    fn new_submission_name(&mut self) -> String {
        let bytes: [u8; 8] = self.chance.bytes();
        format!("job-{:016x}", u64::from_be_bytes(bytes))
    }

    /// CORE-7.
    pub(super) fn start_submissions(&mut self) {
        let is_safe = |id: &str| self.durable.is_safe(&Row::Submission(id.to_owned()));
        for (id, spec) in self.jobs.submitted.take_startable(is_safe) {
            self.log(format!("submitted job {id} is started: {}", spec.entrypoint));
            self.out.push(Effect::Submission(SubmissionOrder::Start { id, spec }));
        }
    }

    fn stop_submission(&mut self, id: &str) {
        if self.jobs.submitted.stop(id) == Some(Stopping::Tell) {
            self.durable.touch(Row::Submission(id.to_owned()));
            self.out.push(Effect::Submission(SubmissionOrder::End { id: id.to_owned() }));
        }
    }

    /// The process that runs a job says something of it, or the shell of that process.
    pub(crate) fn submission_heard(&mut self, id: &str, word: Word, now_ms: u64) {
        if !self.jobs.submitted.heard(id, word, now_ms) {
            return;
        }
        self.durable.touch(Row::Submission(id.to_owned()));
        self.note_submission(id);
        if let Some(job) = self.jobs.submitted.get(id) {
            self.log(format!("submitted job {id}: {}: {}", job.state.name(), job.message));
        }
        for gone in self.jobs.submitted.forget_old() {
            self.durable.touch(Row::Submission(gone));
        }
    }

    /// The job of that name.
    pub(crate) fn submission(&self, id: &str) -> Option<&Submission> {
        self.jobs.submitted.get(id)
    }
}
