//! The processes of workers: what each is, what it prints, and the memory and processes that it may have.

pub(crate) mod memory;
mod output;

use crate::control_groups::ControlGroups;
use crate::fences::{Doors, Fences};
use crate::log_client::LogClient;
use crate::poller::{Poller, Token};
use crate::rulesets::Rulesets;
use memory::MemoryWatch;
use output::{Pipe, READ_BYTES};
use oxiray_ids::{JobId, WorkerId};
use oxiray_logs::{FileName, Printed};
use oxiray_machine::{Key, TemplateKey};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// A worker's process, from the order to fork it until its tree is gone.
#[derive(Debug)]
struct Process {
    template: TemplateKey,
    /// 0 until it is forked.
    pid: u32,
    pidfd: Option<OwnedFd>,
    /// To be killed as soon as it can be.
    is_doomed: bool,
    /// How it ended, once all that descends from it is gone; what it said last is yet to be heard.
    end: Option<String>,
    /// How it ended, once that is heard; what it printed last is yet to be written, for which is waited until then.
    leaving: Option<(String, Instant)>,
    /// Whether there is anything in its files.
    has_printed: bool,
    output: Pipe,
    errors: Pipe,
    /// The files by which it enters its control groups, and where its template did not fork it, the ends that it is to have.
    doors: Doors,
    given_back: Option<[OwnedFd; 3]>,
}

impl Process {
    fn pipe(&mut self, is_error: bool) -> &mut Pipe {
        if is_error { &mut self.errors } else { &mut self.output }
    }
}

/// All workers' processes.
#[derive(Debug)]
pub(crate) struct Workers {
    by_key: BTreeMap<Key, Process>,
    by_pid: BTreeMap<u32, Key>,
    pub(crate) control_groups: ControlGroups,
    pub(crate) fences: Fences,
    pub(crate) rulesets: Rulesets,
    pub(crate) memory: MemoryWatch,
    pub(crate) logs: LogClient,
    /// What pipes are read into.
    scratch: Box<[u8]>,
}

