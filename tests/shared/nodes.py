"""Clusters of several nodes on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray.cluster_utils import Cluster, Node


@contextmanager
def three_nodes() -> Iterator[list[Node]]:
    """A head and two members, with a resource each: `head`, `first` and `second`."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "resources": {"head": 4}})
    first = cluster.add_node(num_cpus=2, resources={"first": 4})
    second = cluster.add_node(num_cpus=2, resources={"second": 4})
    cluster.connect()
    assert cluster.head_node is not None
    try:
        yield [cluster.head_node, first, second]
    finally:
        cluster.shutdown()
