"""Programs that connect to a member of a cluster rather than to its head's machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from oxiray._cli import native_binary
from ray.cluster_utils import Cluster, Node
from watching import wait_until

PREAMBLE = """
import os, signal, subprocess, sys, time
import numpy
import ray

address, ip, node = sys.argv[1:4]
context = ray.init(address=address, _node_ip_address=ip, namespace="guests", logging_level="WARNING")
assert context.address_info["node_ip_address"] == ray.util.get_node_ip_address() == ip
assert ray.get_runtime_context().get_node_id() == node, "it is not connected to that member"

@ray.remote(num_cpus=0)
class Keeper:
    def __init__(self, mib=0):
        self.values = numpy.ones(mib << 17)
    def sum(self, values):
        return float(values.sum())
    def get(self):
        return self.values
    def pid(self):
        return os.getpid()
    def node(self):
        return ray.get_runtime_context().get_node_id()
"""


@pytest.fixture(scope="module")
def nodes(over_network: bool) -> Iterator[tuple[Cluster, Node]]:
    """A head that offers `there`, and a member that offers `here`."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 2, "resources": {"there": 4}})
    member = cluster.add_node(num_cpus=2, resources={"here": 4})
    yield cluster, member
    cluster.shutdown()


def command(nodes: tuple[Cluster, Node], text: str, *arguments: str) -> list[str]:
    """Runs the text as a program that is connected to the member."""
    cluster, member = nodes
    return [sys.executable, "-c", PREAMBLE + text, str(cluster.address), address_of(member), member.node_id, *arguments]


def address_of(member: Node) -> str:
    """The member's own address."""
    return json.loads((Path(member.session_dir) / "session.json").read_text())["ip"]


