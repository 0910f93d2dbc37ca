//! What workers print: read, cut into lines, kept in files, shown to the driver.

use super::{Daemon, Token};
use crate::logs::{Printed, Splitter};
use oxiray_machine::Key;
use oxiray_wire::Message;
use oxiray_wire::message::LogLines;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// How much is read of one pipe before others get their turn.
pub(super) const READ_BYTES: usize = 64 << 10;

/// How a worker ends that was asked to, in the words of `describe_status`.
const END_AS_USUAL: &str = "exited with status 0";

/// The reading end of a worker's output.
#[derive(Debug)]
pub(super) struct Pipe {
    descriptor: OwnedFd,
    splitter: Splitter,
    is_over: bool,
    /// Not watched, since whom it is for has enough to read.
    is_paused: bool,
}

impl Pipe {
    pub(super) fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor, splitter: Splitter::default(), is_over: false, is_paused: false }
    }

    /// How many reads take all that is there, and find the end after it.
    fn reads_left(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.descriptor).unwrap_or(0).div_ceil(READ_BYTES as u64) + 1
    }

    /// One read; nothing where nothing is there, and the last piece at the end.
    fn read(&mut self, buffer: &mut [u8]) -> Option<Vec<Printed>> {
        if self.is_over {
            return None;
        }
        match rustix::io::read(&self.descriptor, &mut *buffer) {
            Ok(0) => {
                self.is_over = true;
                Some(self.splitter.finish())
            }
            Ok(read) => Some(self.splitter.feed(&buffer[..read])),
            Err(Errno::INTR) => Some(Vec::new()),
            Err(_) => None,
        }
    }
}

impl Daemon {
    /// From here on the worker's output is read: its process id is known.
    pub(super) fn watch_output(&mut self, key: Key) {
        let Some(process) = self.processes.get(&key) else { return };
        for (pipe, token) in [(&process.output, Token::Output(key)), (&process.errors, Token::Errors(key))] {
            if let Err(error) = self.poller.watch(&pipe.descriptor, token) {
                self.log.line(&format!("the output of worker {key} cannot be watched: {error}"));
            }
        }
    }

    pub(super) fn read_output(&mut self, key: Key, is_error: bool) {
        let target = self.core.log_target(key);
        let way = target.map(|target| self.way_to(target));
        let is_crowded = way.and_then(|way| self.streams.get(&way)).is_some_and(super::Stream::is_crowded);
        let Some(process) = self.processes.get_mut(&key) else { return };
        let pid = process.pid;
        let pipe = if is_error { &mut process.errors } else { &mut process.output };
        if is_crowded {
            pipe.is_paused = true;
            return self.poller.forget(&pipe.descriptor);
        }
        let printed = pipe.read(&mut self.scratch);
        if pipe.is_over {
            self.poller.forget(&pipe.descriptor);
        }
        self.show(key, target, pid, is_error, printed.unwrap_or_default());
    }

    /// The worker's processes are dead: what they printed last is in the pipes.
    pub(super) fn drain_output(&mut self, key: Key) {
        let target = self.core.log_target(key);
        for is_error in [false, true] {
            let pipe = self.processes.get(&key).map(|process| if is_error { &process.errors } else { &process.output });
            // Somebody else may have the other end, and print for ever.
            for _ in 0..pipe.map_or(0, Pipe::reads_left) {
                let Some(process) = self.processes.get_mut(&key) else { return };
                let pid = process.pid;
                let pipe = if is_error { &mut process.errors } else { &mut process.output };
                self.poller.forget(&pipe.descriptor);
                match pipe.read(&mut self.scratch) {
                    Some(printed) => self.show(key, target, pid, is_error, printed),
                    None => break,
                }
            }
            let Some(process) = self.processes.get_mut(&key) else { return };
            let pid = process.pid;
            let pipe = if is_error { &mut process.errors } else { &mut process.output };
            let rest = pipe.splitter.finish();
            self.show(key, target, pid, is_error, rest);
        }
    }

    /// How a worker ended, and where to read what it said last, if it did not end well and said anything.
    pub(super) fn with_last_words(&self, key: Key, how: &str) -> String {
        let named = self.core.named_in_logs(key).filter(|_| how != END_AS_USUAL);
        let pid = self.processes.get(&key).map_or(0, |process| process.pid);
        let files = named.map(|named| [true, false].map(|is_error| self.worker_logs.path(named, pid, is_error)));
        match files.into_iter().flatten().find(|file| file.exists()) {
            Some(file) => format!("{how}; its last output is in {} on {}", file.display(), self.core.own_ip()),
            None => how.to_owned(),
        }
    }

    /// The driver has read what waited: its workers' output is read again.
    pub(super) fn resume_output(&mut self, way: Key) {
        let paused = self.processes.iter().filter(|(_, process)| process.output.is_paused || process.errors.is_paused);
        let leads = |key: &Key| self.core.log_target(*key).is_some_and(|target| self.way_to(target) == way);
        let keys: Vec<Key> = paused.map(|(key, _)| *key).filter(leads).collect();
        for key in keys {
            let Some(process) = self.processes.get_mut(&key) else { continue };
            for (pipe, token) in [(&mut process.output, Token::Output(key)), (&mut process.errors, Token::Errors(key))]
            {
                if std::mem::replace(&mut pipe.is_paused, false) {
                    // It fails only where the descriptor is watched already.
                    let _ = self.poller.watch(&pipe.descriptor, token);
                }
            }
        }
    }

    /// Keeps what was printed, and shows it where there is a driver that wants to see it.
    fn show(&mut self, worker: Key, target: Option<Key>, pid: u32, error: bool, printed: Vec<Printed>) {
        if printed.is_empty() {
            return;
        }
        if let Some(named) = self.core.named_in_logs(worker) {
            let path = self.worker_logs.path(named, pid, error);
            let lines: Vec<&[u8]> = printed.iter().map(|printed| &printed.lines[..]).collect();
            self.worker_logs.append(&path, &lines.concat());
        }
        let Some(target) = target else { return };
        let head = self.core.head_key();
        for Printed { name, lines } in printed {
            let printed = Message::from(LogLines { pid, name, error, lines });
            let message = if head == Some(target) { printed.relayed(worker).into() } else { printed };
            self.queue(target, &message, Vec::new());
        }
    }
}
