"""Programs on several nodes: faults, strategies, and labels of the user guide."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster
from ray.exceptions import (
    ActorDiedError,
    GetTimeoutError,
    ObjectLostError,
    OwnerDiedError,
    RayActorError,
    TaskUnschedulableError,
)
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

Eventually = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head with one processor and two nodes with two each, in zones of their own."""
    ray.shutdown()
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "labels": {"zone": "head", "disk": "hdd"}})
    for zone in ("a", "b"):
        made.add_node(num_cpus=2, resources={f"in_{zone}": 4}, labels={"zone": zone, "disk": "ssd"})
    ray.init(address=made.address)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


@ray.remote(num_cpus=0)
def where() -> str:
    return ray.get_runtime_context().get_node_id()


@ray.remote(num_cpus=0)
class Placed:
    def __init__(self) -> None:
        self.value = 0

    def where(self) -> str:
        return ray.get_runtime_context().get_node_id()

    def add(self) -> int:
        self.value += 1
        return self.value

    def pid(self) -> int:
        return os.getpid()


def zone_of(node: str) -> str:
    return next(one["Labels"]["zone"] for one in ray.nodes() if one["NodeID"] == node)


def node_in(zone: str) -> str:
    return next(one["NodeID"] for one in ray.nodes() if one["Alive"] and one["Labels"]["zone"] == zone)


@pytest.mark.parametrize(
    ("selector", "zones"),
    [
        ({"disk": "ssd"}, {"a", "b"}),
        ({"disk": "!ssd"}, {"head"}),
        ({"zone": "in(a,b)"}, {"a", "b"}),
        ({"zone": "!in(a,head)"}, {"b"}),
        ({"zone": "b", "disk": "ssd"}, {"b"}),
    ],
    ids=["equal", "not equal", "one of", "none of", "both"],
)
def test_this_selector_places_a_task_and_an_actor(cluster: Cluster, selector: dict[str, str], zones: set[str]) -> None:
    assert zone_of(ray.get(where.options(label_selector=selector).remote(), timeout=60)) in zones
    placed = Placed.options(label_selector=selector).remote()
    assert zone_of(ray.get(placed.where.remote(), timeout=60)) in zones


def test_bundles_have_selectors_of_their_own(cluster: Cluster) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}], bundle_label_selector=[{"zone": "b"}, {"zone": "a"}])
    assert group.wait(60)
    zones = []
    for index in range(2):
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        zones.append(zone_of(ray.get(where.options(scheduling_strategy=strategy, num_cpus=1).remote(), timeout=60)))
    assert zones == ["b", "a"]
    remove_placement_group(group)


def test_a_spread_group_uses_every_node(cluster: Cluster) -> None:
    group = placement_group([{"CPU": 1}] * 3, strategy="STRICT_SPREAD")
    assert group.wait(60)
    nodes = placement_group_table(group)["bundles_to_node_id"]
    assert len(set(nodes.values())) == 3
    remove_placement_group(group)


def test_a_packed_group_stays_on_one_node(cluster: Cluster) -> None:
    group = placement_group([{"CPU": 1}] * 2, strategy="STRICT_PACK")
    assert group.wait(60)
    assert len(set(placement_group_table(group)["bundles_to_node_id"].values())) == 1
    remove_placement_group(group)


def test_an_actor_is_placed_by_affinity_and_calls_from_elsewhere(cluster: Cluster) -> None:
    node = node_in("b")
    placed = Placed.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
    assert ray.get(placed.where.remote(), timeout=60) == node


def test_a_large_value_goes_over_two_nodes(cluster: Cluster) -> None:
    @ray.remote(num_cpus=1)
    def make() -> np.ndarray:
        return np.arange(500_000)

    @ray.remote(num_cpus=1)
    def total(array: np.ndarray) -> int:
        return int(array.sum())

    made = make.options(resources={"in_a": 1}).remote()
    assert ray.get(total.options(resources={"in_b": 1}).remote(made), timeout=60) == 124999750000
    assert ray.get(made)[-1] == 499_999


def test_actors_of_two_nodes_call_each_other(cluster: Cluster) -> None:
    @ray.remote(num_cpus=0)
    class Caller:
        def call(self, other: Any) -> int:
            return sum(ray.get([other.add.remote() for _ in range(3)]))

    placed = Placed.options(resources={"in_a": 1}).remote()
    caller = Caller.options(resources={"in_b": 1}).remote()
    assert ray.get(caller.call.remote(placed), timeout=60) == 6


def test_a_generator_streams_from_another_node(cluster: Cluster) -> None:
    @ray.remote(num_cpus=0)
    def items() -> Iterator[np.ndarray]:
        for index in range(3):
            yield np.full(200_000, index)

    stream = items.options(resources={"in_b": 1}).remote()
    assert [int(ray.get(one, timeout=60)[0]) for one in stream] == [0, 1, 2]


def test_a_node_that_dies_takes_its_actor_and_a_restart_finds_another(cluster: Cluster, eventually: Eventually) -> None:
    node = cluster.add_node(num_cpus=1, resources={"dies": 1}, labels={"zone": "dies", "disk": "none"})
    cluster.wait_for_nodes()
    stays = Placed.options(max_restarts=1, max_task_retries=-1, label_selector={"disk": "!none"}).remote()
    gone = Placed.options(resources={"dies": 0.1}).remote()
    assert ray.get([stays.add.remote(), gone.add.remote()], timeout=60) == [1, 1]
    cluster.remove_node(node, allow_graceful=False)
    with pytest.raises(RayActorError):
        for _ in range(100):
            ray.get(gone.add.remote(), timeout=60)
            time.sleep(0.1)
    assert ray.get(stays.add.remote(), timeout=60) == 2


