"""Who has which device of which node, as `oxiray status` tells."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from oxiray._cli import native_binary
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Affinity
from watching import wait_until

GIB = 1 << 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head with a GPU, and a machine with two."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 1, "gpu_memory": 16 * GIB})
    cluster.add_node(num_cpus=2, num_gpus=2, gpu_memory=16 * GIB)
    cluster.connect()
    yield cluster
    cluster.shutdown()


@ray.remote(num_cpus=0)
class Holder:
    def pid(self) -> int:
        return os.getpid()


def told(cluster: Any, *options: str) -> str:
    """What the command prints."""
    command = [native_binary(), "status", *options, "--address", cluster.address]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def devices(cluster: Any) -> dict[tuple[str | None, int], dict[str, Any]]:
    """The rows by their nodes, where those are not the head's, and their numbers."""
    return {(row.get("node"), row["slot"]): row for row in json.loads(told(cluster, "--json"))["devices"]}


def test_holders_are_told_alike_for_all_nodes(cluster: Any) -> None:
    head, member = cluster.head_node.node_id, cluster.worker_nodes.copy().pop().node_id
    rows = devices(cluster)
    assert sorted(rows, key=str) == sorted([(None, 0), (member, 0), (member, 1)], key=str)
    assert all(row["holders"] == [] and row["logical"] and row["family"] == "nvidia" for row in rows.values())

    on = {node: Affinity(node, soft=False) for node in (head, member)}
    small = {node: Holder.options(gpu_memory=4 * GIB, scheduling_strategy=on[node]).remote() for node in on}
    whole = Holder.options(num_gpus=1, scheduling_strategy=on[member]).remote()
    pids = {node: ray.get(holder.pid.remote(), timeout=60) for node, holder in small.items()}
    whole_pid = ray.get(whole.pid.remote(), timeout=60)

    rows = devices(cluster)
    held = {key: [(holder["name"], holder["pid"], holder["share"]) for holder in row["holders"]] for key, row in rows.items()}
    assert held.pop((None, 0)) == [("Holder", pids[head], 0.25)]
    assert sorted(held.values()) == sorted([[("Holder", pids[member], 0.25)], [("Holder", whole_pid, 1.0)]])
    one_each = [holder for row in rows.values() for holder in row["holders"] if holder["pid"] in pids.values()]
    facts = [({"tier": holder["isolation"]["tier"]}, holder["memory"], holder["is_ending"]) for holder in one_each]
    assert len(facts) == 2 and facts[0] == facts[1], "the same is in force on both"
    for node in json.loads(told(cluster, "--json"))["nodes"]:
        kept = node["isolation"]
        assert (kept["asked"], kept["in_force"], kept["watch_period_s"]) == ("variable", "variable", None), kept
        assert kept["memory_tiers"] == ["framework"], kept
    assert [holder["isolation"]["realm"][0]["resource"] for holder in one_each] == ["GPU", "GPU"]
    assert facts[0][0]["tier"] == "variable" and facts[0][1]["asked_bytes"] == 4 * GIB, facts[0]
    assert facts[0][1]["tier"] == "framework"

    drawn = told(cluster)
    parts = re.split(r"^  on node (\w+).*$", drawn[drawn.index("\nDevices\n") :], flags=re.MULTILINE)
    by_node = dict(zip(parts[1::2], parts[2::2], strict=True))
    [of_head] = [text for name, text in by_node.items() if head.startswith(name)]
    [of_member] = [text for name, text in by_node.items() if member.startswith(name)]
    assert all("isolation: variable (asked: variable; possible here: " in text for text in (of_head, of_member))
    assert f"Holder (pid {pids[head]})" in of_head and f"(pid {whole_pid})" not in of_head
    assert f"1 of it: Holder (pid {whole_pid}), kept from others by variables alone" in of_member
    assert f"4.0 GiB (framework; what it uses is not known) of it: Holder (pid {pids[member]})" in of_member

    for holder in (*small.values(), whole):
        ray.kill(holder)
    wait_until(lambda: all(row["holders"] == [] for row in devices(cluster).values()))
