//! Files of logs: who asks about them, here or on another node, and what is told of them.

use super::Daemon;
use crate::log_client::LogTold;
use crate::membership::Unshown;
use crate::poller::Token;
use oxiray_logs::{FailedName, Printed};
use oxiray_machine::{Key, check_name};
use oxiray_wire::message::{FailedTaskLog, Failure, FailureCode, ListedLog, LogAnswer, LogQuery, LogsUnshown, Notice};

impl Daemon {
    /// The thread that writes logs tells something.
    pub(super) fn logs_told(&mut self) {
        for told in self.workers.logs.take() {
            match told {
                LogTold::Ended(worker, file) => self.worker_is_kept(worker, file),
                LogTold::Answer(asker, mut answer) => {
                    // A node that is there tells of its failed tasks itself.
                    let is_gone = |name: FailedName| self.core.member_of(name.node).is_none();
                    let is_told =
                        |file: &ListedLog| file.parts.is_empty() || FailedName::read(&file.name).is_none_or(is_gone);
                    answer.files.retain(is_told);
                    self.queue(asker, &(*answer).into(), Vec::new());
                }
                LogTold::Failed(failed) => {
                    if let Some(head) = self.core.head_key().filter(|_| self.membership.away.is_none()) {
                        self.queue(head, &(*failed).into(), Vec::new());
                    }
                }
                LogTold::HasRoom => self.resume_all_output(),
                LogTold::Trouble(text) => self.log.line(&text),
            }
        }
    }

    /// Somebody asks about files of logs.
    pub(super) fn logs_asked(&mut self, asker: Key, asked: &LogQuery) {
        let wanted = asked.wanted.as_ref().map_or("", |wanted| &wanted.glob);
        let named = check_name("a file of logs", &asked.file).and(check_name("a pattern of files of logs", wanted));
        if let Err(text) = named {
            return self.refuse_logs(asker, asked.request, FailureCode::Invalid.because(text));
        }
        let Some(node) = asked.node.filter(|node| *node != self.core.own_node()) else {
            return self.own_logs_asked(asker, asked.clone());
        };
        let Some(member) = self.core.member_of(node) else {
            let text = format!(
                "node {node} is not in the cluster, or not any more: what its workers printed is on its machine's disk, where \
                 `oxiray logs --session` reads it"
            );
            return self.refuse_logs(asker, asked.request, FailureCode::NotFound.because(text));
        };
        if let Some(request) = self.workers.logs.pass(member, asker, asked.request) {
            return self.queue(member, &LogQuery { request, ..asked.clone() }.into(), Vec::new());
        }
        let text = "too many questions about logs wait for nodes: ask again later";
        self.refuse_logs(asker, asked.request, FailureCode::System.because(text));
    }

    /// Somebody asks about files of this node. What is in pipes was printed before he asked, so that it waits neither for its
    /// turn nor for a driver that has yet to read what is shown to it (LOGS-4).
    pub(super) fn own_logs_asked(&mut self, asker: Key, asked: LogQuery) {
        let printed = self.streams.turns.waiting().filter(|token| matches!(token, Token::Output(_) | Token::Errors(_)));
        for token in printed.collect::<Vec<_>>() {
            self.streams.turns.forget(token);
            self.hear_printed(token);
        }
        self.read_paused_output();
        self.workers.logs.ask(asker, asked);
    }

    fn refuse_logs(&mut self, asker: Key, request: u64, failure: Failure) {
        self.queue(asker, &LogAnswer { request, failure: Some(failure), ..LogAnswer::default() }.into(), Vec::new());
    }

    /// A member answers what it was asked for somebody.
    pub(super) fn logs_answered(&mut self, member: Key, answer: LogAnswer) {
        if let Some((asker, request)) = self.workers.logs.passed_back(member, answer.request) {
            self.queue(asker, &LogAnswer { request, ..answer }.into(), Vec::new());
        }
    }

    /// Somebody is gone who may have asked, or been asked.
    pub(super) fn logs_without(&mut self, key: Key) {
        for (asker, request) in self.workers.logs.forget(key) {
            let failure =
                FailureCode::NodeDied.because("the node ended before it answered: its logs are on its machine's disk");
            self.refuse_logs(asker, request, failure);
        }
    }

    /// A member tells what a task printed last that failed: what is not asked for is not kept.
    pub(super) fn failed_task_told(&mut self, member: Key, told: FailedTaskLog) {
        if let Some(node) = self.core.node_of_member(member).filter(|_| self.membership.keeps_logs) {
            self.workers.logs.keep_failed(node, told);
        }
    }

    /// A worker printed what nobody is shown, as the head is away, or the driver is that will come back to it.
    pub(super) fn count_unshown(&mut self, worker: Key, printed: &[Printed]) {
        let Some(job) = self.core.job_of_process(worker) else { return };
        for piece in printed {
            if let Printed::Lines { lines, .. } = piece {
                self.membership.unshown.add(job, Unshown::of(lines));
            }
        }
    }

    /// The head is back: it tells drivers how much they were not shown.
    pub(super) fn tell_head_of_unshown(&mut self, head: Key) {
        for (job, Unshown { lines, bytes }) in self.membership.unshown.take() {
            self.queue(head, &LogsUnshown { job, lines, bytes }.into(), Vec::new());
        }
    }

    /// On a head that came back: once everybody is there, each driver is told how much it was not shown.
    pub(super) fn tell_drivers_of_unshown(&mut self) {
        // A member tells the head instead.
        if self.membership.unshown.is_empty() || self.core.head_key().is_some() || self.core.is_resuming() {
            return;
        }
        for (job, unshown) in self.membership.unshown.take() {
            if let Some(driver) = self.core.driver_shown_logs(job) {
                self.queue(driver, &Notice { text: unshown.text(job), ..Notice::default() }.into(), Vec::new());
            }
        }
    }
}
