//! The one function that turns a group's pod template into what its nodes will offer.
//!
//! The operator starts nodes with what it says, and the autoscaler and the status count with it, so that a group is the
//! same to all of them whether it has pods or none (CAPACITY-1). What a pod declares is taken in this order: the group's
//! `rayStartParams`, its `resources`, the container's limits, its requests, those of the whole pod.

use crate::accelerators::{memory_of, selectors, slice, type_of};
use crate::claims::{Claims, claimed};
use crate::devices::{MoreDevices, Unit, shown_by, unit_of};
use crate::machine_labels::selected_labels;
use crate::quantity::quantity;
use oxiray_families::{GPU, TPU, device_resources, families_of};
use oxiray_resources::{MemoryShares, ResourceName};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The processors of a pod that declares none, so that they do not depend on the machine it comes to.
const CPU_UNSAID: f64 = 1.0;
/// The label that names the type of a node's accelerators.
pub const TYPE_LABEL: &str = "ray.io/accelerator-type";
/// The label that names the profile of the parts of devices that a node has.
pub const PROFILE_LABEL: &str = "oxiray.io/device-profile";
/// What a resource that says the type of accelerators begins with.
const TYPE_PREFIX: &str = "accelerator_type:";

/// What a group says of one of its pods.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    /// The pod template: `metadata` and `spec`.
    pub template: &'a Value,
    /// The group's `rayStartParams`.
    pub start: &'a BTreeMap<String, String>,
    /// The group's `resources`.
    pub resources: &'a BTreeMap<String, Value>,
    /// The group's `labels`.
    pub labels: &'a BTreeMap<String, String>,
    /// How many hosts a replica has.
    pub hosts: u32,
}

/// What else has to be known, which no template holds.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// Devices beside those of the table.
    pub more: MoreDevices,
    /// Templates and classes that claims refer to.
    pub claims: Claims,
}

/// What each host of a group offers once it is up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCapacity {
    /// What every host offers.
    pub per_host: BTreeMap<String, f64>,
    /// What the first host of a replica offers besides, such as `TPU-v4-16-head`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub first_host: BTreeMap<String, f64>,
    /// The labels of every host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What is wrong or cannot be known, and what to write instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The families, by their keys, whose devices the pods have or are said to have; others are hidden from them.
    #[serde(skip)]
    pub shown: BTreeSet<&'static str>,
    /// Kubernetes' names of the pods' devices.
    #[serde(skip)]
    pub devices: Vec<String>,
    /// Bytes of each GPU, where they are said by hand: a node finds what its devices have by itself.
    #[serde(skip)]
    pub gpu_memory: Option<u64>,
    /// Bytes of each host's object store, where the pod's memory or its size is declared.
    #[serde(skip)]
    pub store: Option<u64>,
}

impl PodCapacity {
    /// What the host with this index offers.
    pub fn host(&self, index: u32) -> BTreeMap<String, f64> {
        let mut offered = self.per_host.clone();
        if index == 0 {
            offered.extend(self.first_host.clone());
        }
        offered
    }
}

/// What each host of such a group will offer.
pub fn capacity(shape: &Shape<'_>, catalogue: &Catalogue) -> PodCapacity {
    let pod = &shape.template["spec"];
    let selectors = selectors(pod);
    let mut told = PodCapacity { labels: shape.labels.clone(), ..PodCapacity::default() };
    let mut declared = declared(pod, &mut told.notes);
    declared.extend(shared_by_kai(&shape.template["metadata"]["annotations"]));
    told.count_basics(shape, &declared);
    let machine = selectors.get("node.kubernetes.io/instance-type").map(String::as_str);
    let mut profiles = told.count_devices(&declared, machine, catalogue);
    told.override_resources(shape, machine, catalogue);
    told.apply_start(shape.start);
    told.divide_memory(shape.start, declared.get("memory").copied());
    told.size_gpus(shape.start, &selectors, profiles.is_empty());
    profiles.dedup();
    if let [profile] = profiles.as_slice() {
        told.labels.entry(PROFILE_LABEL.to_owned()).or_insert_with(|| profile.clone());
    }
    told.name_types(shape, &selectors);
    for (label, value) in selected_labels(&selectors) {
        told.labels.entry(label.to_owned()).or_insert(value);
    }
    told.per_host.retain(|name, amount| *amount > 0.0 || name == "CPU" || name == GPU.name);
    told
}

