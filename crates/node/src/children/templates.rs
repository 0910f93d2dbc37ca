//! Templates: the processes that workers are forked from.

use super::SESSION_VARIABLE;
use crate::descriptors::with_reserve;
use crate::fences::Doors;
use crate::interpreters::{self, program, safe_value};
use crate::poller::{Poller, Token};
use oxiray_accelerators::{DeviceOffer, NodeNumber, Offer};
use oxiray_machine::{Key, Origin, TemplateKey};
use oxiray_processes::expanded;
use oxiray_wire::connection::ConnectionError;
use oxiray_wire::message::{DeviceNumber, Fork};
use oxiray_wire::{Connection, Received};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

/// What a template runs, on an interpreter that may lack what it takes.
const TEMPLATE_PROGRAM: &str = program!("oxiray._template");
/// The file of a session that has the same.
const TEMPLATE_FILE: &str = "template.py";
/// A template's process.
#[derive(Debug)]
pub(crate) struct TemplateProcess {
    pub(crate) pid: u32,
    origin: Origin,
    pub(crate) connection: Connection,
}

impl TemplateProcess {
    /// Starts the interpreter or program. The caller registers the process with its child reaper.
    pub(crate) fn start(origin: &Origin, session: &Path, output: File) -> io::Result<Self> {
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

/// The templates that run, and why others do not.
#[derive(Debug)]
pub(crate) struct Templates {
    running: BTreeMap<TemplateKey, TemplateProcess>,
    /// Started before there was anything else, and not yet asked for.
    early: Option<TemplateProcess>,
    /// Why the template of that name could not be started.
    unstarted: BTreeMap<TemplateKey, String>,
    /// The nodes of the machine's devices, which no template is to have open.
    devices: Vec<DeviceNumber>,
}

impl Templates {
    pub(super) fn new(early: Option<TemplateProcess>, offer: &Offer) -> Self {
        let numbers: BTreeSet<NodeNumber> = offer.devices.iter().flat_map(DeviceOffer::numbers).collect();
        let devices = numbers.into_iter().map(|of| DeviceNumber { major: of.major, minor: of.minor }).collect();
        Self { running: BTreeMap::new(), early, unstarted: BTreeMap::new(), devices }
    }

    pub(super) fn take_early(&mut self, origin: &Origin) -> Option<TemplateProcess> {
        self.early.take_if(|early| early.origin == *origin)
    }

    pub(crate) fn add(&mut self, key: TemplateKey, template: TemplateProcess) {
        self.unstarted.remove(&key);
        self.running.insert(key, template);
    }

    /// A template could not be started, for this reason.
    pub(crate) fn not_started(&mut self, key: TemplateKey, text: String) {
        self.unstarted.insert(key, text);
    }

    /// Whether the template runs, or else why it does not, where that is known.
    pub(crate) fn runs(&self, key: TemplateKey) -> Result<(), Option<&str>> {
        if self.running.contains_key(&key) { Ok(()) } else { Err(self.unstarted.get(&key).map(String::as_str)) }
    }

    /// The template that is this process.
    pub(crate) fn of_pid(&self, pid: u32) -> Option<TemplateKey> {
        self.running.iter().find(|(_, template)| template.pid == pid).map(|(key, _)| *key)
    }

    pub(crate) fn get_mut(&mut self, key: TemplateKey) -> Option<&mut TemplateProcess> {
        self.running.get_mut(&key)
    }

    /// The template ends with its stream; its process is reaped like any other.
    pub(crate) fn end(&self, key: TemplateKey) {
        if let Some(template) = self.running.get(&key) {
            // It fails where the template is gone already.
            let _ = rustix::net::shutdown(&template.connection, rustix::net::Shutdown::Both);
        }
    }

    pub(crate) fn remove(&mut self, poller: &Poller, key: TemplateKey) {
        if let Some(template) = self.running.remove(&key) {
            poller.forget(&template.connection);
        }
    }

    /// Ends all.
    pub(crate) fn clear(&mut self) {
        self.running.clear();
        self.early = None;
    }

    /// Orders a worker, which enters these control groups and has these ends of its stream and pipes; of a template that may have
    /// a device open or is to give the order back.
    pub(crate) fn fork(
        &mut self,
        poller: &Poller,
        (key, even_with_devices): (TemplateKey, bool),
        (worker, doors): (Key, Doors),
        ends: [OwnedFd; 3],
    ) {
        if let Some(template) = self.running.get_mut(&key) {
            let devices = self.devices.clone();
            let (groups, fences) = (doors.groups, doors.fences);
            let fork = Fork { request: worker, groups, fences, devices, even_with_devices };
            template.connection.send_with(&fork.into(), ends.into());
            self.flush(poller, key);
        }
    }

    pub(crate) fn flush(&mut self, poller: &Poller, key: TemplateKey) {
        if let Some(template) = self.running.get_mut(&key) {
            // An error is the end of the template, which its process announces.
            let is_empty = template.connection.flush().unwrap_or(true);
            poller.watch_for(&template.connection, Token::Template(key), true, !is_empty);
        }
    }

    /// What a template has said, and an error where that was all that it will say.
    pub(crate) fn receive(
        &mut self,
        poller: &Poller,
        key: TemplateKey,
    ) -> (Vec<Received>, Result<(), ConnectionError>) {
        let mut inbox = Vec::new();
        let Some(template) = self.running.get_mut(&key) else { return (inbox, Ok(())) };
        // The descriptors of its workers come along.
        let result = with_reserve(|| template.connection.receive(&mut inbox));
        if result.is_ok() && template.connection.unsent_bytes() > 0 {
            self.flush(poller, key);
        }
        (inbox, result.map(drop))
    }
}
