//! How much devices are used: measured while somebody has one, and told to the head with what is free.

use super::{Alarm, Core};
use oxiray_wire::message::DeviceUse;
use serde_json::{Value as Json, json};
use std::time::Duration;

/// Between two measurings while a device is in use.
const MEASURED_EVERY: Duration = Duration::from_secs(1);

/// What was measured last.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    is_watching: bool,
    pub(crate) uses: Vec<DeviceUse>,
}

impl Core {
    /// Begins to measure where a device is in use, and nobody measures yet.
    pub(crate) fn watch_devices(&mut self) {
        if !self.measured.is_watching && self.device_check.measures() && self.has_devices_in_use() {
            self.measured.is_watching = true;
            self.measure_devices();
        }
    }

    /// One measuring, and the next in a while; none once all devices are free.
    pub(crate) fn measure_devices(&mut self) {
        self.measured.uses.clear();
        self.measured.is_watching = self.has_devices_in_use();
        if !self.measured.is_watching {
            return;
        }
        let (resource, found) = self.device_check.measure();
        let told = found.iter().map(|found| DeviceUse {
            resource: resource.to_owned(),
            id: found.id.clone(),
            busy_percent: found.busy_percent,
            used_bytes: found.used_bytes,
            total_bytes: found.total_bytes,
        });
        self.measured.uses.extend(told);
        self.alarm_at(self.now + MEASURED_EVERY, Alarm::Measure);
    }

    fn has_devices_in_use(&self) -> bool {
        self.ledger.open().any(|(_, demand)| demand.iter().any(|(name, _)| name.is_device()))
    }
}

/// As people and programs are shown it.
pub(crate) fn shown_use(device: &DeviceUse) -> Json {
    let DeviceUse { resource, id, busy_percent, used_bytes, total_bytes } = device;
    json!({"resource": resource, "id": id, "busy_percent": busy_percent, "used_bytes": used_bytes, "total_bytes": total_bytes})
}

/// All of a node's.
pub(crate) fn shown_uses(uses: &[DeviceUse]) -> Vec<Json> {
    uses.iter().map(shown_use).collect()
}
