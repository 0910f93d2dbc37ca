//! Templates and workers: started, killed, mourned.

use super::{Daemon, MOMENT};
use crate::children::leave_commands;
use crate::descriptors::{in_words, with_reserve};
use crate::poller::Token;
use crate::streams::{Role, Stream};
use oxiray_machine::{Key, Origin, TemplateKey};
use oxiray_processes::describe_status;
use oxiray_wire::connection::ConnectionError;
use oxiray_wire::message::{Direction as _, Forked, TemplateToDaemon};
use oxiray_wire::{Connection, Received};
use rustix::pipe::PipeFlags;
use rustix::process::Signal;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

impl Daemon {
    pub(super) fn start_template(&mut self, key: TemplateKey, origin: &Origin) {
        let started = self.children.start_template(origin, self.session.directory(), &self.log);
        match started {
            Ok(template) => {
                if let Err(error) = self.poller.watch(&template.connection, Token::Template(key)) {
                    self.log.line(&format!("template {key} cannot be watched: {error}"));
                }
                self.children.templates.add(key, template);
            }
            Err(error) => {
                let command = origin.command.join(" ");
                self.log.line(&format!("the template process of {command} cannot be started: {error}"));
                let (node, host) = (self.core.own_node(), self.core.own_ip());
                let text = format!(
                    "could not be started: node {node} ({host}) cannot run {command} ({error}). Have the program's \
                     interpreter at the same path there, or start the node with the `oxiray` command of an installation for \
                     the same version of Python"
                );
                self.children.templates.not_started(key, text);
                self.core.template_gone(key);
            }
        }
    }

    pub(super) fn fork_worker(
        &mut self,
        key: Key,
        (template, even_with_devices): (TemplateKey, bool),
        is_fenced: bool,
    ) {
        if let Err(why) = self.children.templates.runs(template) {
            let unknown = "could not be started: its interpreter does not run; daemon.log says more";
            let why = why.unwrap_or(unknown).to_owned();
            return if self.workers.has(key) {
                self.finish_worker(key, &why);
            } else {
                self.core.worker_gone(key, &why);
            };
        }
        if let Some((doors, ends)) = self.workers.given_back_to(key, template) {
            let of_template = (template, even_with_devices);
            return self.children.templates.fork(&self.poller, of_template, (key, doors), ends);
        }
        if let Err(error) = self.order_fork(key, (template, even_with_devices), is_fenced) {
            let error = in_words(&error);
            self.log.line(&format!("worker {key} cannot be forked: {error}"));
            self.core.worker_gone(key, &format!("could not be started: {error}"));
        }
    }

    fn order_fork(&mut self, key: Key, of_template: (TemplateKey, bool), is_fenced: bool) -> io::Result<()> {
        let (control, far) = Connection::pair()?;
        let doors = self.doors_of_new(key, is_fenced);
        let (output, output_far) = reading_pipe()?;
        let (errors, errors_far) = reading_pipe()?;
        self.workers.add(key, of_template.0, doors.clone(), [output, errors]);
        self.add_stream(key, Stream::new(control, Role::Worker, 0));
        self.children.templates.fork(&self.poller, of_template, (key, doors), [far, output_far, errors_far]);
        Ok(())
    }

    pub(super) fn serve_template(&mut self, key: TemplateKey) {
        let (inbox, result) = self.children.templates.receive(&self.poller, key);
        if let Err(error) = result {
            self.template_over(key, &error);
        }
        for Received { message, descriptors } in inbox {
            match TemplateToDaemon::of(message) {
                Ok(message) => self.template_said(key, message, descriptors),
                Err(error) => return self.template_over(key, &error.into()),
            }
        }
    }

    /// Nothing more is heard of a template.
    fn template_over(&mut self, key: TemplateKey, error: &ConnectionError) {
        let Some(template) = self.children.templates.get_mut(key) else { return };
        self.poller.forget(&template.connection);
        if !matches!(error, ConnectionError::Closed) {
            // Nobody would hear it any more.
            self.log.line(&format!("the connection of template {key} ends, and so does it: {error}"));
            self.children.reaper.kill(template.pid);
        }
    }

