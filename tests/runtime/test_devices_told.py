"""What a process may know of the devices that it was granted: `get_runtime_context().get_devices()`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nvml
import pytest

import ray

GIB = 1 << 30
#: Where the recorded machine has its GPUs.
BUSES = ["19", "3B", "4C", "5D", "9B", "BB", "CB", "DB"]
EIGHT = "".join(f"NVIDIA H100 80GB HBM3|GPU-{slot}|00000000:{bus}:00.0|{80 * GIB}|0|||0\n" for slot, bus in enumerate(BUSES))


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    ray.shutdown()
    request.addfinalizer(ray.shutdown)
    nvml.Answers(tmp_path, monkeypatch, nvml.library()).write(EIGHT)
    ray.init(num_cpus=2)


@ray.remote(num_cpus=0)
def told() -> list[dict[str, Any]]:
    return ray.get_runtime_context().get_devices()


def row(slot: int, ordinal: int = 0, share: float = 1.0, memory_bytes: int = 80 * GIB) -> dict[str, Any]:
    bus = BUSES[slot].lower()
    known = {"uuid": f"GPU-{slot}", "pci_address": f"0000:{bus}:00.0", "isolation": "variable"}
    own = {"resource": "GPU", "slot": slot, "ordinal": ordinal, "id": str(slot), "share": share, "memory_bytes": memory_bytes}
    return {**known, **own, "memory_tier": None, "memory_watched": False}


def test_devices_are_told_with_where_they_are_and_how_much_of_each_is_granted() -> None:
    assert ray.get(told.options(num_gpus=2).remote(), timeout=60) == [row(0, 0), row(1, 1)]
    # Whichever is free by now.
    (device,) = ray.get(told.options(num_gpus=0.25).remote(), timeout=60)
    assert device == row(device["slot"], share=0.25, memory_bytes=20 * GIB)
    (device,) = ray.get(told.options(gpu_memory="8GiB").remote(), timeout=60)
    # Whether it is watched is known when the library has said who has memory of the device.
    kept = {"memory_tier": "framework", "memory_watched": device["memory_watched"]}
    assert device == {**row(device["slot"], share=0.1, memory_bytes=8 * GIB), **kept}
    assert ray.get(told.remote(), timeout=60) == [] and ray.get_runtime_context().get_devices() == []


def test_an_actor_is_told_of_those_that_it_keeps() -> None:
    @ray.remote(num_gpus=1)
    class Holder:
        def slots(self) -> list[int]:
            return [device["slot"] for device in ray.get_runtime_context().get_devices()]

    first, second = Holder.remote(), Holder.remote()
    assert ray.get([first.slots.remote(), second.slots.remote()], timeout=60) == [[0], [1]]
