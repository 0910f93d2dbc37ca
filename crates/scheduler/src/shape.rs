//! Which machines have room for one demand, and which ever could: kept up to date with what changes.

use crate::bits::Bits;
use crate::machine::{Machine, ResourceAmount};
use crate::strategy::Selector;

/// A machine that changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) slot: u32,
    /// Whether more than what is free changed.
    pub(crate) is_new: bool,
}

/// What changed, in order; older changes are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    forgotten: u64,
    kept: Vec<Change>,
}

impl Changes {
    /// Beyond `kept_max` all are forgotten: who has not seen them looks at every machine.
    pub(crate) fn push(&mut self, change: Change, kept_max: usize) {
        if self.kept.len() >= kept_max {
            self.forgotten += self.kept.len() as u64;
            self.kept.clear();
        }
        self.kept.push(change);
    }

    fn end(&self) -> u64 {
        self.forgotten + self.kept.len() as u64
    }

    /// What comes after the first `seen`; nothing where some of that is forgotten.
    fn since(&self, seen: u64) -> Option<&[Change]> {
        self.kept.get(usize::try_from(seen.checked_sub(self.forgotten)?).ok()?..)
    }
}

/// A demand, and the labels that its machine must have.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) needs: Vec<ResourceAmount>,
    selector: Selector,
    pub(crate) asks_for_devices: bool,
    /// The machines with the labels that could ever meet the demand.
    pub(crate) possible: Bits,
    /// Those of them that can now.
    pub(crate) fits: Bits,
    /// The number of changes seen; `None` before the first look.
    seen: Option<u64>,
}

impl Shape {
    pub(crate) fn new(needs: Vec<ResourceAmount>, selector: Selector, asks_for_devices: bool) -> Self {
        let (possible, fits) = (Bits::default(), Bits::default());
        Self { needs, selector, asks_for_devices, possible, fits, seen: None }
    }

    /// Looks at the machines that changed since the last time.
    pub(crate) fn catch_up(&mut self, machines: &[Option<Machine>], changes: &Changes) {
        match self.seen.and_then(|seen| changes.since(seen)) {
            Some(since) => since.iter().for_each(|change| self.look(machines, *change)),
            None => (0..machines.len() as u32).for_each(|slot| self.look(machines, Change { slot, is_new: true })),
        }
        self.seen = Some(changes.end());
    }

    fn look(&mut self, machines: &[Option<Machine>], Change { slot, is_new }: Change) {
        let machine = machines[slot as usize].as_ref();
        if is_new {
            let could = |machine: &Machine| self.selector.matches(&machine.labels) && machine.could_ever(&self.needs);
            self.possible.set(slot, machine.is_some_and(could));
        }
        let fits = self.possible.contains(slot) && machine.is_some_and(|machine| machine.fits(&self.needs));
        self.fits.set(slot, fits);
    }
}
