//! What a node offers: what was detected, cut to what its environment shows, unless the user asks for other numbers.
//!
//! The order of precedence, highest first: `RAY_OVERRIDE_RESOURCES`, the numbers asked for, detection. A variable such as
//! `CUDA_VISIBLE_DEVICES` caps what is detected and must cover what is asked for. Without one, any number may be asked
//! for: devices are then counted and handed out by number, whether the machine has them or not.

mod parts;

use std::collections::{BTreeMap, BTreeSet};

use oxiray_families::HostFacts as _;
use oxiray_families::mig::MigInstance;
use oxiray_families::{
    Detected, Device, DeviceNode, DeviceResource, Family, GPU, Lookup, NodeNumber, Pair, Preset, device_resource,
    families_of, families_on_node,
};
use oxiray_resources::DEVICES_MAX;
use serde::Serialize;

use crate::detect::Detection;
use crate::host::Host;

/// Chooses the vendor that `GPU` stands for: `nvidia`, `amd` or `intel`.
pub const GPU_FAMILY_VARIABLE: &str = "OXIRAY_GPU_FAMILY";

/// A JSON object of resources that replaces what a node would offer of each.
pub const OVERRIDE_VARIABLE: &str = "RAY_OVERRIDE_RESOURCES";

/// How partitioned GPUs are offered: `none`, `single` or `mixed`.
pub const STRATEGY_VARIABLE: &str = "OXIRAY_MIG_STRATEGY";

const TYPE_LABEL: &str = "ray.io/accelerator-type";
const LABEL_BYTES_MAX: usize = 63;

/// What a node offers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Offer {
    /// Resources that are made of devices, in the order of [`FAMILIES`](crate::FAMILIES); at most one entry per resource.
    pub devices: Vec<DeviceOffer>,
    /// Every other resource: those asked for, the accelerator types, and what comes with TPU slices.
    pub scalars: BTreeMap<String, f64>,
    /// Labels that the node carries for its devices.
    pub labels: BTreeMap<String, String>,
    /// The vendor that `GPU` stands for on this node, even where it offers none.
    pub gpu_family: &'static Family,
    /// The device nodes of every accelerator that the machine has, offered or not.
    #[serde(skip)]
    pub device_nodes: Vec<DeviceNode>,
    /// The processors of each NUMA node, where workers are to run near their devices.
    #[serde(skip)]
    pub processors: BTreeMap<u32, String>,
    /// Whether processes are shown their devices by UUIDs, where these are known and the vendor's library takes them.
    #[serde(skip)]
    pub shows_uuids: bool,
    /// What the user should know about how the environment was read.
    pub warnings: Vec<String>,
}

/// The devices of one resource on a node: slots numbered from zero.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceOffer {
    /// The family.
    pub family: &'static Family,
    /// What the slots are counted as.
    #[serde(skip)]
    pub resource: &'static DeviceResource,
    /// How many slots are offered.
    pub count: usize,
    /// How many devices, or parts of devices, the machine really has of it.
    pub detected: usize,
    /// The list that the slots stand for, if there is one: that in the node's environment, or the ids of parts of devices.
    pub preset: Option<Preset>,
    /// The device that each slot stands for; nothing where that is not known.
    #[serde(skip)]
    pub slots: Vec<Option<SlotDevice>>,
    /// How each two of the machine's devices are connected, by their positions.
    #[serde(skip)]
    pub pairs: Vec<Pair>,
}

/// The device that a slot stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotDevice {
    /// Its position among the family's devices of the machine; of a part of a device, that device's.
    pub index: usize,
    /// Whether it is a part of a device.
    pub is_part: bool,
    /// The device nodes that are its own.
    pub nodes: Vec<DeviceNode>,
    /// Bytes of its memory, where they are known.
    pub memory_bytes: Option<u64>,
    /// Its vendor's unique id, where it is known.
    pub uuid: Option<String>,
    /// The NUMA node it hangs on, where it is known.
    pub numa_node: Option<u32>,
    /// Its place on the PCI bus, where it is known.
    pub pci_address: Option<String>,
}

