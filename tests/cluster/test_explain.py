"""Why something waits, node by node, from Python and from the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import oxiray
import pytest
import ray
from oxiray._cli import native_binary
from oxiray.util import explain
from ray.cluster_utils import Cluster
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Affinity


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head with processors only, and a machine with two GPUs."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    cluster.add_node(num_cpus=2, num_gpus=2, labels={"zone": "a"})
    cluster.connect()
    yield cluster
    cluster.shutdown()


@ray.remote(num_cpus=0)
class Holder:
    def ready(self) -> bool:
        return True

    def pid(self) -> int:
        return os.getpid()


@ray.remote(num_cpus=0)
def free() -> int:
    return 1


def told(waiting: Any, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What is said of it once that holds."""
    end = time.monotonic() + 20
    while not holds(answer := explain(waiting)):
        assert time.monotonic() < end, answer
        time.sleep(0.01)
    return answer


def test_a_share_that_waits_is_told_what_each_device_has_free(cluster: Any) -> None:
    holders = [Holder.options(num_gpus=0.8).remote() for _ in range(2)]
    ray.get([holder.ready.remote() for holder in holders], timeout=60)
    asked = free.options(num_gpus=0.4).remote()
    answer = told(asked, lambda answer: answer["waits"])
    assert (answer["kind"], answer["name"], answer["state"]) == ("task", "free", "PENDING_NODE_ASSIGNMENT")
    head, member = cluster.head_node.node_id, cluster.worker_nodes.copy().pop().node_id
    rules = {node["node_id"]: (node["rule"], node["why"]) for node in answer["nodes"]}
    assert rules[head] == ("missing", "it has no GPU, and 0.4 is asked for")
    assert rules[member][0] == "busy" and "GPU 0: 0.2 free, GPU 1: 0.2 free" in rules[member][1]
    shown = subprocess.run(
        [native_binary(), "explain", answer["id"]], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "RULE" in shown and "GPU 0: 0.2 free" in shown and "missing" in shown
    as_json = subprocess.run(
        [native_binary(), "explain", "--json", answer["id"]], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert json.loads(as_json)["nodes"] == answer["nodes"]
    address = {node["node_id"]: node["address"] for node in answer["nodes"]}[member]
    for holder in holders:
        pid = ray.get(holder.pid.remote(), timeout=60)
        assert re.search(rf"held by .*pid {pid} \(Holder: 0\.8 of GPU [01] on {re.escape(address)}\)", answer["reason"]), answer
    ray.kill(holders[0])
    assert ray.get(asked, timeout=60) == 1
    assert not explain(asked)["waits"] and explain(asked)["state"] == "FINISHED"
    ray.kill(holders[1])


def test_an_actor_that_waits_for_one_machine_is_told_so(cluster: Any) -> None:
    member = cluster.worker_nodes.copy().pop().node_id
    first = Holder.options(num_cpus=2, scheduling_strategy=Affinity(member, soft=False)).remote()
    assert ray.get(first.ready.remote(), timeout=60)
    assert not explain(first)["waits"] and member in explain(first)["reason"]
    second = Holder.options(num_cpus=2, scheduling_strategy=Affinity(member, soft=False)).remote()
    answer = told(second, lambda answer: answer["waits"])
    assert answer["kind"] == "actor" and {node["rule"] for node in answer["nodes"]} == {"affinity", "busy"}
    address = {node["node_id"]: node["address"] for node in answer["nodes"]}[member]
    pid = ray.get(first.pid.remote(), timeout=60)
    assert f"held by pid {pid} (Holder: 2 on {address})" in answer["reason"], "who has a member's processors is named"
    assert answer["devices"] == []
    ray.kill(second)
    assert told(second, lambda answer: answer["state"] == "DEAD")["nodes"] == []
    ray.kill(first)


def test_a_group_that_waits_is_told_of_its_bundles(cluster: Any) -> None:
    group = placement_group([{"CPU": 1}, {"GPU": 3}], strategy="SPREAD")
    answer = told(group, lambda answer: answer["waits"])
    assert answer["kind"] == "placement group" and answer["state"] == "PENDING"
    assert {node["rule"] for node in answer["nodes"]} == {"missing", "too_small"}
    assert all("bundle 1" in node["why"] for node in answer["nodes"])
    remove_placement_group(group)
    assert explain(group)["state"] == "REMOVED"


def test_what_is_unknown_is_said_to_be(cluster: Any) -> None:
    with pytest.raises(ValueError, match="names nothing that could wait"):
        explain("nonsense")
    with pytest.raises(ValueError, match="there is no actor"):
        explain("ab" * 16)
    with pytest.raises(TypeError, match="cannot wait for a node"):
        explain(1)
    assert oxiray.util.explain is explain
