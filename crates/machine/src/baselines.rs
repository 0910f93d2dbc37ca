//! How much of devices is in use by nobody that is listed while nobody here has them: what drivers keep for themselves, say.
//! No I/O.
//!
//! - BASELINE-1: a device's baseline is what was seen when nobody here had it, last before it was granted. What was measured
//!   while a worker of before was being forgotten is none.
//! - BASELINE-2: where nothing is known of a device, what is in use when its first holder has gone is its baseline.

use crate::device_checks::DeviceSlot;
use std::collections::{BTreeMap, BTreeSet};

/// How much more than its baseline a device may have in use: drivers keep a little for the next process.
const MARGIN_BYTES: u64 = 256 << 20;

/// The baselines of devices.
#[derive(Debug, Default)]
pub(crate) struct Baselines {
    of: BTreeMap<DeviceSlot, u64>,
    /// Those that nobody has had since the measuring began whose answer is awaited.
    idle: BTreeSet<DeviceSlot>,
}

impl Baselines {
    /// A measuring begins while nobody has these devices.
    pub(crate) fn measuring(&mut self, idle: BTreeSet<DeviceSlot>) {
        self.idle = idle;
    }

    /// Somebody had these devices.
    pub(crate) fn touched(&mut self, devices: &BTreeSet<DeviceSlot>) {
        self.idle.retain(|device| !devices.contains(device));
    }

    /// So much of a device was in use by nobody that is listed, when somebody has it, or not.
    pub(crate) fn measured(&mut self, device: &DeviceSlot, unlisted_bytes: u64, is_held: bool) {
        if !is_held && self.idle.contains(device) {
            self.of.insert(device.clone(), unlisted_bytes);
        }
    }

    /// So much was in use before anybody here had the device.
    pub(crate) fn begins(&mut self, device: &DeviceSlot, unlisted_bytes: u64) {
        self.of.insert(device.clone(), unlisted_bytes);
    }

    /// Whether that is too much for a device whose holder has gone (BASELINE-2).
    pub(crate) fn is_beyond(&mut self, device: &DeviceSlot, unlisted_bytes: u64) -> bool {
        let baseline = *self.of.entry(device.clone()).or_insert(unlisted_bytes);
        unlisted_bytes > baseline.saturating_add(MARGIN_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn gpu() -> DeviceSlot {
        ("GPU".to_owned(), 0)
    }

    #[test]
    fn only_what_is_measured_while_nobody_has_a_device_is_its_baseline() {
        let (mut baselines, idle) = (Baselines::default(), BTreeSet::from([gpu()]));
        assert!(!baselines.is_beyond(&gpu(), GIB), "BASELINE-2");
        assert!(
            baselines.is_beyond(&gpu(), GIB + MARGIN_BYTES + 1) && !baselines.is_beyond(&gpu(), GIB + MARGIN_BYTES)
        );
        baselines.measured(&gpu(), 9 * GIB, false);
        baselines.measuring(idle.clone());
        baselines.measured(&gpu(), 9 * GIB, true);
        baselines.touched(&idle);
        baselines.measured(&gpu(), 9 * GIB, false);
        assert!(baselines.is_beyond(&gpu(), 9 * GIB), "BASELINE-1");
        baselines.measuring(idle);
        baselines.measured(&gpu(), 2 * GIB, false);
        assert!(!baselines.is_beyond(&gpu(), 2 * GIB));
    }
}
