//! Who has which device of which machine, as people are told of it.

use super::HeadCore;
use crate::fairness::{Holder, HolderOf};
use crate::members::{Member, OWN};
use crate::workers::{Duty, Worker};
use oxiray_families::device_resources;
use oxiray_ids::{NodeId, WorkerId};
use oxiray_machine::Key;
use oxiray_resources::{Quantity, ResourceName};
use oxiray_scheduler::ResourceRequest;
use oxiray_wire::message::{DeviceHolding, DeviceUse, HoldingPhase};
use oxiray_wire::state::{
    DeviceFiles, DeviceHolder, DeviceMemory, DeviceRow, DeviceService, DevicesChosen, HealthState,
};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// The most holders that one message names.
const HOLDERS_NAMED_MAX: usize = 16;
/// The most holders of one device that are listed, and of all.
const HOLDERS_OF_DEVICE_MAX: usize = 1_000;
const HOLDERS_LISTED_MAX: usize = 8_000;
/// How a note begins that tells of what is open without a grant.
const VIOLATION: &str = "violation: ";

/// Who holds what of each resource: gathered once, where it is asked for, for all that are to be told of at one moment.
#[derive(Debug, Default)]
pub(super) struct HoldersFound(OnceCell<BTreeMap<ResourceName, Vec<HolderOf>>>);

/// A device of a machine, in the order of machines, families and numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place<'a> {
    member: Key,
    family: usize,
    resource: &'a str,
    slot: u32,
}

impl<'a> Place<'a> {
    fn new(member: Key, resource: &'a str, slot: u32) -> Self {
        let family = device_resources().position(|known| known.name == resource).unwrap_or(usize::MAX);
        Self { member, family, resource, slot }
    }
}

impl HeadCore {
    /// The devices, by their machines. Where there are too many, all of the head's own come first, and then those of others of
    /// which there is something to be known, those that somebody has, and those that are free.
    pub(super) fn device_rows(&self, most: usize) -> Vec<DeviceRow> {
        let own = all_of(OWN, self.members.own());
        let others = || self.members.others().map(|(key, member)| (*key, member));
        let noted = others().flat_map(|(key, member)| {
            let conditions = member.state.conditions.iter();
            conditions.map(move |known| Place::new(key, &known.resource, known.slot))
        });
        let held = others().flat_map(|(key, member)| {
            member.holdings.devices().map(move |(resource, slot)| Place::new(key, resource, slot))
        });
        let all = others().flat_map(|(key, member)| all_of(key, member));
        let mut chosen = BTreeSet::new();
        for place in own.chain(noted).chain(held).chain(all) {
            if chosen.len() == most {
                break;
            }
            chosen.insert(place);
        }
        let mut room = HOLDERS_LISTED_MAX;
        let rows = chosen.into_iter().map(|place| {
            let row = self.device_row(place, room.min(HOLDERS_OF_DEVICE_MAX));
            room -= row.holders.len();
            row
        });
        rows.collect()
    }

