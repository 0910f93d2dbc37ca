//! What is set aside for placement groups: all bundles of an order, or none.

use super::NodeCore;
use crate::choice::{OF_BUNDLE, choice_in_words};
use crate::encoding::devices_free;
use crate::{BundleKey, amounts, demand};
use oxiray_ids::{BundleNumber, PlacementGroupId};
use oxiray_resources::{BundleId, Demand, Grant, GrantId};
use oxiray_wire::message::{BundleAsked, BundleFree, BundleName, GroupPrepare, GroupPrepared, GroupRelease, Place};
use std::collections::{BTreeMap, BTreeSet};

impl NodeCore {
    pub(super) fn prepare_for_head(&mut self, order: &GroupPrepare) {
        let group = order.group;
        let Some(head) = &mut self.head else { return };
        head.order = order.order;
        let demands: Option<Vec<Demand>> = order.bundles.iter().map(|bundle| demand(&bundle.demand)).collect();
        let reserved = demands.and_then(|demands| self.ledger.reserve(&demands));
        let is_refused = reserved.is_none();
        for (bundle, reserved) in order.bundles.iter().zip(reserved.unwrap_or_default()) {
            head.bundles.insert((group, bundle.bundle), reserved);
        }
        // A head elsewhere is told of the bundles before it hears that they are there. One in this process hears at the end of
        // all its orders how the ledger stands.
        if self.head_key().is_some() {
            self.tell_state();
        }
        self.report(GroupPrepared { order: order.order, is_refused });
    }

    pub(super) fn release_for_head(&mut self, said: &GroupRelease) {
        let group = said.group;
        for bundle in &said.bundles {
            let reserved = self.head.as_mut().and_then(|head| head.bundles.remove((group, *bundle)));
            if let Some(reserved) = reserved {
                self.ledger.dissolve(reserved);
            }
        }
    }

    /// What an order is granted: of the machine, or within the bundles that it names.
    pub(super) fn grant_for_head(&mut self, order: &Place) -> Option<Grant> {
        let wanted = demand(&order.demand)?;
        let Some(group) = order.group else {
            let (grant, choices) = self.ledger.grant_with_choices(&wanted).ok()?;
            let said = choices.iter().map(|of| ((grant.id(), of.resource.to_string()), choice_in_words(of, true)));
            self.devices.choices.extend(said);
            return Some(grant);
        };
        let head = self.head.as_ref()?;
        let part = |asked: &BundleAsked| Some((head.bundles.get((group, asked.bundle))?, demand(&asked.demand)?));
        let mut parts: BTreeMap<BundleId, Demand> = order.further.iter().map(part).collect::<Option<_>>()?;
        let rest = wanted.without(&Demand::sum(parts.values()));
        parts.insert(head.bundles.get((group, order.bundle))?, rest);
        if Demand::sum(parts.values()) != wanted {
            // The parts that the head names are not those of what it asks for.
            return None;
        }
        let parts: Vec<(BundleId, Demand)> = parts.into_iter().collect();
        let grant = self.ledger.grant_within(&parts)?;
        for devices in grant.devices() {
            self.devices.choices.insert((grant.id(), devices.resource.to_string()), OF_BUNDLE.to_owned());
        }
        Some(grant)
    }

    /// A grant has another number.
    pub(super) fn choices_pass(&mut self, before: GrantId, now: GrantId) {
        let of_grant = self.devices.choices.range((before, String::new())..);
        let of_grant = of_grant.map(|(key, _)| key).take_while(|(grant, _)| *grant == before);
        let keys: Vec<_> = of_grant.cloned().collect();
        for key in keys {
            if let Some(words) = self.devices.choices.remove(&key) {
                self.devices.choices.insert((now, key.1), words);
            }
        }
    }

    /// What is free within each bundle that is set aside.
    pub fn all_bundles_for_head(&self) -> Vec<BundleFree> {
        let bundles = self.head.iter().flat_map(|head| head.bundles.iter());
        bundles.map(|(key, bundle)| self.bundle_for_head(key, bundle)).collect()
    }

    /// What is free within the bundles that changed since this was last asked, and those that were dissolved.
    pub(super) fn changed_bundles_for_head(&mut self) -> (Vec<BundleFree>, Vec<BundleName>) {
        let changed = self.ledger.take_changed_bundles();
        let Some(head) = &mut self.head else { return Default::default() };
        let dissolved = head.bundles.take_dissolved();
        let named = |(group, bundle): BundleKey| BundleName { group, bundle };
        let keys: Vec<(BundleKey, BundleId)> =
            changed.into_iter().filter_map(|bundle| Some((head.bundles.key_of(bundle)?, bundle))).collect();
        let changed = keys.into_iter().map(|(key, bundle)| self.bundle_for_head(key, bundle)).collect();
        (changed, dissolved.into_iter().map(named).collect())
    }

    fn bundle_for_head(&self, (group, number): BundleKey, bundle: BundleId) -> BundleFree {
        let devices = self.ledger.reserved(bundle).devices().iter().map(|of| {
            let free = self.ledger.free_per_device_within(bundle, of.resource.as_str());
            devices_free(&of.resource, &free, of.shares.iter().map(|share| share.device).collect())
        });
        let available = self.ledger.available_within(bundle);
        let scalars = available.iter().filter(|(name, _)| !name.is_device());
        BundleFree {
            group,
            bundle: number,
            free: amounts(scalars.map(|(name, amount)| (name, *amount))),
            devices: devices.collect(),
        }
    }

    /// The bundles of a group that are set aside here.
    pub fn bundles_of(&self, group: PlacementGroupId) -> BTreeSet<BundleNumber> {
        let bundles = self.head.iter().flat_map(|head| head.bundles.iter());
        bundles.filter(|((of, _), _)| *of == group).map(|((_, number), _)| number).collect()
    }

    /// What is set aside here for the bundles of a group.
    pub(super) fn bundles_in(&self, group: PlacementGroupId) -> impl Iterator<Item = &Grant> {
        let bundles = self.head.iter().flat_map(|head| head.bundles.iter());
        bundles.filter(move |((of, _), _)| *of == group).map(|(_, bundle)| self.ledger.reserved(bundle))
    }

    /// The bundle that a grant of the ledger is, where it is one.
    pub(super) fn bundle_of(&self, grant: GrantId) -> Option<BundleKey> {
        let mut bundles = self.head.iter().flat_map(|head| head.bundles.iter());
        bundles.find(|(_, bundle)| bundle.grant() == grant).map(|(key, _)| key)
    }
}
