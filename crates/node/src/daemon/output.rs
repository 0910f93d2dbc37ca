//! What workers print: kept in files, shown to the driver.

use super::Daemon;
use crate::logs::Printed;
use crate::streams::Stream;
use oxiray_ids::WorkerNumber;
use oxiray_machine::Key;
use oxiray_wire::Message;
use oxiray_wire::message::LogLines;

/// How a worker ends that was asked to, in the words of `describe_status`.
const END_AS_USUAL: &str = "exited with status 0";

impl Daemon {
    pub(super) fn read_output(&mut self, key: Key, is_error: bool) {
        let target = self.core.log_target(key);
        let way = target.map(|target| self.way_to(target));
        let is_crowded = way.and_then(|way| self.streams.get(way)).is_some_and(Stream::is_crowded);
        if let Some((pid, printed)) = self.workers.read(&self.poller, key, is_error, is_crowded) {
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

    /// How a worker ended, and where to read what it said last, if it did not end well and said anything.
    pub(super) fn with_last_words(&self, key: Key, how: &str) -> String {
        let named = self.core.named_in_logs(key).filter(|_| how != END_AS_USUAL);
        match named.and_then(|named| self.workers.file_of(key, named)) {
            Some(file) => format!("{how}; its last output is in {} on {}", file.display(), self.core.own_ip()),
            None => how.to_owned(),
        }
    }

    /// The driver has read what waited: its workers' output is read again.
    pub(super) fn resume_output(&mut self, way: Key) {
        let leads = |key: &Key| self.core.log_target(*key).is_some_and(|target| self.way_to(target) == way);
        for key in self.workers.paused().filter(leads).collect::<Vec<_>>() {
            self.workers.resume(&self.poller, key);
        }
    }

    /// Keeps what was printed, and shows it where there is a driver that wants to see it.
    fn show(&mut self, worker: Key, target: Option<Key>, pid: u32, error: bool, printed: Vec<Printed>) {
        if printed.is_empty() {
            return;
        }
        if let Some(named) = self.core.named_in_logs(worker) {
            self.workers.keep(worker, named, error, &printed);
        }
        let Some(target) = target else { return };
        let head = self.core.head_key();
        for Printed { name, lines } in printed {
            let printed = Message::from(LogLines { pid, name, error, lines });
            let message = if head == Some(target) { printed.relayed(WorkerNumber(worker)).into() } else { printed };
            self.queue(target, &message, Vec::new());
        }
    }
}
