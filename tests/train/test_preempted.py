"""A run that is preempted: its workers are told, save what they have, and go on from there when there is room again."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from oxiray.util import drain
from ray import train
from ray.cluster_utils import Cluster
from ray.train import Checkpoint, FailureConfig, ScalingConfig
from watching import wait_until

STEPS = 6


@pytest.fixture
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    ray.shutdown()
    monkeypatch.setenv("OXIRAY_PREEMPTION", "on")
    monkeypatch.setenv("OXIRAY_PREEMPTION_GRACE_S", "20")
    ray.init(num_cpus=8, num_gpus=2)
    yield
    ray.shutdown()


@ray.remote(num_gpus=2, num_cpus=0, priority=5)
def urgent() -> float:
    return time.time()


@pytest.mark.usefixtures("_two_gpus")
def test_a_run_makes_room_for_what_is_more_urgent_and_goes_on_from_its_checkpoint(fit, tmp_path: Path) -> None:
    def function() -> list[int]:
        begun = train.get_checkpoint()
        step = int(Path(begun.path, "step").read_text()) if begun else 0
        rank, done = train.get_context().get_world_rank(), []
        while step < STEPS:
            step += 1
            done.append(step)
            own = tmp_path / f"own-{rank}"
            own.mkdir(exist_ok=True)
            (own / "step").write_text(str(step))
            if begun is None and step == STEPS // 2:
                # Half of the run is left when it is told.
                (tmp_path / "half").touch()
                deadline = time.monotonic() + 60
                # A rank that is told later than another is missing from the first answer.
                while (info := train.get_preemption_info()) is None or info.preempted_ranks != [0, 1]:
                    assert time.monotonic() < deadline, info
                    time.sleep(0.02)
                assert info.deadline_ms > time.time() * 1000
                train.report({"step": step}, checkpoint=Checkpoint.from_directory(own))
                threading.Event().wait()
            train.report({"step": step}, checkpoint=Checkpoint.from_directory(own))
        return done

    served: list[float] = []

    def ask() -> None:
        wait_until((tmp_path / "half").exists, timeout=120)
        served.append(ray.get(urgent.remote(), timeout=120))

    asks = threading.Thread(target=ask, daemon=True)
    asks.start()
    result = fit(function, scaling=ScalingConfig(num_workers=2, use_gpu=True, preemptible=True))
    asks.join()
    assert served, "the urgent task was served"
    assert result.return_value == list(range(STEPS // 2 + 1, STEPS + 1)), "nothing was lost and nothing done twice"
    assert [row["step"] for row in result.history] == list(range(1, STEPS + 1))


def test_options_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="preemptible='yes'"):
        ScalingConfig(preemptible="yes")
    with pytest.raises(ValueError, match="from -1000 to 1000"):
        ScalingConfig(priority=2000)


@pytest.fixture
def machines() -> Iterator[Cluster]:
    """A head without CPUs for workers, and two machines with one each."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    ray.init(address=cluster.address)
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


class DrainingOfRank1(train.UserCallback):
    """Drains the machine of rank 1 after the first report."""

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.node: str | None = None

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        if self.node is None:
            self.node = metrics[1]["node"]
            drain.drain_node(self.node, deadline_s=self.deadline_s, reason="spot notice")


def test_others_keep_a_checkpoint_without_a_rank_that_is_stuck_on_a_drained_machine(fit, machines: Cluster, tmp_path: Path) -> None:
    machines.add_node(num_cpus=1)

    def function() -> list[Any]:
        begun = train.get_checkpoint()
        if begun is not None:
            return [(Path(begun.path) / "told").read_text(), sorted(path.name for path in Path(begun.path).glob("own-*"))]
        rank, node = train.get_context().get_world_rank(), ray.get_runtime_context().get_node_id()
        train.report({"node": node})
        if rank == 1:
            threading.Event().wait()
        info = train.get_preemption_info()
        own = tmp_path / "own"
        own.mkdir()
        (own / "told").write_text(f"{info.preempted_ranks} {info.preempted_node_ids == [node]} {info.deadline_ms > time.time() * 1000}")
        (own / f"own-{rank}").touch()
        train.report({"node": node}, checkpoint=Checkpoint.from_directory(own))
        threading.Event().wait()
        return []

    limits = FailureConfig(max_failures=0, max_preemption_failures=0, relax_collectives_on_preemption=True)
    result = fit(function, callbacks=[DrainingOfRank1(120)], failure_config=limits)
    # The machine is not rank 0's, and ends later.
    assert result.return_value == ["[1] False True", ["own-0"]]
    assert len(result.history) == 2


def test_others_have_time_to_keep_a_checkpoint_once_a_drained_machine_is_gone(fit, machines: Cluster, tmp_path: Path) -> None:
    gone, stored = tmp_path / "gone", tmp_path / "runs" / "run"

    def slowly(checkpoint: Checkpoint, name: str) -> Checkpoint:
        wait_until(gone.exists, timeout=120)
        shutil.copytree(checkpoint.path, stored / name)
        return Checkpoint(str(stored / name))

    def function() -> str:
        begun = train.get_checkpoint()
        if begun is not None:
            return (Path(begun.path) / "own").read_text()
        rank = train.get_context().get_world_rank()
        train.report({"node": ray.get_runtime_context().get_node_id()})
        if rank == 1:
            threading.Event().wait()
        own = tmp_path / "own"
        own.mkdir()
        (own / "own").write_text("kept")
        train.report({}, checkpoint=Checkpoint.from_directory(own), checkpoint_upload_fn=slowly)
        threading.Event().wait()
        return "unreachable"

    draining = DrainingOfRank1(3)

    def another_machine() -> None:
        alive = lambda: {node["NodeID"] for node in ray.nodes() if node["Alive"]}  # noqa: E731
        wait_until(lambda: draining.node is not None and draining.node not in alive(), timeout=120)
        gone.touch()
        machines.add_node(num_cpus=1, wait=False)

    watch = threading.Thread(target=another_machine, daemon=True)
    watch.start()
    limits = FailureConfig(max_failures=0, max_preemption_failures=1, relax_collectives_on_preemption=True, preemption_grace_s=60.0)
    result = fit(function, callbacks=[draining], failure_config=limits)
    watch.join()
    assert result.return_value == "kept"


def test_what_waits_for_the_others_sleeps_although_they_are_silent_for_longer_than_a_rank_may_hang(fit, machines: Cluster) -> None:
    def function() -> None:
        train.report({"node": ray.get_runtime_context().get_node_id()})
        threading.Event().wait()

    grace_s, used = 6.0, [0.0, 0.0]

    class Gone(DrainingOfRank1):
        def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
            used[1] = time.process_time()

    draining = Gone(1)

    def watch() -> None:
        alive = lambda: {node["NodeID"] for node in ray.nodes() if node["Alive"]}  # noqa: E731
        wait_until(lambda: draining.node is not None and draining.node not in alive(), timeout=120)
        used[0] = time.process_time()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    limits = FailureConfig(max_preemption_failures=0, hang_timeout_s=3.0, preemption_grace_s=grace_s)
    with pytest.raises(train.PreemptionError):
        fit(function, callbacks=[draining], failure_config=limits)
    watching.join()
    # It would use a whole processor for the second half of the time, and more with the processes that it asks.
    assert used[1] - used[0] < (grace_s - 3) / 2