/// Why a node cannot offer what it is asked to.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OfferError {
    /// Below zero, or no number at all.
    #[error("a node cannot have {quantity} of `{resource}`: give zero or more")]
    Negative {
        /// The resource.
        resource: String,
        /// What was asked for.
        quantity: f64,
    },
    /// More than can be counted.
    #[error("a node cannot have {quantity} of `{resource}`: give {limit} at most")]
    TooMany {
        /// The resource.
        resource: String,
        /// What was asked for.
        quantity: f64,
        /// The most there may be.
        limit: f64,
    },
    /// A part of a device.
    #[error(
        "a node cannot have {quantity} of `{resource}`, for devices are whole: give {} or {}", quantity.floor(), quantity.ceil()
    )]
    NotWhole {
        /// The resource.
        resource: String,
        /// What was asked for.
        quantity: f64,
    },
    /// More devices than the environment lists.
    #[error(
        "{variable} lists {} ({}), but {asked} {} asked for as `{resource}`: ask for {} at most, or list more in \
         {variable}, or unset it", devices(listed.len()), join(listed), if *asked == 1 { "was" } else { "were" }, listed.len()
    )]
    BeyondVisible {
        /// The variable.
        variable: &'static str,
        /// What it lists.
        listed: Vec<String>,
        /// The resource.
        resource: &'static str,
        /// How many were asked for.
        asked: usize,
    },
    /// The override is not a JSON object of numbers.
    #[error("{OVERRIDE_VARIABLE} must be a JSON object of numbers, such as {{\"GPU\": 2}}, but it is not: {reason}")]
    Override {
        /// What is wrong with it.
        reason: String,
    },
    /// There is no such way to offer partitioned GPUs.
    #[error(
        "{STRATEGY_VARIABLE} (or --mig) is `{value}`, but it must be `none`, `single` or `mixed`: partitioned GPUs are not \
         offered, each of their instances is one GPU, or each is one of its profile's resource"
    )]
    UnknownStrategy {
        /// What it is.
        value: String,
    },
    /// The instances cannot be offered as GPUs.
    #[error("--mig=single needs GPUs that are all partitioned in one way, but {found}: use --mig=mixed")]
    NotAlike {
        /// What the machine has.
        found: String,
    },
    /// There is no such GPU vendor.
    #[error("{GPU_FAMILY_VARIABLE} is `{value}`, but it must be one of {}", gpu_families())]
    UnknownGpuFamily {
        /// What it is.
        value: String,
    },
}

fn gpu_families() -> String {
    let keys: Vec<&str> = families_of(GPU.name).map(|family| family.key).collect();
    let (last, others) = keys.split_last().expect("some family provides GPU");
    format!("{}, and {last}", others.join(", "))
}

/// The largest quantity of a resource that is not made of devices.
const SCALAR_MAX: f64 = 1e14;

impl DeviceOffer {
    /// The resource.
    pub fn resource(&self) -> &'static str {
        self.resource.name
    }

    /// Whether its slots stand for parts of devices, of which a process can use one.
    pub fn is_of_parts(&self) -> bool {
        self.slots.iter().flatten().any(|device| device.is_part)
    }

    /// What the vendor's library calls the device in a slot.
    pub fn id(&self, slot: u32) -> String {
        let listed = self.preset.as_ref().and_then(|preset| preset.ids.get(slot as usize));
        listed.cloned().unwrap_or_else(|| slot.to_string())
    }

    /// What names the device in a slot wherever it is asked for: its UUID, or else what the vendor's library calls it. Numbers
    /// may mean another device to another library.
    pub fn name(&self, slot: u32) -> String {
        let found = self.slots.get(slot as usize).and_then(|device| device.as_ref()?.uuid.clone());
        found.unwrap_or_else(|| self.id(slot).trim().to_owned())
    }

    /// The slots whose devices have this node for their own: several where they are parts of one board.
    pub fn slots_with(&self, number: NodeNumber) -> Vec<u32> {
        let has = |device: &SlotDevice| device.nodes.iter().any(|node| node.number == Some(number));
        let slots = (0..).zip(&self.slots).filter(|(_, device)| device.as_ref().is_some_and(has));
        slots.map(|(slot, _)| slot).collect()
    }

    /// The kernel's numbers of all its own nodes, each once.
    pub fn numbers(&self) -> BTreeSet<NodeNumber> {
        let devices = self.slots.iter().flatten();
        devices.flat_map(|device| &device.nodes).filter_map(|node| node.number).collect()
    }

    /// How near each two slots are, where that is known beyond their NUMA nodes: the larger the nearer.
    pub fn nearness(&self) -> Vec<((u32, u32), u32)> {
        let slots_of = |index: usize| {
            let slots = (0..).zip(&self.slots);
            slots
                .filter(move |(_, device)| device.as_ref().is_some_and(|device| device.index == index))
                .map(|(slot, _)| slot)
        };
        let of_pair = |pair: &Pair| {
            let (near, other) = (pair.nearness(), pair.other);
            slots_of(pair.one)
                .flat_map(move |one| slots_of(other).map(move |other| ((one, other), near)))
                .collect::<Vec<_>>()
        };
        self.pairs.iter().flat_map(of_pair).collect()
    }

    /// Whether more are offered than the machine has.
    pub fn is_logical(&self) -> bool {
        self.count > self.detected
    }
}

