"""Shares of devices on several machines: each is found by the device, never by the sum of what is free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from watching import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two machines with two GPUs each."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "num_gpus": 2})
    cluster.add_node(num_cpus=4, num_gpus=2)
    cluster.connect()
    yield cluster
    cluster.shutdown()


@ray.remote(num_cpus=0, num_gpus=0.4)
class Share:
    def held(self) -> tuple[str, str]:
        return ray.get_runtime_context().get_node_id(), str(ray.get_gpu_ids()[0])


def test_eight_actors_of_two_fifths_run_on_twice_two_gpus(cluster: Any) -> None:
    """Each GPU has room for two, and 0.2 are left of each: Ray adds those up to 0.4 and waits for ever."""
    actors = [Share.remote() for _ in range(8)]
    held = ray.get([actor.held.remote() for actor in actors], timeout=60)
    assert sorted(Counter(held).values()) == [2, 2, 2, 2]
    ninth = Share.remote()
    asked = ninth.held.remote()
    assert ray.wait([asked], timeout=0.5)[0] == []
    ray.kill(actors[0])
    assert ray.get(asked, timeout=60) == held[0]
    for actor in [*actors[1:], ninth]:
        ray.kill(actor)


def test_shares_and_wholes_find_the_machine_that_has_them(cluster: Any) -> None:
    # What the test before held is given back after its processes' end.
    wait_until(lambda: ray.available_resources().get("GPU") == 4)
    held = [Share.remote() for _ in range(2)]
    (node, _), _ = ray.get([actor.held.remote() for actor in held], timeout=60)

    @ray.remote(num_cpus=0)
    def where() -> str:
        return ray.get_runtime_context().get_node_id()

    both = [where.options(num_gpus=2).remote() for _ in range(4)]
    assert node not in ray.get(both, timeout=60), "two whole GPUs are free on the other machine only"
    for actor in held:
        ray.kill(actor)