    fn device_row(&self, place: Place<'_>, holders_max: usize) -> DeviceRow {
        let Place { resource, slot, .. } = place;
        let member = &self.members.by_key[&place.member];
        let state = &member.state;
        let known = state.conditions.iter().find(|known| known.resource == resource && known.slot == slot);
        let sizes = member.told.device_sizes.iter().find(|sizes| sizes.resource == resource);
        let used = state.uses.iter().find(|used| used.resource == resource && used.slot == slot);
        let is_own = place.member == OWN;
        let own = self.own.plan().offer.of(resource).filter(|_| is_own);
        let id = match own {
            Some(offer) => Some(offer.id(slot)),
            None => sizes.and_then(|sizes| sizes.ids.get(slot as usize)).cloned(),
        };
        let is_well = state.devices.iter().any(|of| of.resource == resource && of.healthy.contains(&slot));
        let health = if is_well { HealthState::Healthy } else { HealthState::Unknown };
        let notes = known.map_or(&[][..], |known| &known.notes).iter();
        let (violations, notes): (Vec<&String>, Vec<&String>) = notes.partition(|note| note.starts_with(VIOLATION));
        let reason = known.and_then(|known| known.reason.clone());
        let holders = member.holdings.of_device(resource, slot).take(holders_max);
        let files = sizes.and_then(|sizes| sizes.files.get(slot as usize));
        DeviceRow {
            resource: resource.to_owned(),
            family: sizes.map(|sizes| sizes.family.clone()).filter(|family| !family.is_empty()),
            slot,
            id: id.unwrap_or_else(|| slot.to_string()),
            used: used.cloned(),
            state: if reason.is_some() { DeviceService::Quarantined } else { DeviceService::InService },
            since_ms: reason.as_ref().and_then(|_| self.figures.chronicle.out_since(member.view.node, resource, slot)),
            reason,
            holders: holders.map(|of| self.device_holder(of, used)).collect(),
            violations: violations
                .into_iter()
                .filter_map(|text| text.strip_prefix(VIOLATION))
                .map(str::to_owned)
                .collect(),
            node: (!is_own).then_some(member.view.node),
            notes: notes.into_iter().cloned().collect(),
            foreign: known.map(|known| known.foreign.clone()).unwrap_or_default(),
            health: known.map_or(health, |known| known.health),
            files: Some(DeviceFiles {
                logical: sizes.and_then(|sizes| sizes.logical_from).is_some_and(|from| from <= slot),
                nodes: files.map(|files| files.nodes.clone()).unwrap_or_default(),
            }),
        }
    }

    fn device_holder(&self, of: &DeviceHolding, used: Option<&DeviceUse>) -> DeviceHolder {
        let used_bytes = used.and_then(|used| used.grants.iter().find(|grant| grant.grant == of.grant));
        let used_bytes = used_bytes.map(|grant| grant.bytes);
        DeviceHolder {
            pid: of.pid,
            name: self.holder_name(of),
            share: Quantity::from_units(of.share).as_f64(),
            isolation: of.isolation.clone(),
            memory: of.memory.clone().map(|memory| DeviceMemory { used_bytes, ..memory }),
            is_ending: of.phase == HoldingPhase::Returning,
            choice: of.choice.clone(),
        }
    }

    /// What runs there, or what else has it.
    fn holder_name(&self, of: &DeviceHolding) -> String {
        match (of.worker, of.group) {
            (None, Some(group)) => {
                let bundle = of.bundle.map(|bundle| format!(", bundle {}", bundle.index())).unwrap_or_default();
                format!("placement group {}{bundle}, unused", self.groups.name_of(group))
            }
            _ if of.name.is_empty() => "a process that is ending".to_owned(),
            _ => of.name.clone(),
        }
    }

    /// The devices that a worker has, and why those.
    pub(super) fn devices_of_worker(&self, worker: WorkerId) -> Vec<DevicesChosen> {
        let Some(key) = self.clients.key_of(worker) else { return Vec::new() };
        let Some(member) = self.members.by_key.get(&self.members.member_with(key)) else { return Vec::new() };
        let mut all: Vec<DevicesChosen> = Vec::new();
        for of in member.holdings.of_worker(worker) {
            match all.iter_mut().find(|chosen| chosen.resource == of.resource && chosen.why == of.choice) {
                Some(chosen) => chosen.slots.push(of.slot),
                None => all.push(DevicesChosen {
                    node_id: Some(member.view.node),
                    address: member.told.ip.clone(),
                    resource: of.resource.clone(),
                    slots: vec![of.slot],
                    is_held: true,
                    why: of.choice.clone(),
                    ..DevicesChosen::default()
                }),
            }
        }
        all
    }