impl Workers {
    /// `logs` has what workers print written.
    pub(crate) fn new((control_groups, fences): (ControlGroups, Fences), memory: MemoryWatch, logs: LogClient) -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_pid: BTreeMap::new(),
            control_groups,
            fences,
            rulesets: Rulesets::default(),
            memory,
            logs,
            scratch: vec![0; READ_BYTES].into(),
        }
    }

    pub(crate) fn has(&self, key: Key) -> bool {
        self.by_key.contains_key(&key)
    }

    /// The process of a worker; 0 where it is not forked yet, or gone.
    pub(crate) fn pid_of(&self, key: Key) -> u32 {
        self.by_key.get(&key).map_or(0, |process| process.pid)
    }

    pub(crate) fn of_pid(&self, pid: u32) -> Option<Key> {
        self.by_pid.get(&pid).copied()
    }

    /// The workers that a template forked, or is to fork.
    pub(crate) fn of_template(&self, template: TemplateKey) -> Vec<Key> {
        self.by_key.iter().filter(|(_, process)| process.template == template).map(|(key, _)| *key).collect()
    }

    /// The processes that are there.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.by_key.values().map(|process| process.pid).filter(|pid| *pid > 0).collect()
    }

    /// Bytes of memory that each worker's processes have for themselves.
    pub(crate) fn own_bytes(&self) -> BTreeMap<Key, u64> {
        let living = self.by_key.iter().filter(|(_, process)| process.pid > 0);
        living.map(|(key, process)| (*key, memory::own_bytes(process.pid))).collect()
    }

    // --- from the order to fork a worker until all of it is gone ---

    /// A worker is to be forked, enters its control groups by these doors, and prints into these pipes.
    pub(crate) fn add(&mut self, key: Key, template: TemplateKey, doors: Doors, pipes: [OwnedFd; 2]) {
        let [output, errors] = pipes.map(Pipe::new);
        let process = Process {
            template,
            pid: 0,
            pidfd: None,
            is_doomed: false,
            end: None,
            leaving: None,
            has_printed: false,
            output,
            errors,
            doors,
            given_back: None,
        };
        self.by_key.insert(key, process);
    }

    /// Its template did not fork a worker, and another one is to do so, with these ends.
    pub(crate) fn give_back(&mut self, key: Key, ends: [OwnedFd; 3]) {
        if let Some(process) = self.by_key.get_mut(&key) {
            process.given_back = Some(ends);
        }
    }

    /// That other template is this one; nothing where the worker is a new one.
    pub(crate) fn given_back_to(&mut self, key: Key, template: TemplateKey) -> Option<(Doors, [OwnedFd; 3])> {
        let process = self.by_key.get_mut(&key)?;
        let ends = process.given_back.take()?;
        process.template = template;
        Some((process.doors.clone(), ends))
    }

    /// A worker was forked. Returns whether it is to be killed already; nothing where nobody knows it any more.
    pub(crate) fn forked(&mut self, key: Key, pid: u32, pidfd: Option<OwnedFd>) -> Option<bool> {
        let process = self.by_key.get_mut(&key)?;
        (process.pid, process.pidfd) = (pid, pidfd);
        self.by_pid.insert(pid, key);
        Some(process.is_doomed)
    }

    /// A descriptor of the worker's own process.
    pub(crate) fn pidfd_of(&self, key: Key) -> Option<&OwnedFd> {
        self.by_key.get(&key)?.pidfd.as_ref()
    }

    /// Kills a worker, at once or as soon as it is forked.
    pub(crate) fn kill(&mut self, key: Key) -> Result<(), Errno> {
        let Some(process) = self.by_key.get_mut(&key) else { return Ok(()) };
        process.is_doomed = true;
        self.control_groups.end(key);
        process.pidfd.as_ref().map_or(Ok(()), oxiray_processes::kill_by_pidfd)
    }

    /// All of a worker is dead, in this way; `false` where that is known already. What it said last is yet to be heard.
    pub(crate) fn ended(&mut self, key: Key, text: &str) -> bool {
        let is_new = |process: &&mut Process| process.end.is_none() && process.leaving.is_none();
        let Some(process) = self.by_key.get_mut(&key).filter(is_new) else { return false };
        process.end = Some(text.to_owned());
        // Another process may have its number from here on.
        self.by_pid.remove(&process.pid);
        true
    }

    /// How a worker ended of which all is dead.
    pub(crate) fn take_end(&mut self, key: Key) -> Option<String> {
        self.by_key.get_mut(&key)?.end.take()
    }

    /// What a worker of which all is dead has said and printed is heard, and is waited for until it is written.
    pub(crate) fn leave(&mut self, key: Key, text: String, until: Instant) {
        if let Some(process) = self.by_key.get_mut(&key) {
            process.leaving = Some((text, until));
        }
    }

    /// Whether a worker has printed anything that is kept.
    pub(crate) fn has_printed(&self, key: Key) -> bool {
        self.by_key.get(&key).is_some_and(|process| process.has_printed)
    }

    /// How a worker ended whose last output was waited for.
    pub(crate) fn take_leaving(&mut self, key: Key) -> Option<String> {
        self.by_key.get_mut(&key)?.leaving.take().map(|(text, _)| text)
    }

    /// Until when is waited for what the dead printed.
    pub(crate) fn leaving_deadline(&self) -> Option<Instant> {
        self.by_key.values().filter_map(|process| process.leaving.as_ref()).map(|(_, until)| *until).min()
    }

    /// Those for whose output was waited long enough.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<Key> {
        let is_overdue = |process: &Process| process.leaving.as_ref().is_some_and(|(_, until)| *until <= now);
        self.by_key.iter().filter(|(_, process)| is_overdue(process)).map(|(key, _)| *key).collect()
    }

    /// All that are or were forked and not gone.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.by_key.keys().copied().collect()
    }

    /// The processes in the control groups of a worker of which all is dead.
    pub(crate) fn left_in_groups(&self, key: Key) -> Vec<u32> {
        let mut left = self.control_groups.left(key);
        left.extend(self.fences.left(key));
        left.sort_unstable();
        left.dedup();
        left
    }

    /// Ends all that is known of a worker here, in whose control groups nobody is where that was just seen.
    pub(crate) fn remove(&mut self, poller: &Poller, key: Key, is_left_empty: bool) {
        if let Some(process) = self.by_key.remove(&key)
            && let Some(pidfd) = &process.pidfd
        {
            poller.forget(pidfd);
        }
        self.fences.release(key, &self.control_groups);
        self.control_groups.release(key, is_left_empty);
    }

    // --- what it prints ---

    /// From here on a worker's output is read: its process id is known.
    pub(crate) fn watch_output(&self, poller: &Poller, key: Key) -> Result<(), Errno> {
        let Some(process) = self.by_key.get(&key) else { return Ok(()) };
        let output = poller.watch(&process.output.descriptor, Token::Output(key));
        output.and(poller.watch(&process.errors.descriptor, Token::Errors(key)))
    }

    /// One read of a worker's output, and the process that printed it; nothing of it is read where it is to pause.
    pub(crate) fn read(
        &mut self,
        poller: &Poller,
        key: Key,
        is_error: bool,
        pauses: bool,
    ) -> Option<(u32, Vec<Printed>)> {
        let process = self.by_key.get_mut(&key)?;
        let pid = process.pid;
        let pipe = process.pipe(is_error);
        if pauses {
            pipe.is_paused = true;
            poller.forget(&pipe.descriptor);
            return None;
        }
        let printed = pipe.read(&mut self.scratch);
        if pipe.is_over {
            poller.forget(&pipe.descriptor);
        }
        Some((pid, printed?))
    }

    /// All that a worker of which all is dead has printed into a pipe and that was not read yet.
    pub(crate) fn drain(&mut self, poller: &Poller, key: Key, is_error: bool) -> (u32, Vec<Printed>) {
        let Some(process) = self.by_key.get_mut(&key) else { return (0, Vec::new()) };
        let pid = process.pid;
        let pipe = process.pipe(is_error);
        poller.forget(&pipe.descriptor);
        let mut all = Vec::new();
        // Somebody else may have the other end, and print for ever.
        for _ in 0..pipe.reads_left() {
            match pipe.read(&mut self.scratch) {
                Some(printed) => all.extend(printed),
                None => break,
            }
        }
        all.extend(pipe.finish());
        (pid, all)
    }

    /// The workers whose output is not read, since whom it is for has enough to read.
    pub(crate) fn paused(&self) -> impl Iterator<Item = Key> {
        let is_paused = |process: &Process| process.output.is_paused || process.errors.is_paused;
        self.by_key.iter().filter(move |(_, process)| is_paused(process)).map(|(key, _)| *key)
    }

    /// A worker's output is read again.
    pub(crate) fn resume(&mut self, poller: &Poller, key: Key) {
        let Some(process) = self.by_key.get_mut(&key) else { return };
        for (pipe, token) in [(&mut process.output, Token::Output(key)), (&mut process.errors, Token::Errors(key))] {
            if std::mem::replace(&mut pipe.is_paused, false) {
                // It fails only where the descriptor is watched already.
                let _ = poller.watch(&pipe.descriptor, token);
            }
        }
    }

    /// Has what a worker has printed written to its file.
    pub(crate) fn keep(&mut self, key: Key, (worker, job): (WorkerId, JobId), is_error: bool, pieces: &[Printed]) {
        let Some(process) = self.by_key.get_mut(&key) else { return };
        process.has_printed |= pieces.iter().any(|piece| matches!(piece, Printed::Lines { .. }));
        let name = FileName { worker, job, pid: process.pid, is_error };
        let pipe = process.pipe(is_error);
        pipe.missed = self.logs.keep(name, pieces, pipe.missed);
    }
}
