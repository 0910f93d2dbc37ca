"""Nodes that are emptied ahead of their end: by hand, with and without a deadline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import ray
from oxiray._cli import native_binary
from oxiray.util import drain, state
from ray.cluster_utils import Cluster, Node
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
from watching import wait_until

#: Longer than any test takes: the node is to end before.
FAR = 300.0


class Emptied:
    """A head without processors, a node to be emptied, and one that stays; both have the resource `any`."""

    def __init__(self) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        self.leaving = self.cluster.add_node(num_cpus=2, num_gpus=1, resources={"any": 2, "leaving": 2})
        self.staying = self.cluster.add_node(num_cpus=2, resources={"any": 2, "staying": 2})
        ray.init(address=self.cluster.address)

    def is_gone(self) -> bool:
        return not any(node["NodeID"] == self.leaving.node_id and node["Alive"] for node in ray.nodes())

    def until_gone(self, timeout: float = 60.0) -> None:
        wait_until(self.is_gone, timeout)
        wait_until(lambda: not self.leaving.is_alive())
        assert not Path(self.leaving.session_dir).exists(), "its session is left behind"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(native_binary()), *words, "--address", str(self.cluster.address)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def emptied(over_network: bool) -> Iterator[Emptied]:
    made = Emptied()
    yield made
    ray.shutdown()
    made.cluster.shutdown()


def on(node: Node) -> NodeAffinitySchedulingStrategy:
    """Begins there, and may go elsewhere."""
    return NodeAffinitySchedulingStrategy(node.node_id, soft=True)


@ray.remote(num_cpus=1)
def where() -> str:
    return str(ray.get_runtime_context().get_node_id())


@ray.remote(num_cpus=1)
def runs(began: str, go: str) -> str:
    """Says by a file of its own that it began, and returns its node when it may."""
    Path(began, str(time.monotonic_ns())).touch()
    while not os.path.exists(go):
        time.sleep(0.01)
    return str(ray.get_runtime_context().get_node_id())


@ray.remote(num_cpus=0)
class Keeper:
    def __init__(self) -> None:
        self.told: Any = None

    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())

    def draining(self) -> Any:
        return drain.draining()

    @ray.method(retry_exceptions=True)
    def run(self, began: str, go: str) -> str:
        """As `runs`; fails where it finds the file `began/fails`, once."""
        Path(began, str(time.monotonic_ns())).touch()
        while not os.path.exists(go):
            if os.path.exists(f"{began}/fails"):
                os.unlink(f"{began}/fails")
                raise ValueError("once")
            time.sleep(0.01)
        return self.node()

    def make(self, mib: int) -> list[ray.ObjectRef]:
        return [ray.put(numpy.ones(mib << 17))]


def test_an_idle_node_ends_at_once_and_leaves_nothing_behind(emptied: Emptied) -> None:
    assert drain.drain_node(emptied.leaving.node_id, reason="not needed") == dict.fromkeys(
        ("tasks", "actors", "programs", "bundles", "objects"), 0
    )
    emptied.until_gone()
    told = json.loads(emptied.run("status", "--json").stdout)
    (lost,) = (node for node in told["nodes"] if not node["alive"])
    assert lost["death"] == "it was drained: not needed"
    assert ray.get(where.remote()) == emptied.staying.node_id


def test_nothing_new_begins_there_and_what_runs_may_end(emptied: Emptied, tmp_path: Path) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    began.mkdir()
    running = runs.options(scheduling_strategy=on(emptied.leaving)).remote(str(began), str(go))
    wait_until(lambda: list(began.iterdir()))
    assert drain.drain_node(emptied.leaving.node_id, deadline_s=FAR)["tasks"] == 1
    assert set(ray.get([where.options(resources={"any": 0.1}).remote() for _ in range(8)])) == {emptied.staying.node_id}
    (row,) = state.list_nodes(filters=[("node_id", "=", emptied.leaving.node_id)], detail=True)
    assert row.state_message.startswith("it is being drained"), row
    shown = emptied.run("status").stdout
    assert "it is being drained and ends in" in shown and "1 workers on tasks" in shown, shown
    waits = where.options(resources={"leaving": 1}).remote()
    wait_until(lambda: ray.util.explain(waits)["nodes"])
    rules = {node["node_id"]: node["rule"] for node in ray.util.explain(waits)["nodes"]}
    assert rules[emptied.leaving.node_id] == "draining", rules
    ray.cancel(waits)
    go.touch()
    assert ray.get(running) == emptied.leaving.node_id
    emptied.until_gone()
    assert len(list(began.iterdir())) == 1


def test_calls_queued_behind_one_that_runs_go_elsewhere(emptied: Emptied, tmp_path: Path) -> None:
    """Workers that were leased before are given back rather than used again."""

    @ray.remote(num_cpus=1)
    def short() -> str:
        time.sleep(0.02)
        return str(ray.get_runtime_context().get_node_id())

    many = [short.remote() for _ in range(200)]
    wait_until(lambda: len(ray.wait(many, num_returns=len(many), timeout=0)[0]) > 10)
    drain.drain_node(emptied.leaving.node_id, deadline_s=FAR)
    emptied.until_gone()
    assert set(ray.get(many)) <= {emptied.leaving.node_id, emptied.staying.node_id}


@pytest.mark.parametrize("retries", [0, 1])
def test_at_the_deadline_a_task_is_run_elsewhere_without_using_up_a_retry(
    emptied: Emptied, tmp_path: Path, retries: int
) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    began.mkdir()
    strategy = on(emptied.leaving)
    running = runs.options(scheduling_strategy=strategy, max_retries=retries).remote(str(began), str(go))
    wait_until(lambda: list(began.iterdir()))
    drain.drain_node(emptied.leaving.node_id, deadline_s=0.3)
    emptied.until_gone()
    if retries == 0:
        with pytest.raises(ray.exceptions.NodeDiedError):
            ray.get(running, timeout=60)
        return
    wait_until(lambda: len(list(began.iterdir())) == 2)
    # Its one retry is still there.
    (again,) = state.list_tasks(filters=[("state", "=", "RUNNING")], detail=True)
    os.kill(again.worker_pid, signal.SIGKILL)
    wait_until(lambda: len(list(began.iterdir())) == 3)
    go.touch()
    assert ray.get(running, timeout=60) == emptied.staying.node_id


def test_actors_are_told_and_go_on_elsewhere_without_using_up_a_restart(emptied: Emptied) -> None:
    keeper = Keeper.options(max_restarts=1, max_task_retries=-1, scheduling_strategy=on(emptied.leaving)).remote()
    other = Keeper.options(scheduling_strategy=on(emptied.staying)).remote()
    assert ray.get(keeper.node.remote()) == emptied.leaving.node_id
    assert ray.get(keeper.draining.remote()) is None
    drain.drain_node(emptied.leaving.node_id, deadline_s=3, reason="spot notice")
    wait_until(lambda: ray.get(keeper.draining.remote()) is not None or emptied.is_gone())
    told = ray.get(keeper.draining.remote())
    if told is not None:  # else it was moved in between
        assert told.reason == "spot notice" and 0 <= told.deadline_s <= 3
    assert ray.get(other.draining.remote()) is None
    emptied.until_gone()
    assert ray.get(keeper.node.remote(), timeout=60) != emptied.leaving.node_id
    assert ray.get(keeper.draining.remote()) is None
    # Its one restart is still there.
    ray.kill(keeper, no_restart=False)
    assert ray.get(keeper.node.remote(), timeout=60) != emptied.leaving.node_id


@pytest.mark.parametrize("retries", [0, 1])
def test_a_call_under_way_is_sent_again_without_using_up_a_retry(
    emptied: Emptied, tmp_path: Path, retries: int
) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    began.mkdir()
    options = {"max_restarts": -1, "max_task_retries": retries, "scheduling_strategy": on(emptied.leaving)}
    keeper = Keeper.options(**options).remote()
    running = keeper.run.remote(str(began), str(go))
    wait_until(lambda: list(began.iterdir()))
    drain.drain_node(emptied.leaving.node_id, deadline_s=0.3)
    emptied.until_gone()
    if retries == 0:
        with pytest.raises(ray.exceptions.ActorUnavailableError):
            ray.get(running, timeout=60)
        return
    wait_until(lambda: len(list(began.iterdir())) == 2, 60)
    # Its one retry is still there. (A process that is killed would spend more of them where it takes 2 s to come back.)
    Path(began, "fails").touch()
    wait_until(lambda: len(list(began.iterdir())) == 3 and not Path(began, "fails").exists(), 60)
    go.touch()
    assert ray.get(running, timeout=60) != emptied.leaving.node_id


def test_an_actor_that_may_not_restart_ends_with_the_reason(emptied: Emptied) -> None:
    keeper = Keeper.options(scheduling_strategy=on(emptied.leaving)).remote()
    ray.get(keeper.node.remote())
    drain.drain_node(emptied.leaving.node_id, deadline_s=0.2)
    emptied.until_gone()
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(keeper.node.remote(), timeout=60)


def test_a_program_on_the_node_keeps_it_until_the_deadline(emptied: Emptied) -> None:
    address = json.loads((Path(emptied.leaving.session_dir) / "session.json").read_text())["ip"]
    text = f"""
