"""Clusters of several nodes: where work runs, and what becomes of it when a node goes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

Eventually = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head with one processor, and a node with two and the resource `other`."""
    ray.shutdown()
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"first": 1}, "labels": {"zone": "a"}})
    made.add_node(num_cpus=2, resources={"other": 2}, labels={"zone": "b"}, metrics_export_port=0, dashboard_agent_listen_port=0)
    ray.init(address=made.address)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


@ray.remote(num_cpus=0)
def where() -> str:
    return ray.get_runtime_context().get_node_id()


def test_all_nodes_are_seen(cluster: Cluster) -> None:
    assert len([node for node in ray.nodes() if node["Alive"]]) == 2
    assert ray.cluster_resources()["CPU"] == 3.0


def test_a_resource_says_where_a_task_runs(cluster: Cluster) -> None:
    first = ray.get(where.options(resources={"first": 0.1}).remote(), timeout=60)
    other = ray.get(where.options(resources={"other": 0.1}).remote(), timeout=60)
    assert first == ray.get_runtime_context().get_node_id() != other


def test_an_affinity_says_where_a_task_runs(cluster: Cluster) -> None:
    for node in ray.nodes():
        strategy = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        if node["Alive"]:
            assert ray.get(where.options(scheduling_strategy=strategy).remote(), timeout=60) == node["NodeID"]


@pytest.mark.parametrize(("selector", "zone"), [("b", "b"), ("!a", "b"), ("in(a,c)", "a"), ("!in(b)", "a")])
def test_a_label_says_where_a_task_runs(cluster: Cluster, selector: str, zone: str) -> None:
    found = ray.get(where.options(label_selector={"zone": selector}).remote(), timeout=60)
    assert next(node for node in ray.nodes() if node["NodeID"] == found)["Labels"]["zone"] == zone


def test_an_object_goes_to_another_node(cluster: Cluster) -> None:
    @ray.remote(num_cpus=0)
    def total(array: Any) -> float:
        return float(array.sum())

    @ray.remote(num_cpus=0)
    def make() -> Any:
        return np.ones(500_000)

    made = make.options(resources={"other": 0.1}).remote()
    assert ray.get(total.options(resources={"first": 0.1}).remote(made), timeout=60) == 500_000
    assert ray.get(made).shape == (500_000,)


def test_a_strict_spread_group_is_on_different_nodes(cluster: Cluster, eventually: Eventually) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    assert group.wait(60)
    assert len(set(placement_group_table(group)["bundles_to_node_id"].values())) == 2
    remove_placement_group(group)
    eventually(lambda: ray.available_resources().get("CPU") == 3.0)


def test_a_strict_pack_group_is_on_one_node(cluster: Cluster, eventually: Eventually) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_PACK")
    assert group.wait(60)
    assert len(set(placement_group_table(group)["bundles_to_node_id"].values())) == 1
    remove_placement_group(group)
    eventually(lambda: ray.available_resources().get("CPU") == 3.0)


def test_spread_tasks_use_several_nodes(cluster: Cluster) -> None:
    spread = where.options(scheduling_strategy="SPREAD", num_cpus=0.1)
    assert len(set(ray.get([spread.remote() for _ in range(10)], timeout=60))) == 2


def test_a_node_that_joins_is_used(cluster: Cluster, eventually: Eventually) -> None:
    node = cluster.add_node(num_cpus=1, resources={"late": 1})
    assert ray.get(where.options(resources={"late": 1}).remote(), timeout=60) == node.node_id
    cluster.remove_node(node)
    eventually(lambda: "late" not in ray.cluster_resources(), 60)


def test_a_dead_node_is_listed_as_dead(cluster: Cluster, eventually: Eventually) -> None:
    node = cluster.add_node(num_cpus=1)
    cluster.remove_node(node)
    eventually(lambda: any(one["NodeID"] == node.node_id and not one["Alive"] for one in ray.nodes()), 60)


