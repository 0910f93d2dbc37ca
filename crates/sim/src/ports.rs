//! What the core of a runtime has done for it, kept until the world carries it out: the streams of a process without
//! sockets.

use crate::process::Life;
use crate::stream::{Descriptor, Packet};
use crate::world::{ProcessIndex, World};
use bytes::BytesMut;
use oxiray_ids::ObjectId;
use oxiray_runtime::{DAEMON, Io, Role, Token};
use oxiray_store::{Access, Extent, FileId};
use oxiray_wire::message::{Failure, StackQuery};
use oxiray_wire::{Body, Message, Received};
use std::collections::{BTreeMap, VecDeque};

/// Something that a core wants done.
#[derive(Debug)]
pub(crate) enum Deed {
    Send(Descriptor, Box<Message>),
    /// The process reads this end from now on.
    Adopt(Descriptor),
    Close(Descriptor),
    LookForDaemon,
    Interrupt,
    EndProcess,
}

/// The shell of one process's core.
#[derive(Debug)]
pub(crate) struct Ports {
    streams: BTreeMap<Token, Descriptor>,
    last: Token,
    /// Streams of which nothing is read for now, and what came meanwhile; nothing more comes after an end.
    held: BTreeMap<Token, VecDeque<Packet>>,
    /// What has arrived of a stream and is read before its turn.
    early: BTreeMap<Token, VecDeque<Packet>>,
    deeds: Vec<Deed>,
    /// The daemon is looked for where it ends.
    may_return: bool,
}

impl Ports {
    pub(crate) fn new(control: Descriptor, may_return: bool) -> Self {
        Self {
            streams: BTreeMap::from([(DAEMON, control)]),
            last: DAEMON,
            held: BTreeMap::new(),
            early: BTreeMap::new(),
            deeds: Vec::new(),
            may_return,
        }
    }

    /// The process has a stream to its daemon again.
    pub(crate) fn daemon_is_back(&mut self, control: Descriptor) {
        self.streams.insert(DAEMON, control);
    }

    pub(crate) fn has_daemon(&self) -> bool {
        self.streams.contains_key(&DAEMON)
    }

    /// How the core calls the stream.
    pub(crate) fn token_of(&self, end: Descriptor) -> Option<Token> {
        self.streams.iter().find(|(_, known)| **known == end).map(|(token, _)| *token)
    }

    pub(crate) fn end_of(&self, token: Token) -> Option<Descriptor> {
        self.streams.get(&token).copied()
    }

    /// All ends that the process has.
    pub(crate) fn ends(&self) -> Vec<Descriptor> {
        self.streams.values().copied().collect()
    }

    /// Has what has arrived of a stream read when its core asks for that.
    pub(crate) fn arrived(&mut self, token: Token, packets: VecDeque<Packet>) {
        self.early.entry(token).or_default().extend(packets);
    }

    /// What was handed over for that and not read.
    pub(crate) fn left_over(&mut self) -> Vec<(Token, VecDeque<Packet>)> {
        std::mem::take(&mut self.early).into_iter().collect()
    }

    /// Keeps what comes on a stream that is not read for now; gives it back otherwise.
    pub(crate) fn keep(&mut self, token: Token, packet: Packet) -> Option<Packet> {
        match self.held.get_mut(&token) {
            Some(held) => {
                held.push_back(packet);
                None
            }
            None => Some(packet),
        }
    }

    fn push(&mut self, token: Token, message: &impl Body) {
        let Some(end) = self.streams.get(&token).copied() else { return };
        let mut body = BytesMut::new();
        message.append_body(&mut body);
        let decoded = Message::decode(message.kind(), body.freeze()).expect("a core says what can be read");
        let decoded = decoded.expect("everybody knows every message");
        self.deeds.push(Deed::Send(end, Box::new(decoded)));
    }
}

impl Io for Ports {
    type Descriptor = Descriptor;

    fn open(&mut self, end: Descriptor, _: Role, _: bool) -> Option<Token> {
        self.last += 1;
        self.streams.insert(self.last, end);
        self.deeds.push(Deed::Adopt(end));
        Some(self.last)
    }

    fn close(&mut self, stream: Token) {
        if let Some(end) = self.streams.remove(&stream) {
            self.deeds.push(Deed::Close(end));
        }
        self.held.remove(&stream);
    }

    fn send(&mut self, stream: Token, message: &impl Body) {
        self.push(stream, message);
    }

    fn send_now(&mut self, stream: Token, message: &impl Body) {
        self.push(stream, message);
    }

    fn send_soon(&mut self, stream: Token, message: &impl Body) {
        self.push(stream, message);
    }

    fn flush(&mut self) {}

    fn stop_reading(&mut self, stream: Token) {
        self.held.entry(stream).or_default();
    }

    fn read_again(&mut self, stream: Token) {
        let held = self.held.remove(&stream).unwrap_or_default();
        self.arrived(stream, held);
    }

