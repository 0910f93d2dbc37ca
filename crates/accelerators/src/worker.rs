//! What one worker is shown: the variables it starts with and the ids its program is told, for the slots it was granted.
//!
//! 1. `WORKER-1`: a worker that was granted no device of a family keeps the family's variables as they are, unless
//!    `RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO` is on.
//! 2. `WORKER-2`: where the worker's own `runtime_env` sets one of the variables, that list replaces the node's: slots
//!    are positions in it, and where no slot is, the whole list is meant.
//! 3. `WORKER-3`: an opt-out (`RAY_EXPERIMENTAL_NOSET_…`) governs all variables of its family, and no ids.
//! 4. `WORKER-4`: within a fence, a library that counts only what it can open is told the numbers of that count; the ids
//!    that a program is told stay the node's.
//! 5. `WORKER-5`: where the node shows devices by UUIDs, the variable has those, within a fence too; the ids that a program is
//!    told stay the node's.

use oxiray_families::{Assignment, Changes, Family, Lookup, Preset, Visibility, families_on_node, is_on};

use crate::offer::{DeviceOffer, Offer};
use std::collections::BTreeSet;

const OVERRIDE_ON_ZERO: &str = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO";

/// The environment in which a worker is to start.
#[derive(Clone, Copy)]
pub struct WorkerEnvironment<'a> {
    /// The node's variables, which every worker inherits.
    pub node: Lookup<'a>,
    /// The variables that the job's or task's `runtime_env` sets for this worker.
    pub own: Lookup<'a>,
    /// Per resource the slots of all devices that a fence lets the worker open, where there is a fence.
    pub realm: &'a [(&'a str, Vec<u32>)],
}

impl WorkerEnvironment<'_> {
    fn is_on(&self, flag: &str) -> bool {
        match (self.own)(flag) {
            Some(_) => is_on(self.own, flag),
            None => is_on(self.node, flag),
        }
    }
}

/// What in a worker's environment chooses devices past what it is granted, so that a fence would shut it out of them: a
/// variable of its own that lists devices, or one that asks for no list.
pub fn chooses_devices(offer: &Offer, resource: &str, worker: WorkerEnvironment<'_>) -> Option<&'static str> {
    let family = family_of(offer, resource)?;
    let Visibility { variables, opt_outs, .. } = &family.visibility;
    let opt_out = opt_outs.iter().find(|flag| worker.is_on(flag));
    opt_out.or_else(|| variables.iter().find(|variable| (worker.own)(variable).is_some())).copied()
}

/// Whether a worker without devices is to see none (`RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO`).
pub fn hides_devices(worker: WorkerEnvironment<'_>) -> bool {
    worker.is_on(OVERRIDE_ON_ZERO)
}

/// The variables to set and to remove in a worker, before any of its program runs. `granted` holds, per resource, the
/// slots that the worker got, in any order.
pub fn environment(offer: &Offer, granted: &[(&str, Vec<u32>)], worker: WorkerEnvironment<'_>) -> Changes {
    let hides = worker.is_on(OVERRIDE_ON_ZERO);
    let mut changes = Changes::new();
    for family in families_on_node(offer.gpu_family) {
        if family.visibility.opt_outs.iter().any(|flag| worker.is_on(flag)) {
            continue;
        }
        let of_family = granted.iter().find(|(name, slots)| family.counted_as(name).is_some() && !slots.is_empty());
        match of_family {
            Some((resource, slots)) => changes.extend(shown(offer, (family, resource), slots, worker)),
            None if hides => changes.extend(hidden(family)),
            None => {}
        }
    }
    changes
}

/// The ids that a worker's program is told for the slots it was granted of a resource, in the order of the slots, and
/// whether they come from a list in the environment (Ray then gives them as text, otherwise as numbers).
pub fn visible_ids(offer: &Offer, resource: &str, slots: &[u32], worker: WorkerEnvironment<'_>) -> (Vec<String>, bool) {
    match family_of(offer, resource) {
        _ if slots.is_empty() => (Vec::new(), false),
        Some(family) => ids(offer, (family, resource), slots, worker),
        None => (ascending(slots).iter().map(ToString::to_string).collect(), false),
    }
}

/// The family whose devices, or parts of them, a resource is on this node.
fn family_of(offer: &Offer, resource: &str) -> Option<&'static Family> {
    families_on_node(offer.gpu_family).find(|family| family.counted_as(resource).is_some())
}

/// Why one process could not use all of what it would be granted, where it could not: of parts of devices it can use one.
pub fn unusable_together(offer: &Offer, granted: &[(&str, Vec<u32>)]) -> Option<String> {
    let held = granted.iter().filter(|(_, slots)| !slots.is_empty());
    let held: Vec<(&DeviceOffer, &[u32])> =
        held.filter_map(|(name, slots)| Some((offer.of(name)?, &**slots))).collect();
    let is_part = |(offered, _): &&(&DeviceOffer, &[u32])| offered.is_of_parts();
    let (part, slots) = held.iter().find(is_part)?;
    let beside = held.iter().find(|(other, _)| other.family == part.family && other.resource != part.resource);
    let what = match beside {
        Some((other, _)) => format!("`{}` and `{}` together", part.resource.name, other.resource.name),
        None if slots.len() > 1 => format!("{} of `{}`", slots.len(), part.resource.name),
        None => return None,
    };
    Some(format!("{what} are no use to one process: it can use one MIG instance, and no whole GPU beside it"))
}

