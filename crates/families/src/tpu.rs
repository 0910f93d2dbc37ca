//! Google TPUs: chips of a slice, found by the PCI vendor behind their device nodes.
//!
//! Device nodes named `/dev/accel…` belong to the kernel's class of accelerators, whoever made them (AMD's and Intel's
//! NPUs, Gaudi), so the name alone says nothing: the vendor decides.

use std::collections::BTreeMap;

use crate::detected::{Detected, Device, Findings};
use crate::family::{Family, Fencing};
use crate::host::HostFacts;
use crate::kubernetes::{KubernetesNames, PodResource};
use crate::monitor::{Holders, Monitor};
use crate::nodes::existing;
use crate::quantity::QuantityRule;
use crate::resource::DeviceResource;
use crate::table::FAMILIES;
use crate::visibility::{Assignment, Changes, Lookup, Visibility, listed};

/// The maker's number on the PCI bus.
const VENDOR: u16 = 0x1ae0;
const CHIPS: &str = "TPU_VISIBLE_CHIPS";
const CHIP_BOUNDS: &str = "TPU_CHIPS_PER_HOST_BOUNDS";
const HOST_BOUNDS: &str = "TPU_HOST_BOUNDS";

/// The resource of TPU chips.
pub static TPU: DeviceResource =
    DeviceResource { name: "TPU", option: None, quantity: QuantityRule::OneOf(&[1, 2, 4, 8]), torch: Some("xla") };

pub(crate) static FAMILY: Family = Family {
    key: "tpu",
    name: "Google TPU",
    resource: &TPU,
    parts: None,
    pci_vendor: VENDOR,
    nodes: &["/dev/accel", "/dev/vfio"],
    shared_nodes: &["/dev/vfio/vfio"],
    fencing: Fencing::PLAIN,
    visibility: Visibility {
        variables: &[CHIPS],
        joined: &[],
        companions: &[CHIP_BOUNDS, HOST_BOUNDS],
        opt_outs: &["RAY_EXPERIMENTAL_NOSET_TPU_VISIBLE_CHIPS"],
        lists_uuids: false,
        // An empty list of chips is an error to the runtime.
        hidden: None,
        preset: |environment| listed(environment, CHIPS),
        show,
    },
    constant_type: None,
    type_aliases: &[],
    kubernetes: KubernetesNames {
        resources: &[PodResource::devices("google.com/tpu")],
        classes: &["tpu.google.com"],
        taint: Some("google.com/tpu"),
        ..KubernetesNames::NONE
    },
    detect,
    declared: Some(declared),
    monitor: Some(Monitor {
        is_available: |_| true,
        // One process at a time can open a chip.
        holders: |host, chip| {
            let processes = host.openers(&chip.nodes).filter(|_| !chip.nodes.is_empty())?;
            Some(Holders { processes, is_exclusive: true, is_busy: false })
        },
        usage: |_, chips| vec![None; chips.len()],
        unlisted: |_, _| None,
        rest: 0,
        hear_errors: |_, _, _| (),
        check: None,
        health: None,
        look_at: "`tpu-info`, `dmesg`",
    }),
};

// All chips of the machine are its default, which the runtime knows best itself; one and two need their grid said.
fn show(assignment: &Assignment<'_>) -> Changes {
    let set = |variable: &str, value: &str| (variable.to_owned(), Some(value.to_owned()));
    let chips = set(CHIPS, &assignment.joined());
    match assignment.ids.len() {
        count if count == assignment.detected => {
            [CHIPS, CHIP_BOUNDS, HOST_BOUNDS].map(|variable| (variable.to_owned(), None)).into()
        }
        1 => vec![chips, set(CHIP_BOUNDS, "1,1,1"), set(HOST_BOUNDS, "1,1,1")],
        2 => vec![chips, set(CHIP_BOUNDS, "1,2,1"), set(HOST_BOUNDS, "1,1,1")],
        _ => vec![chips],
    }
}

fn detect(host: &dyn HostFacts, findings: &mut Findings) -> Option<Detected> {
    let (devices, how) = match accel_chips(host, findings) {
        chips if chips.is_empty() => (vfio_chips(host), "`/dev/vfio`, PCI vendor 1ae0"),
        chips => (chips, "`/dev/accel*`, PCI vendor 1ae0"),
    };
    let mut detected = Detected::of_devices(&FAMILY, devices, how)?;
    let slice = Slice::read(&|variable| host.variable(variable), &|attribute| host.metadata(attribute));
    slice.describe(&mut detected);
    if detected.type_name.is_none() {
        findings.warn(
            "the machine's TPUs do not say their type, so tasks with an `accelerator_type` will not run on it; set \
             TPU_ACCELERATOR_TYPE, such as v4-16",
        );
    }
    Some(detected)
}

/// Chips that a machine says it has are of the slice that its environment names.
fn declared(environment: Lookup<'_>, count: usize) -> Detected {
    let mut detected = Detected::declared(&FAMILY, count);
    Slice::read(environment, &|_| None).describe(&mut detected);
    detected
}