    fn read_now(&mut self, stream: Token, inbox: &mut Vec<Received<Descriptor>>) -> bool {
        let Some(packets) = self.early.get_mut(&stream) else { return false };
        while let Some(packet) = packets.pop_front() {
            match packet {
                Packet::Said { message, descriptor } => {
                    inbox.push(Received { message: *message, descriptors: descriptor.into_iter().collect() });
                }
                Packet::Over => return true,
            }
        }
        false
    }

    fn unsent_bytes(&self, _: Token) -> usize {
        0
    }

    fn map(&mut self, _: FileId, _: Access, _: Extent, _: Descriptor) -> Result<(), Failure> {
        Ok(())
    }

    fn retire(&mut self, _: FileId) {}

    fn is_mapped(&self, _: ObjectId) -> bool {
        false
    }

    fn look_for_daemon(&mut self) -> bool {
        self.deeds.push(Deed::LookForDaemon);
        self.may_return
    }

    fn give_daemon_up(&mut self) {}

    fn take_stacks(&mut self, _: &StackQuery) -> Result<(), String> {
        Err("nobody takes stacks here".to_owned())
    }

    fn interrupt(&mut self) {
        self.deeds.push(Deed::Interrupt);
    }

    fn end_process(&mut self) {
        self.deeds.push(Deed::EndProcess);
    }
}

impl World {
    /// Does what a process's core wants done, and what its programs make of what it has heard.
    pub(crate) fn carry_out_for(&mut self, process: ProcessIndex) {
        loop {
            let Some(client) = &mut self.processes[process].client else { return };
            let deeds = std::mem::take(&mut client.core.io().deeds);
            if deeds.is_empty() {
                break;
            }
            for deed in deeds {
                self.carry_out_deed(process, deed);
            }
        }
        self.wake_for(process);
    }

    fn carry_out_deed(&mut self, process: ProcessIndex, deed: Deed) {
        match deed {
            Deed::Send(end, message) => {
                self.note_said(process, &message);
                self.log.line(self.now, format_args!("process {process} -> {}/{}: {message:?}", end.stream, end.side));
                self.send(end, Packet::Said { message, descriptor: None });
            }
            Deed::Adopt(end) => self.adopt(end, process),
            Deed::Close(end) => self.close(end),
            Deed::LookForDaemon => self.look_for_head(process),
            Deed::Interrupt => self.is_interrupted(process),
            Deed::EndProcess => self.dies(process),
        }
    }

    /// Something arrives at a process.
    pub(crate) fn process_hears(&mut self, process: ProcessIndex, at: Descriptor, packet: Packet) {
        if self.processes[process].life != Life::Running {
            return self.lose(&packet);
        }
        if self.processes[process].client.is_none() {
            return self.comes_to_life(process, packet);
        }
        let is_control = at == self.processes[process].control;
        let core = &mut self.client(process).core;
        let Some(token) = core.io().token_of(at) else {
            return if is_control { self.hears_of_next_head(process, packet) } else { self.lose(&packet) };
        };
        let Some(packet) = core.io().keep(token, packet) else { return };
        self.core_hears(process, token, packet);
        self.go_on(process);
    }

    /// Gives a core what has come for it.
    fn core_hears(&mut self, process: ProcessIndex, token: Token, packet: Packet) {
        match packet {
            Packet::Said { message, descriptor } => {
                self.log.line(self.now, format_args!("process {process} <- {token}: {message:?}"));
                self.check_heard(process, token, &message);
                self.read_last_words(process, &message);
                let descriptors = descriptor.into_iter().collect();
                self.with_core(process, |core| core.heard(token, Received { message: *message, descriptors }));
            }
            Packet::Over => {
                self.log.line(self.now, format_args!("process {process} <- {token}: over"));
                if let Some(end) = self.client(process).core.io().end_of(token) {
                    self.close(end);
                }
                self.client(process).core.io().streams.remove(&token);
                self.with_core(process, |core| core.ended(token, true));
            }
        }
        for (token, packets) in self.client(process).core.io().left_over() {
            for packet in packets {
                self.core_hears(process, token, packet);
            }
        }
        self.with_core(process, oxiray_runtime::Client::settle);
    }

    /// What a process had said before it died has come before the word of its death, where both were on one machine.
    fn read_last_words(&mut self, process: ProcessIndex, message: &Message) {
        let core = &self.client(process).core;
        let actor = |id| core.stream_of_actor(id);
        let token = match message {
            Message::LeaseEnded(said) => core.stream_of_lease(said.lease),
            Message::ActorDied(said) => actor(said.actor),
            Message::ActorRestarting(said) => actor(said.actor),
            _ => None,
        };
        let Some(token) = token else { return };
        let Some(end) = self.client(process).core.io().end_of(token) else { return };
        let arrived = self.take_arrived(end);
        if self.client(process).core.io().held.contains_key(&token) {
            for packet in arrived {
                drop(self.client(process).core.io().keep(token, packet));
            }
        } else {
            self.client(process).core.io().arrived(token, arrived);
        }
    }
}
