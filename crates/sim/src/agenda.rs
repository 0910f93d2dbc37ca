//! What is to happen, and when: the one clock of the world, in µs.

use crate::world::{NodeIndex, ProcessIndex, StreamIndex};
use oxiray_ids::ObjectId;
use oxiray_machine::{Key, TemplateKey};
use std::collections::BTreeMap;

/// A moment or a duration, in µs.
pub(crate) type Micros = u64;

/// One millisecond.
pub(crate) const MILLISECOND: Micros = 1_000;
/// One second.
pub(crate) const SECOND: Micros = 1_000_000;

/// Something that is to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The next thing on a stream reaches its end.
    Arrive { stream: StreamIndex, to: usize },
    /// A node looks what is due, and does what it put off.
    Turn(NodeIndex),
    /// A template made a process.
    Forked { node: NodeIndex, worker: Key },
    /// A template ends, and its workers with it.
    TemplateEnds { node: NodeIndex, template: TemplateKey },
    /// A process ends; what it started may not.
    Dies(ProcessIndex),
    /// Its daemon notices.
    Noticed(ProcessIndex),
    /// Everything that it started is dead and reaped.
    Gone(ProcessIndex),
    /// The time of what a process runs is over.
    Finished { process: ProcessIndex, run: u64 },
    /// An actor's constructor ends.
    Constructed(ProcessIndex),
    /// A member looks for the head.
    Dials(NodeIndex),
    /// A driver looks for the head, the last time when that moment is over.
    Redials { process: ProcessIndex, until: Micros },
    /// A copy of an object comes from another node.
    Fetched { node: NodeIndex, object: ObjectId, from: NodeIndex },
    /// A driver's program goes on.
    Step(ProcessIndex),
    /// Something may be due at a process.
    Due(ProcessIndex),
    /// A driver comes.
    DriverComes,
    /// A node comes, on this machine.
    NodeComes { machine: usize },
    /// An environment is made, or could not be.
    Prepared { node: NodeIndex, number: u64 },
    /// A vendor's library answers the question of that number.
    DeviceAnswers { node: NodeIndex, number: u64 },
    /// The head's disk is done with what it was given.
    Written,
    /// The head learns that the process of a member is gone.
    NodeGone(NodeIndex),
    /// A member says that it lives, or ends what it was granted.
    Beat(NodeIndex),
    /// The head looks at the leases of its members.
    Look,
    /// A node that had stopped goes on.
    Thaws(NodeIndex),
    /// Things move on a stream again.
    Heals { stream: StreamIndex, to: usize },
    /// Something goes wrong.
    Fault,
    /// Nothing goes wrong any more, and no new work comes.
    Calm,
}

/// All that is to happen, in order; at the same moment, in the order in which it was planned.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    events: BTreeMap<(Micros, u64), Event>,
    last_number: u64,
}

impl Agenda {
    /// A number that names nothing else.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(crate) fn plan(&mut self, at: Micros, event: Event) {
        let number = self.next_number();
        self.events.insert((at, number), event);
    }

    /// Nothing of this kind happens any more.
    pub(crate) fn forget(&mut self, is_off: impl Fn(&Event) -> bool) {
        self.events.retain(|_, event| !is_off(event));
    }

    pub(crate) fn next(&mut self) -> Option<(Micros, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}