    fn template_said(&mut self, template: TemplateKey, message: TemplateToDaemon, descriptors: Vec<OwnedFd>) {
        match message {
            TemplateToDaemon::TemplateReady(said) => {
                self.log.line(&format!("template {template} is ready after {} ms", said.started_us / 1000));
                if !said.notice.is_empty() {
                    self.log.line(&format!("template {template}: {}", said.notice));
                    self.core.template_says(template, &said.notice);
                }
            }
            TemplateToDaemon::TemplateHolds(said) => self.core.template_holds(template, &said),
            TemplateToDaemon::Forked(said) if said.is_given_back => self.fork_given_back(template, &said, descriptors),
            TemplateToDaemon::Forked(said) => self.worker_forked(&said, descriptors.into_iter().next()),
            TemplateToDaemon::Gone(said) => {
                if let Some(key) = self.workers.of_pid(said.pid) {
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

    /// A template that has a device open has not forked a worker: the one in its place does.
    fn fork_given_back(&mut self, template: TemplateKey, said: &Forked, ends: Vec<OwnedFd>) {
        let key = said.request;
        match <[OwnedFd; 3]>::try_from(ends) {
            Ok(ends) if self.core.fork_given_back(template, key) => self.workers.give_back(key, ends),
            _ => self.finish_worker(key, &format!("could not be forked: {}", said.text)),
        }
    }

    fn worker_forked(&mut self, said: &Forked, pidfd: Option<OwnedFd>) {
        let key = said.request;
        if said.pid == 0 {
            return self.finish_worker(key, &format!("could not be forked: {}", said.text));
        }
        let Some(is_doomed) = self.workers.forked(key, said.pid, pidfd) else { return };
        if let Some(pidfd) = self.workers.pidfd_of(key)
            && let Err(error) = self.poller.watch(pidfd, Token::Worker(key))
        {
            self.log.line(&format!("worker {key} cannot be watched: {error}"));
        }
        self.core.forked(key, said.pid);
        if let Err(error) = self.workers.watch_output(&self.poller, key) {
            self.log.line(&format!("the output of worker {key} cannot be watched: {error}"));
        }
        if is_doomed {
            self.kill_worker(key);
        }
    }

    pub(super) fn kill_worker(&mut self, key: Key) {
        if let Err(error) = self.workers.kill(key) {
            let pid = self.workers.pid_of(key);
            self.log.line(&format!("worker {key}, pid {pid}, cannot be killed: {error}"));
        }
    }

    /// The process itself is dead; its template looks for what descends from it.
    pub(super) fn worker_process_died(&mut self, key: Key) {
        if let Some(pidfd) = self.workers.pidfd_of(key) {
            self.poller.forget(pidfd);
            // Also where it was to be killed: an owner may hear first of a death that the kernel caused, and have it ended.
            self.look_for_kills(key);
            self.workers.control_groups.end(key);
            // Its words come before its death, unless there are very many.
            if self.hear(key, Instant::now() + MOMENT) {
                self.streams.turns.add(Token::Stream(key));
            }
            self.core.worker_died(key);
        }
    }

    /// The worker and everything that descends from it are dead. What it said and printed last comes first.
    fn finish_worker(&mut self, key: Key, text: &str) {
        if self.workers.ended(key, text) && !self.streams.hear_out(key) {
            self.worker_heard_out(key);
        }
    }

    /// There is nothing more to be heard of a worker: where all of it is dead, that is its end.
    pub(super) fn worker_heard_out(&mut self, key: Key) {
        let Some(text) = self.workers.take_end(key) else { return };
        self.remove_stream(key);
        self.streams.turns.forget(Token::Output(key));
        self.streams.turns.forget(Token::Errors(key));
        self.keep_output_of_dead(key, text);
    }

    /// All that there was of a worker is over.
    pub(super) fn worker_is_gone(&mut self, key: Key, text: &str) {
        let is_left_empty = self.core.holds_devices(key) && self.look_at_group(key);
        self.workers.remove(&self.poller, key, is_left_empty);
        self.core.worker_gone(key, text);
    }

    /// Children of the daemon died. A template takes its workers with it: they are dead by then, too.
    pub(super) fn reap_templates(&mut self) {
        leave_commands(&self.children.reaper);
        for departed in with_reserve(|| self.children.reaper.reap()) {
            if self.preparation_ended(departed.pid, departed.status)
                || self.submission_ended(departed.pid, departed.status)
                || self.http_program_ended(departed.pid, departed.status)
            {
                continue;
            }
            let Some(key) = self.children.templates.of_pid(departed.pid) else { continue };
            let mut how = describe_status(departed.status);
            if departed.status > 0xff
                && let Some(words) = self.log.last_line()
            {
                how = format!("{how}, saying `{words}`");
            }
            self.log.line(&format!("template {key}, pid {}, is gone: {how}", departed.pid));
            self.serve_template(key);
            self.children.templates.remove(&self.poller, key);
            self.core.template_gone(key);
            let (node, host) = (self.core.own_node(), self.core.own_ip().to_owned());
            for worker in self.workers.of_template(key) {
                self.finish_worker(
                    worker,
                    &format!(
                        "died with the process that workers are forked from on node {node} ({host}), which was {how}; \
                         daemon.log says more"
                    ),
                );
            }
        }
    }

    /// Kills every process that descends from the daemon, and waits for it.
    pub(super) fn end_children(&mut self) {
        let living = self.children.end();
        if !living.is_empty() {
            self.log.line(&format!("these processes do not die, and are left behind: {living:?}"));
        }
    }
}

/// A pipe whose reading end does not block.
fn reading_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (near, far) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&near, true)?;
    Ok((near, far))
}
