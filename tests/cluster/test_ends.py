"""Nodes that come and go while a program runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from oxiray._cli import native_binary
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Affinity
from watching import wait_until


@pytest.fixture
def cluster(over_network: bool) -> Iterator[Cluster]:
    """A head that a driver is connected to."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2}, connect=True)
    yield cluster
    cluster.shutdown()


@ray.remote
def where() -> str:
    return ray.get_runtime_context().get_node_id()


@ray.remote
class Somewhere:
    def pid(self) -> int:
        return os.getpid()

    def where(self) -> str:
        return ray.get_runtime_context().get_node_id()

    def stay(self, marker: str) -> None:
        Path(marker).touch()
        threading.Event().wait()


@ray.remote
def stay_once(marker: str) -> str:
    """Stays for good the first time."""
    if not os.path.exists(marker):
        Path(marker).touch()
        threading.Event().wait()
    return ray.get_runtime_context().get_node_id()


def test_a_killed_node_takes_its_work_along(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=4, resources={"special": 1})
    there = Affinity(node.node_id, soft=True)
    actor = Somewhere.options(scheduling_strategy=there).remote()
    pid = ray.get(actor.pid.remote())
    call = actor.stay.remote(str(tmp_path / "call"))
    retried = stay_once.options(scheduling_strategy=there).remote(str(tmp_path / "retried"))
    lost = stay_once.options(scheduling_strategy=there, max_retries=0).remote(str(tmp_path / "lost"))
    for marker in ("call", "retried", "lost"):
        wait_until((tmp_path / marker).exists)
    node.kill_raylet()
    assert ray.get(retried) != node.node_id
    with pytest.raises(ray.exceptions.ActorDiedError, match="that it ran on died"):
        ray.get(call)
    with pytest.raises(ray.exceptions.NodeDiedError, match="that it ran on died"):
        ray.get(lost)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
    dead = [listed for listed in ray.nodes() if not listed["Alive"]]
    assert [listed["NodeID"] for listed in dead] == [node.node_id]
    assert "special" not in ray.cluster_resources()
    hard = Affinity(node.node_id, soft=False)
    with pytest.raises(ray.exceptions.TaskUnschedulableError, match="is dead or never was"):
        ray.get(where.options(scheduling_strategy=hard).remote())


def test_an_actor_is_made_anew_on_another_node(cluster: Cluster) -> None:
    node = cluster.add_node(num_cpus=2)
    strategy = Affinity(node.node_id, soft=True)
    actor = Somewhere.options(max_restarts=1, max_task_retries=-1, scheduling_strategy=strategy).remote()
    assert ray.get(actor.where.remote()) == node.node_id
    node.kill_raylet()
    assert cluster.head_node is not None
    assert ray.get(actor.where.remote()) == cluster.head_node.node_id


def test_a_node_joins_from_the_command_line(cluster: Cluster) -> None:
    command = [str(native_binary()), "start", f"--address={cluster.address}", "--num-cpus=1", "--labels=by=hand"]
    subprocess.run(command, capture_output=True, text=True, check=True)
    by_hand = where.options(label_selector={"by": "hand"})
    wait_until(lambda: len(ray.nodes()) == 2)
    assert ray.get(by_hand.remote()) != cluster.list_all_nodes()[0].node_id
    nobody = subprocess.run([*command[:2], "--address=127.0.0.1:1"], capture_output=True, text=True, check=False)
    assert nobody.returncode != 0
    assert "no cluster answers at 127.0.0.1:1: on this machine run" in nobody.stderr


def test_a_resource_that_went_is_waited_for(cluster: Cluster) -> None:
    node = cluster.add_node(resources={"special": 1})
    task = where.options(resources={"special": 0.1})
    assert ray.get(task.remote()) == node.node_id
    cluster.remove_node(node)
    waiting = task.remote()
    assert ray.wait([waiting], timeout=0.1) == ([], [waiting])
    again = cluster.add_node(resources={"special": 1})
    assert ray.get(waiting) == again.node_id
    assert cluster.list_all_nodes() == [again, cluster.head_node]