    /// Who has what a request waits for, in words: parts of devices, on machines where it may run, or else another resource of
    /// these machines; of the head's alone where not all are to be looked at.
    pub(super) fn named_holders(
        &self,
        resource: &ResourceName,
        request: &ResourceRequest,
        holders: Option<&HoldersFound>,
    ) -> Vec<String> {
        let name = resource.as_str();
        let may_run = |member: &&Member| request.place.as_deref().is_none_or(|place| place.allows(&member.view));
        let members = || self.members.by_key.values().filter(may_run);
        let on_devices = members().flat_map(|member| member.holdings.of(name).map(move |of| (member, of)));
        let mut count = members().map(|member| member.holdings.count(name)).sum();
        let on_devices = on_devices.map(|(member, of)| self.holder_in_short(member, of));
        let mut named: Vec<String> = on_devices.take(HOLDERS_NAMED_MAX).collect();
        if count == 0 {
            let own = self.members.by_key.get(&OWN).filter(may_run);
            named = own.map(|_| self.own.holders_in_words(name)).unwrap_or_default();
            count = named.len();
            named.truncate(HOLDERS_NAMED_MAX);
            if let Some(holders) = holders.filter(|_| !self.members.is_alone()) {
                let all = holders.0.get_or_init(|| self.pending.fairness.holders_by_resource());
                let of_resource = all.get(resource).map_or(&[][..], Vec::as_slice);
                count += self.name_holders_elsewhere(name, of_resource, |member| may_run(&member), &mut named);
            }
        }
        if count > named.len() {
            named.push(format!("and {} more", count - named.len()));
        }
        named
    }

    /// Names who has some of a resource without devices on other machines than the head's, as far as there is room, and counts
    /// them. What runs within a placement group has it from the group.
    fn name_holders_elsewhere(
        &self,
        resource: &str,
        holders: &[HolderOf],
        may_run: impl Fn(&Member) -> bool,
        named: &mut Vec<String>,
    ) -> usize {
        let own = self.own.plan().node;
        let at = |node: NodeId| self.members.at(node).filter(|member| node != own && may_run(member));
        let mut count = 0;
        let mut tell = |text: &dyn Fn() -> String| {
            count += 1;
            if named.len() < HOLDERS_NAMED_MAX {
                named.push(text());
            }
        };
        for &HolderOf { holder, node, amount } in holders {
            match holder {
                Holder::Worker(key) => {
                    let (Some(member), Some(worker)) = (at(node), self.workers.by_key.get(&key)) else { continue };
                    let amount = self.still_held(worker, resource).unwrap_or(amount);
                    if !amount.is_zero() {
                        let (pid, label, ip) = (worker.pid.unwrap_or(0), &worker.label, &member.told.ip);
                        tell(&|| format!("pid {pid} ({label}: {amount} on {ip})"));
                    }
                }
                Holder::Group(id) => {
                    let Some(group) = self.groups.known.get(id) else { continue };
                    let there = group.nodes.iter().zip(&group.description.group.bundles).enumerate();
                    for (index, (node, bundle)) in there {
                        let amount = bundle.demand.get(resource);
                        let Some(member) = node.and_then(at).filter(|_| !amount.is_zero()) else { continue };
                        let (name, ip) = (|| self.groups.name_of(id), &member.told.ip);
                        tell(&|| format!("placement group {}, bundle {index} ({amount} on {ip})", name()));
                    }
                }
                Holder::Order(_) => {}
            }
        }
        count
    }

    /// What an actor holds that needed more to be made; nothing for who holds what it was placed with.
    fn still_held(&self, worker: &Worker, resource: &str) -> Option<Quantity> {
        let Duty::Actor(id) = worker.duty else { return None };
        let making = self.actors.making.get(&id).filter(|_| worker.is_ready)?;
        Some(making.running().get(resource))
    }

    fn holder_in_short(&self, member: &Member, of: &DeviceHolding) -> String {
        let (share, resource, slot) = (Quantity::from_units(of.share), &of.resource, of.slot);
        let on = if self.members.is_alone() { String::new() } else { format!(" on {}", member.told.ip) };
        let (name, part) = (self.holder_name(of), format!("{share} of {resource} {slot}{on}"));
        if of.pid == 0 { format!("{name} ({part})") } else { format!("pid {} ({name}: {part})", of.pid) }
    }
}

/// All devices of a machine.
fn all_of(key: Key, member: &Member) -> impl Iterator<Item = Place<'_>> {
    let totals = member.view.inventory.totals().filter(|(name, _)| name.is_device());
    totals
        .flat_map(move |(name, total)| (0..total.wholes() as u32).map(move |slot| Place::new(key, name.as_str(), slot)))
}
