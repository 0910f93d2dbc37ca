"""What the cluster's machines offer, as libraries ask for it."""

from __future__ import annotations

from oxiray import _missing, _session
from oxiray._api import available_resources, cluster_resources, describe_nodes, nodes


def total_resources_per_node() -> dict[str, dict[str, float]]:
    """What each living machine offers in whole, by its identifier."""
    return {node["NodeID"]: node["Resources"] for node in nodes() if node["Alive"]}


def available_resources_per_node() -> dict[str, dict[str, float]]:
    """What is free on each living machine, by its identifier."""
    return {node["node_id"]: node["available"] for node in describe_nodes() if node.get("alive", True)}


def node_ids() -> list[str]:
    """The names of the resources that stand for one machine each."""
    return [name for name in cluster_resources() if name.startswith("node:") and not name.startswith("node:__")]


def current_node_id() -> str:
    """The name of the resource that stands for this machine."""
    from oxiray.util._node import get_node_ip_address

    _session.ensure()
    return f"node:{get_node_ip_address()}"


__all__ = [
    "available_resources",
    "available_resources_per_node",
    "cluster_resources",
    "current_node_id",
    "node_ids",
    "nodes",
    "total_resources_per_node",
]

__getattr__ = _missing.attributes(__name__)
