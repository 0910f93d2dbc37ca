"""Several nodes: who runs where, what is seen of them, and what becomes of work when a node dies."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from oxiray._cli import native_binary
from ray.cluster_utils import Cluster, Node
from ray.util.scheduling_strategies import In, NodeAffinitySchedulingStrategy as Affinity, NodeLabelSchedulingStrategy
from watching import wait_until


@pytest.fixture(scope="module")
def nodes(over_network: bool) -> Iterator[list[Node]]:
    """A head and two members, which are told apart by resources and labels."""
    ray.shutdown()
    # No other node comes.
    at_once = {"OXIRAY_INFEASIBLE_WAIT_S": "0"}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "env_vars": at_once})
    first = cluster.add_node(num_cpus=2, resources={"first": 4}, labels={"zone": "a"}, env_vars={"WHERE": "first"})
    second = cluster.add_node(num_cpus=2, resources={"second": 4}, labels={"zone": "b"}, num_gpus=2)
    cluster.connect()
    assert cluster.head_node is not None
    yield [cluster.head_node, first, second]
    cluster.shutdown()


@ray.remote
def where() -> str:
    return ray.get_runtime_context().get_node_id()


@ray.remote
class Somewhere:
    def where(self) -> str:
        return ray.get_runtime_context().get_node_id()

    def pid(self) -> int:
        return os.getpid()

    def nested(self, resource: str) -> str:
        return ray.get(where.options(resources={resource: 0.1}).remote())

    def call(self, other: Any) -> str:
        return ray.get(other.where.remote())

    def sees(self) -> int:
        return len(ray.nodes())


@ray.remote
def gather(directory: str, expected: int) -> str:
    """Ends once as many as expected run at the same time."""
    node = ray.get_runtime_context().get_node_id()
    (Path(directory) / str(os.getpid())).touch()
    wait_until(lambda: len(list(Path(directory).iterdir())) >= expected)
    return node


def test_every_node_is_listed(nodes: list[Node]) -> None:
    listed = {node["NodeID"]: node for node in ray.nodes()}
    assert set(listed) == {node.node_id for node in nodes}
    assert all(node["Alive"] and node["Labels"]["ray.io/node-id"] == node["NodeID"] for node in listed.values())
    assert listed[nodes[1].node_id]["Labels"]["zone"] == "a"
    assert listed[nodes[1].node_id]["Resources"]["first"] == 4
    addresses = [node["NodeManagerAddress"] for node in listed.values()]
    assert len(set(addresses)) == 3
    assert all(f"node:{node['NodeManagerAddress']}" in node["Resources"] for node in listed.values())
    assert "node:__internal_head__" in listed[nodes[0].node_id]["Resources"]
    total = ray.cluster_resources()
    assert (total["CPU"], total["GPU"], total["first"], total["second"]) == (6, 2, 4, 4)


def test_a_resource_of_one_node_is_used_there(nodes: list[Node]) -> None:
    for resource, node in (("first", nodes[1]), ("second", nodes[2])):
        tasks = [where.options(resources={resource: 0.1}).remote() for _ in range(20)]
        assert set(ray.get(tasks)) == {node.node_id}
        actor = Somewhere.options(resources={resource: 0.1}).remote()
        assert ray.get(actor.where.remote()) == node.node_id


def test_affinity_and_labels_choose_the_node(nodes: list[Node]) -> None:
    for node in nodes:
        strategy = Affinity(node.node_id, soft=False)
        assert ray.get(where.options(scheduling_strategy=strategy).remote()) == node.node_id
        actor = Somewhere.options(scheduling_strategy=strategy).remote()
        assert ray.get(actor.where.remote()) == node.node_id
    labels = NodeLabelSchedulingStrategy({"zone": In("b")})
    assert ray.get(where.options(scheduling_strategy=labels).remote()) == nodes[2].node_id
    assert ray.get(where.options(label_selector={"zone": "a"}).remote()) == nodes[1].node_id
    with pytest.raises(ray.exceptions.TaskUnschedulableError, match=f"on {nodes[1].node_id} `zone` is `a`"):
        ray.get(where.options(label_selector={"zone": "c"}).remote())


def test_spread_uses_every_node(nodes: list[Node], tmp_path: Path) -> None:
    task = gather.options(scheduling_strategy="SPREAD")
    ran = Counter(ray.get([task.remote(str(tmp_path), 6) for _ in range(6)]))
    assert ran == {node.node_id: 2 for node in nodes}
    actors = [Somewhere.options(scheduling_strategy="SPREAD", num_cpus=1).remote() for _ in range(6)]
    assert Counter(ray.get([actor.where.remote() for actor in actors])) == ran


def test_the_default_uses_all_processors(nodes: list[Node], tmp_path: Path) -> None:
    ran = Counter(ray.get([gather.remote(str(tmp_path), 6) for _ in range(6)]))
    assert ran == {node.node_id: 2 for node in nodes}


def test_devices_are_those_of_the_node(nodes: list[Node]) -> None:
    @ray.remote(num_gpus=1)
    class Holder:
        def held(self) -> tuple[str, str, list[int]]:
            return ray.get_runtime_context().get_node_id(), os.environ["CUDA_VISIBLE_DEVICES"], ray.get_gpu_ids()

    holders = [Holder.remote() for _ in range(2)]
    held = sorted(ray.get([holder.held.remote() for holder in holders]))
    assert held == [(nodes[2].node_id, "0", [0]), (nodes[2].node_id, "1", [1])]
    assert "GPU" not in ray.available_resources()
    del holders
    wait_until(lambda: ray.available_resources().get("GPU") == 2)


def test_workers_of_members_use_the_cluster(nodes: list[Node]) -> None:
    first = Somewhere.options(resources={"first": 0.1}).remote()
    second = Somewhere.options(resources={"second": 0.1}, name="second").remote()
    assert ray.get(first.nested.remote("second")) == nodes[2].node_id
    assert ray.get(first.nested.remote("first")) == nodes[1].node_id
    assert ray.get(first.call.remote(second)) == nodes[2].node_id
    assert ray.get(first.sees.remote()) == 3

    @ray.remote(resources={"first": 0.1})
    def finds() -> str:
        return ray.get(ray.get_actor("second").where.remote())

    assert ray.get(finds.remote()) == nodes[2].node_id
    ray.kill(second)


def test_a_node_has_its_own_variables(nodes: list[Node]) -> None:
    @ray.remote
    def variable() -> str | None:
        return os.environ.get("WHERE")

    assert ray.get(variable.options(resources={"first": 0.1}).remote()) == "first"
    assert ray.get(variable.options(resources={"second": 0.1}).remote()) is None


def test_what_no_node_has_together_is_refused(nodes: list[Node]) -> None:
    with pytest.raises(ray.exceptions.TaskUnschedulableError, match="each is on some machine, but no machine has all"):
        ray.get(where.options(resources={"first": 1, "second": 1}).remote())
    with pytest.raises(ray.exceptions.TaskUnschedulableError, match="the largest machine has 2 CPU"):
        ray.get(where.options(num_cpus=3).remote())


def test_a_worker_that_is_killed_on_a_member_is_replaced(nodes: list[Node], tmp_path: Path) -> None:
    @ray.remote(resources={"first": 0.1}, max_retries=1)
    def dies_once() -> str:
        marker = tmp_path / "once"
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), 9)
        return ray.get_runtime_context().get_node_id()

    assert ray.get(dies_once.remote()) == nodes[1].node_id
    actor = Somewhere.options(resources={"first": 4}).remote()
    ray.kill(actor)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.where.remote())
    again = Somewhere.options(resources={"first": 4}).remote()
    assert ray.get(again.where.remote()) == nodes[1].node_id


def test_what_a_member_prints_is_shown(nodes: list[Node], capfd: pytest.CaptureFixture[str]) -> None:
    @ray.remote(resources={"second": 0.1})
    def speak() -> None:
        print("said on the second node")

    ray.get(speak.remote())
    seen: list[str] = []

    def is_shown() -> bool:
        seen.append("".join(capfd.readouterr()))
        return "said on the second node" in "".join(seen)

    wait_until(is_shown)


def test_everything_is_given_back(nodes: list[Node]) -> None:
    free: Callable[[], dict[str, float]] = ray.available_resources
    wait_until(lambda: free() == ray.cluster_resources())


def test_a_task_knows_its_node(nodes: list[Node]) -> None:
    @ray.remote
    def facts() -> tuple[str, dict[str, str]]:
        return ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_labels()

    listed = {node["NodeID"]: node for node in ray.nodes()}
    for node in nodes:
        address, labels = ray.get(facts.options(scheduling_strategy=Affinity(node.node_id, soft=False)).remote())
        assert (address, labels) == (listed[node.node_id]["NodeManagerAddress"], listed[node.node_id]["Labels"])


def test_status_shows_every_node(nodes: list[Node]) -> None:
    command = [str(native_binary()), "status", "--address", nodes[0].address]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert all(node.node_id in shown.stdout for node in nodes), shown.stdout
    assert "of 4 first" in shown.stdout