def test_a_result_that_a_node_takes_with_it_is_made_anew(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1, resources={"lost": 1}, labels={"zone": "lost", "disk": "none"})
    cluster.wait_for_nodes()

    @ray.remote(num_cpus=0, resources={"lost": 0.1}, max_retries=2)
    def make(folder: Path) -> np.ndarray:
        (folder / f"{time.monotonic_ns()}").write_text("")
        return np.ones(300_000)

    made = make.remote(tmp_path)
    ray.wait([made], fetch_local=False, timeout=60)
    cluster.remove_node(node, allow_graceful=False)
    replacement = cluster.add_node(num_cpus=1, resources={"lost": 1}, labels={"zone": "lost", "disk": "none"})
    assert int(ray.get(made, timeout=100).sum()) == 300_000
    assert len(list(tmp_path.iterdir())) == 2
    cluster.remove_node(replacement, allow_graceful=False)


def test_a_put_value_is_lost_with_its_node(cluster: Cluster) -> None:
    node = cluster.add_node(num_cpus=1, resources={"put": 1}, labels={"zone": "put", "disk": "none"})
    cluster.wait_for_nodes()

    @ray.remote(num_cpus=0, resources={"put": 0.1})
    class Owner:
        def put(self) -> list[Any]:
            self.kept = ray.put(np.ones(300_000))
            return [self.kept]

    (kept,) = ray.get(Owner.remote().put.remote(), timeout=60)
    cluster.remove_node(node, allow_graceful=False)
    with pytest.raises((ObjectLostError, OwnerDiedError)):
        ray.get(kept, timeout=100)


def test_a_task_under_way_runs_again_elsewhere(cluster: Cluster, tmp_path: Path, eventually: Eventually) -> None:
    node = cluster.add_node(num_cpus=1, resources={"way": 1}, labels={"zone": "way", "disk": "none"})
    cluster.wait_for_nodes()

    @ray.remote(num_cpus=0, resources={"way": 0.1}, max_retries=1)
    def until(folder: Path) -> str:
        (folder / f"{os.getpid()}").write_text("")
        while len(list(folder.iterdir())) < 2:
            time.sleep(0.02)
        return "done"

    reference = until.remote(tmp_path)
    eventually(lambda: list(tmp_path.iterdir()))
    cluster.remove_node(node, allow_graceful=False)
    replacement = cluster.add_node(num_cpus=1, resources={"way": 1}, labels={"zone": "way", "disk": "none"})
    assert ray.get(reference, timeout=100) == "done"
    cluster.remove_node(replacement, allow_graceful=False)


def test_an_actor_that_is_killed_by_a_signal_restarts_on_a_node(cluster: Cluster) -> None:
    placed = Placed.options(max_restarts=1, max_task_retries=-1).remote()
    os.kill(ray.get(placed.pid.remote(), timeout=60), signal.SIGKILL)
    assert ray.get(placed.add.remote(), timeout=60) == 1
    os.kill(ray.get(placed.pid.remote(), timeout=60), signal.SIGKILL)
    with pytest.raises(ActorDiedError):
        ray.get(placed.add.remote(), timeout=60)


def test_resources_of_all_nodes_are_added_up(cluster: Cluster, eventually: Eventually) -> None:
    eventually(lambda: ray.cluster_resources()["CPU"] == 5.0, 60)
    eventually(lambda: ray.available_resources().get("CPU") == 5.0, 60)
    assert {node["Labels"]["zone"] for node in ray.nodes() if node["Alive"]} >= {"head", "a", "b"}


def test_a_task_that_needs_two_resources_of_different_nodes_is_not_run(cluster: Cluster) -> None:
    reference = where.options(resources={"in_a": 1, "in_b": 1}).remote()
    with pytest.raises((TaskUnschedulableError, GetTimeoutError)):
        ray.get(reference, timeout=3)
    ray.cancel(reference, force=True)


def test_spread_actors_are_on_several_nodes(cluster: Cluster, eventually: Eventually) -> None:
    eventually(lambda: ray.cluster_resources()["CPU"] == 5.0, 60)
    actors = [Placed.options(num_cpus=1, scheduling_strategy="SPREAD").remote() for _ in range(3)]
    assert len(set(ray.get([actor.where.remote() for actor in actors], timeout=60))) >= 2


def test_the_location_of_an_object_is_the_node_that_made_it(cluster: Cluster, eventually: Eventually) -> None:
    @ray.remote(num_cpus=0, resources={"in_a": 1})
    def large() -> tuple[str, Any]:
        return ray.get_runtime_context().get_node_id(), np.zeros(10**6)

    node, array = large.options(num_returns=2).remote()
    assert ray.wait([array], timeout=60, fetch_local=False)[0] == [array]
    made_on = ray.get(node, timeout=60)
    eventually(lambda: ray.experimental.get_object_locations([array])[array]["node_ids"] == [made_on], 60)
    known = ray.experimental.get_object_locations([array])
    assert known[array]["object_size"] >= 8 * 10**6
