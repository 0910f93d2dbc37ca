//! The memory of devices that requests ask for: what programs are told of it, and who has more of it.
//!
//! Frameworks are told how much they may take, by variables that they read when they start, as are an MPS server's clients and a
//! library that is loaded before CUDA's, where there is one; and where the vendor's library says how much each process has,
//! who takes more is ended.

use crate::device_checks::DeviceSlot;
use crate::names::Key;
use oxiray_resources::DeviceShare;
use oxiray_wire::state::MemoryTier;
use std::collections::{BTreeMap, BTreeSet};

/// What a process needs of a device before it keeps anything there: its context, libraries' workspaces.
const CONTEXT_BYTES: u64 = 512 << 20;
/// Who is seen with too much so many times in a row is ended.
const LOOKS: u32 = 3;
/// How many bytes a request has, for programs.
pub(crate) const BYTES_VARIABLE: &str = "OXIRAY_GPU_MEMORY";
/// The share of the device's memory that a framework's allocator may take, for programs.
pub(crate) const FRACTION_VARIABLE: &str = "OXIRAY_GPU_MEMORY_FRACTION";
/// What keeps the process to that, for programs and errors.
const TIER_VARIABLE: &str = "OXIRAY_GPU_MEMORY_TIER";
/// What the dynamic linker loads before anything else.
pub(crate) const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// Where a client of an MPS server has its limits, by the number of the device: of those that it is shown.
const MPS_VARIABLE: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
/// Where a library that is loaded before CUDA's has its limit of the first device.
const INTERPOSER_VARIABLE: &str = "CUDA_DEVICE_MEMORY_LIMIT_0";

/// Says, on a node or in the environment of a task or actor, whether a share of a GPU is a limit on its memory.
pub const SHARE_VARIABLE: &str = "OXIRAY_SHARE_MEMORY";
/// What it says then.
pub const CAP: &str = "cap";

/// Memory of a device that a grant has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryGranted {
    pub(crate) share: DeviceShare,
    /// How much the device has.
    pub(crate) size_bytes: u64,
}

/// What tells programs how much they may take: frameworks, where they are `told`, by variables that are not set already, and
/// whoever else keeps them to it, whatever is set.
pub(crate) fn memory_variables(
    (bytes, size_bytes): (u64, u64),
    tier: MemoryTier,
    tells_frameworks: bool,
    is_set: impl Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let whole_mebibytes = (bytes >> 20).max(1);
    let kept_to = match tier {
        MemoryTier::Mps => Some((MPS_VARIABLE, format!("0={whole_mebibytes}M"))),
        MemoryTier::Interposer => Some((INTERPOSER_VARIABLE, format!("{whole_mebibytes}m"))),
        MemoryTier::None | MemoryTier::Watched | MemoryTier::Framework | MemoryTier::Dmem | MemoryTier::Mig => None,
    };
    let own = [(BYTES_VARIABLE, bytes.to_string()), (TIER_VARIABLE, tier.name().to_owned())];
    let told = if tells_frameworks { framework_variables(bytes, size_bytes, is_set) } else { Vec::new() };
    let own = own.into_iter().chain(kept_to).map(|(name, value)| (name.to_owned(), value));
    own.chain(told).collect()
}

