//! What goes wrong, as often as the seed says.

use crate::agenda::{Event, MILLISECOND, SECOND};
use crate::leases::TROUBLE_LONGEST;
use crate::node::Role;
use crate::process::{Kind, Life};
use crate::world::World;
use oxiray_families::{DeviceFault, XidClass};
use oxiray_machine::DeviceErrorSeen;

/// An Xid of each class but [`XidClass::Link`].
const ERRORS: [(u32, XidClass); 5] = [
    (31, XidClass::Application),
    (94, XidClass::Contained),
    (63, XidClass::Note),
    (95, XidClass::Reset),
    (79, XidClass::Gone),
];

impl World {
    /// Something goes wrong, and something else will.
    pub(crate) fn fault(&mut self) {
        if self.is_calm {
            return;
        }
        let at = self.now + self.chance.delay(self.options.between_faults);
        self.agenda.plan(at, Event::Fault);
        match self.chance.between(0, 11) {
            0..=2 if self.options.workers_die => self.kill_some_worker(),
            3 if self.options.drivers_die => self.kill_some_driver(),
            4 if self.options.nodes_die => self.end_some_node(),
            5 | 6 if self.options.network_stalls => self.stall_some_stream(),
            7 if self.options.nodes_freeze => self.freeze_some_node(),
            11 if self.options.heads_die && self.chance.odds(300) => self.trouble_for_the_head(),
            10 if self.options.streams_break => self.break_some_stream(),
            9 if self.options.nodes_drain => self.drain_some_node(),
            8 if self.options.templates_die => self.end_some_template(),
            _ => {}
        }
        if self.options.devices_fail() && self.chance.odds(150) {
            self.fail_some_device();
        }
    }

    fn kill_some_worker(&mut self) {
        let living = |(index, process): (usize, &crate::process::Process)| {
            (process.life == Life::Running && process.kind != Kind::Driver).then_some(index)
        };
        let workers: Vec<usize> = self.processes.iter().enumerate().filter_map(living).collect();
        if let Some(process) = self.chance.pick(&workers) {
            self.dies(process);
        }
    }

    fn kill_some_driver(&mut self) {
        let drivers = self.drivers.clone();
        if let Some(process) = self.chance.pick(&drivers) {
            self.dies(process);
        }
    }

    /// A node's machine comes back after a while, as another node.
    fn end_some_node(&mut self) {
        let members: Vec<usize> = (1..self.nodes.len()).filter(|node| self.nodes[*node].is_alive).collect();
        let Some(node) = self.chance.pick(&members) else { return };
        self.troubles += 1;
        self.node_dies(node);
        if self.chance.odds(800) {
            let late = if self.chance.odds(300) { 60 * SECOND } else { 5 * SECOND };
            let at = self.now + self.chance.between(100 * MILLISECOND, late);
            let machine = self.nodes[node].machine;
            self.agenda.plan(at, Event::NodeComes { machine });
        }
    }

    fn stall_some_stream(&mut self) {
        let member = |(stream, role): &(usize, Role)| match role {
            Role::Member(node) => Some((*stream, *node)),
            _ => None,
        };
        let streams: Vec<(usize, usize)> = self.nodes[0].streams.values().filter_map(member).collect();
        let Some((stream, node)) = self.chance.pick(&streams) else { return };
        let until = self.now + self.chance.delay(2 * SECOND).min(TROUBLE_LONGEST);
        self.troubles += 1;
        let cut = &mut self.machines[self.nodes[node].machine].cut_until;
        *cut = until.max(*cut);
        let both = self.chance.odds(500);
        let one = self.chance.between(0, 1) as usize;
        self.log.line(self.now, format_args!("stream {stream} stalls: both ways {both}, or to side {one}"));
        for to in [one, 1 - one].into_iter().take(1 + usize::from(both)) {
            self.stall(stream, to);
            self.agenda.plan(until, Event::Heals { stream, to });
        }
    }

    fn freeze_some_node(&mut self) {
        let living: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].is_alive).collect();
        let Some(node) = self.chance.pick(&living) else { return };
        if self.nodes[node].frozen_until.is_none() {
            let until = self.now + self.chance.delay(SECOND).min(TROUBLE_LONGEST);
            self.troubles += 1;
            self.log.line(self.now, format_args!("node {node} freezes"));
            self.nodes[node].frozen_until = Some(until);
            self.agenda.plan(until, Event::Thaws(node));
        }
    }

    fn end_some_template(&mut self) {
        let living: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].is_alive).collect();
        let Some(node) = self.chance.pick(&living) else { return };
        let templates: Vec<u32> = self.nodes[node].templates.iter().copied().collect();
        if let Some(template) = self.chance.pick(&templates) {
            self.agenda.plan(self.now, Event::TemplateEnds { node, template });
        }
    }

    /// A driver reports an error of some device.
    pub(crate) fn fail_some_device(&mut self) {
        let living: Vec<usize> = (0..self.nodes.len())
            .filter(|node| self.nodes[*node].is_alive && self.nodes[*node].frozen_until.is_none())
            .collect();
        let Some(node) = self.chance.pick(&living) else { return };
        let devices = self.nodes[node].core.devices();
        let Some((resource, slot)) = self.chance.pick(&devices) else { return };
        let (xid, class) = match self.chance.one_of(&ERRORS) {
            (_, XidClass::Note) if self.odds_apart(self.now, 500) => (74, XidClass::Link),
            drawn => drawn,
        };
        self.log.line(self.now, format_args!("node {node}: {resource} {slot} reports Xid {xid}"));
        let device = (resource.to_owned(), slot);
        self.wake(node);
        self.nodes[node].core.devices_failed(vec![DeviceErrorSeen { device, fault: DeviceFault::Xid(xid), class }]);
        self.after_event(node);
    }
}
