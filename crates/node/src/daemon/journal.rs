//! What the head has written down, and what becomes of it; whether this still is the head.
//!
//! - HEADS-2: before anything is served, a head looks whether it still is one; one that was stopped, or cut off from
//!   etcd, for longer than its lease ends all that it had started and serves nothing more.

use super::Daemon;
use crate::journal::{JournalClient, Purpose, WRITING_LIMIT, Written};
use crate::lifetime::Ended;
use oxiray_journal::{Change, Fault};
use oxiray_processes::since_boot;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Instant;

impl Daemon {
    /// Has rows of the core written; [`Daemon::journal_answered`] hears what became of it.
    pub(super) fn write_rows(&mut self, changes: Vec<Change>) {
        match &mut self.journal {
            Some(journal) => journal.write(changes, Purpose::Core),
            None => self.core.written(),
        }
    }

    /// As [`Daemon::write_rows`], of tokens and of nodes that are shut out.
    pub(super) fn write_tokens(&mut self, changes: Vec<Change>) {
        match self.journal.as_mut().filter(|_| !changes.is_empty()) {
            Some(journal) => journal.write(changes, Purpose::Tokens),
            None => self.tokens_written(Ok(())),
        }
    }

    /// What became of what was written.
    pub(super) fn journal_answered(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        let Some(answers) = journal.answers() else { return self.journal_broke() };
        for answer in answers {
            self.was_written(answer);
        }
    }

    /// HEADS-3: waits for what is being written where too much depends on it, or nobody is served any more.
    /// Returns whether that is over.
    pub(super) fn await_journal(&mut self) -> bool {
        let Some(answer) = self.journal.as_mut().and_then(JournalClient::wait) else { return true };
        match answer {
            Ok(answer) => {
                self.was_written(answer);
                return true;
            }
            Err(RecvTimeoutError::Timeout) => {
                self.log.line(&format!("nothing was written to the journal within {} s", WRITING_LIMIT.as_secs()));
            }
            Err(RecvTimeoutError::Disconnected) => self.journal_broke(),
        }
        false
    }

    /// What was done is told before the daemon ends, where that becomes safe in time.
    pub(super) fn finish_writing(&mut self) {
        while self.core.is_writing() && !matches!(self.lifetime.ended(), Ended::LostTurn) && self.await_journal() {
            self.settle();
        }
    }

    fn was_written(&mut self, (purpose, result): Written) {
        match (purpose, result) {
            (_, Err(fault @ Fault::Fenced { .. })) => self.lose_turn(&fault.to_string()),
            (Purpose::Core, Ok(())) => self.core.written(),
            (Purpose::Core, Err(fault)) => self.core.not_written(&fault.to_string()),
            (Purpose::Tokens, result) => self.tokens_written(result.map_err(|fault| fault.to_string())),
        }
    }

    fn journal_broke(&mut self) {
        self.lose_turn("the thread that writes the journal has ended, and what it wrote last is not known");
    }

    /// When it has to be looked whether this still is the head.
    pub(super) fn turn_deadline(&self) -> Option<Instant> {
        let until = self.journal.as_ref()?.held_until()?;
        Some(Instant::now() + until.saturating_sub(since_boot()))
    }

    /// HEADS-2.
    pub(super) fn is_its_turn(&mut self) -> bool {
        let until = self.journal.as_ref().and_then(JournalClient::held_until);
        if until.is_none_or(|until| since_boot() < until) {
            return true;
        }
        self.lose_turn("etcd has not answered for as long as this head's lease lasts");
        false
    }

    fn lose_turn(&mut self, why: &str) {
        self.log.line(&format!("{why}: another may be the head now, and this one ends"));
        self.lifetime.end_as(Ended::LostTurn);
    }
}
