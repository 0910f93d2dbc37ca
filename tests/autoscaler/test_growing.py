"""The programs of the document on GPUs and autoscaling, with machines that are daemons on this one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from growing import Growing
from watching import alive, wait_until

#: Several waits of a minute, each longer than any but a stalled machine needs.
pytestmark = pytest.mark.timeout(300)

GPU = {"name": "gpu", "max": 5, "resources": {"CPU": 3, "GPU": 1}, "idle_timeout_s": 0.5}

#: As the document has it.
TWO_ACTORS = """
import ray
ray.init(address="auto")

@ray.remote(num_gpus=1)
class GPUActor:
    def say_hello(self):
        print("I live in a pod with GPU access.")

# Request actor placement.
gpu_actors = [GPUActor.remote() for _ in range(2)]
# The following command will block until two Ray pods with GPU access are scaled
# up and the actors are placed.
ray.get([actor.say_hello.remote() for actor in gpu_actors])
"""

ASK = """
import ray
ray.init(address="auto")
ray.autoscaler.sdk.request_resources(bundles={bundles})
"""


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Callable[..., Growing]]:
    """Starts a cluster that grows by groups; it ends with the test."""
    started: list[Growing] = []

    def start(*groups: dict[str, Any], **more: Any) -> Growing:
        started.append(Growing(tmp_path, list(groups), **more))
        return started[-1]

    yield start
    for cluster in started:
        cluster.stop()


def test_the_document_on_gpus_and_autoscaling(growing: Callable[..., Growing]) -> None:
    cluster = growing(GPU)
    assert cluster.nodes() == []
    cluster.note("the group is at zero of five")
    cluster.program(TWO_ACTORS)
    cluster.note("two actors asked for a GPU each, ran, and their program ended")
    cluster.until(lambda: cluster.nodes() == [], "both nodes are gone after their idle time")
    # The autoscaler may hear of a node later than the program that runs there; it takes away what it has heard of.
    assert cluster.log().count("launched -> joined") == 2, "two nodes and no more"
    cluster.program(ASK.format(bundles='[{"GPU": 1}] * 2'))
    cluster.until(lambda: len(cluster.nodes()) == 2, "request_resources brought two nodes")
    cluster.stays(lambda: len(cluster.nodes()) == 2, "they stay, though nobody uses them")
    cluster.program(ASK.format(bundles="[]"))
    cluster.until(lambda: cluster.nodes() == [], "the request was taken back, and they are gone")
    print("\n".join(["", *cluster.line]))


def test_what_holds_something_stays(growing: Callable[..., Growing]) -> None:
    cluster = growing(GPU)
    program = cluster.begin("""
import ray, sys
ray.init(address="auto", log_to_driver=False)

@ray.remote(num_gpus=1)
class Holder:
    def ready(self): return True

@ray.remote(num_gpus=1)
def large(): return bytes(1 << 21)

reference = large.remote()
ray.wait([reference], fetch_local=False)
print("large", flush=True); sys.stdin.readline()
del reference
holder = Holder.remote()
ray.get(holder.ready.remote())
print("holds", flush=True); sys.stdin.readline()
""")
    assert program.stdout is not None and program.stdin is not None
    with program:
        assert program.stdout.readline() == "large\n"
        cluster.stays(lambda: len(cluster.nodes()) >= 1, "a node keeps the only copy of an object")
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "holds\n"
        cluster.stays(lambda: len(cluster.nodes()) >= 1, "a node keeps an actor")
        program.stdin.write("\n")
        program.stdin.close()
    cluster.until(lambda: cluster.nodes() == [], "nobody needs it any more")


def test_a_placement_group_comes_whole_and_labels_choose_the_group(growing: Callable[..., Growing]) -> None:
    plain = {"name": "plain", "max": 2, "resources": {"CPU": 4}, "idle_timeout_s": 60, "labels": {"zone": "b"}}
    cluster = growing({**GPU, "idle_timeout_s": 60, "labels": {"zone": "a"}}, plain, num_cpus=0)
    cluster.program("""
import ray
from ray.util.placement_group import placement_group
ray.init(address="auto")
group = placement_group([{"GPU": 1}, {"GPU": 1}], strategy="STRICT_SPREAD")
assert group.wait(60)
never = placement_group([{"GPU": 1}] * 6, strategy="STRICT_SPREAD")
assert not never.wait(0.5)
""")
    assert (len(cluster.nodes("gpu")), len(cluster.nodes("plain"))) == (2, 0), cluster.log()
    cluster.program("""
