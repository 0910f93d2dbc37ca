//! Where Prometheus scrapes: the nodes of a cluster that export metrics, in the form that it reads from files and over HTTP.

use crate::ordered::Ordered;
use oxiray_wire::state::{MeasuredNode, NodeRow};
use std::collections::BTreeMap;

/// `[{"labels": {"job": "ray"}, "targets": […]}]`, with the address and the port of each node that exports.
pub fn targets(nodes: &[NodeRow], measured: &[MeasuredNode]) -> String {
    let ports: BTreeMap<_, _> = measured
        .iter()
        .filter_map(|node| Some((node.node_id, node.statistics.as_ref()?.metrics_port)))
        .filter(|(_, port)| *port > 0)
        .collect();
    let of = |node: &NodeRow| {
        let port = ports.get(&node.node_id).filter(|_| node.alive)?;
        let address = if node.address.contains(':') { format!("[{}]", node.address) } else { node.address.clone() };
        Some(Ordered::from(format!("{address}:{port}")))
    };
    let targets: Ordered = nodes.iter().filter_map(of).collect();
    let all = Ordered::map([("labels", Ordered::map([("job", "ray".into())])), ("targets", targets)]);
    Ordered::List(vec![all]).body()
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::NodeId;
    use oxiray_wire::state::NodeStatistics;

    #[test]
    fn living_nodes_that_export_are_targets() {
        let node = |number: u8, address: &str, alive| NodeRow {
            node_id: NodeId::new([number; 28]),
            address: address.into(),
            alive,
            ..NodeRow::default()
        };
        let measured = |number: u8, metrics_port| MeasuredNode {
            node_id: NodeId::new([number; 28]),
            statistics: Some(NodeStatistics { metrics_port, ..NodeStatistics::default() }),
        };
        let nodes = [
            node(1, "10.0.0.1", true),
            node(2, "10.0.0.2", true),
            node(3, "10.0.0.3", false),
            node(4, "fd00::1", true),
        ];
        let told = targets(&nodes, &[measured(1, 8080), measured(2, 0), measured(3, 8080), measured(4, 9090)]);
        assert_eq!(told, r#"[{"labels":{"job":"ray"},"targets":["10.0.0.1:8080","[fd00::1]:9090"]}]"#);
    }
}
