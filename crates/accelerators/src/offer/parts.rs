//! What a node offers of GPUs that are partitioned (MIG).
//!
//! 1. `PARTS-1`: a GPU that is partitioned is offered in parts or not at all: as one GPU a program would run in some
//!    instance of it, beside others.
//! 2. `PARTS-2`: a list of devices in the node's environment is taken at its word, whatever it lists.

use std::collections::{BTreeMap, BTreeSet};

use oxiray_families::mig::{MigInstance, MigStrategy, resource_of};
use oxiray_families::{Detected, Device, Lookup, Preset};

use super::{DeviceOffer, OfferError, STRATEGY_VARIABLE, SlotDevice};

/// Kubernetes sets it in every pod, in which a slice that was asked for is one GPU.
const POD_VARIABLE: &str = "KUBERNETES_SERVICE_HOST";
/// Says which profiles a node's instances have.
const PROFILE_LABEL: &str = "oxiray.io/mig-profile";

/// What is offered of a family's devices of which some are partitioned.
pub(super) struct Parts {
    pub(super) offers: Vec<DeviceOffer>,
    /// What the node is said to have.
    pub(super) detected: Detected,
    pub(super) warnings: Vec<String>,
}

type Part<'a> = (&'a Device, &'a MigInstance);

/// What is offered where devices are partitioned, with as many as there are; nothing where none is, or where the
/// environment lists what is to be offered (PARTS-2). `asked` is how many whole ones the node is to offer.
pub(super) fn of(
    detected: Option<&Detected>,
    preset: Option<&Preset>,
    environment: Lookup<'_>,
    asked: Option<usize>,
) -> Result<Option<Parts>, OfferError> {
    let given = asked_strategy(environment)?;
    let Some(detected) = detected.filter(|detected| preset.is_none() && detected.devices.iter().any(is_cut)) else {
        return Ok(None);
    };
    let parts: Vec<Part<'_>> = detected
        .devices
        .iter()
        .flat_map(|device| device.instances.iter().flatten().map(move |part| (device, part)))
        .collect();
    let strategy = given.unwrap_or_else(|| usual(detected, &parts, environment));
    // Who wants no GPUs wants no parts of them.
    let strategy = if asked == Some(0) { MigStrategy::None } else { strategy };
    let mut found = detected.clone();
    let offers = match strategy {
        MigStrategy::None => vec![whole(detected)],
        MigStrategy::Single => {
            let profile = one_profile(detected, &parts).map_err(|found| OfferError::NotAlike { found })?;
            found.type_name = found.type_name.map(|name| format!("{name}-MIG-{profile}"));
            vec![in_parts(detected, detected.family.resource, &parts)]
        }
        MigStrategy::Mixed => {
            let mut by_profile: BTreeMap<&str, Vec<Part<'_>>> = BTreeMap::new();
            for part in &parts {
                by_profile.entry(&part.1.profile).or_default().push(*part);
            }
            let of_profile = |(profile, parts): (&str, Vec<Part<'_>>)| {
                resource_of(profile).map(|resource| in_parts(detected, resource, &parts))
            };
            std::iter::once(whole(detected)).chain(by_profile.into_iter().filter_map(of_profile)).collect()
        }
    };
    let profiles: BTreeSet<&str> = parts.iter().map(|(_, part)| &*part.profile).collect();
    if strategy != MigStrategy::None && !profiles.is_empty() {
        found.labels.insert(PROFILE_LABEL.to_owned(), profiles.into_iter().collect::<Vec<_>>().join("_"));
    }
    let warnings = told(detected, strategy, given.is_some());
    Ok(Some(Parts { offers, detected: found, warnings }))
}

/// The offers with the numbers that the user asks for in place of those found; those of nothing are left out.
pub(super) fn counted(mut offers: Vec<DeviceOffer>, mut asked: impl FnMut(&str) -> Option<usize>) -> Vec<DeviceOffer> {
    offers.retain_mut(|offer| {
        offer.count = asked(offer.resource()).unwrap_or(offer.detected);
        offer.slots.resize(offer.count, None);
        offer.count > 0
    });
    offers
}

fn is_cut(device: &Device) -> bool {
    device.instances.is_some()
}

