"""Memory of a GPU that others have: who has it by the lists of the driver's library, and what is left of it when a task is done."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import commands
import nvml
import pytest
from watching import wait_until

import ray

GIB = 1 << 30

pytestmark = pytest.mark.skipif(
    os.readlink("/proc/self/ns/pid") != "pid:[4026531836]",
    reason="processes are called otherwise here than the library calls them",
)


class Machine:
    """Two GPUs of 80 GiB, and what the library says of them."""

    def __init__(self, answers: nvml.Answers) -> None:
        self._answers = answers
        self.says()

    def says(self, first: dict[int, int] | None = None, second: dict[int, int] | None = None, *, unlisted: int = 0, more: str = "") -> None:
        """Who has how many bytes of each; `unlisted` are in use of the first besides."""

        def line(name: str, listed: dict[int, int], beside: int) -> str:
            processes = ",".join(f"{pid}:{bytes_}" for pid, bytes_ in listed.items())
            return f"NVIDIA H100|GPU-{name}||{80 * GIB}|{sum(listed.values()) + beside}|{processes}||0\n"

        self._answers.write(line("a", first or {}, unlisted) + line("b", second or {}, 0) + more)

    def devices(self) -> list[dict[str, Any]]:
        """The devices of `oxiray status --json`."""
        said = commands.run("status", "--json", f"--address={ray.get_runtime_context().gcs_address}")
        found: list[dict[str, Any]] = json.loads(said)["devices"]
        return found


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that Oxiray did not start."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    ray.shutdown()
    made = Machine(nvml.Answers(tmp_path, monkeypatch, nvml.library()))
    yield made
    ray.shutdown()


@ray.remote(num_cpus=0, num_gpus=1)
class Holder:
    def child(self) -> int:
        return subprocess.Popen(["sleep", "600"]).pid


@ray.remote(num_cpus=0, num_gpus=1)
def slot() -> int:
    return ray.get_gpu_ids()[0]


def test_who_else_has_memory_of_a_gpu_is_named(
    machine: Machine, stranger: subprocess.Popen[bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    ray.init(num_cpus=2, num_gpus=2)
    holder = Holder.remote()
    child = ray.get(holder.child.remote(), timeout=60)
    machine.says({child: 5 * GIB}, more=f"mps=0:{stranger.pid}:{3 * GIB}\n")
    wait_until(lambda: machine.devices()[0]["foreign"])
    (used,) = machine.devices()[0]["foreign"]
    assert used == {"pid": stranger.pid, "name": "sleep", "used_bytes": 3 * GIB, "is_of_other_node": False}
    text = f"also used by pid {stranger.pid} (sleep), not Oxiray's: 3.0 GiB"
    assert text in commands.run("status", f"--address={ray.get_runtime_context().gcs_address}")
    said: list[str] = []

    def is_told() -> bool:
        said.append(capfd.readouterr().err)
        return f"GPU 0 is also used by pid {stranger.pid} (sleep), not Oxiray's: 3.00 GiB" in "".join(said)

    wait_until(is_told)
    machine.says({child: 5 * GIB}, {stranger.pid: GIB})
    wait_until(lambda: machine.devices()[1]["foreign"])
    assert machine.devices()[0]["foreign"] == []
    # The dead are nobody's use, whatever the driver says.
    stranger.kill()
    stranger.wait()
    wait_until(lambda: machine.devices()[1]["foreign"] == [])


def test_a_worker_that_is_listed_beyond_its_grant_violates_it(machine: Machine) -> None:
    ray.init(num_cpus=2, num_gpus=2, device_isolation="watch")
    holder = Holder.remote()
    child = ray.get(holder.child.remote(), timeout=60)
    machine.says({child: 5 * GIB}, {child: GIB})
    wait_until(lambda: machine.devices()[1]["violations"])
    (text,) = machine.devices()[1]["violations"]
    assert f"granted GPU 0): its process {child} has memory of GPU 1 (1.00 GiB)" in text, text
    assert machine.devices()[0]["violations"] == [] == machine.devices()[1]["foreign"]
    machine.says({child: 5 * GIB})
    wait_until(lambda: not machine.devices()[1]["violations"])


def test_who_is_listed_beyond_its_grant_is_ended_where_violators_are(machine: Machine) -> None:
    ray.init(num_cpus=2, num_gpus=2, device_isolation="watch", device_violations="end")
    holder = Holder.remote()
    machine.says({}, {ray.get(holder.child.remote(), timeout=60): GIB})
    with pytest.raises(ray.exceptions.ActorDiedError, match="has memory of GPU 1"):
        while True:
            ray.get(holder.child.remote(), timeout=60)


def test_a_gpu_whose_memory_is_not_back_is_given_to_nobody_until_it_is(
    machine: Machine, stranger: subprocess.Popen[bytes]
) -> None:
    machine.says(unlisted=GIB)
    ray.init(num_cpus=2, num_gpus=1)
    holder = Holder.remote()
    ray.get(holder.child.remote(), timeout=60)
    # What others have by the list is theirs, however much it has grown meanwhile, and a little more than before is borne.
    machine.says({stranger.pid: 40 * GIB}, unlisted=GIB + GIB // 8)
    ray.kill(holder)
    holder = Holder.remote()
    # A device that is kept back stays so: nothing of what is in use changes meanwhile.
    ray.get(holder.child.remote(), timeout=60)
    machine.says({stranger.pid: 40 * GIB}, unlisted=4 * GIB)
    ray.kill(holder)
    waits = slot.remote()
    wait_until(lambda: machine.devices()[0]["reason"])
    device = machine.devices()[0]
    assert device["reason"].startswith("GPU 0 still has 4.00 GiB in use by nobody that is listed"), device
    assert ray.wait([waits], timeout=0.1)[0] == []
    machine.says({stranger.pid: 40 * GIB}, unlisted=GIB)
    assert ray.get(waits, timeout=60) == 0
    assert machine.devices()[0]["reason"] is None
