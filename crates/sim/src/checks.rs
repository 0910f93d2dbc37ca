//! What must hold whatever happens, seen from outside of the nodes; and at the end, that nobody waits and nothing is left.

use crate::agenda::SECOND;
use crate::chance::Chance;
use crate::gpus::{Unit, is_too_much, used_twice};
use crate::kernel::{Access, denied_by};
use crate::process::{Held, Kind, Life};
use crate::program::GPU_MEMORY;
use crate::world::{NodeIndex, ProcessIndex, World};
use oxiray_fence::Isolation;
use oxiray_ids::PlacementGroupId;
use oxiray_machine::{DeviceFence, Key};
use oxiray_wire::message::{Assign, DeviceFacts};
use std::collections::{BTreeMap, BTreeSet};

/// A whole device.
const WHOLE: u64 = 10_000;

impl World {
    /// A worker is about to be told its devices: they are its own from here on (invariants 1 and 2).
    pub(crate) fn check_assignment(&mut self, node: NodeIndex, worker: Key, assign: &Assign) {
        let Some(process) = self.nodes[node].workers.get(&worker).copied() else { return };
        let gpus = &self.machines[self.nodes[node].machine].gpus;
        let amount = |resource: &str| assign.resources.iter().find(|amount| amount.resource == resource);
        let asked_bytes = amount(GPU_MEMORY).map_or(0, |amount| amount.units / WHOLE);
        let mut held = Vec::new();
        for of in &assign.devices {
            let units = amount(&of.resource).expect("devices come with their amount").units;
            let count = of.ids.len() as u64;
            assert_eq!(units.div_ceil(WHOLE), count, "as many devices as the amount needs");
            assert_eq!(of.facts.len() as u64, count, "each of them is told of");
            for DeviceFacts { slot, uuid, memory_bytes, .. } in &of.facts {
                let unit = gpus.unit(uuid, *slot);
                assert!(asked_bytes <= *memory_bytes, "invariant 1: {memory_bytes} bytes are granted of {asked_bytes}");
                let (resource, slot, bytes) = (of.resource.clone(), *slot, *memory_bytes);
                held.push(Held { resource, slot, unit, units: units / count, bytes });
            }
        }
        self.seen.memory += u64::from(asked_bytes > 0);
        self.seen.instances += held.iter().filter(|held| held.unit.instance.is_some()).count() as u64;
        let units: Vec<Unit> = held.iter().map(|held| held.unit).collect();
        assert!(!is_too_much(&units), "invariant 1: a process is granted an instance and more: {units:?}");
        assert!(self.processes[process].devices.is_empty(), "CORE-3: who held a device serves nobody else");
        self.processes[process].devices = held;
        self.check_devices(node);
        self.check_realm(process, assign);
    }

    /// Per device, what live processes hold, and dead ones that it remembers, is never more than one, nor than its memory; and
    /// no GPU is used both as a whole and in parts.
    fn check_devices(&mut self, node: NodeIndex) {
        let mut used: BTreeMap<Unit, (u64, u64)> = BTreeMap::new();
        let machine = self.nodes[node].machine;
        let living = self.processes.iter().filter(|process| process.life < Life::Gone);
        let living = living.filter(|process| self.nodes[process.node].machine == machine);
        let dead = self.machines[machine].memory.of_the_dead(self.now).iter().map(|one| &one.held);
        for held in living.flat_map(|process| &process.devices).chain(dead) {
            let (units, bytes) = used.entry(held.unit).or_default();
            (*units, *bytes) = (*units + held.units, *bytes + held.bytes);
        }
        let gpus = &self.machines[machine].gpus;
        for (unit, (units, bytes)) in &used {
            assert!(*units <= WHOLE, "invariants 1 and 2: {units}/{WHOLE} of {unit:?} of node {node} are used");
            let size = gpus.bytes(*unit);
            assert!(*bytes <= size, "invariants 1 and 2: {bytes} of {size} bytes of {unit:?} of node {node} are used");
        }
        let twice = used_twice(&used.into_keys().collect::<Vec<_>>());
        assert!(twice.is_none(), "invariant 1: GPU {twice:?} of node {node} is used as a whole and in parts");
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

    // --- what the kernel lets processes open (`kernel`) ---

    /// Whether something happens that is drawn apart, so that each seed stands for what it stood for without.
    pub(crate) fn odds_apart(&self, of: u64, per_mille: u32) -> bool {
        Chance::new(self.options.seed ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15)).odds(per_mille)
    }

    fn gpus_of(&self, node: NodeIndex) -> BTreeSet<u32> {
        (0..self.machines[self.nodes[node].machine].gpus.count()).collect()
    }

