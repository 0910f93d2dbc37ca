//! Processes that a node did not start and that have memory of its devices, as vendors' libraries list them. No I/O.
//!
//! - FOREIGN-1: a process is told of once for each device, for as long as it is listed: to the log when it is first seen, and to
//!   whoever has the device once it has more than a little.

use crate::device_checks::DeviceSlot;
use crate::memory::shown;
use oxiray_families::{Belongs, ProcessMemory};
use oxiray_wire::state::ForeignUse;
use std::collections::BTreeMap;

/// Who has less is of no account to others: what draws a desktop, say.
pub(crate) const LITTLE_BYTES: u64 = 256 << 20;

/// A process that has memory of a device, and whether who has the device was told of it.
#[derive(Debug)]
struct Seen {
    used: ForeignUse,
    is_told: bool,
}

/// Who else has memory of devices.
#[derive(Debug, Default)]
pub(crate) struct ForeignUses {
    of: BTreeMap<DeviceSlot, BTreeMap<u32, Seen>>,
}

/// What follows from one look at a device.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ForeignNews {
    /// For the log.
    pub(crate) lines: Vec<String>,
    /// For whoever has the device.
    pub(crate) notices: Vec<String>,
}

impl ForeignUses {
    /// These processes have memory of a device and are no worker's. `is_held` says whether somebody has the device.
    pub(crate) fn saw(&mut self, device: &DeviceSlot, listed: &[&ProcessMemory], is_held: bool) -> ForeignNews {
        let mut before = self.of.remove(device).unwrap_or_default();
        let (mut now, mut news) = (BTreeMap::new(), ForeignNews::default());
        for process in listed.iter().filter(|process| process.belongs != Belongs::ToThisNode) {
            let used = ForeignUse {
                pid: process.pid,
                name: process.name.clone(),
                used_bytes: Some(process.bytes).filter(|bytes| *bytes > 0),
                is_of_other_node: process.belongs == Belongs::ToAnotherNode,
            };
            let known = before.remove(&process.pid);
            let text = || format!("{} {} is {}", device.0, device.1, in_words(&used));
            if known.is_none() {
                news.lines.push(text());
            }
            let mut is_told = known.is_some_and(|known| known.is_told);
            if !is_told && is_held && process.bytes >= LITTLE_BYTES {
                is_told = true;
                news.notices.push(text());
            }
            now.insert(process.pid, Seen { used, is_told });
        }
        let gone = before
            .into_values()
            .map(|gone| format!("no longer: {} {} is {}", device.0, device.1, in_words(&gone.used)));
        news.lines.extend(gone);
        if !now.is_empty() {
            self.of.insert(device.clone(), now);
        }
        news
    }

    /// Who else has memory of a device.
    pub(crate) fn of(&self, device: &DeviceSlot) -> Vec<ForeignUse> {
        self.of.get(device).into_iter().flat_map(BTreeMap::values).map(|seen| seen.used.clone()).collect()
    }

    /// The devices that somebody else has memory of.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &DeviceSlot> {
        self.of.keys()
    }
}

/// As `oxiray status` has it, too.
fn in_words(used: &ForeignUse) -> String {
    let name = if used.name.is_empty() { String::new() } else { format!(" ({})", used.name) };
    let whose = if used.is_of_other_node { "which another Oxiray node started" } else { "not Oxiray's" };
    let bytes = used.used_bytes.map_or_else(String::new, |bytes| format!(": {}", shown(bytes)));
    format!("also used by pid {}{name}, {whose}{bytes}", used.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, bytes: u64, belongs: Belongs) -> ProcessMemory {
        ProcessMemory { pid, bytes, name: "python3".to_owned(), belongs, ..ProcessMemory::default() }
    }

    fn saw(uses: &mut ForeignUses, listed: &[ProcessMemory], is_held: bool) -> ForeignNews {
        uses.saw(&("GPU".to_owned(), 4), &listed.iter().collect::<Vec<_>>(), is_held)
    }

    #[test]
    fn who_else_uses_a_device_is_told_of_once() {
        let (mut uses, device) = (ForeignUses::default(), ("GPU".to_owned(), 4));
        let stranger = [process(4711, 3 << 30, Belongs::Elsewhere)];
        let text = "GPU 4 is also used by pid 4711 (python3), not Oxiray's: 3.00 GiB".to_owned();
        let news = saw(&mut uses, &[stranger[0].clone(), process(9, 1 << 30, Belongs::ToThisNode)], false);
        assert_eq!(news, ForeignNews { lines: vec![text.clone()], notices: Vec::new() }, "nobody has the device");
        assert_eq!(uses.of(&device).len(), 1, "the daemon's own is not foreign");
        assert_eq!(saw(&mut uses, &stranger, true).notices, std::slice::from_ref(&text));
        assert_eq!(saw(&mut uses, &stranger, true), ForeignNews::default(), "FOREIGN-1");
        assert_eq!(saw(&mut uses, &[], true).lines, [format!("no longer: {text}")]);
        assert_eq!((uses.of(&device), uses.devices().count()), (Vec::new(), 0));
        assert_eq!(saw(&mut uses, &stranger, true).notices, [text], "it is another use");
    }

    #[test]
    fn who_has_little_is_told_of_to_nobody_until_it_has_more() {
        let mut uses = ForeignUses::default();
        let (little, more) = (LITTLE_BYTES - 1, LITTLE_BYTES);
        let news = saw(&mut uses, &[process(7, little, Belongs::ToAnotherNode)], true);
        assert!(
            news.notices.is_empty() && news.lines[0].contains("pid 7 (python3), which another Oxiray node started")
        );
        assert_eq!(saw(&mut uses, &[process(7, more, Belongs::ToAnotherNode)], true).notices.len(), 1);
        let unknown = ProcessMemory { pid: 8, ..ProcessMemory::default() };
        let news = saw(&mut uses, &[unknown], true);
        assert_eq!(news.lines[0], "GPU 4 is also used by pid 8, not Oxiray's", "nobody tells how much it has");
    }
}
