//! What processes count and measure: taken in, and shown beside what the head knows of the cluster.

use super::HeadCore;
use crate::amounts::{Amounts, available_of, total_of};
use crate::metrics::{ClusterGauge, ClusterSample, MetricKind as Kind, Sample};
use oxiray_ids::NodeId;
use oxiray_machine::Key;
use oxiray_resources::Quantity;
use oxiray_state::actor_state;
use oxiray_wire::message::{MetricKind, MetricSample, Metrics, MetricsReport};
use std::collections::BTreeMap;

impl HeadCore {
    /// A process tells what it recorded.
    pub(super) fn metrics_told(&mut self, from: Key, told: Metrics) {
        let Some(by) = self.clients.id_of(from) else { return };
        for sample in told.samples.into_iter().map(sample_of) {
            if let Err(reason) = self.figures.metrics.record(by, sample) {
                self.log(format!("metric {reason}"));
            }
        }
    }

    /// Somebody asks for all metrics.
    pub(crate) fn metrics_query(&mut self, asker: Key, request: u64) {
        let report = MetricsReport {
            request,
            text: self.figures.metrics.text(self.cluster_gauges()),
            notes: self.figures.metrics.notes().collect(),
        };
        self.send(asker, report);
    }

    fn cluster_gauges(&self) -> Vec<ClusterSample> {
        let members = self.members.by_key.values().map(|member| NodeFigures {
            node: member.view.node,
            address: &member.told.ip,
            total: total_of(&member.view),
            available: available_of(&member.view),
            store_used: member.state.store_used,
            store_left: member.store_left(),
        });
        let of_nodes = members.flat_map(|node| node.gauges());
        let states = |gauge, counts: BTreeMap<&'static str, usize>| {
            let one = move |(state, count): (&str, usize)| (gauge, vec![("State", state.to_owned())], count as f64);
            counts.into_iter().map(one)
        };
        let jobs = self.jobs.known.iter().filter(|job| job.end.is_none()).count();
        [
            (ClusterGauge::ActiveNodes, Vec::new(), self.members.by_key.len() as f64),
            (ClusterGauge::FailedNodes, Vec::new(), self.members.lost.len() as f64),
            (ClusterGauge::RunningJobs, Vec::new(), jobs as f64),
        ]
        .into_iter()
        .chain(of_nodes)
        .chain(states(
            ClusterGauge::Actors,
            counted(self.actors.known.iter().map(|actor| actor_state(actor.state.phase()))),
        ))
        .chain(states(
            ClusterGauge::PlacementGroups,
            counted(self.groups.known.iter().map(|group| group.phase.state().name())),
        ))
        .collect()
    }
}

/// What the gauges of one node are made of.
struct NodeFigures<'a> {
    node: NodeId,
    address: &'a str,
    total: Amounts,
    available: Amounts,
    store_used: u64,
    store_left: u64,
}

impl NodeFigures<'_> {
    fn gauges(&self) -> Vec<ClusterSample> {
        let tags = |more: &[(&'static str, &str)]| {
            // Ascending, as all tags are shown.
            let mut tags: Vec<(&'static str, String)> =
                more.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
            tags.extend([("NodeAddress", self.address.to_owned()), ("NodeId", self.node.hex())]);
            tags.sort_unstable();
            tags
        };
        let resources = self.total.iter().flat_map(|(name, total)| {
            let available = self.available.get(name).copied().unwrap_or(Quantity::ZERO);
            let used = Quantity::from_units(total.units().saturating_sub(available.units()));
            [("USED", used), ("AVAILABLE", available)].map(|(state, amount)| {
                let tags = tags(&[("Name", name.as_str()), ("State", state)]);
                (ClusterGauge::Resources, tags, amount.as_f64())
            })
        });
        let store = [(ClusterGauge::StoreUsed, self.store_used), (ClusterGauge::StoreAvailable, self.store_left)];
        resources.chain(store.map(|(gauge, bytes)| (gauge, tags(&[]), bytes as f64))).collect()
    }
}

fn counted(states: impl Iterator<Item = &'static str>) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for state in states {
        *counts.entry(state).or_default() += 1;
    }
    counts
}

fn sample_of(told: MetricSample) -> Sample {
    let kind = match told.kind {
        MetricKind::Counter => Kind::Counter,
        MetricKind::Gauge => Kind::Gauge,
        MetricKind::Histogram => Kind::Histogram,
    };
    let tags = told.tags.into_iter().map(|tag| (tag.key, tag.value)).collect();
    let MetricSample { name, description, boundaries, value, counts, .. } = told;
    Sample { name, description, kind, boundaries, tags, value, counts }
}
