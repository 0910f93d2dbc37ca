"""Clusters over the nodes of a Slurm job: `srun oxiray symmetric-run -- PROGRAM`, with a real controller and two real nodes."""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from nvml import Answers, library
from slurm import GPUS, Slurm, running
from watching import processes_of, wait_until

#: The program of the document on accelerators, as `tests/programs` has it.
ACCELERATORS = Path(__file__).resolve().parent.parent / "programs" / "seed_003" / "devices_nvidia.py"
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
    with running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


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


def with_devices(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node of Slurm finds as many devices as that has given it."""
    gpus = [f"NVIDIA H100 80GB HBM3|GPU-{bus}|00000000:0{bus}:00.0|85520809984|0||||\n" for bus in range(4, 4 + GPUS)]
    Answers(folder, monkeypatch, library()).write("driver=550.54.15\n" + "".join(gpus))


@contextmanager
def first_device_of_n1_taken(slurm: Slurm) -> Iterator[None]:
    """Another job has the first device of the first node, so that what is granted is not what would be found."""
    # A job that a test before had may be about to leave its nodes, and would be taken for this one.
    wait_until(slurm.is_idle)
    other = slurm.begin("srun", "--nodelist=n1", "--gres=gpu:1", "--overlap", "sleep", "600")
    wait_until(lambda: len(slurm.jobs()) == 1)
    jobs = slurm.jobs()
    try:
        yield
    finally:
        slurm.run("scancel", *jobs)
        other.communicate()


def test_each_node_offers_the_devices_that_slurm_granted_it(
    slurm: Slurm, marked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_devices(tmp_path, monkeypatch)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with first_device_of_n1_taken(slurm):
        told = slurm.run(
            *("srun", "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1", *OXIRAY, "symmetric-run", "--"),
            *(sys.executable, str(program)),
            **variables(marked),
        )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout) == {
        "nodes": 2,
        "gpus": 2,
        "held": [["n1", ["1"], "1"], ["n2", ["0"], "0"]],
    }


def test_the_documents_program_has_in_each_rank_the_devices_that_slurm_granted(
    slurm: Slurm, marked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_devices(tmp_path, monkeypatch)
    # Each rank says what Slurm granted it, and becomes the program, word for word.
    script = 'echo "granted $CUDA_VISIBLE_DEVICES"; exec "$@"'
    with first_device_of_n1_taken(slurm):
        told = slurm.run(
            *("srun", "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:2", "--label", "sh", "-c", script, "sh"),
            *(sys.executable, str(ACCELERATORS)),
            **variables(marked),
        )
    assert told.returncode == 0, told.stderr
    for rank, granted in enumerate(["1,2", "0,1"]):
        lines = [line.removeprefix(f"{rank}: ") for line in told.stdout.splitlines() if line.startswith(f"{rank}: ")]
        first, second = granted.split(",")
        shown = [re.sub(r"^\((\w+) pid=\d+\) ", r"\1: ", line) for line in lines]
        assert sorted(shown) == sorted(
            [
                f"granted {granted}",
                f"GPUActor: GPU IDs: ['{first}']",
                f"GPUActor: CUDA_VISIBLE_DEVICES: {first}",
                f"gpu_task: GPU IDs: ['{second}']",
                f"gpu_task: CUDA_VISIBLE_DEVICES: {second}",
            ]
        )
    wait_until(lambda: processes_of(marked) == [])


#: The document's actor on each device of the cluster that it is in, until it is ended.
HOLDING = """
import time
holders = [GPUActor.remote() for _ in range(int(ray.cluster_resources()["GPU"]))]
ray.get([holder.ping.remote() for holder in holders])
time.sleep(600)
"""


def test_the_documents_actors_hold_what_slurm_granted_and_nothing_is_left_when_that_is_cancelled(
    slurm: Slurm, marked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_devices(tmp_path, monkeypatch)
    head, _, _ = ACCELERATORS.read_text().partition("gpu_actor = GPUActor.remote()")
    own = 'print("on", os.environ["SLURMD_NODENAME"], os.environ["CUDA_VISIBLE_DEVICES"])'
    head = head.replace("ray.init(num_gpus=2)", "ray.init()").replace("def ping(self):\n", f"def ping(self):\n        {own}\n")
    program = tmp_path / "program.py"
    program.write_text(head + HOLDING)
    command = ("srun", "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:2", *OXIRAY, "symmetric-run", "--")
    running = slurm.begin(*command, sys.executable, str(program), **variables(marked), RAY_DEDUP_LOGS="0")
    assert running.stdout is not None
    told = "".join(running.stdout.readline() for _ in range(4 * 3))
    slurm.run("scancel", *slurm.jobs())
    _, errors = running.communicate(timeout=60)
    assert running.returncode != 0, errors
    shown = sorted(re.findall(r"\) on (n\d \d)$", told, re.MULTILINE))
    assert shown == ["n1 0", "n1 1", "n2 0", "n2 1"], told
    assert sorted(re.findall(r"GPU IDs: \['(\d)'\]", told)) == ["0", "0", "1", "1"], told
    wait_until(lambda: processes_of(marked) == [])
    wait_until(slurm.is_idle)
    assert list(Path("/tmp").glob("oxiray-step-*")) == []


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
