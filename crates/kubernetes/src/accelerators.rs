//! The type of a group's accelerators, from what its pods ask of the machine.

use oxiray_families::{Family, families_of};
use serde_json::Value;
use std::collections::BTreeMap;

/// A slice of TPUs that a replica is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Version and size, such as `v4-16`.
    pub(crate) pod_type: String,
    /// How its chips are arranged, such as `2x2x2`.
    pub(crate) topology: String,
    /// Its chips.
    pub(crate) chips: u64,
    /// `TPU-V4`.
    pub(crate) accelerator_type: String,
}

/// GKE's name of a TPU, the version in its pod type, and how many of a pod type's units a chip is.
const TPUS: &[(&str, &str, u64)] = &[
    ("tpu-v3-slice", "v3", 2),
    ("tpu-v3-device", "v3", 2),
    ("tpu-v4-podslice", "v4", 2),
    ("tpu-v5-lite-podslice", "v5litepod", 1),
    ("tpu-v5-lite-device", "v5litepod", 1),
    ("tpu-v5p-slice", "v5p", 2),
    ("tpu-v6e-slice", "v6e", 1),
    ("tpu-v6e-device", "v6e", 1),
    ("tpu7x", "v7x", 2),
];

/// What the pod's node must be: its selector, and the single values that its affinity requires.
pub(crate) fn selectors(pod: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    if let Some([term]) = terms.as_array().map(Vec::as_slice) {
        for rule in term["matchExpressions"].as_array().into_iter().flatten() {
            if let (Some(key), Some("In"), Some([value])) =
                (rule["key"].as_str(), rule["operator"].as_str(), rule["values"].as_array().map(Vec::as_slice))
            {
                found.insert(key.to_owned(), value.as_str().unwrap_or_default().to_owned());
            }
        }
    }
    for (key, value) in pod["nodeSelector"].as_object().into_iter().flatten() {
        found.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
    }
    found
}

/// The slice that GKE's labels name.
pub(crate) fn slice(selectors: &BTreeMap<String, String>) -> Option<Slice> {
    let name = selectors.get("cloud.google.com/gke-tpu-accelerator")?;
    let topology = selectors.get("cloud.google.com/gke-tpu-topology")?;
    let (_, version, units) = TPUS.iter().find(|(known, _, _)| known == name)?;
    let sides: Vec<u64> = topology.split('x').map(str::parse).collect::<Result<_, _>>().ok()?;
    let chips = sides.iter().try_fold(1u64, |product, side| product.checked_mul(*side)).filter(|chips| *chips > 0)?;
    Some(Slice {
        pod_type: format!("{version}-{}", chips.checked_mul(*units)?),
        topology: topology.clone(),
        chips,
        accelerator_type: format!("TPU-{}", version.to_uppercase()),
    })
}

/// The bytes of each device of a resource that the pod's node must have.
pub(crate) fn memory_of(resource: &str, selectors: &BTreeMap<String, String>) -> Option<u64> {
    let label = |key: &str| selectors.get(key).cloned();
    families_of(resource).find_map(|family| (family.kubernetes.memory_of)(&label))
}

/// The type of the devices of a resource that the pod's node must have, as programs name it: `A100`, `H100`, `L4`.
pub(crate) fn type_of(resource: &str, selectors: &BTreeMap<String, String>) -> Option<String> {
    let label = |key: &str| selectors.get(key).cloned();
    let of = |family: &'static Family| {
        (family.kubernetes.type_of)(&label).or_else(|| family.constant_type.map(str::to_owned))
    };
    families_of(resource).find_map(of)
}