def test_an_actor_moves_when_its_node_dies(cluster: Cluster, eventually: Eventually) -> None:
    @ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, resources={"moving": 1})
    class Moving:
        def where(self) -> str:
            return ray.get_runtime_context().get_node_id()

    first = cluster.add_node(num_cpus=1, resources={"moving": 1})
    moving = Moving.remote()
    assert ray.get(moving.where.remote(), timeout=60) == first.node_id
    second = cluster.add_node(num_cpus=1, resources={"moving": 1})
    cluster.remove_node(first, allow_graceful=False)
    # A process may outlive its node for a moment, and answer.
    eventually(lambda: ray.get(moving.where.remote(), timeout=90) == second.node_id, 60)
    del moving
    cluster.remove_node(second)


def test_a_task_runs_again_when_its_node_dies(cluster: Cluster, tmp_path: Path, eventually: Eventually) -> None:
    @ray.remote(num_cpus=0, max_retries=3, resources={"again": 1})
    def run() -> str:
        import time

        (tmp_path / ray.get_runtime_context().get_node_id()).touch()
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        return ray.get_runtime_context().get_node_id()

    first = cluster.add_node(num_cpus=1, resources={"again": 1})
    running = run.remote()
    eventually((tmp_path / first.node_id).exists, 60)
    second = cluster.add_node(num_cpus=1, resources={"again": 1})
    cluster.remove_node(first, allow_graceful=False)
    # A process may outlive its node for a moment, and answer: it is let go only when the other one runs.
    eventually((tmp_path / second.node_id).exists, 60)
    (tmp_path / "go").touch()
    assert ray.get(running, timeout=90) == second.node_id
    cluster.remove_node(second)


def test_a_lost_result_is_made_again(cluster: Cluster) -> None:
    @ray.remote(num_cpus=0, resources={"making": 1})
    def make() -> Any:
        return np.full(300_000, 7)

    first = cluster.add_node(num_cpus=1, resources={"making": 1})
    made = make.remote()
    ray.wait([made], timeout=60, fetch_local=False)
    second = cluster.add_node(num_cpus=1, resources={"making": 1})
    cluster.remove_node(first, allow_graceful=False)
    assert int(ray.get(made, timeout=90)[0]) == 7
    cluster.remove_node(second)


def test_a_lost_result_of_an_actor_without_retries_is_lost(cluster: Cluster) -> None:
    @ray.remote(num_cpus=0, resources={"losing": 1})
    class Maker:
        def make(self) -> Any:
            return np.full(300_000, 7)

    node = cluster.add_node(num_cpus=1, resources={"losing": 1})
    maker = Maker.remote()
    made = maker.make.remote()
    ray.wait([made], timeout=60, fetch_local=False)
    cluster.remove_node(node, allow_graceful=False)
    with pytest.raises(ray.exceptions.RayError):
        ray.get(made, timeout=60)


def test_variables_of_a_node_reach_its_workers(cluster: Cluster) -> None:
    node = cluster.add_node(num_cpus=1, resources={"variable": 1}, env_vars={"COMPAT_NODE": "here"})
    found = ray.remote(num_cpus=0, resources={"variable": 1})(lambda: os.environ.get("COMPAT_NODE")).remote()
    assert ray.get(found, timeout=60) == "here"
    cluster.remove_node(node)


def test_a_group_gets_another_node_when_one_dies(cluster: Cluster) -> None:
    first = cluster.add_node(num_cpus=1, resources={"grouped": 1})
    group = placement_group([{"grouped": 1}])
    assert group.wait(60)
    cluster.remove_node(first, allow_graceful=False)
    second = cluster.add_node(num_cpus=1, resources={"grouped": 1})
    pinned = where.options(
        resources={"grouped": 1},
        scheduling_strategy=ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(placement_group=group),
    )
    assert ray.get(pinned.remote(), timeout=90) == second.node_id
    remove_placement_group(group)
    cluster.remove_node(second)
