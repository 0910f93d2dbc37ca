"""Seeds 000, 001 and 003: a machine started from the shell with some devices visible offers those and no others."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import documented
import pytest

RAY = Path(sys.executable).parent / "ray"
ATTACHED = documented.PROGRAMS / "attached" / "devices.py"
# The seeds' tips, word for word: variable, flag, and which resource it is about; the GPU family where it is not NVIDIA.
TIPS = [
    ("CUDA_VISIBLE_DEVICES", "--num-gpus=2", "GPU", None),
    ("ROCR_VISIBLE_DEVICES", "--num-gpus=2", "GPU", "amd"),
    ("ONEAPI_DEVICE_SELECTOR", "--num-gpus=2", "GPU", "intel"),
    ("NEURON_RT_VISIBLE_CORES", '--resources={"neuron_cores": 2}', "neuron_cores", None),
    ("TPU_VISIBLE_CHIPS", '--resources={"TPU": 2}', "TPU", None),
    ("HABANA_VISIBLE_MODULES", '--resources={"HPU": 2}', "HPU", None),
    ("ASCEND_RT_VISIBLE_DEVICES", '--resources={"NPU": 2}', "NPU", None),
]


class Machine:
    """A folder for one started session, and the commands run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *command: str | Path, **extra: str) -> documented.Outcome:
        """Run a command that belongs to this machine's session."""
        return documented.execute(command, documented.clean_environment(self.folder, extra))


@pytest.fixture
def machine() -> Iterator[Machine]:
    folder = Path(tempfile.mkdtemp(prefix="oxi-"))
    machine = Machine(folder)
    try:
        yield machine
    finally:
        machine.run(RAY, "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(("variable", "flag", "resource", "family"), TIPS, ids=[tip[0] for tip in TIPS])
def test_only_visible_devices_are_offered(
    machine: Machine, variable: str, flag: str, resource: str, family: str | None
) -> None:
    extra = {variable: "1,3"} | ({"OXIRAY_GPU_FAMILY": family} if family else {})
    started = machine.run(RAY, "start", "--head", "--num-cpus=2", flag, **extra)
    assert started.status == 0, started
    program = machine.run(sys.executable, ATTACHED, resource, variable)
    assert program.status == 0, program
    found = json.loads(program.lines[-1])
    assert found["offered"] == 2
    # Each holder is given one of the two devices that were visible, by the name the variable gave it.
    assert sorted(ids for ids, _ in found["shown"]) == [["1"], ["3"]]
    assert all(text == ids[0] for ids, text in found["shown"]), found


def test_more_devices_than_visible_is_refused(machine: Machine) -> None:
    refused = machine.run(RAY, "start", "--head", "--num-gpus=3", CUDA_VISIBLE_DEVICES="1,3")
    assert refused.status != 0
    said = " ".join(refused.lines + refused.errors)
    assert "CUDA_VISIBLE_DEVICES" in said and "3" in said, said


def test_more_devices_than_the_machine_has_is_shown(machine: Machine) -> None:
    started = machine.run(RAY, "start", "--head", "--num-gpus=4")
    assert started.status == 0, started
    status = machine.run(RAY, "status")
    assert status.status == 0, status
    assert [line for line in status.lines if "GPU" in line and "4" in line], status


def test_a_stopped_machine_leaves_no_process(machine: Machine) -> None:
    started = machine.run(RAY, "start", "--head", "--num-gpus=1")
    assert started.status == 0, started
    assert machine.run(sys.executable, "-c", "import ray; ray.init(address='auto')").status == 0
    stopped = machine.run(RAY, "stop")
    assert stopped.status == 0, stopped
    # Every process of the session carries its folder in its environment.
    mark = f"RAY_TMPDIR={machine.folder}".encode()
    left = lambda: [path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if mark in read_environment(path)]  # noqa: E731
    end = time.monotonic() + 60
    while left():
        assert time.monotonic() < end, f"still running after `ray stop`: {left()}"
        time.sleep(0.1)
    refused = machine.run(sys.executable, "-c", "import ray; ray.init(address='auto')")
    assert refused.status != 0 and "ConnectionError" in " ".join(refused.errors), refused


def read_environment(path: Path) -> list[bytes]:
    """The variables of a process; none where it is gone or not ours to read."""
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []
