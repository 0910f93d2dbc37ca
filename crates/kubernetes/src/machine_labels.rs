//! What a pod's machine is labelled with, for the node in the pod: a pod cannot read it.
//!
//! The operator reads the machine's object when the pod has a machine, and writes an annotation. The pod has that in a file, for
//! which its node waits.

use oxiray_families::DOMAIN_LABEL;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// On a pod that has a machine: the labels that its node gets from it, as a JSON object; empty where there are none.
pub const MACHINE_LABELS_ANNOTATION: &str = "oxiray.io/machine-labels";
/// Where the pod has them.
pub(crate) const MACHINE_PATH: &str = "/var/run/oxiray/machine";
/// The variable that says so to the node.
pub(crate) const MACHINE_LABELS_VARIABLE: &str = "OXIRAY_MACHINE_LABELS_FILE";

/// The labels of a machine that its nodes get, and under which names. What NVIDIA's discovery says of the domain is what the
/// driver says, written in the same way; a node's own driver has the last word.
const LABELS: [(&str, &str); 3] = [
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("nvidia.com/gpu.clique", DOMAIN_LABEL),
];

/// What the nodes on a machine get from it, as the annotation has it. `machine` is its object, null where that is not known.
pub fn machine_labels(machine: &Value) -> String {
    let labels = &machine["metadata"]["labels"];
    json!(of_nodes(|label| labels[label].as_str())).to_string()
}

/// What the nodes get that are on machines with these labels only.
pub(crate) fn selected_labels(selectors: &BTreeMap<String, String>) -> BTreeMap<&'static str, String> {
    let found = of_nodes(|label| selectors.get(label).map(String::as_str));
    found.into_iter().map(|(label, value)| (label, value.to_owned())).collect()
}

fn of_nodes<'machine>(of: impl Fn(&str) -> Option<&'machine str>) -> BTreeMap<&'static str, &'machine str> {
    let found = LABELS.iter().filter_map(|(of_machine, of_node)| Some((*of_node, of(of_machine)?)));
    found.filter(|(_, value)| !value.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_region_and_the_domain_of_gpus_are_taken_and_nothing_else() {
        let machine = json!({"metadata": {"labels": {
            "kubernetes.io/hostname": "tray-7",
            "topology.kubernetes.io/zone": "a",
            "topology.kubernetes.io/region": "",
            "nvidia.com/gpu.clique": "9f1f.3",
            "ray.io/gpu-domain": "none of the machine's",
        }}});
        assert_eq!(machine_labels(&machine), r#"{"ray.io/gpu-domain":"9f1f.3","topology.kubernetes.io/zone":"a"}"#);
        for nothing in [json!({"metadata": {}}), Value::Null] {
            assert_eq!(machine_labels(&nothing), "{}", "it is known that there is nothing");
        }
    }
}