impl Offer {
    /// With workers near their devices: the processors of the devices' NUMA nodes, as the host lists them.
    #[must_use]
    pub fn with_processors(mut self, host: &Host) -> Self {
        let slots = self.devices.iter().flat_map(|offered| offered.slots.iter().flatten());
        let nodes: BTreeSet<u32> = slots.filter_map(|slot| slot.numa_node).collect();
        let list = |node: u32| Some((node, host.read(&format!("/sys/devices/system/node/node{node}/cpulist"))?));
        self.processors = nodes.into_iter().filter_map(list).collect();
        self
    }

    /// The processors near these devices, where all of them are near the same ones.
    pub fn processors_near(&self, slots: &[(&str, Vec<u32>)]) -> Option<&str> {
        let mut found = None;
        for (resource, numbers) in slots {
            let offered = self.of(resource)?;
            for number in numbers {
                let node = offered.slots.get(*number as usize)?.as_ref()?.numa_node?;
                if *found.get_or_insert(node) != node {
                    return None;
                }
            }
        }
        self.processors.get(&found?).map(String::as_str)
    }

    /// The offer of a resource that is made of devices.
    pub fn of(&self, resource: &str) -> Option<&DeviceOffer> {
        self.devices.iter().find(|offer| offer.resource() == resource)
    }

    /// Every resource with its quantity, devices included.
    pub fn totals(&self) -> BTreeMap<String, f64> {
        let devices = self.devices.iter().map(|offer| (offer.resource().to_owned(), offer.count as f64));
        self.scalars.clone().into_iter().chain(devices).collect()
    }
}

/// Decides what a node offers. `requested` holds the resources the user asks for, `num_gpus` under `GPU` and `num_cpus`
/// under `CPU`; a resource that is not in it is taken as detected.
pub fn offer(
    detection: &Detection,
    environment: Lookup<'_>,
    requested: &BTreeMap<String, f64>,
) -> Result<Offer, OfferError> {
    let mut wanted = requested.clone();
    wanted.extend(overrides(environment)?);
    for (resource, quantity) in &wanted {
        check(resource, *quantity)?;
    }
    let gpu_family = gpu_family(detection, environment)?;
    let mut offer = Offer {
        devices: Vec::new(),
        scalars: BTreeMap::new(),
        labels: BTreeMap::new(),
        processors: BTreeMap::new(),
        shows_uuids: false,
        gpu_family,
        device_nodes: own_nodes(detection),
        warnings: Vec::new(),
    };
    for family in families_on_node(gpu_family) {
        let asked = wanted.remove(family.resource.name).map(|quantity| quantity as usize);
        let preset = (family.visibility.preset)(environment);
        let detected = detection.of(family);
        if let Some(parts) = parts::of(detected, preset.as_ref(), environment, asked)? {
            describe(&mut offer, family, Some(&parts.detected));
            offer.warnings.extend(parts.warnings);
            let mut of_part = |name: &str| wanted.remove(name).map(|quantity| quantity as usize);
            let count = |name: &str| if name == family.resource.name { asked } else { of_part(name) };
            offer.devices.extend(parts::counted(parts.offers, count));
            continue;
        }
        let count = count(family, detected, preset.as_ref(), asked)?;
        if count == 0 {
            continue;
        }
        let found = detected.map_or(0, |detected| detected.count);
        note_preset(&mut offer.warnings, family, found, preset.as_ref());
        let declared = family.declared.filter(|_| detected.is_none()).map(|declared| declared(environment, count));
        describe(&mut offer, family, detected.or(declared.as_ref()));
        let devices = detected.map_or(&[][..], |detected| &detected.devices);
        let slots = (0..count).map(|slot| device_of(devices, preset.as_ref(), slot)).collect();
        let pairs = detected.map_or_else(Vec::new, |detected| detected.pairs.clone());
        offer.devices.push(DeviceOffer {
            family,
            resource: family.resource,
            count,
            detected: found,
            preset,
            slots,
            pairs,
        });
    }
    offer.scalars.extend(wanted);
    Ok(offer)
}

