//! Parents that hold devices and wait for children that need them, beside what is true of them (`waits`).
//!
//! - DEADLOCK-3: a call fails for this only where its caller could not go on (invariant 10).
//! - DEADLOCK-4: where somebody who holds devices cannot go on, some such call fails within a bounded time.

use crate::leases::TROUBLE_LONGEST;
use crate::process::{Held, Kind, Life, Process};
use crate::waits::{Awaited, Part, Waiting, in_vain};
use crate::world::{ProcessIndex, World};
use oxiray_ids::ObjectId;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// Looks who cannot go on, where it is time (DEADLOCK-4).
    pub(crate) fn look_for_standstill(&mut self) {
        if !self.options.children_need_devices() || !self.standstill.is_time(self.now) {
            return;
        }
        // Whoever waits for a node that went waits for no device until that node is given up.
        let dead = self.nodes.iter().filter(|node| !node.is_alive).count();
        let upheavals = self.troubles + (self.nodes.len() + dead) as u64;
        self.standstill.note_troubles(self.now, upheavals, TROUBLE_LONGEST);
        let (waiting, gpus) = (self.waiting(), self.gpus_of_nodes());
        let stuck = in_vain(&waiting, &gpus);
        let told: BTreeSet<ProcessIndex> =
            stuck.iter().copied().filter(|process| self.is_to_be_found(*process)).collect();
        // A node that is drained takes nothing more, and the operator may think better of it.
        let lasting = gpus.into_iter().filter(|(node, _)| !self.standstill.drained.contains(node)).collect();
        let accusable = &stuck | &in_vain(&waiting, &lasting);
        if let Some((process, for_so_long)) = self.standstill.look(self.now, &accusable, &told) {
            panic!(
                "DEADLOCK-4: process {process} waits for what others hold who cannot go on, for {for_so_long} µs, and no call fails"
            );
        }
    }

    /// A call of a process's fails since nobody can go on (DEADLOCK-3).
    pub(crate) fn is_said_to_be_stuck(&mut self, process: ProcessIndex) {
        self.seen.deadlocks += 1;
        let is_true = self.standstill.fails(self.now, process);
        assert!(is_true, "DEADLOCK-3: a call of process {process} fails, and it could go on");
    }

    /// Those who have made children and wait for them; of a child that needs no device nobody knows why it should not run.
    fn waiting(&self) -> BTreeMap<usize, Waiting> {
        let running: BTreeMap<ObjectId, usize> = self
            .living()
            .filter_map(|(index, process)| Some((process.run.as_ref()?.ticket.task().object(1), index)))
            .collect();
        let awaited = |id: &ObjectId| {
            let need = || self.standstill.needs.get(id).map(|need| Awaited::Room(*need));
            running.get(id).map(|by| Awaited::Run(*by)).or_else(need)
        };
        let of = |(index, process): (usize, &Process)| {
            let run = process.run.as_ref().filter(|run| run.has_children() && !run.awaited.is_empty())?;
            let awaited = run.awaited.iter().filter_map(awaited).collect();
            Some((index, Waiting { held: parts_of(process), awaited }))
        };
        self.living().filter_map(of).collect()
    }

    fn living(&self) -> impl Iterator<Item = (usize, &Process)> {
        let processes = self.processes.iter().enumerate();
        processes.filter(|(_, process)| process.life == Life::Running && process.kind != Kind::Driver)
    }

    /// The memory of each GPU that a node that lives offers.
    fn gpus_of_nodes(&self) -> BTreeMap<usize, Vec<u64>> {
        let living = self.nodes.iter().enumerate().filter(|(_, node)| node.is_alive);
        living.map(|(index, node)| (index, self.machines[node.machine].gpus.sizes())).collect()
    }

    /// Whether the head is to find a process that cannot go on: it holds a device, and nobody is about to end it.
    fn is_to_be_found(&self, process: ProcessIndex) -> bool {
        let found = &self.processes[process];
        !found.is_doomed && self.nodes[found.node].is_alive && !parts_of(found).is_empty()
    }
}

/// What a process holds of GPUs.
fn parts_of(process: &Process) -> Vec<Part> {
    let gpus = process.devices.iter().filter(|held| held.resource == crate::gpus::resource());
    let part =
        |held: &Held| Part { node: process.node, slot: held.slot as usize, units: held.units, bytes: held.bytes };
    gpus.map(part).collect()
}
