//! What keeps processes to the memory of a device that they asked for. No I/O.
//!
//! - TIERS-1: what is told to be in force is in force: a tier that was not asked for, or that does not work here, is not named.
//! - TIERS-2: a worker that the kernel is to keep to its memory is told nothing before the kernel was told; where that fails, it
//!   is ended, and the tier is named no more.

use crate::names::Key;
use oxiray_wire::state::MemoryTier;
use std::collections::BTreeMap;

/// What keeps processes of a node to the memory of a device that they asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The tiers that were asked for and work here, in the order in which they were named.
    pub tiers: Vec<MemoryTier>,
    /// The library that is loaded before CUDA's, for the tier of that kind.
    pub library: String,
    /// What the kernel calls the memory of each device, by the device's place on the PCI bus, for the tier of that kind.
    pub regions: BTreeMap<String, String>,
}

impl Default for MemoryPlan {
    fn default() -> Self {
        let tiers = vec![MemoryTier::Framework, MemoryTier::Watched];
        Self { tiers, library: String::new(), regions: BTreeMap::new() }
    }
}

/// The kernel is to keep a worker to so much of a device's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceMemoryLimit {
    /// The worker.
    pub worker: Key,
    /// What the kernel calls that memory.
    pub region: String,
    /// How much of it.
    pub bytes: u64,
}

/// A tier that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedTier {
    /// Which.
    pub tier: MemoryTier,
    /// Whether the node is not to start without it.
    pub is_required: bool,
}

impl AskedTier {
    /// Reads a list, such as `require:mps,framework,watched`; what is no tier is the error.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        let named = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let asked = named.map(|word| {
            let (is_required, name) = word.strip_prefix("require:").map_or((false, word), |name| (true, name.trim()));
            let tier = MemoryTier::ALL.iter().find(|tier| tier.name() == name);
            tier.map(|tier| Self { tier: *tier, is_required }).ok_or_else(|| name.to_owned())
        });
        asked.collect()
    }
}

impl MemoryPlan {
    pub(crate) fn has(&self, tier: MemoryTier) -> bool {
        self.tiers.contains(&tier)
    }

    /// The strongest that is in force for a process, of those that hold for it: of those against more than frameworks, the one
    /// that was named first.
    pub(crate) fn in_force(&self, holds: impl Fn(MemoryTier) -> bool) -> MemoryTier {
        let hard = self.tiers.iter().copied().find(|tier| *tier > MemoryTier::Framework && holds(*tier));
        let soft = [MemoryTier::Framework, MemoryTier::Watched].into_iter();
        hard.or_else(|| soft.into_iter().find(|tier| self.has(*tier) && holds(*tier))).unwrap_or(MemoryTier::None)
    }

    /// TIERS-2: a tier does not work any more.
    pub(crate) fn breaks(&mut self, tier: MemoryTier) {
        self.tiers.retain(|one| *one != tier);
    }

    /// What `LD_PRELOAD` is to say where it says this already.
    pub(crate) fn preload(&self, already: Option<&str>) -> String {
        let already = already.filter(|already| !already.trim().is_empty());
        already.map_or_else(|| self.library.clone(), |already| format!("{}:{already}", self.library))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MemoryTier::{Dmem, Framework, Interposer, Mig, Mps, None, Watched};

    fn plan(tiers: &[MemoryTier]) -> MemoryPlan {
        MemoryPlan { tiers: tiers.to_vec(), library: "/lib/limit.so".to_owned(), regions: BTreeMap::new() }
    }

    #[test]
    fn a_list_names_tiers_and_which_are_required() {
        let asked = AskedTier::list(" require:mps, framework,").expect("a list");
        assert_eq!(
            asked.iter().map(|one| (one.tier, one.is_required)).collect::<Vec<_>>(),
            [(Mps, true), (Framework, false)]
        );
        assert_eq!(AskedTier::list("framework,magic"), Err("magic".to_owned()));
        assert_eq!(AskedTier::list("require:"), Err(String::new()));
    }

    #[test]
    fn the_strongest_that_holds_for_the_process_is_named_and_none_that_does_not() {
        let all = |_| true;
        let but = |without: &'static [MemoryTier]| move |tier| !without.contains(&tier);
        assert_eq!(plan(&[Watched, Framework, Interposer, Mps]).in_force(all), Interposer, "the first of its kind");
        assert_eq!(plan(&[Framework, Watched]).in_force(all), Framework);
        assert_eq!(plan(&[Framework, Watched]).in_force(but(&[Framework])), Watched, "TIERS-1");
        assert_eq!(plan(&[Framework, Watched]).in_force(but(&[Framework, Watched])), None, "TIERS-1");
        assert_eq!(plan(&[Watched]).in_force(but(&[Watched])), None);
        assert_eq!(plan(&[None]).in_force(all), None);
        let mut kernels = plan(&[Mig, Dmem, Framework]);
        assert_eq!(kernels.in_force(all), Mig);
        assert_eq!(kernels.in_force(but(&[Mig])), Dmem, "a device that is no part of another");
        assert_eq!(kernels.in_force(but(&[Mig, Dmem])), Framework, "and whose memory the kernel does not know");
        kernels.breaks(Dmem);
        assert_eq!(kernels.in_force(but(&[Mig])), Framework, "TIERS-2");
    }

    #[test]
    fn a_library_is_loaded_before_those_that_are_anyway() {
        assert_eq!(plan(&[]).preload(Option::None), "/lib/limit.so");
        assert_eq!(plan(&[]).preload(Some("")), "/lib/limit.so");
        assert_eq!(plan(&[]).preload(Some("/lib/jemalloc.so")), "/lib/limit.so:/lib/jemalloc.so");
    }
}