/// The nodes of all devices, each once: some devices are parts of one board.
fn own_nodes(detection: &Detection) -> Vec<DeviceNode> {
    let mut found: Vec<DeviceNode> = Vec::new();
    let devices = || detection.families.iter().flat_map(|detected| &detected.devices);
    let parts = devices().flat_map(|device| device.instances.iter().flatten()).flat_map(|instance| &instance.nodes);
    for node in devices().flat_map(|device| &device.nodes).chain(parts) {
        if !found.contains(node) {
            found.push(node.clone());
        }
    }
    found
}

/// The device that a slot stands for: the one at its place in the list, by its number or its id, or without a list the one
/// of its number.
fn device_of(devices: &[Device], preset: Option<&Preset>, slot: usize) -> Option<SlotDevice> {
    // A device of several units stands for several numbers.
    let numbered = |number: usize| {
        let mut below = 0;
        devices.iter().find(|device| {
            below += device.units.unwrap_or(1);
            number < below
        })
    };
    let device = match preset {
        None => numbered(slot),
        Some(preset) => preset.ids.get(slot).and_then(|id| {
            let id = id.trim();
            let by_number = || numbered(id.parse::<usize>().ok()?);
            // The vendors' libraries take the beginning of an id for the id where only one device has it.
            let mut named =
                devices.iter().filter(|device| device.uuid.as_deref().is_some_and(|own| own.starts_with(id)));
            let by_id = || named.next().filter(|_| named.next().is_none());
            by_number().or_else(by_id)
        }),
    };
    let part = || {
        let id = preset?.ids.get(slot)?.trim();
        let all = devices.iter().flat_map(|device| device.instances.iter().flatten().map(move |part| (device, part)));
        let (device, part) = all.into_iter().find(|(_, part)| part.uuid.as_deref() == Some(id))?;
        Some(SlotDevice::part(device, part))
    };
    device.map(SlotDevice::whole).or_else(part)
}

impl SlotDevice {
    fn whole(device: &Device) -> Self {
        Self {
            index: device.index,
            is_part: false,
            nodes: device.nodes.clone(),
            memory_bytes: device.memory_bytes,
            uuid: device.uuid.clone(),
            numa_node: device.numa_node,
            pci_address: device.pci_address.clone(),
        }
    }

    fn part(device: &Device, instance: &MigInstance) -> Self {
        Self {
            is_part: true,
            nodes: instance.nodes.clone(),
            memory_bytes: instance.memory_bytes,
            uuid: instance.uuid.clone(),
            ..Self::whole(device)
        }
    }
}

