//! What the nodes of the cluster have, for people and programs.

use super::HeadCore;
use super::members::OWN;
use super::report::by_name;
use oxiray_resources::{Quantity, ResourceName};
use oxiray_scheduler::NodeView;
use oxiray_wire::message::NodeJoin;
use oxiray_wire::state::NodeRow;
use std::collections::BTreeMap;

pub(super) type Amounts = BTreeMap<ResourceName, Quantity>;

impl HeadCore {
    /// The machines, the head's own first, and the dead ones that are remembered.
    pub(super) fn all_nodes(&self) -> Vec<NodeRow> {
        let living = self.members.by_key.iter().map(|(key, member)| NodeRow {
            head: *key == OWN,
            store_used: member.state.store_used,
            devices: member.state.uses.clone(),
            draining: self.draining_shown(*key),
            ..described(&member.told, &member.view, "")
        });
        let lost = self.members.lost.iter().map(|lost| described(&lost.told, &lost.view, &lost.how));
        living.chain(lost).collect()
    }

    /// What the cluster has, and what of it is free: devices out of service excepted, none at zero.
    pub(super) fn cluster_amounts(&self) -> (Amounts, Amounts) {
        let (mut totals, mut available) = (Amounts::new(), Amounts::new());
        for (_, view) in self.members.views() {
            add(&mut totals, total_of(view));
            add(&mut available, available_of(view));
        }
        (totals, available)
    }
}

/// `death` is how it ended; empty where it lives.
fn described(told: &NodeJoin, view: &NodeView, death: &str) -> NodeRow {
    let is_alive = death.is_empty();
    let (total, available) = if is_alive { (total_of(view), available_of(view)) } else { Default::default() };
    NodeRow {
        node_id: view.node,
        address: told.ip.clone(),
        hostname: told.hostname.clone(),
        name: told.name.clone(),
        socket: format!("{}/socket", told.session),
        alive: is_alive,
        labels: told.labels.clone(),
        resources: by_name(total.iter().map(|(name, amount)| (name, *amount))),
        available: by_name(available.iter().map(|(name, amount)| (name, *amount))),
        death: death.to_owned(),
        ..NodeRow::default()
    }
}

pub(super) fn total_of(view: &NodeView) -> Amounts {
    let in_service = |name: &ResourceName, total| match view.free_devices.get(name) {
        Some(devices) => Quantity::whole(devices.in_service().count() as u32),
        None => total,
    };
    let totals = view.inventory.totals().map(|(name, total)| (name.clone(), in_service(name, total)));
    totals.filter(|(_, amount)| !amount.is_zero()).collect()
}

pub(super) fn available_of(view: &NodeView) -> Amounts {
    let devices = view.free_devices.iter().map(|(name, free)| (name.clone(), free.sum()));
    let scalars = view.free.iter().map(|(name, amount)| (name.clone(), *amount));
    scalars.chain(devices).filter(|(_, amount)| !amount.is_zero()).collect()
}

fn add(sums: &mut Amounts, amounts: Amounts) {
    for (name, amount) in amounts {
        let sum = sums.entry(name).or_default();
        *sum = sum.checked_add(amount).unwrap_or(Quantity::MAX);
    }
}