/// What tells frameworks how much they may take.
fn framework_variables(bytes: u64, size_bytes: u64, is_set: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let kept = bytes.saturating_sub(CONTEXT_BYTES).max(bytes / 2);
    // Cut off, so that all together take no more than there is.
    let fraction = format!("{:.4}", (kept as f64 / size_bytes.max(1) as f64 * 10_000.0).floor().max(1.0) / 10_000.0);
    let own = [(FRACTION_VARIABLE, fraction.clone())];
    let others = [
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", fraction),
        ("CUPY_GPU_MEMORY_LIMIT", kept.to_string()),
        // It takes all at once otherwise, and knows no limit from outside.
        ("TF_FORCE_GPU_ALLOW_GROWTH", "true".to_owned()),
    ];
    let others = others.into_iter().filter(|(name, _)| !is_set(name));
    own.into_iter().chain(others).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The most that a process may be seen with which asked for so much.
pub(crate) fn bound_of(asked_bytes: u64) -> u64 {
    asked_bytes.saturating_add(asked_bytes / 50).saturating_add(CONTEXT_BYTES)
}

/// How much memory of devices those have that asked for some.
#[derive(Debug, Default)]
pub(crate) struct DeviceMemories {
    /// What was last seen, and how many times in a row that was too much.
    seen: BTreeMap<(Key, DeviceSlot), (u64, u32)>,
}

impl DeviceMemories {
    /// A worker was seen with so much. Returns whether it is to be ended.
    pub(crate) fn saw(&mut self, of: (Key, DeviceSlot), used_bytes: u64, asked_bytes: u64) -> bool {
        let (used, times) = self.seen.entry(of).or_default();
        *used = used_bytes;
        *times = if used_bytes > bound_of(asked_bytes) { *times + 1 } else { 0 };
        *times == LOOKS
    }

    /// Only these still hold something.
    pub(crate) fn keep(&mut self, holders: &BTreeSet<(Key, DeviceSlot)>) {
        self.seen.retain(|of, _| holders.contains(of));
    }

    /// What a worker was last seen with.
    pub(crate) fn used(&self, of: &(Key, DeviceSlot)) -> Option<u64> {
        self.seen.get(of).map(|(used, _)| *used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn programs_are_told_what_they_may_take_unless_they_were_told_otherwise() {
        let is_set = |name: &str| name == "CUPY_GPU_MEMORY_LIMIT";
        let told = memory_variables((8 * GIB, 80 * GIB), MemoryTier::Framework, true, is_set);
        let told: Vec<(&str, &str)> = told.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        assert_eq!(
            told,
            [
                ("OXIRAY_GPU_MEMORY", "8589934592"),
                ("OXIRAY_GPU_MEMORY_TIER", "framework"),
                ("OXIRAY_GPU_MEMORY_FRACTION", "0.0937"),
                ("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.0937"),
                ("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
            ]
        );
        let small = framework_variables(GIB / 4, 80 * GIB, |_| true);
        assert_eq!(small[0].1, "0.0015", "at least half of what was asked for");
    }

    #[test]
    fn who_keeps_a_process_to_its_memory_is_told_how_much_that_is() {
        let told = |tier| {
            let told = memory_variables((8 * GIB, 80 * GIB), tier, false, |_| true);
            told.into_iter().skip(1).map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let mps = ["OXIRAY_GPU_MEMORY_TIER=mps", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8192M"];
        let interposer = ["OXIRAY_GPU_MEMORY_TIER=interposer", "CUDA_DEVICE_MEMORY_LIMIT_0=8192m"];
        assert_eq!(told(MemoryTier::Mps), mps);
        assert_eq!(told(MemoryTier::Interposer), interposer);
        assert_eq!(told(MemoryTier::None), ["OXIRAY_GPU_MEMORY_TIER=none"]);
    }

    #[test]
    fn who_is_seen_three_times_in_a_row_with_too_much_is_ended_once() {
        let (mut memories, of) = (DeviceMemories::default(), (7, ("GPU".to_owned(), 0)));
        let (enough, much) = (bound_of(8 * GIB), bound_of(8 * GIB) + 1);
        let looks = [much, much, enough, much, much, much, much];
        let ended: Vec<bool> = looks.iter().map(|used| memories.saw(of.clone(), *used, 8 * GIB)).collect();
        assert_eq!(ended, [false, false, false, false, false, true, false]);
        assert_eq!(memories.used(&of), Some(much));
        memories.keep(&BTreeSet::new());
        assert_eq!(memories.used(&of), None);
    }
}