/// The nodes of the kernel's class of accelerators: beside `/dev/accel0` there is the newer `/dev/accel/accel0`.
fn accel_chips(host: &dyn HostFacts, findings: &mut Findings) -> Vec<Device> {
    let on_bus = host.pci().iter().any(|function| function.vendor == VENDOR);
    let mut numbers: Vec<u32> = host.list_numbered("/dev", "accel");
    numbers.extend(host.list_numbered("/dev/accel", "accel"));
    numbers.sort_unstable();
    numbers.dedup();
    let mut chips = Vec::new();
    for number in numbers {
        let vendor = host.read_number(&format!("/sys/class/accel/accel{number}/device/vendor"));
        if vendor.map_or(on_bus, |vendor| vendor == u64::from(VENDOR)) {
            let nodes = existing(host, [format!("/dev/accel{number}"), format!("/dev/accel/accel{number}")]);
            chips.push(Device { index: chips.len(), nodes, ..Device::default() });
        } else if !vendor.is_some_and(is_of_another_family) {
            let maker = vendor.map_or_else(|| "unknown".to_owned(), |vendor| format!("{vendor:04x}"));
            findings.rule_out(format!("accelerator node accel{number}"), format!("no TPU: its PCI vendor is {maker}"));
        }
    }
    chips
}

/// Whether the nodes of this maker's accelerators are another family's, which counts them as what they are.
fn is_of_another_family(vendor: u64) -> bool {
    let others = FAMILIES.iter().filter(|family| u64::from(family.pci_vendor) == vendor);
    others.flat_map(|family| family.nodes).any(|node| node.starts_with("/dev/accel"))
}

fn vfio_chips(host: &dyn HostFacts) -> Vec<Device> {
    let is_chip = |group: &u32| {
        let folder = format!("/sys/kernel/iommu_groups/{group}/devices");
        let vendors =
            host.list(&folder).into_iter().map(|address| host.read_number(&format!("{folder}/{address}/vendor")));
        vendors.flatten().any(|vendor| vendor == u64::from(VENDOR))
    };
    let groups = host.list_numbered("/dev/vfio", "").into_iter().filter(is_chip);
    let nodes = |group: u32| existing(host, [format!("/dev/vfio/{group}")]);
    groups.enumerate().map(|(index, group)| Device { index, nodes: nodes(group), ..Device::default() }).collect()
}

/// The slice that the machine's chips are a part of: told by GKE in variables, elsewhere by the metadata service.
struct Slice {
    /// Version and size, such as `v4-16`.
    pod_type: Option<String>,
    name: Option<String>,
    worker: Option<String>,
    topology: Option<String>,
}

impl Slice {
    fn read(environment: Lookup<'_>, metadata: Lookup<'_>) -> Self {
        let told = |variable: &str| environment(variable).map(|value| value.trim().to_owned());
        let either = |variable: &str, attribute: &str| {
            told(variable).or_else(|| metadata(attribute)).filter(|value| !value.is_empty())
        };
        let from_tpu_environment = || topology_of(&metadata("tpu-env")?);
        Self {
            pod_type: either("TPU_ACCELERATOR_TYPE", "accelerator-type").and_then(|text| pod_type(&text)),
            name: either("TPU_NAME", "instance-id"),
            worker: either("TPU_WORKER_ID", "agent-worker-number"),
            topology: told("TPU_TOPOLOGY").filter(|value| !value.is_empty()).or_else(from_tpu_environment),
        }
    }

    fn describe(self, detected: &mut Detected) {
        let version = self.pod_type.as_deref().and_then(|pod| pod.split('-').next());
        detected.type_name = version.map(|version| format!("TPU-{}", version.to_uppercase()));
        if let (Some(name), Some(worker), Some(pod_type)) = (&self.name, &self.worker, &self.pod_type) {
            let extra = &mut detected.extra_resources;
            extra.insert(name.clone(), 1.0);
            if worker == "0" {
                extra.insert(format!("TPU-{pod_type}-head"), 1.0);
            }
        }
        let labels = [
            ("ray.io/tpu-slice-name", self.name),
            ("ray.io/tpu-worker-id", self.worker),
            ("ray.io/tpu-topology", self.topology),
            ("ray.io/tpu-pod-type", self.pod_type),
        ];
        detected.labels =
            labels.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect::<BTreeMap<_, _>>();
    }
}

/// `v4-16`, `v5litepod-8`, `tpu7x-8` (which is `v7x-8`): a version and a size.
fn pod_type(text: &str) -> Option<String> {
    let (version, size) = text.split_once('-')?;
    let model = version.strip_prefix("tpu").or_else(|| version.strip_prefix('v'))?;
    let suffix = model.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let numbered = suffix.len() < model.len() && suffix.chars().all(|letter| letter.is_ascii_alphabetic());
    let sized = !size.is_empty() && size.chars().all(|letter| letter.is_ascii_digit());
    (numbered && sized).then(|| format!("v{model}-{size}"))
}

fn topology_of(environment: &str) -> Option<String> {
    let value = environment.lines().find_map(|line| line.trim().strip_prefix("TOPOLOGY:"))?;
    let topology = value.trim().trim_matches('\'');
    (!topology.is_empty()).then(|| topology.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_types() {
        let cases = [
            ("v4-16", Some("v4-16")),
            ("v5litepod-8", Some("v5litepod-8")),
            ("v6e-4", Some("v6e-4")),
            ("tpu7x-8", Some("v7x-8")),
            ("v5p", None),
            ("v-8", None),
            ("v4-", None),
            ("v4-2x2", None),
            ("h100-8", None),
            ("v5_lite-8", None),
        ];
        for (text, expected) in cases {
            assert_eq!(pod_type(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn topology_in_the_metadata() {
        assert_eq!(topology_of("TYPE: 'V4'\nTOPOLOGY: '2x2x2'\nX: ''").as_deref(), Some("2x2x2"));
        assert_eq!(topology_of("TOPOLOGY: ''"), None);
        assert_eq!(topology_of("TYPE: 'V4'"), None);
    }
}
