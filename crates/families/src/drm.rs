//! What open files of the kernel's graphics devices (DRM) tell of who has a card's memory.

use crate::host::HostFacts;
use std::collections::BTreeMap;

/// Bytes that a process has of a card's memory, told by lines whose names begin with the first of `names` that there are. Each
/// open node has the numbers of its client, and duplicates of a descriptor have the same client.
pub(crate) fn memory_of(host: &dyn HostFacts, pid: u32, address: &str, names: &[&str]) -> u64 {
    let folder = format!("/proc/{pid}/fdinfo");
    let mut of_client = BTreeMap::new();
    for text in host.list(&folder).iter().filter_map(|number| host.read(&format!("{folder}/{number}"))) {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(str::trim));
        if value("drm-pdev") == Some(address) {
            of_client.insert(value("drm-client-id").map(str::to_owned), memory_in(&text, names));
        }
    }
    of_client.into_values().fold(0, u64::saturating_add)
}

/// Whether open files of all processes can be looked at: those of the first one can by nobody who may not.
pub(crate) fn sees_everybody(host: &dyn HostFacts) -> bool {
    !host.list("/proc/1/fdinfo").is_empty()
}

fn memory_in(text: &str, names: &[&str]) -> u64 {
    let of = |name: &&str| {
        let sizes: Vec<u64> = text.lines().filter_map(|line| size_in(line, name)).collect();
        (!sizes.is_empty()).then(|| sizes.into_iter().fold(0, u64::saturating_add))
    };
    names.iter().find_map(of).unwrap_or(0)
}

/// The bytes in a line such as `drm-total-vram0: 512 MiB`, where its name begins so.
fn size_in(line: &str, name: &str) -> Option<u64> {
    let (_, size) = line.strip_prefix(name)?.split_once(':')?;
    let mut words = size.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match words.next() {
        None => Some(number),
        Some("KiB") => number.checked_mul(1 << 10),
        Some("MiB") => number.checked_mul(1 << 20),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_card_is_told_from_the_machines() {
        let names = ["drm-total-vram", "drm-total-local"];
        let cases = [
            ("drm-total-vram0: 512 MiB", 512 << 20),
            ("drm-total-local0:\t4 KiB", 4096),
            ("drm-total-vram1: 7", 7),
            ("drm-total-vram0: 1 MiB\ndrm-total-vram1: 1 MiB\ndrm-total-local0: 9 MiB", 2 << 20),
            ("drm-total-system: 1 GiB", 0),
            ("drm-total-gtt: 1 MiB", 0),
            ("drm-resident-vram0: 512 MiB", 0),
            ("drm-pdev: 0000:03:00.0", 0),
        ];
        for (text, bytes) in cases {
            assert_eq!(memory_in(text, &names), bytes, "{text}");
        }
    }
}
