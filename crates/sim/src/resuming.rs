//! Clients that tell a head which came back where they stand, as the runtime does it: all at once, and nothing is replayed.
//!
//! - RESUMING-1: what was handed on before its sender knew this head was counted by a head that is gone, so that the
//!   receiver has itself counted.
//! - RESUMING-2: what comes from somebody who knows this head waits until the receiver has told it everything.

use crate::agenda::{Micros, SECOND};
use crate::process::{Kind, Life};
use crate::world::{ProcessIndex, World};
use oxiray_wire::Message;
use oxiray_wire::message::{ClientResume, ClientSettled, LeaseEnded, LeaseHeld};

/// What was said this long ago was heard, unless the head was away.
const RECENT: Micros = 30 * SECOND;

impl World {
    /// What is said, in case it has to be said again: questions, and deeds that nobody answers.
    pub(crate) fn note(&mut self, process: ProcessIndex, message: &Message) {
        let now = self.now;
        let Some(client) = &mut self.processes[process].client else { return };
        let request = match message {
            Message::ActorLookup(asked) => asked.request,
            Message::GroupCreate(asked) => asked.request,
            Message::GroupAwait(asked) => asked.request,
            Message::KeptRequest(asked) => asked.request,
            Message::GroupRemove(_) | Message::Free(_) => {
                client.recent.retain(|(at, _)| at + RECENT > now);
                return client.recent.push((now, message.clone()));
            }
            _ => return,
        };
        client.asked.insert(request, message.clone());
    }

    /// The head of that number hears where a process stands.
    pub(crate) fn resume(&mut self, process: ProcessIndex, epoch: u64) {
        let Some(client) = self.processes[process].client.as_mut().filter(|client| client.epoch < epoch) else {
            return;
        };
        (client.epoch, client.is_unsettled) = (epoch, true);
        let broken = client.leases.iter().filter(|(_, lease)| lease.is_silent).map(|(number, _)| *number);
        let broken: Vec<u64> = broken.collect();
        let held = client.leases.iter().filter(|(_, lease)| !lease.is_silent);
        let leases = held.map(|(lease, held)| LeaseHeld { lease: *lease, worker: held.worker.clone() }).collect();
        let actors = self.connected(process);
        self.say(process, ClientResume { epoch, leases, actors });
        self.tell_of_objects_again(process);
        self.ask_for_actors_again(process);
        let client = self.client(process);
        let unanswered = |request: &u64| client.questions.contains_key(request);
        let asked: Vec<Message> =
            client.asked.iter().filter(|(request, _)| unanswered(request)).map(|(_, asked)| asked.clone()).collect();
        client.asked.clear();
        let recent = std::mem::take(&mut client.recent).into_iter().map(|(_, message)| message);
        for message in asked.into_iter().chain(recent).collect::<Vec<_>>() {
            self.say(process, message);
        }
        if self.processes[process].kind == Kind::Driver {
            self.read_again(process);
        }
        self.ask_for_leases_again(process);
        for lease in broken {
            let text = "the stream to it broke while the head was away".to_owned();
            self.lease_ended(process, &LeaseEnded { lease, text, node_died: true, ..LeaseEnded::default() });
        }
        if self.processes[process].is_leaving {
            self.leaves(process);
        }
        self.settle_clients();
    }

    /// Whoever waits for nothing any more that no head has counted says so.
    pub(crate) fn settle_clients(&mut self) {
        let Some(epoch) = self.nodes.first().map(|head| head.core.epoch()) else { return };
        let is_behind = |process: &crate::process::Process| {
            process.life == Life::Running && process.client.as_ref().is_some_and(|client| client.epoch < epoch)
        };
        if self.processes.iter().any(is_behind) {
            return;
        }
        for process in 0..self.processes.len() {
            let found = &mut self.processes[process];
            let Some(client) = found.client.as_mut().filter(|client| client.is_unsettled) else { continue };
            let is_awaited = self.in_flight.iter().any(|(to, sent)| *to == process && *sent < client.epoch);
            if found.life == Life::Running && !is_awaited {
                client.is_unsettled = false;
                let epoch = client.epoch;
                self.say(process, ClientSettled { epoch });
            }
        }
    }
}
