"""What is said of objects whose owner went with its node."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy
import pytest
import ray
from ray.cluster_utils import Cluster
from ray.exceptions import OwnerDiedError


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head that a driver is connected to."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1}, connect=True)
    yield cluster
    cluster.shutdown()


@ray.remote(num_cpus=0, resources={"there": 1})
class Putter:
    def put(self) -> list[ray.ObjectRef]:
        self.kept = ray.put(numpy.ones(1 << 20, dtype=numpy.uint8))
        return [self.kept]


def test_a_put_of_a_node_that_died_names_the_node_and_the_time(cluster: Cluster) -> None:
    node = cluster.add_node(num_cpus=1, resources={"there": 1})
    putter = Putter.remote()
    [kept] = ray.get(putter.put.remote())
    cluster.remove_node(node, allow_graceful=False)
    with pytest.raises(OwnerDiedError) as raised:
        ray.get(kept, timeout=60)
    text = str(raised.value)
    assert kept.hex() in text
    assert f"the node {node.node_id}" in text
    assert " s ago" in text


@ray.remote
def never_ends() -> None:
    threading.Event().wait()


@ray.remote(num_cpus=0)
class Caller:
    def call(self) -> tuple[int, list[ray.ObjectRef]]:
        self.called = never_ends.remote()
        return os.getpid(), [self.called]


def test_a_result_that_a_dead_process_waited_for_names_the_process(cluster: Cluster) -> None:
    caller = Caller.remote()
    pid, [called] = ray.get(caller.call.remote())
    ray.kill(caller)
    with pytest.raises(OwnerDiedError, match=rf"its owner died .* s ago, the worker .*, pid {pid}, on node"):
        ray.get(called, timeout=60)
