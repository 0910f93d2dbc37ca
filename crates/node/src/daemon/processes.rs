//! Templates and workers: started, killed, mourned.

use super::descriptors::{in_words, with_reserve};
use super::interpreters::{self, program, safe_value};
use super::output::Pipe;
use super::streams::{Role, Stream};
use super::{Daemon, MOMENT, Process, TemplateProcess, Token};
use oxiray_machine::{Key, Origin, TemplateKey};
use oxiray_processes::{describe_status, expanded};
use oxiray_wire::connection::ConnectionError;
use oxiray_wire::message::{Direction as _, Fork, Forked, TemplateToDaemon};
use oxiray_wire::{Connection, Received};
use rustix::pipe::PipeFlags;
use rustix::process::Signal;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the end of the daemon waits for processes that do not die, such as those stuck in a driver.
const ENDING_LIMIT: Duration = Duration::from_secs(10);

/// What a template runs, on an interpreter that may lack what it takes.
const TEMPLATE_PROGRAM: &str = program!("oxiray._template");
/// The file of a session that has the same.
const TEMPLATE_FILE: &str = "template.py";
/// The variable by which whatever a session started is known when its daemon was killed: its directory.
pub(super) const SESSION_VARIABLE: &str = "OXIRAY_SESSION";

impl TemplateProcess {
    /// Starts the interpreter or program. The caller registers the process with its brood.
    pub(super) fn start(origin: &Origin, session: &Path, output: File) -> io::Result<Self> {
        let (connection, far) = Connection::pair()?;
        // A duplicate that is inherited; nothing else is started while it is open.
        let inherited = rustix::io::dup(&far)?;
        let (program, arguments) = origin.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = if origin.native {
            Command::new(program)
        } else {
            let mut command = interpreters::command(program)?;
            command.args(arguments);
            if arguments.is_empty() {
                command.args(["-c", TEMPLATE_PROGRAM]);
            } else {
                // What starts interpreters knows files; only an interpreter itself is sure to know the faster `-c`.
                let file = std::fs::canonicalize(session)?.join(TEMPLATE_FILE);
                std::fs::write(&file, TEMPLATE_PROGRAM)?;
                command.arg(file);
            }
            command
        };
        command.env("OXIRAY_TEMPLATE_FD", inherited.as_raw_fd().to_string());
        command.env(SESSION_VARIABLE, session);
        for variable in &origin.variables {
            match &variable.value {
                Some(value) => command.env(&variable.name, safe_value(&variable.name, expanded(value))),
                None => command.env_remove(&variable.name),
            };
        }
        if !origin.preload.is_empty() {
            let preload = serde_json::json!({
                "modules": origin.preload, "path": origin.preload_path, "session": session,
            });
            command.env("OXIRAY_TEMPLATE_PRELOAD", preload.to_string());
        }
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn()?;
        Ok(Self { pid: child.id(), origin: origin.clone(), connection })
    }
}

impl Daemon {
    pub(super) fn start_template(&mut self, key: TemplateKey, origin: &Origin) {
        let early = self.early_template.take_if(|early| early.origin == *origin);
        let session = self.session.directory();
        let started = early.map_or_else(
            || {
                let started = self.log.handle().and_then(|output| TemplateProcess::start(origin, session, output))?;
                self.brood.register(started.pid);
                Ok(started)
            },
            Ok,
        );
        match started {
            Ok(template) => {
                if let Err(error) = self.poller.watch(&template.connection, Token::Template(key)) {
                    self.log.line(&format!("template {key} cannot be watched: {error}"));
                }
                self.unstarted.remove(&key);
                self.templates.insert(key, template);
            }
            Err(error) => {
                let error: io::Error = error;
                let command = origin.command.join(" ");
                self.log.line(&format!("the template process of {command} cannot be started: {error}"));
                let (node, host) = (self.core.own_node(), self.core.own_ip());
                let text = format!(
                    "could not be started: node {node} ({host}) cannot run {command} ({error}). Have the program's \
                     interpreter at the same path there, or start the node with the `oxiray` command of an installation for \
                     the same version of Python"
                );
                self.unstarted.insert(key, text);
                self.core.template_gone(key);
            }
        }
    }

    /// The template ends with its stream; its process is reaped like any other.
    pub(super) fn end_template(&mut self, key: TemplateKey) {
        if let Some(template) = self.templates.get(&key) {
            // It fails where the template is gone already.
            let _ = rustix::net::shutdown(&template.connection, rustix::net::Shutdown::Both);
        }
    }

