"""The watch: a device that a process has open without a grant is told to its driver and in `oxiray status`.

The recorded machine has nodes that open anywhere: its GPU 0 is /dev/full, its GPU 1 is /dev/zero.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from watching import wait_until

HOSTS = Path(__file__).resolve().parent.parent / "fixtures" / "hosts"


def opening(path: str, until: str, *, in_child: bool = False) -> int:
    """Has a device node open until a file is there; returns whose process it was."""
    if in_child:
        program = "import os, sys, time\nnode = open(sys.argv[1])\nwhile not os.path.exists(sys.argv[2]): time.sleep(0.01)"
        with subprocess.Popen([sys.executable, "-c", program, path, until]) as child:
            return child.pid
    with open(path, "rb"):
        Path(f"{until}.{os.path.basename(path)}").touch()
        wait_until(lambda: os.path.exists(until))
    return os.getpid()


opens = ray.remote(opening)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """A cluster on such a machine; tells what of its devices is open without a grant."""
    yield from a_watched_cluster(tmp_path, monkeypatch)


@pytest.fixture
def fencing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """The same, where workers are fenced that can be."""
    yield from a_watched_cluster(tmp_path, monkeypatch, device_isolation="fence")


@pytest.fixture
def watching_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """The same, where nobody is watched who does not ask for it."""
    yield from a_watched_cluster(tmp_path, monkeypatch, device_isolation="variable")


@pytest.fixture
def ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """The same, where who has something open without a grant is ended."""
    yield from a_watched_cluster(tmp_path, monkeypatch, device_violations="end")


def status(address: str) -> dict[str, Any]:
    """What `oxiray status` says."""
    command = [str(Path(sys.executable).with_name("oxiray")), "status", "--json", "--address", address]
    state: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return state


def a_watched_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: str
) -> Iterator[Callable[[], list[str]]]:
    host = tmp_path / "host"
    shutil.copytree(HOSTS / "nvidia-h100x8", host)
    description = json.loads((host / "host.json").read_text())
    description["nodes"].update({"/dev/nvidia0": "1:7", "/dev/nvidia1": "1:5"})
    (host / "host.json").write_text(json.dumps(description))
    monkeypatch.setenv("OXIRAY_HOST_ROOT", str(host))
    ray.shutdown()
    head = {"num_cpus": 4, "num_gpus": 8, "device_isolation": "watch", **options}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address)

    def violations() -> list[str]:
        return [text for device in status(cluster.address)["devices"] for text in device["violations"]]

    yield violations
    ray.shutdown()
    cluster.shutdown()


def test_what_is_open_without_a_grant_is_told_and_withdrawn(watched, tmp_path: Path, capfd) -> None:
    done = tmp_path / "done"
    task = opens.options(num_gpus=1, name="greedy").remote("/dev/zero", str(done))
    said: list[str] = []

    def is_told() -> bool:
        said.append(capfd.readouterr().err)
        return "GPU 1 open" in "".join(said)

    wait_until((tmp_path / "done.zero").exists)
    wait_until(is_told)
    text = "".join(said)
    assert "greedy" in text and "granted GPU 0) has GPU 1 open (/dev/zero)" in text, text
    (violation,) = watched()
    state = status(ray.get_runtime_context().gcs_address)
    kept = state["nodes"][0]["isolation"]
    assert (kept["asked"], kept["in_force"], kept["reason"]) == ("watch", "watched", "") and kept["watch_period_s"] >= 1
    first, second = state["devices"][:2]
    assert {"path": "/dev/nvidia0", "major": 1, "minor": 7} in first["nodes"], first
    assert {"path": "/dev/nvidia1", "major": 1, "minor": 5} in second["nodes"], second
    assert first["holders"][0]["isolation"]["realm"] == [{"resource": "GPU", "slots": [0]}]
    other = opens.options(num_gpus=1).remote("/dev/full", str(done))
    wait_until(lambda: len(watched()) == 2)
    assert "GPU 1 open" not in capfd.readouterr().err, "it is told once, although it was seen again with the other"
    done.touch()
    pid, _ = ray.get([task, other], timeout=20)
    assert f"pid {pid}, granted GPU 0" in violation
    wait_until(lambda: not watched())


def test_a_request_is_watched_where_its_node_is_not(watching_nobody, tmp_path: Path) -> None:
    done = tmp_path / "done"
    for name, mode, path in [("free", None, "/dev/zero"), ("asked", "watch", "/dev/full")]:
        opens.options(num_gpus=1, name=name, device_isolation=mode).remote(path, str(done))
        wait_until(Path(f"{done}.{os.path.basename(path)}").exists)
    wait_until(watching_nobody)
    (violation,) = watching_nobody()
    assert violation.startswith("asked (pid") and "has GPU 0 open" in violation, violation
    done.touch()


def test_what_a_task_starts_is_looked_at_too(watched, tmp_path: Path) -> None:
    done = tmp_path / "done"
    task = opens.options(num_gpus=1).remote("/dev/zero", str(done), in_child=True)
    wait_until(watched)
    (violation,) = watched()
    done.touch()
    assert f"its process {ray.get(task, timeout=20)} has GPU 1 open" in violation


def test_own_devices_and_those_of_the_own_group_are_no_violation(watched, tmp_path: Path) -> None:
    done = tmp_path / "done"
    group = ray.util.placement_group([{"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}])
    ray.get(group.ready(), timeout=20)
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
    within = []
    for index, path in enumerate(["/dev/zero", "/dev/full"]):
        placed = strategy(group, placement_group_bundle_index=index)
        within.append(opens.options(num_gpus=1, scheduling_strategy=placed).remote(path, str(done)))
        wait_until(Path(f"{done}.{os.path.basename(path)}").exists)
    # A third one is told, by a look that found these two as well.
    outside = opens.options(num_gpus=1).remote("/dev/zero", str(done))
    wait_until(watched)
    (violation,) = watched()
    assert "granted GPU 2" in violation, violation
    done.touch()
    ray.get([*within, outside], timeout=20)


def test_a_task_without_devices_is_told_of(watched, tmp_path: Path) -> None:
    done = tmp_path / "done"
    task = opens.remote("/dev/full", str(done))
    wait_until(watched)
    assert "granted no device) has GPU 0 open" in watched()[0]
    done.touch()
    ray.get(task, timeout=20)


def test_a_task_that_is_ended_for_it_fails_and_is_not_run_again(ending, tmp_path: Path) -> None:
    runs = tmp_path / "runs"

    @ray.remote(num_gpus=1, max_retries=3)
    def greedy() -> None:
        with runs.open("a") as file:
            file.write("run\n")
        opening("/dev/zero", str(tmp_path / "never"))

    with pytest.raises(ray.exceptions.DeviceViolationError) as caught:
        ray.get(greedy.remote(), timeout=30)
    text = str(caught.value)
    assert "greedy (pid" in text and "granted GPU 0) has GPU 1 open (/dev/zero) without having been granted it" in text
    assert "--device-violations=end" in text
    assert runs.read_text() == "run\n"
    wait_until(lambda: not ending())
    assert ray.get(opens.options(num_gpus=2).remote("/dev/zero", str(tmp_path)), timeout=20), "GPU 1 is its own"


def test_an_actor_that_is_ended_for_it_is_not_made_again(ending, tmp_path: Path) -> None:
    @ray.remote(num_gpus=1, max_restarts=-1, max_task_retries=-1)
    class Greedy:
        def open(self) -> None:
            opening("/dev/zero", str(tmp_path / "never"))

    actor = Greedy.remote()
    with pytest.raises(ray.exceptions.ActorDiedError, match="has GPU 1 open"):
        ray.get(actor.open.remote(), timeout=30)


def test_what_is_not_fenced_is_watched(fencing, tmp_path: Path) -> None:
    done = tmp_path / "done"
    chooses = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
    task = opens.options(num_gpus=1, runtime_env=chooses).remote("/dev/zero", str(done))
    wait_until(fencing)
    (violation,) = fencing()
    assert "granted GPU 0) has GPU 1 open (/dev/zero)" in violation
    done.touch()
    ray.get(task, timeout=20)
    wait_until(lambda: not fencing())


def test_there_are_two_things_that_may_become_of_it() -> None:
    ray.shutdown()
    with pytest.raises(ValueError, match="is `forgive`; it is to be `report` or `end`"):
        ray.init(num_cpus=1, device_isolation="watch", device_violations="forgive")
