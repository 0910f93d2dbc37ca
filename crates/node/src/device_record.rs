//! What is remembered of devices' health in a session's directory, for a daemon that goes on with the session.

use crate::session;
use oxiray_machine::HealthRecord;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

const FILE: &str = "device_health.json";

#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    /// The kernel's name for the time since the machine was started.
    boot: String,
    devices: Vec<Device>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Device {
    resource: String,
    name: String,
    reason: Option<String>,
    is_by_hand: bool,
    borne: u64,
}

/// Replaces what is remembered.
pub(crate) fn write(directory: &Path, records: &[HealthRecord]) -> io::Result<()> {
    let devices = records.iter().cloned().map(|record| {
        let HealthRecord { resource, name, reason, is_by_hand, borne } = record;
        Device { resource, name, reason, is_by_hand, borne }
    });
    let remembered = Remembered { boot: boot(), devices: devices.collect() };
    let unfinished = directory.join(format!("{FILE}.new"));
    let _ = fs::remove_file(&unfinished);
    let mut file = session::create(&unfinished)?;
    file.write_all(serde_json::to_string_pretty(&remembered)?.as_bytes())?;
    file.sync_all()?;
    fs::rename(unfinished, directory.join(FILE))
}

/// What is remembered and still true.
///
/// # Errors
/// Where there is something that cannot be read.
pub(crate) fn read(directory: &Path) -> io::Result<Vec<HealthRecord>> {
    let text = match fs::read_to_string(directory.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    Ok(still_true(serde_json::from_str(&text)?, &boot()))
}

/// A restart of the machine mends what a reset does, and drivers count errors anew; what a person drained stays drained.
fn still_true(remembered: Remembered, boot: &str) -> Vec<HealthRecord> {
    let is_same = remembered.boot == boot && !boot.is_empty();
    let devices = remembered.devices.into_iter().filter(|device| is_same || device.is_by_hand);
    let record = |Device { resource, name, reason, is_by_hand, borne }| {
        let borne = if is_same { borne } else { 0 };
        HealthRecord { resource, name, reason, is_by_hand, borne }
    };
    devices.map(record).collect()
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<HealthRecord> {
        let of = |name: &str, is_by_hand| HealthRecord {
            resource: "GPU".to_owned(),
            name: name.to_owned(),
            reason: Some("why".to_owned()),
            is_by_hand,
            borne: 3,
        };
        vec![of("GPU-1", false), of("GPU-2", true)]
    }

    #[test]
    fn what_was_written_is_read_until_the_machine_is_restarted() {
        let folder = tempfile::tempdir().expect("a directory");
        assert_eq!(read(folder.path()).expect("nothing is remembered"), []);
        write(folder.path(), &records()).expect("it is written");
        write(folder.path(), &records()).expect("it is written again");
        assert_eq!(read(folder.path()).expect("it is read"), records());
        let text = fs::read_to_string(folder.path().join(FILE)).expect("it is there");
        let kept = still_true(serde_json::from_str(&text).expect("it is whole"), "another boot");
        assert_eq!(kept, [HealthRecord { borne: 0, ..records().remove(1) }], "what a person drained");
        fs::write(folder.path().join(FILE), "{").expect("it is written");
        assert!(read(folder.path()).is_err());
    }
}