    pub(super) fn fork_worker(&mut self, key: Key, template: TemplateKey) {
        if !self.templates.contains_key(&template) {
            let text = self.unstarted.get(&template).cloned();
            let unknown = || "could not be started: its interpreter does not run; daemon.log tells more".to_owned();
            return self.core.worker_gone(key, &text.unwrap_or_else(unknown));
        }
        if let Err(error) = self.order_fork(key, template) {
            let error = in_words(&error);
            self.log.line(&format!("worker {key} cannot be forked: {error}"));
            self.core.worker_gone(key, &format!("could not be started: {error}"));
        }
    }

    fn order_fork(&mut self, key: Key, template: TemplateKey) -> io::Result<()> {
        let (control, far) = Connection::pair()?;
        let groups = self.groups_of_new(key);
        let (output, output_far) = reading_pipe()?;
        let (errors, errors_far) = reading_pipe()?;
        let process = Process {
            template,
            pid: 0,
            pidfd: None,
            is_doomed: false,
            end: None,
            output: Pipe::new(output),
            errors: Pipe::new(errors),
        };
        self.processes.insert(key, process);
        self.add_stream(key, Stream::new(control, Role::Worker, 0));
        let to = self.templates.get_mut(&template).expect("the caller looked");
        to.connection.send_with(&Fork { request: key, groups }.into(), vec![far, output_far, errors_far]);
        self.flush_template(template);
        Ok(())
    }

    fn flush_template(&mut self, key: TemplateKey) {
        if let Some(template) = self.templates.get_mut(&key) {
            // An error is the end of the template, which its process announces.
            let is_empty = template.connection.flush().unwrap_or(true);
            self.poller.watch_for(&template.connection, Token::Template(key), true, !is_empty);
        }
    }

    pub(super) fn serve_template(&mut self, key: TemplateKey) {
        let mut inbox = Vec::new();
        let Some(template) = self.templates.get_mut(&key) else { return };
        // The descriptors of its workers come along.
        if let Err(error) = with_reserve(|| template.connection.receive(&mut inbox)) {
            self.template_over(key, &error);
        } else if template.connection.unsent_bytes() > 0 {
            self.flush_template(key);
        }
        for Received { message, descriptors } in inbox {
            match TemplateToDaemon::of(message) {
                Ok(message) => self.template_said(key, message, descriptors.into_iter().next()),
                Err(error) => return self.template_over(key, &error.into()),
            }
        }
    }

    /// Nothing more is heard of a template.
    fn template_over(&mut self, key: TemplateKey, error: &ConnectionError) {
        let Some(template) = self.templates.get_mut(&key) else { return };
        self.poller.forget(&template.connection);
        if !matches!(error, ConnectionError::Closed) {
            // Nobody would hear it any more.
            self.log.line(&format!("the connection of template {key} ends, and so does it: {error}"));
            self.brood.kill(template.pid);
        }
    }

    fn template_said(&mut self, template: TemplateKey, message: TemplateToDaemon, pidfd: Option<OwnedFd>) {
        match message {
            TemplateToDaemon::TemplateReady(said) => {
                self.log.line(&format!("template {template} is ready after {} ms", said.started_us / 1000));
                if !said.notice.is_empty() {
                    self.core.template_says(template, &said.notice);
                }
            }
            TemplateToDaemon::Forked(said) => self.worker_forked(&said, pidfd),
            TemplateToDaemon::Gone(said) => {
                if let Some(key) = self.by_pid.get(&said.pid).copied() {
                    if said.stragglers > 0 {
                        let text = format!(
                            "worker {key}, pid {}, left {} processes that were killed",
                            said.pid, said.stragglers
                        );
                        self.log.line(&text);
                    }
                    if said.status & 0x7f == Signal::KILL.as_raw() {
                        self.worker_was_killed(key);
                    }
                    self.finish_worker(key, &describe_status(said.status));
                }
            }
        }
    }

    fn worker_forked(&mut self, said: &Forked, pidfd: Option<OwnedFd>) {
        let key = said.request;
        let Some(process) = self.processes.get_mut(&key) else { return };
        if said.pid == 0 {
            return self.finish_worker(key, &format!("could not be forked: {}", said.text));
        }
        process.pid = said.pid;
        self.by_pid.insert(said.pid, key);
        if let Some(pidfd) = pidfd {
            if let Err(error) = self.poller.watch(&pidfd, Token::Worker(key)) {
                self.log.line(&format!("worker {key} cannot be watched: {error}"));
            }
            process.pidfd = Some(pidfd);
        }
        let is_doomed = process.is_doomed;
        self.core.forked(key, said.pid);
        self.watch_output(key);
        if is_doomed {
            self.kill_worker(key);
        }
    }