/// The vendor that `GPU` stands for: the one that `OXIRAY_GPU_FAMILY` names, else the first that the machine has, else the
/// first whose variable is set, else the first of all. "First" is the order of [`FAMILIES`](crate::FAMILIES).
pub fn gpu_family(detection: &Detection, environment: Lookup<'_>) -> Result<&'static Family, OfferError> {
    if let Some(value) = environment(GPU_FAMILY_VARIABLE).filter(|value| !value.is_empty()) {
        let named = families_of(GPU.name).find(|family| value.eq_ignore_ascii_case(family.key));
        return named.ok_or(OfferError::UnknownGpuFamily { value });
    }
    let present = families_of(GPU.name).find(|family| detection.count(family) > 0);
    let preset = || families_of(GPU.name).find(|family| (family.visibility.preset)(environment).is_some());
    let chosen = present.or_else(preset).or_else(|| families_of(GPU.name).next());
    Ok(chosen.expect("some family provides GPU"))
}

fn overrides(environment: Lookup<'_>) -> Result<BTreeMap<String, f64>, OfferError> {
    match environment(OVERRIDE_VARIABLE) {
        Some(text) if !text.trim().is_empty() => {
            serde_json::from_str(&text).map_err(|error| OfferError::Override { reason: error.to_string() })
        }
        _ => Ok(BTreeMap::new()),
    }
}

fn check(resource: &str, quantity: f64) -> Result<(), OfferError> {
    let resource = resource.to_owned();
    if quantity.is_nan() || quantity < 0.0 {
        return Err(OfferError::Negative { resource, quantity });
    }
    let is_devices = device_resource(&resource).is_some();
    let limit = if is_devices { f64::from(DEVICES_MAX) } else { SCALAR_MAX };
    if quantity > limit {
        return Err(OfferError::TooMany { resource, quantity, limit });
    }
    if is_devices && quantity.fract() != 0.0 {
        return Err(OfferError::NotWhole { resource, quantity });
    }
    Ok(())
}

fn count(
    family: &'static Family,
    detected: Option<&Detected>,
    preset: Option<&Preset>,
    asked: Option<usize>,
) -> Result<usize, OfferError> {
    let found = detected.map_or(0, |detected| detected.count);
    match (asked, preset) {
        (Some(asked), Some(preset)) if asked > preset.ids.len() => Err(OfferError::BeyondVisible {
            variable: preset.variable,
            listed: preset.ids.clone(),
            resource: family.resource.name,
            asked,
        }),
        (Some(asked), _) => Ok(asked),
        // Instances of partitioned GPUs are more than the GPUs that were counted.
        (None, Some(preset)) if found > 0 && preset.ids.iter().any(|id| id.starts_with("MIG-")) => Ok(preset.ids.len()),
        (None, Some(preset)) => Ok(found.min(preset.ids.len())),
        (None, None) => Ok(found),
    }
}

fn note_preset(warnings: &mut Vec<String>, family: &Family, found: usize, preset: Option<&Preset>) {
    let Some(preset) = preset else { return };
    warnings.extend(preset.warning.clone());
    let missing = |id: &&String| id.trim().parse::<usize>().is_ok_and(|number| number >= found);
    if let Some(missing) = preset.ids.iter().find(missing).filter(|_| found > 0) {
        warnings.push(format!(
            "{} lists device {}, but this machine has {found} of {}, numbered from 0",
            preset.variable,
            missing.trim(),
            family.resource.name
        ));
    }
}

fn describe(offer: &mut Offer, family: &'static Family, detected: Option<&Detected>) {
    let detected_type = detected.and_then(|detected| detected.type_name.as_deref());
    if let Some(type_name) = detected_type.or(family.constant_type) {
        let aliases = family.type_aliases.iter().filter(|(name, _)| *name == type_name).map(|(_, alias)| *alias);
        for name in aliases.chain([type_name]) {
            offer.scalars.insert(format!("accelerator_type:{name}"), 1.0);
        }
        // A node has one such label; the first family's stands.
        if let Some(value) = label_value(type_name) {
            offer.labels.entry(TYPE_LABEL.to_owned()).or_insert(value);
        }
    }
    if let Some(detected) = detected {
        offer.scalars.extend(detected.extra_resources.clone());
        offer.labels.extend(detected.labels.clone());
    }
}

// A label is of letters, digits and `-_.`, which not every type name is: an Orin is an `Orin-(nvgpu)`.
fn label_value(text: &str) -> Option<String> {
    let kept: String =
        text.chars().filter(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(*letter)).collect();
    let value =
        kept.get(..kept.len().min(LABEL_BYTES_MAX))?.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    (!value.is_empty()).then(|| value.to_owned())
}

fn devices(count: usize) -> String {
    match count {
        0 => "no device".to_owned(),
        1 => "1 device".to_owned(),
        _ => format!("{count} devices"),
    }
}

fn join(ids: &[String]) -> String {
    if ids.is_empty() {
        return "the list is empty".to_owned();
    }
    ids.iter().map(|id| id.trim()).collect::<Vec<_>>().join(", ")
}
