//! What must hold whatever happens, seen from outside of the nodes; and at the end, that nobody waits and nothing is left.

use crate::process::{Held, Life};
use crate::world::{NodeIndex, World};
use oxiray_machine::Key;
use oxiray_wire::message::Assign;
use std::collections::BTreeMap;

/// A whole device.
const WHOLE: u64 = 10_000;

impl World {
    /// A worker is about to be told its devices: they are its own from here on (invariants 1 and 2).
    pub(crate) fn check_assignment(&mut self, node: NodeIndex, worker: Key, assign: &Assign) {
        let Some(process) = self.nodes[node].workers.get(&worker).copied() else { return };
        let mut held = Vec::new();
        for of in &assign.devices {
            let amount = assign.resources.iter().find(|amount| amount.resource == of.resource);
            let units = amount.expect("devices come with their amount").units;
            let count = of.ids.len() as u64;
            assert_eq!(units.div_ceil(WHOLE), count, "as many devices as the amount needs");
            for id in &of.ids {
                let slot = id.parse().expect("devices that nobody detected are numbered");
                held.push(Held { resource: of.resource.clone(), slot, units: units / count });
            }
        }
        assert!(self.processes[process].devices.is_empty(), "CORE-3: who held a device serves nobody else");
        self.processes[process].devices = held;
        self.check_devices(node);
    }

    /// Per device, what live processes hold, and dead ones that it remembers, is never more than one.
    fn check_devices(&mut self, node: NodeIndex) {
        let mut used: BTreeMap<(String, u32), u64> = BTreeMap::new();
        let machine = self.nodes[node].machine;
        let living = self.processes.iter().filter(|process| process.life < Life::Gone);
        let living = living.filter(|process| self.nodes[process.node].machine == machine);
        let dead = self.machines[machine].memory.of_the_dead(self.now).iter().map(|one| &one.held);
        for held in living.flat_map(|process| &process.devices).chain(dead) {
            *used.entry((held.resource.clone(), held.slot)).or_default() += held.units;
        }
        for ((resource, slot), units) in used {
            assert!(units <= WHOLE, "invariants 1 and 2: {units}/{WHOLE} of {resource} {slot} of node {node} are used");
        }
    }

    /// Who still waits for something, and what is left of those who are gone, where all should be quiet.
    pub(crate) fn unrest(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.is_without_head() {
            found.push("there is no head".to_owned());
        }
        for (index, process) in self.processes.iter().enumerate() {
            let is_driver = process.kind == crate::process::Kind::Driver;
            if process.life < Life::Dead && is_driver {
                let awaits = process.client.as_ref().map_or_else(Vec::new, crate::client::Client::awaits);
                let kept = self.check_nothing_is_kept(index);
                found.push(format!("driver {index} is not over; it waits for {awaits:?} and keeps {kept:?}"));
            }
        }
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_alive) {
            let left = node.core.leftovers();
            if !left.is_empty() {
                found.push(format!("node {index} has left over {left:?}"));
            }
            if node.shelf.left() > 0 {
                found.push(format!("STORE-1: node {index} has {} objects that nobody refers to", node.shelf.left()));
            }
            let granted = node.core.granted();
            if !granted.is_empty() {
                found.push(format!("node {index} has granted {granted:?}"));
            }
        }
        found
    }
}