/// What the pod's first container declares, each resource from its limits, else its requests, else the whole pod's.
fn declared(pod: &Value, notes: &mut Vec<String>) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for owner in [&pod["containers"][0], pod] {
        for kind in ["limits", "requests"] {
            for (name, value) in owner["resources"][kind].as_object().into_iter().flatten() {
                match quantity(value) {
                    Ok(amount) => drop(found.entry(name.clone()).or_insert(amount)),
                    Err(error) => notes.push(format!("the {kind} of `{name}` are ignored: {error}")),
                }
            }
        }
    }
    found
}

/// Parts of GPUs, as the scheduler KAI is asked for them: it names no resource, and has the pod see what it was given.
fn shared_by_kai(annotations: &Value) -> Option<(String, f64)> {
    let is_asked = ["gpu-fraction", "gpu-memory"].iter().any(|name| annotations[*name].is_string());
    let count = annotations["gpu-fraction-num-devices"].as_str().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    is_asked.then(|| ("nvidia.com/gpu.shared".to_owned(), count))
}

impl PodCapacity {
    fn add(&mut self, unit: &Unit, count: f64) {
        *self.per_host.entry(unit.resource.clone()).or_default() += unit.amount * count;
    }

    fn count_basics(&mut self, shape: &Shape<'_>, declared: &BTreeMap<String, f64>) {
        let cpu = declared.get("cpu").map(|cpu| cpu.ceil());
        let is_said = cpu.is_some() || shape.start.contains_key("num-cpus") || shape.resources.contains_key("cpu");
        if !is_said && !shape.resources.keys().any(|name| name.eq_ignore_ascii_case("cpu")) {
            self.notes.push(format!(
                "no processors are declared, and {CPU_UNSAID} is offered: set `limits.cpu`, `requests.cpu`, or `num-cpus` in rayStartParams"
            ));
        }
        self.per_host.insert("CPU".to_owned(), cpu.unwrap_or(CPU_UNSAID));
        self.per_host.insert(GPU.name.to_owned(), 0.0);
    }

    /// Returns the profiles of parts of devices.
    fn count_devices(
        &mut self,
        declared: &BTreeMap<String, f64>,
        machine: Option<&str>,
        catalogue: &Catalogue,
    ) -> Vec<String> {
        let mut profiles = Vec::new();
        for (name, count) in declared.iter().filter(|(_, count)| **count > 0.0) {
            let class = catalogue.claims.class_of_extended_resource(name);
            let named = class.map_or(name.as_str(), String::as_str);
            let unit =
                unit_of(name, machine, &catalogue.more).or_else(|| crate::devices::class_unit(named, &catalogue.more));
            let Some(unit) = unit else { continue };
            self.add(&unit, *count);
            self.shown.extend(shown_by(name).chain(shown_by(named)));
            self.devices.push(name.clone());
            profiles.extend(unit.profile);
        }
        profiles
    }

    /// Devices that are claimed rather than counted, and what the group's own `resources` say in place of all that.
    fn override_resources(&mut self, shape: &Shape<'_>, machine: Option<&str>, catalogue: &Catalogue) {
        for claim in claimed(&shape.template["spec"], catalogue, &mut self.notes) {
            self.add(&claim.unit, claim.count);
            self.shown.extend(shown_by(&claim.class));
            self.devices.push(claim.class);
        }
        let mut said: BTreeMap<String, f64> = BTreeMap::new();
        for (name, value) in shape.resources {
            let amount = match quantity(value) {
                Ok(amount) => amount,
                Err(error) => {
                    self.notes.push(format!("`{name}` in the group's resources is ignored: {error}"));
                    continue;
                }
            };
            let unit = unit_of(name, machine, &catalogue.more);
            let resource = match (&unit, name.to_ascii_lowercase().as_str()) {
                (Some(unit), _) => unit.resource.clone(),
                (None, "cpu") => "CPU".to_owned(),
                (None, "gpu") => GPU.name.to_owned(),
                (None, _) => name.clone(),
            };
            *said.entry(resource).or_default() += amount * unit.map_or(1.0, |unit| unit.amount);
        }
        self.per_host.extend(said);
    }

    /// What is written by hand wins over all that was derived.
    fn apply_start(&mut self, start: &BTreeMap<String, String>) {
        for (parameter, resource) in [("num-cpus", "CPU"), ("num-gpus", GPU.name), ("memory", "memory")] {
            let Some(text) = start.get(parameter) else { continue };
            match quantity(&Value::String(text.clone())) {
                Ok(amount) => {
                    self.per_host.insert(resource.to_owned(), amount);
                    // Whoever says so by hand has them shown to the pod in a way of their own.
                    if amount > 0.0 && self.devices.is_empty() {
                        self.shown.extend(families_of(resource).map(|family| family.key));
                    }
                }
                Err(error) => self.notes.push(format!("`{parameter}` in rayStartParams is ignored: {error}")),
            }
        }
        if let Some(text) = start.get("resources") {
            match custom(text) {
                Some(custom) => self.per_host.extend(custom),
                None => self.notes.push(format!(
                    "`resources` in rayStartParams is ignored: `{text}` is no JSON object of numbers, such as {{\"TPU\": 4}}"
                )),
            }
        }
        for pair in start.get("labels").into_iter().flat_map(|labels| labels.split(',')) {
            if let Some((key, value)) = pair.split_once('=') {
                self.labels.insert(key.trim().to_owned(), value.trim().to_owned());
            }
        }
    }