import ray
ray.init(address="auto")
where = ray.remote(num_cpus=2, label_selector={"zone": "b"})(lambda: ray.get_runtime_context().get_node_labels())
assert ray.get(where.remote())["ray.io/node-group"] == "plain"
""")
    assert (len(cluster.nodes("gpu")), len(cluster.nodes("plain"))) == (2, 1), cluster.log()


def test_what_no_group_can_serve_is_refused_with_the_reason(growing: Callable[..., Growing]) -> None:
    cluster = growing(GPU, OXIRAY_INFEASIBLE_WAIT_S="0.5")
    # Before its autoscaler has told the head of them, there are no groups.
    cluster.until(lambda: bool((cluster.status()["autoscaler"] or {}).get("groups")), "the group is known")
    told = cluster.program("""
import ray
ray.init(address="auto", log_to_driver=False)
try:
    ray.get(ray.remote(num_gpus=8)(lambda: 1).remote())
except ray.exceptions.RayError as error:
    print(error)
print(ray.get(ray.remote(num_gpus=1)(lambda: "served").remote()))
""")
    assert "group `gpu` has 1 GPU, and 8 is asked for" in told and told.strip().endswith("served"), told


def test_a_standing_request_and_its_machines_outlive_the_head(growing: Callable[..., Growing]) -> None:
    cluster = growing({**GPU, "idle_timeout_s": 0.2})
    cluster.program(ASK.format(bundles='[{"GPU": 1}, {"GPU": 9}]'))
    cluster.until(lambda: len(cluster.nodes()) == 1, "one node came; no group has nine GPUs")
    cluster.until(lambda: "{GPU: 9}" in cluster.oxiray("status").stdout, "what cannot be served is named")
    before = cluster.nodes()
    killed = cluster.status()["daemon"]["pid"]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not alive(killed))
    cluster.start()
    cluster.until(lambda: cluster.nodes() == before, "the head came back, and the same node with it")
    cluster.stays(lambda: cluster.nodes() == before, "the request still holds")
    cluster.program(ASK.format(bundles="[]"))
    cluster.until(lambda: cluster.nodes() == [], "it is taken back")


def test_an_autoscaler_that_is_killed_is_followed_by_another(growing: Callable[..., Growing]) -> None:
    cluster = growing({**GPU, "idle_timeout_s": 1})
    cluster.program(ASK.format(bundles='[{"GPU": 1}]'))
    cluster.until(lambda: len(cluster.nodes()) == 1, "one node came")
    before = cluster.nodes()
    killed = cluster.autoscaler()
    os.kill(killed, signal.SIGKILL)
    cluster.program(ASK.format(bundles='[{"GPU": 1}] * 2'))
    cluster.until(lambda: len(cluster.nodes()) == 2, "another autoscaler brought another node")
    assert set(before) < set(cluster.nodes()) and cluster.autoscaler() != killed
    cluster.program(ASK.format(bundles="[]"))
    cluster.until(lambda: cluster.nodes() == [], "it takes away what the last one brought")


def test_a_plan_is_told_for_the_cluster_and_for_a_record(growing: Callable[..., Growing], tmp_path: Path) -> None:
    cluster = growing({**GPU, "max": 1})
    cluster.program(ASK.format(bundles='[{"GPU": 1}] * 2'))
    cluster.until(lambda: len(cluster.nodes()) == 1, "as many as there may be")
    expected = "leave waiting 1 x the standing request of {GPU: 1}: `gpu` is at its maximum of 1\n"
    cluster.until(lambda: cluster.oxiray("autoscaler", "plan").stdout == expected, "the rest is left waiting")
    record = tmp_path / "record.json"
    record.write_text(cluster.oxiray("autoscaler", "plan", "--record").stdout)
    assert cluster.oxiray("autoscaler", "plan", "--demand", str(record)).stdout == expected
    more = tmp_path / "more.yaml"
    more.write_text("groups: [{name: gpu, max: 3, resources: {GPU: 1}}]")
    planned = cluster.oxiray("autoscaler", "plan", "--demand", str(record), "--groups", str(more)).stdout
    assert planned == "launch 1 of `gpu`: the standing request of {GPU: 1}\n"


def test_a_file_that_names_no_groups_starts_nothing(tmp_path: Path) -> None:
    from homes import Home

    home = Home(tmp_path)
    wrong = tmp_path / "groups.yaml"
    wrong.write_text("groups: [{name: gpu, max: 1, resources: {GPU: 0.5}}]")
    told = home.oxiray("start", "--head", "--port", str(home.port), "--autoscale", str(wrong))
    assert told.returncode != 0 and "group `gpu`: the machine cannot offer 0.5 GPU" in told.stderr
    assert home.oxiray("status").returncode != 0
