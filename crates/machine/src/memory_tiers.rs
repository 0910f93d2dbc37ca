//! What keeps processes to the memory of a device that they asked for. No I/O.
//!
//! - TIERS-1: what is told to be in force is in force: a tier that was not asked for, or that does not work here, is not named.

use oxiray_wire::state::MemoryTier;

/// What keeps processes of a node to the memory of a device that they asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The tiers that were asked for and work here, in the order in which they were named.
    pub tiers: Vec<MemoryTier>,
    /// The library that is loaded before CUDA's, for the tier of that kind.
    pub library: String,
}

impl Default for MemoryPlan {
    fn default() -> Self {
        Self { tiers: vec![MemoryTier::Framework, MemoryTier::Watched], library: String::new() }
    }
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

    /// The first of the tiers that holds against more than frameworks, where there is one.
    fn hard(&self) -> Option<MemoryTier> {
        self.tiers.iter().copied().find(|tier| *tier > MemoryTier::Framework)
    }

    /// The strongest that is in force for a process; `is_python` says whether frameworks hear of it there, `is_watched` whether
    /// it is seen how much it has.
    pub(crate) fn in_force(&self, is_python: bool, is_watched: bool) -> MemoryTier {
        let soft = [(MemoryTier::Framework, is_python), (MemoryTier::Watched, is_watched)];
        let soft = soft.into_iter().find(|(tier, is_so)| *is_so && self.has(*tier)).map(|(tier, _)| tier);
        self.hard().or(soft).unwrap_or(MemoryTier::None)
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
    use MemoryTier::{Framework, Interposer, Mps, None, Watched};

    fn plan(tiers: &[MemoryTier]) -> MemoryPlan {
        MemoryPlan { tiers: tiers.to_vec(), library: "/lib/limit.so".to_owned() }
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
        assert_eq!(
            plan(&[Watched, Framework, Interposer, Mps]).in_force(true, true),
            Interposer,
            "the first of its kind"
        );
        assert_eq!(plan(&[Framework, Watched]).in_force(true, true), Framework);
        assert_eq!(plan(&[Framework, Watched]).in_force(false, true), Watched, "TIERS-1");
        assert_eq!(plan(&[Framework, Watched]).in_force(false, false), None, "TIERS-1");
        assert_eq!(plan(&[Watched]).in_force(true, false), None);
        assert_eq!(plan(&[None]).in_force(true, true), None);
    }

    #[test]
    fn a_library_is_loaded_before_those_that_are_anyway() {
        assert_eq!(plan(&[]).preload(Option::None), "/lib/limit.so");
        assert_eq!(plan(&[]).preload(Some("")), "/lib/limit.so");
        assert_eq!(plan(&[]).preload(Some("/lib/jemalloc.so")), "/lib/limit.so:/lib/jemalloc.so");
    }
}