type OfFamily<'a> = (&'a Family, &'a str);

fn ids(
    offer: &Offer,
    (family, resource): OfFamily<'_>,
    slots: &[u32],
    worker: WorkerEnvironment<'_>,
) -> (Vec<String>, bool) {
    let slots = ascending(slots);
    if let Some(own) = (family.visibility.preset)(worker.own) {
        return (positions(&own, &slots), true);
    }
    let Some(offered) = offer.of(resource) else {
        return (slots.iter().map(ToString::to_string).collect(), false);
    };
    (slots.iter().map(|slot| offered.id(*slot)).collect(), offered.preset.is_some())
}

fn shown(offer: &Offer, (family, resource): OfFamily<'_>, slots: &[u32], worker: WorkerEnvironment<'_>) -> Changes {
    let offered = offer.of(resource);
    if let Some(uuids) = offered.filter(|_| offer.shows_uuids).and_then(|offered| uuids(offered, slots, worker)) {
        let detected = offered.map_or(0, |offered| offered.detected);
        return (family.visibility.show)(&Assignment { ids: &uuids, detected });
    }
    if let Some(ordinals) = offered.and_then(|offered| ordinals(offered, slots, worker)) {
        let detected = offered.map_or(0, |offered| offered.detected);
        let unset = |name: &&(&str, &str)| (worker.own)(name.0).or_else(|| (worker.node)(name.0)).is_none();
        let settings = family.fencing.settings.iter().filter(unset);
        let settings = settings.map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())));
        return (family.visibility.show)(&Assignment { ids: &ordinals, detected })
            .into_iter()
            .chain(settings)
            .collect();
    }
    let (ids, _) = ids(offer, (family, resource), slots, worker);
    if family.visibility.variables.len() > 1 && (family.visibility.preset)(worker.own).is_some_and(|own| own.ids == ids)
    {
        return only_own(family, worker);
    }
    let detected = offered.map_or(0, |offered| offered.detected);
    (family.visibility.show)(&Assignment { ids: &ids, detected })
}

/// WORKER-5: the UUIDs of the slots' devices, where all are known and the vendor's library takes them.
fn uuids(offered: &DeviceOffer, slots: &[u32], worker: WorkerEnvironment<'_>) -> Option<Vec<String>> {
    let visibility = &offered.family.visibility;
    if !visibility.lists_uuids || (visibility.preset)(worker.own).is_some() {
        // WORKER-2.
        return None;
    }
    let uuid = |slot: &u32| offered.slots.get(*slot as usize)?.as_ref()?.uuid.clone();
    ascending(slots).iter().map(uuid).collect()
}

/// WORKER-4: the numbers of the slots' devices among those that the worker can open, where its library counts those only.
fn ordinals(offered: &DeviceOffer, slots: &[u32], worker: WorkerEnvironment<'_>) -> Option<Vec<String>> {
    let (_, realm) = worker.realm.iter().find(|(resource, _)| *resource == offered.resource())?;
    if offered.is_of_parts() {
        // A part has no number among whole devices.
        return None;
    }
    let device = |slot: &u32| Some(offered.slots.get(*slot as usize)?.as_ref()?.index);
    // The library counts in the order of the machine's devices, whatever that of the slots.
    let open: BTreeSet<usize> = realm.iter().filter_map(device).collect();
    let ordinal = |slot: &u32| device(slot).and_then(|device| open.iter().position(|one| *one == device));
    let own = ascending(slots).iter().map(ordinal).collect::<Option<Vec<usize>>>()?;
    offered.family.fencing.renumbers.then(|| own.iter().map(usize::to_string).collect())
}

// A list that is granted whole stays as the user wrote it; the vendor's other filter, inherited or written, would cut it.
fn only_own(family: &Family, worker: WorkerEnvironment<'_>) -> Changes {
    let others = family.visibility.variables.iter().filter(|variable| (worker.own)(variable).is_none());
    others.map(|variable| ((*variable).to_owned(), None)).collect()
}

fn hidden(family: &Family) -> impl Iterator<Item = (String, Option<String>)> {
    let lists = family
        .visibility
        .variables
        .iter()
        .map(|variable| ((*variable).to_owned(), family.visibility.hidden.map(str::to_owned)));
    lists.chain(family.visibility.companions.iter().map(|variable| ((*variable).to_owned(), None)))
}

fn positions(list: &Preset, slots: &[u32]) -> Vec<String> {
    let ids: Vec<String> = slots.iter().filter_map(|slot| list.ids.get(*slot as usize).cloned()).collect();
    if ids.is_empty() { list.ids.clone() } else { ids }
}

fn ascending(slots: &[u32]) -> Vec<u32> {
    let mut slots = slots.to_vec();
    slots.sort_unstable();
    slots.dedup();
    slots
}