    /// A process is forked. Its template may have devices open.
    pub(crate) fn is_born(&mut self, process: ProcessIndex, is_in_cgroup: bool) {
        let node = self.processes[process].node;
        let devices = self.gpus_of(node);
        let is_required = self.nodes[node].core.plan().isolation.asked == Isolation::Require;
        let open = devices.iter().filter(|device| self.odds_apart(process as u64 * 8 + u64::from(**device), 200));
        let open = open.copied().collect();
        let refused = if is_in_cgroup && is_required { devices } else { BTreeSet::new() };
        self.processes[process].access = Access::at_birth(is_in_cgroup, refused, open);
    }

    /// What a worker's cgroup refuses is exchanged, or cannot be.
    pub(crate) fn fence(&mut self, node: NodeIndex, told: &DeviceFence) {
        let Some(process) = self.nodes[node].workers.get(&told.worker).copied() else { return };
        let is_broken = self.options.forks_fail && self.odds_apart(process as u64 + 77, 30);
        if !self.processes[process].access.exchange(told, is_broken) {
            self.nodes[node].core.fence_failed(told.worker, "its cgroup refuses nothing");
        }
    }

    /// KERNEL-2: whether a worker is to be told nothing.
    pub(crate) fn has_no_fence(&self, node: NodeIndex, worker: Key) -> bool {
        let process = self.nodes[node].workers.get(&worker);
        process.is_some_and(|process| self.processes[*process].access.has_failed())
    }

    /// The node tells a worker what it is kept from: all but its realm.
    fn check_realm(&mut self, process: ProcessIndex, assign: &Assign) {
        let told = assign.fence.as_ref().map(denied_by);
        if let Some(denied) = &told {
            let devices = self.gpus_of(self.processes[process].node);
            let kept: BTreeSet<u32> = devices.difference(denied).copied().collect();
            let realms = self.realms_of(process, assign.group);
            assert!(realms.contains(&kept), "ISOLATION-2: it may open {kept:?}, and its realm is one of {realms:?}");
        }
        self.processes[process].access.is_told(told);
    }

    /// User code opens what it can. It is judged after the node's next turn: what that has decided by now, to kill it among
    /// other things, may not be carried out yet.
    pub(crate) fn user_code_begins(&mut self, process: ProcessIndex) {
        let devices = self.gpus_of(self.processes[process].node);
        self.processes[process].access.open_all(&devices);
    }

    /// What a process was granted, and its placement group on its machine: as that was when the node decided, and the group
    /// may have been removed since.
    fn realms_of(&self, process: ProcessIndex, group: Option<PlacementGroupId>) -> Vec<BTreeSet<u32>> {
        let found = &self.processes[process];
        let own = slots(&found.devices);
        let Some(group) = group else { return vec![own] };
        let known = self.nodes[found.node].turn.devices_of_groups.iter().filter(|(of, _)| *of == group);
        known.map(|(_, devices)| own.union(devices).copied().collect()).collect()
    }

    /// KERNEL-1, of all workers of a node.
    pub(crate) fn check_fences(&self, node: NodeIndex) {
        for process in self.nodes[node].workers.values() {
            self.check_fence(*process);
        }
    }

    fn check_fence(&self, process: ProcessIndex) {
        let found = &self.processes[process];
        let is_judged = found.life == Life::Running && !found.is_doomed;
        if is_judged {
            found.access.check(&self.gpus_of(found.node), &slots(&found.devices));
        }
    }

    /// Somebody may be in the control group of a worker that is gone, and use what it had.
    pub(crate) fn leaves_somebody(&mut self, process: ProcessIndex) -> bool {
        let found = &self.processes[process];
        let is_so =
            self.options.is_stuck && !found.devices.is_empty() && self.odds_apart(process as u64 + 1_234_567, 200);
        if let (Kind::Worker { key, .. }, true) = (found.kind, is_so) {
            let (node, until) = (found.node, self.now + SECOND + (process as u64 % 20) * SECOND);
            self.last_pid += 1;
            let memory = &mut self.machines[self.nodes[node].machine].memory;
            for held in found.devices.clone() {
                memory.remember(held, self.last_pid, until);
            }
            memory.in_groups.insert((node, key), (self.last_pid, until));
        }
        is_so
    }

    /// Who is in the control group of a worker that is gone.
    pub(crate) fn look_at_group(&mut self, node: NodeIndex, worker: Key) {
        let in_groups = &self.machines[self.nodes[node].machine].memory.in_groups;
        let found = in_groups.get(&(node, worker)).filter(|(_, until)| *until > self.now);
        let pids = found.map(|(pid, _)| *pid).into_iter().collect();
        self.nodes[node].core.group_has(worker, pids);
    }
}

fn slots(held: &[Held]) -> BTreeSet<u32> {
    held.iter().map(|held| held.slot).collect()
}
