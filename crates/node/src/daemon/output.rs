//! What workers print: kept in files, shown to the driver.

use super::Daemon;
use crate::log_client::LEAVING_LIMIT;
use crate::poller::Token;
use crate::streams::Stream;
use oxiray_ids::WorkerNumber;
use oxiray_logs::Printed;
use oxiray_machine::Key;
use oxiray_wire::Message;
use oxiray_wire::message::LogLines;
use std::path::PathBuf;

/// How a worker ends that was asked to, in the words of `describe_status`: what it printed tells nothing of that.
const END_AS_USUAL: &str = "exited with status 0";

impl Daemon {
    /// Reads once from the pipe that the token tells of; there is a sign of more.
    pub(super) fn hear_printed(&mut self, token: Token) {
        if let Token::Output(key) | Token::Errors(key) = token {
            self.read_output(key, matches!(token, Token::Errors(_)));
        }
    }

    fn read_output(&mut self, key: Key, is_error: bool) {
        let is_crowded = self.stream_of_output(key).is_some_and(Stream::is_crowded);
        let pauses = is_crowded || self.workers.logs.is_behind(self.turn.now);
        self.read_pipe(key, is_error, pauses);
    }

    /// Reads once from the pipes that wait for who is shown what is in them: somebody asks for it now. Those that wait for the disk
    /// go on waiting (LOGS-1).
    pub(super) fn read_paused_output(&mut self) {
        if self.workers.logs.is_behind(self.turn.now) {
            return;
        }
        for key in self.workers.paused().collect::<Vec<_>>() {
            if !self.stream_of_output(key).is_some_and(Stream::is_overcrowded) {
                self.read_pipe(key, false, false);
                self.read_pipe(key, true, false);
            }
        }
    }

    /// The stream by which what a worker prints goes to who is shown it.
    fn stream_of_output(&self, key: Key) -> Option<&Stream> {
        let way = self.core.log_target(key).map(|target| self.way_to(target))?;
        self.streams.get(way)
    }

    fn read_pipe(&mut self, key: Key, is_error: bool, pauses: bool) {
        let target = self.core.log_target(key);
        if let Some((pid, printed)) = self.workers.read(&self.poller, key, is_error, pauses) {
            self.show(key, target, pid, is_error, printed);
        }
    }

    /// The worker's processes are dead: what they printed last is in the pipes.
    pub(super) fn drain_output(&mut self, key: Key) {
        let target = self.core.log_target(key);
        for is_error in [false, true] {
            let (pid, printed) = self.workers.drain(&self.poller, key, is_error);
            self.show(key, target, pid, is_error, printed);
        }
    }

    /// All of a worker is dead, and all that it said is heard: what it printed last is written before it is told that this
    /// says how it ended (LOGS-2).
    pub(super) fn keep_output_of_dead(&mut self, key: Key, how: String) {
        self.drain_output(key);
        let named = self.core.named_in_logs(key);
        let is_awaited = named.is_some() && how != END_AS_USUAL && self.workers.has_printed(key);
        if let Some((worker, _)) = named {
            self.workers.logs.end(worker, how == END_AS_USUAL, is_awaited.then_some(key));
        }
        if is_awaited {
            self.workers.leave(key, how, self.turn.now + LEAVING_LIMIT);
        } else {
            self.worker_is_gone(key, &how);
        }
    }

    /// All that a dead worker printed is written, or was waited for long enough.
    pub(super) fn worker_is_kept(&mut self, key: Key, file: Option<PathBuf>) {
        let Some(how) = self.workers.take_leaving(key) else { return };
        let text = match file {
            Some(file) => format!("{how}; its last output is in {} on {}", file.display(), self.core.own_ip()),
            None => how,
        };
        self.worker_is_gone(key, &text);
    }

    pub(super) fn end_overdue_output(&mut self) {
        if self.workers.logs.gives_up(self.turn.now) {
            self.resume_all_output();
        }
        for key in self.workers.overdue(self.turn.now) {
            self.log
                .line(&format!("worker {key} is reported as gone before what it printed is written: the disk is slow"));
            self.worker_is_kept(key, None);
        }
    }

    /// The daemon ends, and all its workers have.
    pub(super) fn keep_last_output(&mut self) {
        for key in self.workers.keys() {
            self.drain_output(key);
        }
    }

    /// The driver has read what waited: its workers' output is read again.
    pub(super) fn resume_output(&mut self, way: Key) {
        let leads = |key: &Key| self.core.log_target(*key).is_some_and(|target| self.way_to(target) == way);
        for key in self.workers.paused().filter(leads).collect::<Vec<_>>() {
            self.workers.resume(&self.poller, key);
        }
    }

    /// There is room for what workers print, or is not awaited any more. Whoever still has enough to read is left alone by
    /// the next read.
    pub(super) fn resume_all_output(&mut self) {
        for key in self.workers.paused().collect::<Vec<_>>() {
            self.workers.resume(&self.poller, key);
        }
    }

    /// Has what was printed kept, and shows it where there is a driver that wants to see it.
    fn show(&mut self, worker: Key, target: Option<Key>, pid: u32, error: bool, printed: Vec<Printed>) {
        if printed.is_empty() {
            return;
        }
        if let Some(named) = self.core.named_in_logs(worker) {
            self.workers.keep(worker, named, error, &printed);
        }
        let Some(target) = target else { return };
        let head = self.core.head_key();
        if self.membership.away.is_some() && head == Some(target) {
            return self.count_unshown(worker, &printed);
        }
        let is_apart = head == Some(target) || self.core.is_apart(worker, target);
        let ip = if is_apart { self.core.own_ip().to_owned() } else { String::new() };
        for piece in printed {
            let Printed::Lines { name, lines } = piece else { continue };
            let ip = ip.clone();
            let printed = Message::from(LogLines { pid, name, error, lines, ip });
            let message = if head == Some(target) { printed.relayed(WorkerNumber(worker)).into() } else { printed };
            self.queue(target, &message, Vec::new());
        }
    }
}