    pub(super) fn kill_worker(&mut self, key: Key) {
        let Some(process) = self.processes.get_mut(&key) else { return };
        process.is_doomed = true;
        self.control_groups.end(key);
        if let Some(pidfd) = &process.pidfd
            && let Err(error) = oxiray_processes::kill_by_pidfd(pidfd)
        {
            self.log.line(&format!("worker {key}, pid {}, cannot be killed: {error}", process.pid));
        }
    }

    /// The process itself is dead; its template looks for what descends from it.
    pub(super) fn worker_process_died(&mut self, key: Key) {
        if let Some(pidfd) = self.processes.get(&key).and_then(|process| process.pidfd.as_ref()) {
            self.poller.forget(pidfd);
            self.look_for_kills(key);
            self.control_groups.end(key);
            // Its words come before its death, unless there are very many.
            if self.hear(key, Instant::now() + MOMENT) {
                self.turns.add(Token::Stream(key));
            }
            self.core.worker_died(key);
        }
    }

    /// The worker and everything that descends from it are dead. What it said and printed last comes first.
    fn finish_worker(&mut self, key: Key, text: &str) {
        let Some(process) = self.processes.get_mut(&key).filter(|process| process.end.is_none()) else { return };
        process.end = Some(text.to_owned());
        // Another process may have its number from here on.
        self.by_pid.remove(&process.pid);
        if !self.hear_out(key) {
            self.worker_heard_out(key);
        }
    }

    /// There is nothing more to be heard of a worker: where all of it is dead, that is its end.
    pub(super) fn worker_heard_out(&mut self, key: Key) {
        let Some(text) = self.processes.get_mut(&key).and_then(|process| process.end.take()) else { return };
        self.drain_output(key);
        let text = self.with_last_words(key, &text);
        self.remove_stream(key);
        self.turns.forget(Token::Output(key));
        self.turns.forget(Token::Errors(key));
        if let Some(process) = self.processes.remove(&key)
            && let Some(pidfd) = &process.pidfd
        {
            self.poller.forget(pidfd);
        }
        self.control_groups.release(key);
        self.core.worker_gone(key, &text);
    }

    /// Children of the daemon died. A template takes its workers with it: they are dead by then, too.
    pub(super) fn reap_templates(&mut self) {
        for departed in with_reserve(|| self.brood.reap()) {
            if self.preparation_ended(departed.pid, departed.status)
                || self.submission_ended(departed.pid, departed.status)
            {
                continue;
            }
            let Some(key) =
                self.templates.iter().find(|(_, template)| template.pid == departed.pid).map(|(key, _)| *key)
            else {
                continue;
            };
            let mut how = describe_status(departed.status);
            if departed.status > 0xff
                && let Some(words) = self.log.last_line()
            {
                how = format!("{how}, saying `{words}`");
            }
            self.log.line(&format!("template {key}, pid {}, is gone: {how}", departed.pid));
            self.serve_template(key);
            if let Some(template) = self.templates.remove(&key) {
                self.poller.forget(&template.connection);
            }
            self.core.template_gone(key);
            let (node, host) = (self.core.own_node(), self.core.own_ip().to_owned());
            let orphans = self.processes.iter().filter(|(_, process)| process.template == key).map(|(key, _)| *key);
            for worker in orphans.collect::<Vec<_>>() {
                self.finish_worker(
                    worker,
                    &format!(
                        "died with the process that workers are forked from on node {node} ({host}), which was {how}; \
                         daemon.log tells more"
                    ),
                );
            }
        }
    }

    /// Kills every process that descends from the daemon, and waits for it.
    pub(super) fn end_brood(&mut self) {
        let until = Instant::now() + ENDING_LIMIT;
        loop {
            with_reserve(|| {
                self.brood.kill_all();
                self.brood.reap()
            });
            let left = until.saturating_duration_since(Instant::now());
            if self.brood.is_empty() {
                return;
            }
            if left.is_zero() {
                let living: Vec<u32> = self.brood.living().collect();
                return self.log.line(&format!("these processes do not die, and are left behind: {living:?}"));
            }
            let limit = rustix::event::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let watch = self.brood.watch_fd();
            let _ = rustix::event::poll(
                &mut [rustix::event::PollFd::from_borrowed_fd(watch, rustix::event::PollFlags::IN)],
                Some(&limit),
            );
        }
    }
}

/// A pipe whose reading end does not block.
fn reading_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (near, far) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&near, true)?;
    Ok((near, far))
}
