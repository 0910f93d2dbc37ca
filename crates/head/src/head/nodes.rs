//! What the nodes of the cluster have, for people and programs.

use super::HeadCore;
use crate::amounts::{available_of, by_name, total_of};
use crate::members::{Member, OWN};
use oxiray_ids::NodeId;
use oxiray_machine::cut;
use oxiray_scheduler::NodeView;
use oxiray_wire::message::{NodeJoin, StateQuery, StateReport};
use oxiray_wire::state::{Lifetime, MeasuredNode, NodeDaemon, NodeRow};
use std::collections::BTreeSet;

impl HeadCore {
    /// The machines, the head's own first, and the dead ones that are remembered.
    pub(super) fn all_nodes(&self) -> Vec<NodeRow> {
        let living = self.members.by_key.iter().map(|(key, member)| NodeRow {
            head: *key == OWN,
            store_used: member.state.store_used,
            devices: member.state.uses.clone(),
            draining: self.draining_shown(*key),
            daemon: Some(NodeDaemon {
                lifetime: Some(Lifetime { started_ms: member.told.started_ms, ended_ms: 0 }),
                isolation: member.state.isolation.clone(),
            }),
            ..described(&member.told, &member.view, "")
        });
        let lost = self.members.lost.iter().map(|lost| NodeRow {
            daemon: Some(NodeDaemon {
                lifetime: Some(Lifetime { started_ms: lost.told.started_ms, ended_ms: lost.ended_ms }),
                isolation: None,
            }),
            ..described(&lost.told, &lost.view, &lost.how)
        });
        living.chain(lost).collect()
    }

    /// A list of nodes, with how their machines are where it is one in detail.
    pub(super) fn with_measured(&self, asked: &StateQuery, mut report: StateReport) -> StateReport {
        if let Some(tables) = report.tables.as_mut().filter(|_| asked.detail) {
            let listed: BTreeSet<NodeId> = tables.nodes.iter().map(|row| row.node_id).collect();
            let members = self.members.by_key.values().filter(|member| listed.contains(&member.view.node));
            tables.measured = members.map(measured).collect();
        }
        report
    }
}

fn measured(member: &Member) -> MeasuredNode {
    MeasuredNode {
        node_id: member.view.node,
        statistics: member.state.statistics.clone(),
        version: cut(member.told.version.clone()),
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
        labels: if is_alive { view.labels.clone() } else { told.labels.clone() },
        resources: by_name(total.iter().map(|(name, amount)| (name, *amount))),
        available: by_name(available.iter().map(|(name, amount)| (name, *amount))),
        death: death.to_owned(),
        ..NodeRow::default()
    }
}