def program(nodes: tuple[Cluster, Node], text: str, *arguments: str) -> str:
    """What such a program prints, to both streams."""
    done = subprocess.run(command(nodes, text, *arguments), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_tasks_actors_and_large_values_go_both_ways(nodes: tuple[Cluster, Node]) -> None:
    program(
        nodes,
        """
here, there = (Keeper.options(resources={name: 1}).remote(10) for name in ("here", "there"))
assert ray.get(here.node.remote()) == node != ray.get(there.node.remote())
large = ray.put(numpy.full(10 << 17, 2.0))
for keeper in (here, there):
    assert ray.get(keeper.get.remote()).sum() == 10 << 17
    assert ray.get(keeper.sum.remote(large)) == 20 << 17
    assert ray.get(keeper.sum.remote(here.get.remote())) == ray.get(keeper.sum.remote(there.get.remote())) == 10 << 17

@ray.remote
def square(number):
    return number * number
for name in ("here", "there"):
    assert ray.get([square.options(resources={name: 0.1}).remote(i) for i in range(20)]) == [i * i for i in range(20)]

named = Keeper.options(name="keeper", resources={"there": 1}).remote()
assert ray.get(ray.get_actor("keeper").pid.remote()) == ray.get(named.pid.remote())

@ray.remote(num_returns="streaming", resources={"there": 0.1})
def count():
    yield from range(3)
assert [ray.get(item) for item in count.remote()] == [0, 1, 2]
""",
    )


def test_a_group_over_both_nodes_and_devices_of_the_other(nodes: tuple[Cluster, Node]) -> None:
    program(
        nodes,
        """
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Within
group = placement_group([{"CPU": 1, "here": 1}, {"CPU": 1, "there": 1, "GPU": 1}], strategy="STRICT_SPREAD")
ray.get(group.ready(), timeout=60)
@ray.remote(num_cpus=1)
def where():
    return ray.get_runtime_context().get_node_id(), os.environ.get("CUDA_VISIBLE_DEVICES")
first = where.options(scheduling_strategy=Within(group, 0)).remote()
second = where.options(num_gpus=1, scheduling_strategy=Within(group, 1)).remote()
assert ray.get(first)[0] == node != ray.get(second)[0]
assert ray.get(second)[1] in ("0", "1")
remove_placement_group(group)
""",
    )


def test_what_workers_of_every_node_print_arrives(nodes: tuple[Cluster, Node]) -> None:
    shown = program(
        nodes,
        """
@ray.remote
def say(name):
    print("hello from", name)
    print("trouble in", name, file=sys.stderr)
ray.get([say.options(resources={name: 0.1}).remote(name) for name in ("here", "there")])
""",
    )
    for line in ("hello from here", "hello from there", "trouble in here", "trouble in there"):
        assert shown.count(line) == 1, shown


def test_an_error_names_what_failed(nodes: tuple[Cluster, Node]) -> None:
    program(
        nodes,
        """
@ray.remote(max_retries=0, resources={"there": 0.1})
def die():
    os.kill(os.getpid(), signal.SIGKILL)
try:
    ray.get(die.remote())
    raise SystemExit("a task whose worker was killed has a value")
except ray.exceptions.WorkerCrashedError:
    pass
keeper = Keeper.options(resources={"there": 1}).remote()
os.kill(ray.get(keeper.pid.remote()), signal.SIGKILL)
try:
    ray.get(keeper.pid.remote())
    raise SystemExit("an actor that was killed answers")
except ray.exceptions.RayActorError:
    pass
""",
    )


def test_a_program_that_is_killed_leaves_nothing_behind(nodes: tuple[Cluster, Node]) -> None:
    cluster, _ = nodes
    text = """
from ray.util.placement_group import placement_group
group = placement_group([{"CPU": 1, "here": 1}, {"CPU": 1, "there": 1}], strategy="STRICT_SPREAD")
ray.get(group.ready(), timeout=60)
actors = [Keeper.options(resources={name: 1}, num_gpus=gpus).remote() for name, gpus in (("here", 0), ("there", 2))]
print(*ray.get([actor.pid.remote() for actor in actors]), flush=True)
large = ray.put(numpy.ones(10 << 17))
time.sleep(600)
"""
    driver = subprocess.Popen(command(nodes, text), stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    pids = [int(word) for word in driver.stdout.readline().split()]
    assert len(pids) == 2
    with ray.init(address=cluster.address):
        whole = ray.cluster_resources()
        assert "GPU" not in ray.available_resources()
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        wait_until(lambda: ray.available_resources() == whole)
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
        from ray.util import state

        assert not state.list_actors(filters=[("state", "=", "ALIVE")])
        assert all(group.state == "REMOVED" for group in state.list_placement_groups())
    driver.stdout.close()


def test_the_end_of_its_member_is_told_to_a_program(over_network: bool) -> None:
    cluster = Cluster(initialize_head=True)
    member = cluster.add_node()
    text = """
print("ready", flush=True)
sys.stdin.readline()
try:
    ray.get(Keeper.remote().pid.remote())
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""
    driver = subprocess.Popen(
        command((cluster, member), text), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "ready\n"
    member.kill_raylet()
    shown, _ = driver.communicate("\n", timeout=60)
    assert "daemon" in shown, shown
    cluster.shutdown()


def test_the_command_line_asks_the_cluster_through_a_member(tmp_path: Path) -> None:
    """The head's sessions are elsewhere, as they are on another machine."""
    head = Cluster(initialize_head=True, over_network=True, head_node_args={"resources": {"there": 1}})
    assert head.head_node is not None
    door, token_file = head.head_node._door
    own = {**os.environ, "OXIRAY_TMPDIR": str(tmp_path)}
    binary = str(native_binary())
    start = [binary, "start", f"--address={door}", f"--token-file={token_file}", "--node-ip-address=127.0.0.9"]

    def run(*words: str) -> str:
        done = subprocess.run(words, env=own, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    try:
        run(*start, "--num-cpus=1")
        assert "there" in run(binary, "status")
        assert run(binary, "list", "nodes").count("ALIVE") == 2
        assert "objects" in run(binary, "memory").lower()
        run(binary, "metrics")
        text = """
import ray
ray.init(address="auto")
assert len(ray.nodes()) == 2
@ray.remote(num_cpus=0)
def node():
    return ray.get_runtime_context().get_node_id()
assert ray.get(node.options(resources={"there": 1}).remote()) != ray.get_runtime_context().get_node_id()
"""
        run(sys.executable, "-c", text)
        run(sys.executable, "-c", text.replace('"auto"', repr(head.address)))
        run(sys.executable, "-c", text.replace('address="auto"', ""))
        run("env", f"RAY_ADDRESS={head.address}", sys.executable, "-c", text.replace('address="auto"', ""))
    finally:
        subprocess.run([binary, "stop"], env=own, check=False, capture_output=True)
        head.shutdown()
    assert not list(tmp_path.glob("oxiray-*/session_*"))
