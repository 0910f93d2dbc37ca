"""Who waits for an argument that is made again holds nothing that making it may need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import ray
from ray.cluster_utils import Cluster, Node

#: Large enough to lie in the store.
BYTES = 1 << 20


@ray.remote(num_cpus=0)
def make(value: int) -> numpy.ndarray:
    return numpy.full(BYTES, value, dtype=numpy.uint8)


@ray.remote(num_cpus=0)
def last(array: numpy.ndarray) -> int:
    return int(array[-1])


@ray.remote(num_cpus=0)
class Reader:
    def __init__(self, array: numpy.ndarray) -> None:
        self.array = array

    def last(self) -> int:
        return int(self.array[-1])


class Replaced:
    """A cluster whose one node with a resource or a device dies and is replaced by another."""

    def __init__(self, needs: dict[str, Any]) -> None:
        self.needs = needs
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2}, connect=True)
        self.node = self.add()

    def add(self) -> Node:
        return self.cluster.add_node(num_cpus=1, **self.needs)

    def replace(self) -> None:
        self.cluster.remove_node(self.node, allow_graceful=False)
        self.node = self.add()

    def lost(self, value: int) -> ray.ObjectRef[numpy.ndarray]:
        """A reference whose value was on the node that is replaced."""
        reference = make.options(**self.needs).remote(value)
        ray.wait([reference], timeout=60, fetch_local=False)
        return reference


@pytest.fixture(params=[{"resources": {"n1": 1}}, {"num_gpus": 1}], ids=["resource", "device"])
def replaced(request: pytest.FixtureRequest) -> Iterator[Replaced]:
    ray.shutdown()
    replaced = Replaced(request.param)
    yield replaced
    replaced.cluster.shutdown()


def test_a_task_gives_back_what_its_lost_argument_needs(replaced: Replaced) -> None:
    arguments = [replaced.lost(value) for value in (3, 4)]
    replaced.replace()
    used = [last.options(**replaced.needs).remote(argument) for argument in arguments]
    assert ray.get(used, timeout=60) == [3, 4]


def test_a_task_without_retries_is_not_begun_before_its_argument_is_there(replaced: Replaced) -> None:
    argument = replaced.lost(5)
    replaced.replace()
    assert ray.get(last.options(max_retries=0, **replaced.needs).remote(argument), timeout=60) == 5


def test_an_actor_waits_for_its_constructors_argument_without_a_process(replaced: Replaced) -> None:
    argument = replaced.lost(6)
    replaced.replace()
    reader = Reader.options(**replaced.needs).remote(argument)
    assert ray.get(reader.last.remote(), timeout=60) == 6


def test_an_actor_that_restarts_waits_for_its_argument_without_a_process(replaced: Replaced) -> None:
    argument = replaced.lost(7)
    reader = Reader.options(max_restarts=-1, max_task_retries=-1, **replaced.needs).remote(argument)
    assert ray.get(reader.last.remote(), timeout=60) == 7
    replaced.replace()
    assert ray.get(reader.last.remote(), timeout=60) == 7
