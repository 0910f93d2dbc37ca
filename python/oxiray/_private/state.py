"""What the cluster's machines offer, as libraries ask for it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from oxiray import _core, _missing, _session
from oxiray._api import available_resources, cluster_resources, describe_nodes, nodes, timeline
from oxiray._core import PlacementGroupID
from oxiray.util.placement_group import PlacementGroup, placement_group_table

_ROWS_MAX = 10_000
#: The label that names the group of a node that the autoscaler added.
RAY_NODE_GROUP_KEY = "ray.io/node-group"


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


def actors(
    actor_id: str | None = None, job_id: Any = None, actor_state_name: str | None = None
) -> dict[str, dict[str, Any]] | dict[str, Any]:
    """What is known of actors, by their identifiers; of the one of `actor_id` alone, empty where there is none."""
    from oxiray.util.state import list_actors

    filters = [("state", "=", actor_state_name)] if actor_state_name else []
    if job_id is not None:
        filters.append(("job_id", "=", job_id.hex()))
    if actor_id is not None:
        filters.append(("actor_id", "=", actor_id))
    known = {row.actor_id: _actor(row) for row in list_actors(filters=filters, limit=_ROWS_MAX, detail=True)}
    return known if actor_id is None else known.get(actor_id, {})


def _actor(row: Any) -> dict[str, Any]:
    addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in nodes()}
    return {
        "ActorID": row.actor_id,
        "ActorClassName": row.class_name,
        "IsDetached": row.is_detached,
        "Name": row.name or "",
        "JobID": row.job_id,
        "Address": {"IPAddress": addresses.get(row.node_id, ""), "NodeID": row.node_id or ""},
        "State": row.state,
        "NumRestarts": row.num_restarts,
        "Pid": row.pid,
    }


@dataclass
class NodeGroupConfig:
    """Nodes of one kind that the autoscaler may add, with the attributes that Ray's message has and libraries read."""

    name: str
    #: What each node offers.
    resources: dict[str, float]
    #: How many nodes there are at least, and at most.
    min_count: int
    max_count: int


@dataclass
class ClusterConfig:
    """All of them. The cluster as a whole has no limits besides theirs."""

    node_group_configs: list[NodeGroupConfig]
    min_resources: dict[str, float] = field(default_factory=dict)
    max_resources: dict[str, float] = field(default_factory=dict)


def _cluster() -> dict[str, Any]:
    _session.ensure()
    return _core.cluster()


def _node_group(told: dict[str, Any]) -> NodeGroupConfig:
    least, most = told["limits"] or (0, 0)
    hosts = told["hosts"] or 1
    return NodeGroupConfig(told["name"], dict(told["resources"]), least * hosts, most * hosts)


class GlobalState:
    """The cluster, as libraries ask for it through `ray._private.state.state`."""

    def get_draining_nodes(self) -> dict[str, int]:
        """The nodes that are drained, by identifier, with the millisecond since 1970 at which each ends, 0 where there is none."""
        ends = {node["node_id"]: node["draining"] for node in describe_nodes() if node.get("draining")}
        now = time.time()
        seconds = {node: told.get("deadline_s") for node, told in ends.items()}
        return {node: 0 if left is None else int((now + left) * 1000) for node, left in seconds.items()}

    def get_cluster_config(self) -> ClusterConfig | None:
        """What the autoscaler may add; None where the cluster has none."""
        told = _cluster().get("autoscaler")
        if told is None or told["absence"]:
            return None
        return ClusterConfig([_node_group(group) for group in told["groups"]])

    def get_max_resources_from_cluster_config(self) -> dict[str, float] | None:
        """What all nodes that the autoscaler may add, and those that it did not add, offer together.

        None where it may add none, and where the cluster has no autoscaler.
        """
        config = self.get_cluster_config()
        if config is None or not any(group.max_count for group in config.node_group_configs):
            return None
        names = {group.name for group in config.node_group_configs}
        most = Counter[str]()
        for node in nodes():
            if node["Alive"] and node["Labels"].get(RAY_NODE_GROUP_KEY) not in names:
                most.update(node["Resources"])
        for group in config.node_group_configs:
            most.update({name: amount * group.max_count for name, amount in group.resources.items()})
        return dict(most)

    def placement_group_table(self, placement_group_id: PlacementGroupID | None = None) -> dict[str, Any]:
        """What there is to know of one group, or of all by their identifiers."""
        return placement_group_table(None if placement_group_id is None else PlacementGroup(placement_group_id))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return globals()[name]
        except KeyError:
            raise AttributeError(f"`ray._private.state.state.{name}` is private to Ray: use ray.util.state", name=name, obj=self) from None


state = GlobalState()


def jobs() -> list[dict[str, Any]]:
    """What is known of the cluster's jobs; times are in milliseconds, and 0 while they are not there."""
    from oxiray.util.state import list_jobs

    return [
        {
            "JobID": row.job_id,
            "DriverIPAddress": row.driver_info.node_ip_address if row.driver_info else "",
            "DriverPid": int(row.driver_info.pid) if row.driver_info else 0,
            "StartTime": row.start_time or 0,
            "EndTime": row.end_time or 0,
            "IsDead": row.end_time is not None,
            "Entrypoint": row.entrypoint,
        }
        for row in list_jobs(limit=_ROWS_MAX, detail=True)
        if row.job_id
    ]


def workers() -> dict[str, dict[str, Any]]:
    """The machine's address of each worker that lives, by the worker's identifier."""
    from oxiray.util.state import list_workers

    rows = list_workers(filters=[("is_alive", "=", True)], limit=_ROWS_MAX)
    return {row.worker_id: {"node_ip_address": row.ip} for row in rows}


__all__ = [
    "actors",
    "available_resources",
    "available_resources_per_node",
    "cluster_resources",
    "current_node_id",
    "jobs",
    "node_ids",
    "nodes",
    "timeline",
    "total_resources_per_node",
    "workers",
]

__getattr__ = _missing.attributes(__name__)
