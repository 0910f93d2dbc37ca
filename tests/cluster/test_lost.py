"""What becomes of large objects when words cross, streams break and nodes die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster, Node

MIB = 1 << 20
#: Far longer than a process takes to say what it has to say: whoever is paused misses the order in which it came.
PAUSE_S = 0.4


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """The process stands still meanwhile, and a moment longer."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
        time.sleep(PAUSE_S)
    finally:
        os.kill(pid, signal.SIGCONT)


@ray.remote(num_cpus=0)
class Process:
    def make(self, mib: int, fill: int = 1) -> bytes:
        return bytes([fill]) * (mib * MIB)

    def first_of(self, value: bytes) -> int:
        return value[0]

    def say_something(self) -> Any:
        return [ray.put(1)]


def on(thing: Any, node: str) -> Any:
    return thing.options(resources={node: 0.1})


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Node]]:
    """A head and two members."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "resources": {"head": 4}})
    first = cluster.add_node(num_cpus=2, resources={"first": 4})
    second = cluster.add_node(num_cpus=2, resources={"second": 4})
    cluster.connect()
    assert cluster.head_node is not None
    yield [cluster.head_node, first, second]
    cluster.shutdown()


def test_a_reader_may_ask_before_the_head_heard_of_the_writer(nodes: list[Node]) -> None:
    maker, reader = on(Process, "first").remote(), on(Process, "second").remote()
    ray.get([maker.first_of.remote(b"1"), reader.first_of.remote(b"1")])
    with paused(nodes[0].pid):
        # The stream of the reader's node has something for the head first, and is read first.
        said = reader.say_something.remote()
        ray.wait([said], timeout=10)
        made = maker.make.remote(1, 7)
        ray.wait([made], timeout=10)
        read = reader.first_of.remote(made)
    assert ray.get(read, timeout=30) == 7
