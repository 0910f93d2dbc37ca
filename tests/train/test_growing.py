"""Groups on clusters that grow: machines are daemons on this one, which an autoscaler brings and takes away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from growing import Growing

MACHINES = {"name": "cpu", "max": 2, "resources": {"CPU": 2}, "idle_timeout_s": 5}

#: A head of one processor, which holds no worker.
PROGRAM = """
import os, tempfile
import ray
from ray import train
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

ray.init(address="auto", log_to_driver=False)

def fit(function, workers, cpus=2, callbacks=()):
    return DataParallelTrainer(
        function,
        scaling_config=ScalingConfig(
            num_workers=workers, resources_per_worker={{"CPU": cpus}}, elastic_resize_monitor_interval_s=0.3
        ),
        run_config=RunConfig(name="growing", storage_path={storage!r}, callbacks=list(callbacks)),
    ).fit()
"""


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Callable[..., Growing]]:
    """Starts a cluster that grows by groups; it ends with the test."""
    started: list[Growing] = []

    def start(*groups: dict[str, Any]) -> Growing:
        started.append(Growing(tmp_path, list(groups)))
        return started[-1]

    yield start
    for cluster in started:
        cluster.stop()


def program(folder: Path, text: str) -> str:
    return PROGRAM.format(storage=str(folder / "runs")) + text


def test_a_group_waits_for_machines_and_they_go_with_it(growing: Callable[..., Growing], tmp_path: Path) -> None:
    cluster = growing(MACHINES)
    assert cluster.nodes() == []
    told = cluster.program(program(tmp_path, """
def function():
    train.report({"node": ray.get_runtime_context().get_node_id(), "rank": train.get_context().get_node_rank()})
    return train.get_context().get_world_size()

class Seen(train.UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        print(len({one["node"] for one in metrics}), [one["rank"] for one in metrics])

print(fit(function, 2, callbacks=[Seen()]).return_value)
"""))  # fmt: skip
    assert told.split("\n")[:2] == ["2 [0, 1]", "2"], told
    assert cluster.log().count("launched -> joined") == 2, "two machines and no more"
    cluster.until(lambda: cluster.nodes() == [], "both machines are gone after their idle time")


def test_an_elastic_group_begins_with_its_least_and_has_the_cluster_grow(growing: Callable[..., Growing], tmp_path: Path) -> None:
    cluster = growing(MACHINES)
    told = cluster.program(program(tmp_path, """
from pathlib import Path

def function():
    context = train.get_context()
    begun = train.get_checkpoint()
    step = int(Path(begun.path, "step").read_text()) if begun else 0
    first = step
    # Until the cluster is as large as it may be, and once more.
    while context.get_world_size() < 2 or step == first:
        step += 1
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step))
            kept = Checkpoint.from_directory(folder) if context.get_world_rank() == 0 else None
            train.report({"step": step, "size": context.get_world_size()}, kept)
    return step

result = fit(function, (1, 3))
print(result.metrics["size"], [row["step"] for row in result.history] == list(range(1, result.return_value + 1)))
"""))  # fmt: skip
    assert told.split("\n")[0] == "2 True", "two machines are all that may come, of the optional demand for three"
    assert "more workers of run `growing`" in cluster.log(), "what was not waited for was asked for"
    cluster.until(lambda: cluster.nodes() == [], "no demand is left, and the machines are gone")


def test_what_no_group_brings_is_refused_with_the_reason(growing: Callable[..., Growing], tmp_path: Path) -> None:
    cluster = growing(MACHINES)
    told = cluster.program(program(tmp_path, """
try:
    fit(lambda: None, 2, cpus=8)
except train.ControllerError as error:
    print(error)
"""))  # fmt: skip
    assert "group `cpu` has 2 CPU, and 8 is asked for" in told, told
    assert cluster.nodes() == []
