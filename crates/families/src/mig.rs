//! NVIDIA GPUs that an administrator has cut into instances (MIG): what an instance is, and what it is counted as.
//!
//! A process can use one instance, and no whole GPU beside it: CUDA shows it no more. An instance of the profile `1g.10gb`
//! is one of the resource `mig-1g.10gb`, as Kubernetes calls it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::nodes::DeviceNode;
use crate::quantity::QuantityRule;
use crate::resource::DeviceResource;

/// What the resource of a profile's instances begins with.
const PREFIX: &str = "mig-";
/// The most compute slices that a GPU is cut into, and the most digits of an instance's gigabytes.
const SLICES_MAX: u32 = 8;
const SIZE_DIGITS_MAX: usize = 3;
/// What may follow the size in a profile's name: engines that not every instance of that size has.
const ENGINES: [&str; 4] = ["", ".me", ".me.all", ".gfx"];

/// One instance of a partitioned GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MigInstance {
    /// Its unique id, as `MIG-…`.
    pub uuid: Option<String>,
    /// Its profile, as `1g.10gb`.
    pub profile: String,
    /// Its own memory.
    pub memory_bytes: Option<u64>,
    /// The driver's number of the GPU instance that it lies in.
    pub gpu_instance: Option<u32>,
    /// The driver's number of the compute instance that it is in that.
    pub compute_instance: Option<u32>,
    /// The device nodes that a process opens to use it: those of its GPU and two of its own; empty where they are not known.
    pub nodes: Vec<DeviceNode>,
}

/// How a node offers GPUs that are partitioned, in Kubernetes' words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigStrategy {
    /// It does not.
    None,
    /// Each instance is one `GPU`: all GPUs are partitioned, and all instances alike.
    Single,
    /// Each instance is one of its profile's resource, and each whole GPU one `GPU`.
    Mixed,
}

impl MigStrategy {
    /// What people write for each.
    pub const WORDS: [(&'static str, Self); 3] =
        [("none", Self::None), ("single", Self::Single), ("mixed", Self::Mixed)];

    /// The one of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, strategy)| *strategy)
    }
}

/// The resource of this name, where it is one of instances.
pub(crate) fn resource(name: &str) -> Option<&'static DeviceResource> {
    static KNOWN: Mutex<BTreeMap<String, &'static DeviceResource>> = Mutex::new(BTreeMap::new());
    name.strip_prefix(PREFIX).filter(|profile| is_profile(profile))?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(resource) = known.get(name) {
        return Some(resource);
    }
    // There are not many profiles, and a name is kept once.
    let name: &'static str = name.to_owned().leak();
    let made =
        Box::leak(Box::new(DeviceResource { name, option: None, quantity: QuantityRule::One, torch: Some("cuda") }));
    known.insert(name.to_owned(), made);
    Some(made)
}

/// The resource of a profile's instances.
pub fn resource_of(profile: &str) -> Option<&'static DeviceResource> {
    resource(&format!("{PREFIX}{profile}"))
}

/// Whether a text names a profile: `1g.10gb`, `1c.2g.20gb`, `1g.10gb.me`.
fn is_profile(text: &str) -> bool {
    let slices = |text: &str, unit: char| {
        let count = text.strip_suffix(unit).filter(|digits| digits.len() == 1).and_then(|digits| digits.parse().ok());
        count.is_some_and(|count: u32| (1..=SLICES_MAX).contains(&count))
    };
    let Some((first, rest)) = text.split_once('.') else { return false };
    let (first, rest) = match rest.split_once('.') {
        Some((second, rest)) if slices(first, 'c') => (second, rest),
        _ => (first, rest),
    };
    let Some(end) = rest.find("gb") else { return false };
    let (size, engines) = (&rest[..end], &rest[end + 2..]);
    let is_size = (1..=SIZE_DIGITS_MAX).contains(&size.len())
        && size.bytes().all(|digit| digit.is_ascii_digit())
        && !size.starts_with('0');
    slices(first, 'g') && is_size && ENGINES.contains(&engines)
}

/// The profile in the name that the driver gives to an instance, `NVIDIA A100-SXM4-40GB MIG 1g.5gb+me`, as resources are
/// named: with a dot for a plus.
pub fn profile_in(name: &str) -> Option<String> {
    let (_, profile) = name.rsplit_once("MIG ")?;
    let profile = profile.trim().replace('+', ".");
    is_profile(&profile).then_some(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_told_from_other_names() {
        for name in ["mig-1g.5gb", "mig-7g.141gb", "mig-1c.3g.20gb", "mig-1g.10gb.me", "mig-2g.35gb.me.all"] {
            let found = resource(name).expect(name);
            assert_eq!((found.name, found.quantity), (name, QuantityRule::One));
            assert!(std::ptr::eq(found, resource(name).expect(name)), "{name} is kept once");
        }
        let others = ["mig-", "mig-x", "mig-9g.10gb", "mig-1g.0gb", "mig-1g.1000gb", "mig-1g.10gb.", "mig-1g.10gbs"];
        for name in others.into_iter().chain(["mig-10g.10gb", "mig-1g.+1gb", "migrant", "1g.10gb", "mig-1c.10gb", ""]) {
            assert_eq!(resource(name), None, "{name}");
        }
    }

    #[test]
    fn an_instance_says_its_profile() {
        assert_eq!(profile_in("NVIDIA A100-SXM4-40GB MIG 1g.5gb").as_deref(), Some("1g.5gb"));
        assert_eq!(profile_in("NVIDIA H100 80GB HBM3 MIG 1c.2g.20gb").as_deref(), Some("1c.2g.20gb"));
        assert_eq!(profile_in("NVIDIA A100-SXM4-80GB MIG 1g.10gb+me").as_deref(), Some("1g.10gb.me"));
        assert_eq!([profile_in("NVIDIA H200"), profile_in("NVIDIA H200 MIG what")], [None, None]);
    }
}
