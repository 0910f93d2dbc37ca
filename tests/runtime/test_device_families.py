"""Devices of the families other than NVIDIA's: whether they are well, and when they come back, on recorded machines whose files change."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import commands
import pytest
from watching import wait_until

import ray

HOSTS = Path(__file__).parents[1] / "fixtures" / "hosts"
# A device that is kept back is looked at every ten seconds.
KEPT_BACK_S = 40


class Machine:
    """A recorded machine, and a cluster on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, path: str, text: str) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def opens(self, pid: int, node: str) -> Path:
        """A process has a device node open; returns the process's folder."""
        process = self.folder / "proc" / str(pid)
        (process / "fd").mkdir(parents=True)
        (process / "fd" / "7").symlink_to(node)
        return process

    def devices(self) -> list[dict[str, Any]]:
        state = commands.run("status", "--json", f"--address={ray.get_runtime_context().gcs_address}")
        found: list[dict[str, Any]] = json.loads(state)["devices"]
        return found

    def reason(self, slot: int) -> str:
        """Why a device is out of service; nothing where it is in service."""
        return self.devices()[slot]["reason"] or ""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Machine]]:
    """Begins a cluster on a copy of a recorded machine, changed before that where it is asked for."""

    def begin(name: str, change: Callable[[Machine], None] = lambda _: None) -> Machine:
        ray.shutdown()
        made = Machine(tmp_path / "host")
        shutil.copytree(HOSTS / name, made.folder)
        change(made)
        monkeypatch.setenv("OXIRAY_HOST_ROOT", str(made.folder))
        ray.init(num_cpus=4)
        return made

    yield begin
    ray.shutdown()


@ray.remote(num_cpus=0)
def works(mark: str) -> int:
    """Tells its process, and works until it is told to end."""
    Path(mark).write_text(str(os.getpid()))
    wait_until(Path(f"{mark}.done").exists)
    return os.getpid()


def begun(mark: Path) -> int:
    """The process of a task that has begun."""
    wait_until(lambda: mark.exists() and mark.read_text() != "")
    return int(mark.read_text())


def as_kfd_knows(machine: Machine) -> None:
    """The compute driver calls the GPUs 100, 101 and so on."""
    for gpu in range(8):
        machine.write(f"sys/class/kfd/kfd/topology/nodes/{gpu + 2}/gpu_id", str(100 + gpu))


def test_an_amd_gpu_comes_back_when_its_driver_has_forgotten_the_dead(machine, tmp_path: Path) -> None:
    made = machine("amd-mi300x8", as_kfd_knows)
    mark = tmp_path / "mark"
    task = works.options(num_gpus=1).remote(str(mark))
    pid = begun(mark)
    made.write(f"sys/class/kfd/kfd/proc/{pid}/vram_100", "4096")
    made.write(f"sys/class/kfd/kfd/proc/{pid}/vram_101", "0")
    Path(f"{mark}.done").touch()
    assert ray.get(task, timeout=30) == pid
    wait_until(lambda: made.reason(0) != "", KEPT_BACK_S)
    assert made.reason(0) == f"process {pid} is dead, and the device still holds memory of it"
    assert ray.get(ray.remote(num_gpus=7)(ray.get_gpu_ids).remote(), timeout=30) == [1, 2, 3, 4, 5, 6, 7]
    shutil.rmtree(made.folder / f"sys/class/kfd/kfd/proc/{pid}")
    wait_until(lambda: made.reason(0) == "", KEPT_BACK_S)
    assert len(ray.get(ray.remote(num_gpus=8)(ray.get_gpu_ids).remote(), timeout=30)) == 8


def test_an_amd_gpu_comes_back_when_no_more_of_its_memory_is_in_use_than_before(machine, tmp_path: Path) -> None:
    in_use = "sys/bus/pci/devices/0000:0c:00.0/mem_info_vram_used"

    def before(made: Machine) -> None:
        as_kfd_knows(made)
        made.write(in_use, str(1 << 30))
        (made.folder / "sys/class/kfd/kfd/proc").mkdir()
        made.opens(1, "/dev/null")
        made.write("proc/1/fdinfo/7", "pos:\t0\n")

    made = machine("amd-mi300x8", before)
    # What is in use when the first who had it has gone is what is in use by nobody at any time.
    assert ray.get(ray.remote(num_gpus=1)(ray.get_gpu_ids).remote(), timeout=30) == [0]
    wait_until(lambda: ray.available_resources().get("GPU") == 8)
    mark = tmp_path / "mark"
    task = works.options(num_gpus=1).remote(str(mark))
    pid = begun(mark)
    made.write(in_use, str(6 << 30))
    Path(f"{mark}.done").touch()
    ray.get(task, timeout=30)
    wait_until(lambda: made.reason(0) != "", KEPT_BACK_S)
    said = f"GPU 0 still has 6.00 GiB in use by nobody that is listed (process {pid} had the device)"
    assert made.reason(0) == said, made.reason(0)
    made.write(in_use, str((1 << 30) + (200 << 20)))
    wait_until(lambda: made.reason(0) == "", KEPT_BACK_S)
    assert len(ray.get(ray.remote(num_gpus=8)(ray.get_gpu_ids).remote(), timeout=30)) == 8


