"""Clusters over the nodes of a Slurm job: `srun oxiray symmetric-run -- PROGRAM`, with a real controller and two real nodes."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvml import Answers, library
from slurm import Slurm
from watching import processes_of, wait_until

OXIRAY = (sys.executable, "-m", "oxiray._cli")

#: Says what each node of the cluster is, and which devices an actor on each gets.
PROGRAM = """
import json, os, sys
import ray

ray.init(logging_level="ERROR")

@ray.remote(num_gpus=1)
class Holder:
    def what(self):
        return os.environ["SLURMD_NODENAME"], ray.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]

gpus = int(ray.cluster_resources().get("GPU", 0))
holders = [Holder.remote() for _ in range(gpus)]
held = sorted(ray.get([holder.what.remote() for holder in holders]))
print(json.dumps({"nodes": len(ray.nodes()), "gpus": gpus, "held": held}), flush=True)
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A variable that every process of a job has, `NAME=value`; sessions lie in a folder of the test's own."""
    monkeypatch.setenv("OXIRAY_TMPDIR", str(tmp_path / "sessions"))
    return f"TEST_MARK={uuid.uuid4().hex}"


def variables(marked: str) -> dict[str, str]:
    name, _, value = marked.partition("=")
    return {**os.environ, name: value}


def test_a_program_runs_over_the_nodes_of_a_step_and_nothing_is_left(slurm: Slurm, marked: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    told = slurm.run(
        *("srun", "--nodes=2", "--ntasks-per-node=1", *OXIRAY, "symmetric-run", "--num-cpus=3", "--", sys.executable),
        *(str(program),),
        **variables(marked),
    )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout) == {"nodes": 2, "gpus": 0, "held": []}
    assert "2 nodes are there" in told.stderr
    wait_until(lambda: processes_of(marked) == [])
    assert list(Path("/tmp").glob("oxiray-step-*")) == []


def test_each_node_offers_the_devices_that_slurm_granted_it(
    slurm: Slurm, marked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [f"NVIDIA H100 80GB HBM3|GPU-{name}|00000000:0{bus}:00.0|85520809984|0||||\n" for bus, name in enumerate("ab", 4)]
    Answers(tmp_path, monkeypatch, library()).write("driver=550.54.15\n" + "".join(gpus))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    # Another job has the first device of the first node.
    other = slurm.begin("srun", "--nodelist=n1", "--gres=gpu:1", "--overlap", "sleep", "600")
    wait_until(lambda: len(slurm.jobs()) == 1)
    try:
        told = slurm.run(
            *("srun", "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1", *OXIRAY, "symmetric-run", "--"),
            *(sys.executable, str(program)),
            **variables(marked),
        )
    finally:
        slurm.run("scancel", *slurm.jobs())
        other.communicate()
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout) == {
        "nodes": 2,
        "gpus": 2,
        "held": [["n1", ["1"], "1"], ["n2", ["0"], "0"]],
    }


def test_the_programs_status_is_the_steps(slurm: Slurm, marked: str) -> None:
    command = ("srun", "--nodes=2", "--ntasks-per-node=1", *OXIRAY, "symmetric-run", "--", "sh", "-c", "exit 3")
    told = slurm.run(*command, **variables(marked))
    assert told.returncode == 3, told.stderr
    wait_until(lambda: processes_of(marked) == [])


def test_nothing_is_left_of_a_job_that_is_cancelled(slurm: Slurm, marked: str, tmp_path: Path) -> None:
    began = tmp_path / "began"
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import time, pathlib, ray
ray.init()
@ray.remote
def wait():
    pathlib.Path({str(began)!r}).touch()
    time.sleep(600)
ray.get([wait.remote() for _ in range(4)])
"""
    )
    running = slurm.begin(
        *("srun", "--nodes=2", "--ntasks-per-node=1", *OXIRAY, "symmetric-run", "--", sys.executable, str(program)),
        **variables(marked),
    )
    wait_until(began.exists)
    slurm.run("scancel", *slurm.jobs())
    _, errors = running.communicate(timeout=60)
    assert running.returncode != 0, errors
    wait_until(lambda: processes_of(marked) == [])
    wait_until(slurm.is_idle)
    assert list(Path("/tmp").glob("oxiray-step-*")) == []


def test_a_step_with_several_tasks_a_node_is_refused(slurm: Slurm, marked: str) -> None:
    told = slurm.run("srun", "--nodes=1", "--ntasks=2", *OXIRAY, "symmetric-run", "--", "true", **variables(marked))
    assert told.returncode == 1
    assert "2 tasks on 1 nodes" in told.stderr and "--ntasks-per-node=1" in told.stderr


def test_a_node_that_does_not_come_is_told_of(slurm: Slurm, marked: str) -> None:
    # The second node's command fails, as one does that is not installed there.
    script = 'test "$SLURM_NODEID" = 1 && exit 7; exec "$@"'
    told = slurm.run(
        *("srun", "--nodes=2", "--ntasks-per-node=1", "sh", "-c", script, "sh", *OXIRAY, "symmetric-run", "--", "true"),
        **variables(marked),
        RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT="3",
    )
    assert told.returncode != 0
    assert "1 of 2 nodes are there after 3 s" in told.stderr
    wait_until(lambda: processes_of(marked) == [])