fn asked_strategy(environment: Lookup<'_>) -> Result<Option<MigStrategy>, OfferError> {
    let Some(value) = environment(STRATEGY_VARIABLE).filter(|value| !value.trim().is_empty()) else { return Ok(None) };
    MigStrategy::from_word(value.trim()).map(Some).ok_or(OfferError::UnknownStrategy { value })
}

/// Mixed, but in a pod, where one slice was asked for and is one GPU to the pod's cluster.
fn usual(detected: &Detected, parts: &[Part<'_>], environment: Lookup<'_>) -> MigStrategy {
    let is_pod = environment(POD_VARIABLE).is_some();
    if is_pod && one_profile(detected, parts).is_ok() { MigStrategy::Single } else { MigStrategy::Mixed }
}

/// The profile of all instances, where everything is of it; what else there is otherwise.
fn one_profile<'a>(detected: &Detected, parts: &[Part<'a>]) -> Result<&'a str, String> {
    let profiles: BTreeSet<&str> = parts.iter().map(|(_, part)| &*part.profile).collect();
    if let Some(device) = detected.devices.iter().find(|device| !is_cut(device)) {
        return Err(format!("GPU {} of this machine is whole", device.index));
    }
    match profiles.iter().copied().collect::<Vec<_>>()[..] {
        [profile] => Ok(profile),
        [] => Err("this machine has no instances".to_owned()),
        ref several => Err(format!("this machine has instances of {}", several.join(", "))),
    }
}

/// The devices that are not partitioned. Their ids name them, since their numbers would count the others, too.
fn whole(detected: &Detected) -> DeviceOffer {
    let devices: Vec<&Device> = detected.devices.iter().filter(|device| !is_cut(device)).collect();
    let id = |device: &&Device| device.uuid.clone().unwrap_or_else(|| device.index.to_string());
    let ids = devices.iter().map(id).collect();
    let slots = devices.iter().map(|device| Some(SlotDevice::whole(device))).collect();
    offered(detected, detected.family.resource, ids, slots)
}

fn in_parts(
    detected: &Detected,
    resource: &'static oxiray_families::DeviceResource,
    parts: &[Part<'_>],
) -> DeviceOffer {
    let ids = parts.iter().map(|(_, part)| part.uuid.clone().unwrap_or_default()).collect();
    let slots = parts.iter().map(|(device, part)| Some(SlotDevice::part(device, part))).collect();
    offered(detected, resource, ids, slots)
}

fn offered(
    detected: &Detected,
    resource: &'static oxiray_families::DeviceResource,
    ids: Vec<String>,
    slots: Vec<Option<SlotDevice>>,
) -> DeviceOffer {
    let family = detected.family;
    let variable = family.visibility.variables.first().expect("every family has a variable");
    let pairs = if slots.iter().flatten().any(|slot| slot.is_part) { Vec::new() } else { detected.pairs.clone() };
    let preset = Some(Preset::new(variable, ids));
    DeviceOffer { family, resource, count: slots.len(), detected: slots.len(), preset, slots, pairs }
}

/// What becomes of the partitioned GPUs, for the user.
fn told(detected: &Detected, strategy: MigStrategy, is_asked: bool) -> Vec<String> {
    let cut: Vec<String> =
        detected.devices.iter().filter(|device| is_cut(device)).map(|device| device.index.to_string()).collect();
    let gpus = if cut.len() == 1 { "GPU" } else { "GPUs" };
    let partitioned = format!("{gpus} {} partitioned (MIG)", cut.join(", "));
    let mut lines = Vec::new();
    match strategy {
        MigStrategy::None => lines.push(format!("{partitioned}: not offered; --mig=mixed offers the instances")),
        MigStrategy::Single | MigStrategy::Mixed if is_asked => {}
        MigStrategy::Single => lines.push(format!("{partitioned}: each instance is offered as one GPU (--mig=single)")),
        MigStrategy::Mixed => lines.push(format!(
            "{partitioned}: each instance is offered as one of its profile's resource, such as `mig-1g.10gb` (--mig=mixed)"
        )),
    }
    let empty = detected.devices.iter().filter(|device| device.instances.as_ref().is_some_and(Vec::is_empty));
    lines.extend(empty.map(|device| {
        format!(
            "GPU {} is partitioned and has no instance: make one (`nvidia-smi mig -cgi`), or have it whole",
            device.index
        )
    }));
    lines
}