def test_what_no_node_has_waits_for_one_that_joins(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    task = where.options(resources={"rare": 1}).remote()
    actor = Somewhere.options(resources={"rare": 1}).remote()
    asked = actor.where.remote()
    told = ""

    def is_told() -> bool:
        nonlocal told
        told += capfd.readouterr().err
        return "no machine offers `rare`" in told

    wait_until(is_told)
    assert "It waits up to 30 s for such a machine to join" in told
    assert ray.wait([task, asked], timeout=0.1)[0] == []
    cluster.add_node(num_cpus=1, resources={"common": 1})
    assert ray.wait([task, asked], timeout=0.1)[0] == []
    node = cluster.add_node(num_cpus=1, resources={"rare": 2})
    assert ray.get([task, asked], timeout=60) == [node.node_id] * 2


def test_what_no_node_has_is_refused_when_none_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OXIRAY_INFEASIBLE_WAIT_S", "0.5")
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2}, connect=True)
    try:
        began = time.monotonic()
        task = where.options(num_cpus=3, max_retries=0).remote()
        actor = Somewhere.options(resources={"rare": 1}).remote()
        selected = where.options(label_selector={"zone": "nowhere"}).remote()
        with pytest.raises(ray.exceptions.TaskUnschedulableError, match="2 CPU.* No such machine has joined for 0.5 s"):
            ray.get(task, timeout=60)
        with pytest.raises(ray.exceptions.ActorUnschedulableError, match="rare.* No such machine has joined for 0.5 s"):
            ray.get(actor.where.remote(), timeout=60)
        with pytest.raises(ray.exceptions.TaskUnschedulableError, match=r"`zone` in \(nowhere\), but no machine"):
            ray.get(selected, timeout=60)
        assert time.monotonic() - began > 0.4
        assert len(ray.get(where.remote(), timeout=60)) == 56, "others run"
    finally:
        cluster.shutdown()


def test_a_wait_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OXIRAY_INFEASIBLE_WAIT_S", "soon")
    with pytest.raises(RuntimeError, match="OXIRAY_INFEASIBLE_WAIT_S is `soon`; it is a number of seconds"):
        Cluster(initialize_head=True)


def test_a_node_that_comes_serves_who_waits(cluster: Cluster, tmp_path: Path) -> None:
    held = [Somewhere.options(num_cpus=1).remote() for _ in range(2)]
    ray.get([actor.pid.remote() for actor in held])
    waiting = where.remote()
    assert ray.wait([waiting], timeout=0.1) == ([], [waiting])
    node = cluster.add_node(num_cpus=1)
    assert ray.get(waiting) == node.node_id


def test_a_node_ends_with_the_head(cluster: Cluster) -> None:
    node = cluster.add_node(num_cpus=1, resources={"special": 1})
    actor = Somewhere.options(resources={"special": 1}).remote()
    pid = ray.get(actor.pid.remote())
    assert cluster.head_node is not None
    cluster.head_node.kill_raylet()
    wait_until(lambda: not node.is_alive() and not os.path.exists(f"/proc/{pid}"))
    with pytest.raises(ray.exceptions.RayError):
        ray.get(actor.where.remote())


def test_shutdown_leaves_nothing_behind(cluster: Cluster) -> None:
    node = cluster.add_node(num_cpus=2, resources={"special": 1})
    actors = [Somewhere.options(resources={"special": 0.5}).remote() for _ in range(2)]
    pids = [*ray.get([actor.pid.remote() for actor in actors]), *(one.pid for one in cluster.list_all_nodes())]
    sessions = [Path(one.session_dir) for one in (node, cluster.head_node) if one is not None]
    cluster.shutdown()
    assert not ray.is_initialized()
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    assert not [session for session in sessions if session.exists()]


def test_a_cluster_dies_with_the_program_that_made_it() -> None:
    program = (
        "import os, ray\n"
        "from ray.cluster_utils import Cluster\n"
        "cluster = Cluster(initialize_head=True)\n"
        "cluster.add_node()\n"
        "print(*(node.pid for node in cluster.list_all_nodes()), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    pids = told.stdout.split()
    assert len(pids) == 2, told.stderr
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_what_a_node_cannot_be_is_said(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="add_node\\(\\) got num_cpu, which it does not know"):
        cluster.add_node(num_cpu=1)
    with pytest.raises(RuntimeError, match="object_store_memory is 5 bytes"):
        cluster.add_node(object_store_memory=5)
    with pytest.raises(ValueError, match="use num_cpus"):
        cluster.add_node(resources={"CPU": 1})
