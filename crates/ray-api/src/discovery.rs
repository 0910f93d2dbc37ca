//! Where Prometheus scrapes: the nodes of a cluster that export metrics, in the form that it reads from files and over HTTP.

use crate::ordered::Ordered;
use oxiray_wire::state::{MeasuredNode, NodeRow};
use std::collections::BTreeMap;

/// `[{"labels": {"job": "ray"}, "targets": […]}]`, with the address and the port of each node that exports.
pub fn targets(nodes: &[NodeRow], measured: &[MeasuredNode]) -> String {
    let places: BTreeMap<_, _> =
        measured.iter().filter_map(|node| Some((node.node_id, node.statistics.as_ref()?.metrics.as_ref()?))).collect();
    let of = |node: &NodeRow| {
        let place = places.get(&node.node_id).filter(|_| node.alive)?;
        let address = if place.host.is_empty() { &node.address } else { &place.host };
        let address = if address.contains(':') { format!("[{address}]") } else { address.clone() };
        Some(Ordered::from(format!("{address}:{}", place.port)))
    };
    let targets: Ordered = nodes.iter().filter_map(of).collect();
    let all = Ordered::map([("labels", Ordered::map([("job", "ray".into())])), ("targets", targets)]);
    Ordered::List(vec![all]).body()
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::NodeId;
    use oxiray_wire::state::{MetricsPlace, NodeStatistics};

    #[test]
    fn living_nodes_that_export_are_targets() {
        let node = |number: u8, address: &str, alive| NodeRow {
            node_id: NodeId::new([number; 28]),
            address: address.into(),
            alive,
            ..NodeRow::default()
        };
        let measured = |number: u8, metrics: Option<(&str, u32)>| MeasuredNode {
            node_id: NodeId::new([number; 28]),
            statistics: Some(NodeStatistics {
                metrics: metrics.map(|(host, port)| MetricsPlace { host: host.into(), port }),
                ..NodeStatistics::default()
            }),
            ..MeasuredNode::default()
        };
        let nodes = [
            node(1, "10.0.0.1", true),
            node(2, "10.0.0.2", true),
            node(3, "10.0.0.3", false),
            node(4, "fd00::1", true),
        ];
        let measured = [
            measured(1, Some(("127.0.0.1", 8080))),
            measured(2, None),
            measured(3, Some(("", 8080))),
            measured(4, Some(("", 9090))),
        ];
        let told = r#"[{"labels":{"job":"ray"},"targets":["127.0.0.1:8080","[fd00::1]:9090"]}]"#;
        assert_eq!(targets(&nodes, &measured), told);
    }
}
