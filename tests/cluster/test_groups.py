"""Placement groups over several machines: who sets what aside, who runs where, and what becomes of it when one dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from oxiray.util import explain
from ray.cluster_utils import Cluster
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Within

from watching import wait_until


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head without processors and two machines with four of each kind."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    cluster.add_node(num_cpus=4, num_gpus=2)
    cluster.add_node(num_cpus=4, num_gpus=2)
    cluster.connect()
    yield cluster
    cluster.shutdown()


@ray.remote(num_cpus=1)
def where() -> str:
    return ray.get_runtime_context().get_node_id()


@ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)
class Resident:
    def where(self) -> str:
        return ray.get_runtime_context().get_node_id()

    def devices(self) -> list[Any]:
        return ray.get_gpu_ids()


def nodes_of(group: Any) -> list[str]:
    table = placement_group_table(group)
    return [table["bundles_to_node_id"][index] for index in sorted(table["bundles_to_node_id"])]


def waiting_for(task: Any, words: str) -> None:
    """Until that is said of it."""
    end = time.monotonic() + 60
    while words not in (reason := explain(task)["reason"]):
        assert time.monotonic() < end, reason
        time.sleep(0.02)


def free_cpus() -> float:
    return ray.available_resources().get("CPU", 0)


@pytest.mark.parametrize(
    ("strategy", "machines"), [("PACK", 1), ("STRICT_PACK", 1), ("SPREAD", 2), ("STRICT_SPREAD", 2)]
)
def test_bundles_are_set_aside_on_members_and_run_in(cluster: Any, strategy: str, machines: int) -> None:
    group = placement_group([{"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}], strategy=strategy)
    ray.get(group.ready(), timeout=60)
    nodes = nodes_of(group)
    assert len(set(nodes)) == machines and cluster.head_node.node_id not in nodes
    for index, node in enumerate(nodes):
        strategy_within = Within(group, placement_group_bundle_index=index)
        assert ray.get(where.options(scheduling_strategy=strategy_within).remote(), timeout=60) == node
        actor = Resident.options(num_gpus=1, scheduling_strategy=strategy_within).remote()
        assert ray.get(actor.where.remote(), timeout=60) == node
        devices = ray.get(actor.devices.remote(), timeout=60)
        assert len(devices) == 1
        assert placement_group_table(group)["bundles_to_devices"][index] == {"GPU": [int(devices[0])]}
        crowded = where.options(num_gpus=1, scheduling_strategy=strategy_within).remote()
        waiting_for(crowded, f"bundle {index} has {{}} free, of GPU {devices[0]}")
        ray.cancel(crowded)
        ray.kill(actor)
    remove_placement_group(group)
    whole = where.options(num_cpus=4, num_gpus=2)
    assert len(set(ray.get([whole.remote() for _ in range(6)], timeout=60))) >= 1, "everything came back"


def test_a_group_that_does_not_fit_keeps_nothing_and_waits_until_it_does(cluster: Any) -> None:
    first = placement_group([{"CPU": 3}], strategy="PACK")
    ray.get(first.ready(), timeout=60)
    second = placement_group([{"CPU": 3}, {"CPU": 3}], strategy="STRICT_SPREAD")
    assert not second.wait(0.5)
    assert ray.get(where.options(num_cpus=4).remote(), timeout=60) not in nodes_of(first)
    remove_placement_group(first)
    ray.get(second.ready(), timeout=60)
    assert len(set(nodes_of(second))) == 2


def test_a_bundle_moves_when_its_machine_dies_and_keeps_its_number(cluster: Any) -> None:
    group = placement_group([{"CPU": 2}, {"CPU": 2}], strategy="STRICT_SPREAD")
    ray.get(group.ready(), timeout=60)
    before = nodes_of(group)
    actors = [
        Resident.options(scheduling_strategy=Within(group, placement_group_bundle_index=index)).remote()
        for index in range(2)
    ]
    assert ray.get([actor.where.remote() for actor in actors], timeout=60) == before
    lost = next(node for node in cluster.list_all_nodes() if node.node_id == before[1])
    cluster.remove_node(lost)
    cluster.add_node(num_cpus=4)
    assert ray.get(actors[0].where.remote(), timeout=60) == before[0]
    after = ray.get(actors[1].where.remote(), timeout=60)
    assert after not in before
    assert nodes_of(group) == [before[0], after]
    remove_placement_group(group)


def test_a_group_that_lost_a_bundle_is_not_ready_until_it_has_another() -> None:
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0}, connect=True)
    try:
        cluster.add_node(num_cpus=1)
        dying = cluster.add_node(num_cpus=1)
        group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
        ray.get(group.ready(), timeout=60)
        cluster.remove_node(dying, allow_graceful=False)
        wait_until(lambda: placement_group_table(group)["state"] == "RESCHEDULING", timeout=60)
        ready = group.ready()
        assert not group.wait(0.5) and ray.wait([ready], timeout=0)[0] == []
        cluster.add_node(num_cpus=1)
        assert group.wait(60)
        assert ray.get(ready, timeout=60).id == group.id
    finally:
        cluster.shutdown()