    /// What was not said by hand follows from the memory that the pod may use.
    fn divide_memory(&mut self, start: &BTreeMap<String, String>, declared: Option<f64>) {
        if let Some(text) = start.get("object-store-memory") {
            match quantity(&Value::String(text.clone())) {
                Ok(amount) => self.store = Some(amount as u64),
                Err(error) => {
                    self.notes.push(format!("`object-store-memory` in rayStartParams is ignored: {error}"));
                }
            }
        }
        if let Some(declared) = declared {
            let said = self.per_host.get("memory").map(|memory| *memory as u64);
            let shares = MemoryShares::of(declared as u64, self.store, said);
            self.store = Some(shares.store);
            self.per_host.entry("memory".to_owned()).or_insert(shares.memory as f64);
        }
    }

    /// The memory of each GPU, for requests with `gpu_memory=`: as said by hand, else as the labels of machines say, where a
    /// pod's GPUs are whole ones and its own.
    fn size_gpus(
        &mut self,
        start: &BTreeMap<String, String>,
        selectors: &BTreeMap<String, String>,
        has_no_parts: bool,
    ) {
        let said = start.get("gpu-memory").map(|text| (text, quantity(&Value::String(text.clone()))));
        let bytes = match said {
            Some((_, Ok(bytes))) => {
                self.gpu_memory = Some(bytes as u64);
                self.gpu_memory
            }
            Some((text, Err(error))) => {
                self.notes.push(format!("`gpu-memory` in rayStartParams is ignored: {error}: `{text}` is to be the bytes of each GPU, such as 80Gi"));
                None
            }
            None if has_no_parts && !self.devices.iter().any(|name| name.ends_with(".shared")) => {
                memory_of(GPU.name, selectors)
            }
            None => None,
        };
        let has_gpus = self.per_host.get(GPU.name).is_some_and(|count| *count > 0.0);
        if let Some(bytes) = bytes.filter(|bytes| *bytes > 0 && has_gpus) {
            self.per_host.entry(ResourceName::GPU_MEMORY.to_string()).or_insert(bytes as f64);
        }
    }

    fn name_types(&mut self, shape: &Shape<'_>, selectors: &BTreeMap<String, String>) {
        let has = |told: &Self, name: &str| told.per_host.get(name).is_some_and(|amount| *amount > 0.0);
        let mut named = None;
        if has(self, TPU.name) {
            if let Some(slice) = slice(selectors) {
                let held = self.per_host[TPU.name] * f64::from(shape.hosts);
                if (held - slice.chips as f64).abs() > 0.0 {
                    self.notes.push(format!(
                        "topology {} has {} chips, and {} hosts with {} each have {held}: set numOfHosts or google.com/tpu to fit",
                        slice.topology, slice.chips, shape.hosts, self.per_host[TPU.name]
                    ));
                }
                self.first_host.insert(format!("TPU-{}-head", slice.pod_type), 1.0);
                self.labels.entry("ray.io/tpu-topology".to_owned()).or_insert(slice.topology);
                self.labels.entry("ray.io/tpu-pod-type".to_owned()).or_insert(slice.pod_type);
                named = Some(slice.accelerator_type);
            }
        } else if let Some(resource) = device_resources().find(|resource| has(self, resource.name)) {
            named = type_of(resource.name, selectors);
        }
        let Some(named) = self.labels.get(TYPE_LABEL).cloned().or(named) else { return };
        self.per_host.insert(format!("{TYPE_PREFIX}{named}"), 1.0);
        self.labels.insert(TYPE_LABEL.to_owned(), named);
    }
}

/// The JSON object of `resources`, which users often put in another pair of quotation marks for the shell.
fn custom(text: &str) -> Option<BTreeMap<String, f64>> {
    let text = text.trim().trim_matches('\'');
    let inner: Option<String> = serde_json::from_str(text).ok();
    let unescaped = text.trim_matches('"').replace("\\\"", "\"");
    let readings = [inner.as_deref(), Some(text), Some(unescaped.as_str())];
    readings.into_iter().flatten().find_map(|reading| serde_json::from_str(reading).ok())
}
