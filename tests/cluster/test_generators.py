"""Generators whose nodes die while they are read."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy
import ray
from ray.cluster_utils import Cluster

ITEMS = 8
BYTES = 1 << 20


@ray.remote(num_cpus=1, max_retries=-1, _generator_backpressure_num_objects=1)
def several() -> Iterator[numpy.ndarray]:
    for value in range(ITEMS):
        yield numpy.full(BYTES, value, dtype=numpy.uint8)


def test_generators_that_wait_for_their_reader_end_although_nodes_die() -> None:
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0}, connect=True)
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
        read: dict[ray.ObjectRefGenerator, list[int]] = {several.remote(): [] for _ in range(4)}
        over = threading.Event()

        def replace_nodes() -> None:
            for number in range(6):
                if over.wait(0.1):
                    return
                cluster.remove_node(nodes[number % 3], allow_graceful=False)
                nodes[number % 3] = cluster.add_node(num_cpus=1)

        replacing = threading.Thread(target=replace_nodes)
        replacing.start()
        going = list(read)
        while going:
            ready, _ = ray.wait(going, timeout=60)
            assert ready
            for generator in ready:
                try:
                    read[generator].append(int(ray.get(next(generator), timeout=60)[-1]))
                except StopIteration:
                    going.remove(generator)
        over.set()
        replacing.join()
        assert list(read.values()) == [list(range(ITEMS))] * 4
    finally:
        cluster.shutdown()


def test_an_item_that_is_lost_while_its_generator_waits_is_yielded_again() -> None:
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1}, connect=True)
    try:
        there = cluster.add_node(num_cpus=1, resources={"there": 1})
        reader = several.options(resources={"there": 0.1}).remote()
        first = next(reader)
        ray.wait([first], timeout=60, fetch_local=False)
        cluster.remove_node(there, allow_graceful=False)
        cluster.add_node(num_cpus=1, resources={"there": 1})
        assert int(ray.get(first, timeout=60)[0]) == 0
        assert [int(ray.get(item, timeout=60)[0]) for item in reader] == list(range(1, ITEMS))
    finally:
        cluster.shutdown()