import time, ray
from oxiray.util import drain
ray.init(address={emptied.cluster.address!r}, _node_ip_address={address!r})
print("ready", flush=True)
while drain.draining() is None:
    time.sleep(0.01)
print(drain.draining().reason, flush=True)
time.sleep(600)
"""
    program = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    assert drain.drain_node(address, deadline_s=20, reason="notice")["programs"] == 1
    assert program.stdout.readline() == "notice\n"
    assert not emptied.is_gone()
    emptied.until_gone(60)
    program.kill()
    program.communicate()


def test_the_only_copies_of_objects_are_copied_first(emptied: Emptied) -> None:
    keeper = Keeper.options(scheduling_strategy=on(emptied.leaving), max_restarts=-1).remote()
    (made,) = ray.get(keeper.make.remote(10))
    here = ray.put(1)  # noqa: F841  small values have nothing to do with it
    drain.drain_node(emptied.leaving.node_id, deadline_s=FAR)
    nodes = lambda: json.loads(emptied.run("status", "--json").stdout)["nodes"]  # noqa: E731
    wait_until(lambda: all(not (n.get("draining") or {}).get("left", {}).get("objects") for n in nodes()))
    ray.kill(keeper)
    emptied.until_gone()
    assert ray.get(made, timeout=60).sum() == 10 << 17


def test_bundles_move_when_nothing_runs_within(emptied: Emptied, tmp_path: Path) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    began.mkdir()
    idle = placement_group([{"CPU": 1, "any": 1}], strategy="STRICT_PACK", _soft_target_node_id=emptied.leaving.node_id)
    used = placement_group([{"CPU": 1, "any": 1}], strategy="STRICT_PACK", _soft_target_node_id=emptied.leaving.node_id)
    ray.get([idle.ready(), used.ready()])
    within = lambda group: PlacementGroupSchedulingStrategy(group, 0)  # noqa: E731
    assert ray.get([where.options(scheduling_strategy=within(g)).remote() for g in (idle, used)]) == [
        emptied.leaving.node_id
    ] * 2
    running = runs.options(scheduling_strategy=within(used)).remote(str(began), str(go))
    wait_until(lambda: list(began.iterdir()))
    drain.drain_node(emptied.leaving.node_id, deadline_s=FAR)
    assert ray.get(where.options(scheduling_strategy=within(idle)).remote(), timeout=60) == emptied.staying.node_id
    assert not emptied.is_gone()
    later = where.options(scheduling_strategy=within(used)).remote()
    go.touch()
    assert ray.get(running, timeout=60) == emptied.leaving.node_id
    emptied.until_gone()
    assert ray.get(later, timeout=60) == emptied.staying.node_id


def test_the_command_takes_rays_spellings_and_a_node_can_be_kept_after_all(emptied: Emptied) -> None:
    keeper = Keeper.options(scheduling_strategy=on(emptied.leaving)).remote()
    ray.get(keeper.node.remote())
    node = ["drain-node", "--node-id", emptied.leaving.node_id]
    refused = emptied.run(*node, "--reason", "DRAIN_NODE_REASON_IDLE_TERMINATION")
    assert refused.returncode != 0 and "1 actors" in refused.stderr, refused
    asked = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot", "--deadline-remaining-seconds", "300"]
    assert emptied.run(*node, *asked).returncode == 0
    wait_until(lambda: ray.get(keeper.draining.remote()) is not None)
    assert ray.get(keeper.draining.remote()).reason == "spot"
    assert emptied.run("drain", emptied.leaving.node_id[:12], "--undo").returncode == 0
    wait_until(lambda: ray.get(keeper.draining.remote()) is None)
    assert ray.get(where.options(resources={"leaving": 1}).remote(), timeout=60) == emptied.leaving.node_id
    ray.kill(keeper)
    done = emptied.run("drain", emptied.leaving.node_id, "--wait")
    assert done.returncode == 0 and "is gone" in done.stdout, done
    emptied.until_gone()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (lambda emptied: [emptied.cluster.head_node.node_id], "oxiray stop"),
        (lambda _: ["nowhere"], "no living node"),
        (lambda emptied: [emptied.leaving.node_id, "--deadline=-1"], "number of seconds"),
        (lambda emptied: [emptied.leaving.node_id, "--undo"], "not being drained"),
        (lambda _: [], "which node"),
    ],
)
def test_what_cannot_be_drained_is_refused_with_the_reason(
    emptied: Emptied, words: Callable[[Emptied], list[str]], part: str
) -> None:
    told = emptied.run("drain", *words(emptied))
    assert told.returncode != 0 and part in told.stderr, told