def test_errors_that_could_not_be_corrected_take_an_amd_gpu_out_until_it_is_reset_or_a_person_says_so(machine) -> None:
    counts = "sys/bus/pci/devices/{}/ras/umc_err_count"
    addresses = ["0000:0c:00.0", "0000:22:00.0", "0000:38:00.0"]

    def count(made: Machine) -> None:
        made.write(counts.format(addresses[0]), "ue: 0\nce: 7\n")
        made.write(counts.format(addresses[1]), "ue: 1\nce: 0\n")

    made = machine("amd-mi300x8", count)
    wait_until(lambda: made.reason(1) != "")
    assert made.reason(1) == (
        "its driver counts errors of its hardware that could not be corrected (umc 1): reset it"
    )
    health = [device["health"] for device in made.devices()]
    assert health == ["healthy", "ill"] + ["unknown"] * 6, "what nothing is said of is not called healthy"
    made.write(counts.format(addresses[0]), "ue: 3\nce: 7\n")
    wait_until(lambda: "(umc 3)" in made.reason(0), KEPT_BACK_S)
    made.write(counts.format(addresses[0]), "ue: 0\nce: 0\n")
    wait_until(lambda: made.reason(0) == "", KEPT_BACK_S)
    address = f"--address={ray.get_runtime_context().gcs_address}"
    node = ray.get_runtime_context().get_node_id()
    commands.run("device", "undrain", f"{node}/1", address)
    wait_until(lambda: made.reason(1) == "")


def test_a_gaudi_is_out_of_service_as_long_as_its_driver_says_so(machine) -> None:
    status = "sys/class/accel/accel2/device/status"
    made = machine("gaudi2", lambda made: made.write(status, "needs reset\n"))
    wait_until(lambda: made.reason(2) == "its driver calls it `needs reset`")
    made.write(status, "operational\n")
    wait_until(lambda: made.reason(2) == "", KEPT_BACK_S)
    assert [device["health"] for device in made.devices()][1:4] == ["unknown", "healthy", "unknown"]


def test_a_gaudi_is_handed_on_when_it_was_reset_after_its_last_holder(machine, tmp_path: Path) -> None:
    made = machine("gaudi2")
    status = "sys/class/accel/accel0/device/status"
    mark = tmp_path / "mark"
    task = works.options(resources={"HPU": 1}).remote(str(mark))
    begun(mark)
    made.write(status, "in reset after device release\n")
    Path(f"{mark}.done").touch()
    ray.get(task, timeout=30)
    rest = works.options(resources={"HPU": 8}).remote(str(tmp_path / "rest"))
    wait_until(lambda: made.reason(0) != "", KEPT_BACK_S)
    assert made.reason(0) == "its driver has not made it ready again since it was used last"
    assert not (tmp_path / "rest").exists()
    made.write(status, "operational\n")
    begun(tmp_path / "rest")
    (tmp_path / "rest.done").touch()
    ray.get(rest, timeout=30)


def test_a_tpu_is_not_handed_on_while_anybody_has_it_open(machine, tmp_path: Path) -> None:
    made = machine("tpu-v4")
    mark = tmp_path / "mark"
    task = works.options(resources={"TPU": 1}).remote(str(mark))
    begun(mark)
    other = made.opens(os.getpid(), "/dev/accel0")
    Path(f"{mark}.done").touch()
    ray.get(task, timeout=30)
    wait_until(lambda: made.reason(0) != "", KEPT_BACK_S)
    assert made.reason(0) == f"process {os.getpid()} has the device open, which one process at a time can use"
    shutil.rmtree(other)
    made.opens(1, "/dev/accel3")
    wait_until(lambda: made.reason(0) == "", KEPT_BACK_S)
    assert {device["health"] for device in made.devices()} == {"unknown"}, "nobody tells"


def test_all_cores_of_a_neuron_device_with_errors_are_out_of_service(machine) -> None:
    count = "sys/devices/virtual/neuron_device/neuron1/stats/hardware/mem_ecc_uncorrected"
    made = machine("neuron-trn1", lambda made: made.write(count, "1\n"))
    reason = "its driver counts errors of its hardware that could not be corrected (memory 1): reset it"
    wait_until(lambda: [made.reason(core) for core in range(5)] == ["", "", reason, reason, ""])
    assert ray.get(works_on_cores.options(resources={"neuron_cores": 4}).remote(), timeout=30) == ["0", "1", "4", "5"]


@ray.remote(num_cpus=0)
def works_on_cores() -> list[str]:
    return os.environ["NEURON_RT_VISIBLE_CORES"].split(",")


def test_what_an_ascend_calls_critical_is_out_of_service(machine) -> None:
    def change(made: Machine) -> None:
        table = made.folder / "npu-smi.txt"
        table.write_text(table.read_text().replace("| 5     910B4               | OK      ", "| 5     910B4               | Critical"))

    made = machine("ascend-910b", change)
    wait_until(lambda: made.reason(5) == "`npu-smi` calls its condition `Critical`")
    assert made.devices()[4]["health"] == "healthy"
