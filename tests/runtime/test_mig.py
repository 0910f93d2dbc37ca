"""GPUs that are partitioned into MIG instances: what a node offers of them, and what a process is shown."""

from __future__ import annotations

import os
from pathlib import Path

import commands
import pytest

import ray
from ray.exceptions import ActorUnschedulableError, TaskUnschedulableError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

HOSTS = Path(__file__).resolve().parent.parent / "fixtures" / "hosts"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    """Starts a cluster of one recorded machine."""
    ray.shutdown()
    request.addfinalizer(ray.shutdown)

    def start(name: str, strategy: str = "", **options: object) -> dict[str, float]:
        monkeypatch.setenv("OXIRAY_HOST_ROOT", str(HOSTS / name))
        monkeypatch.setenv("OXIRAY_MIG_STRATEGY", strategy)
        ray.init(num_cpus=4, **options)
        names = ("GPU", "mig-1g.5gb", "mig-2g.10gb", "mig-3g.20gb", "mig-3g.40gb")
        return {name: ray.cluster_resources().get(name, 0.0) for name in names if name in ray.cluster_resources()}

    return start


@ray.remote(num_cpus=0)
def shown() -> tuple[str | None, dict[str, list[str]], list[int | str]]:
    """What a process is shown, in its environment and by the runtime."""
    return os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_runtime_context().get_accelerator_ids(), ray.get_gpu_ids()


@ray.remote(num_cpus=0)
class Holder:
    def shown(self) -> str | None:
        return os.environ.get("CUDA_VISIBLE_DEVICES")


def test_each_instance_is_one_of_its_profiles_resource(machine) -> None:
    assert machine("nvidia-a100-mig") == {"GPU": 1.0, "mig-1g.5gb": 2.0, "mig-2g.10gb": 1.0, "mig-3g.20gb": 1.0}
    variable, ids, gpus = ray.get(shown.options(resources={"mig-2g.10gb": 1}).remote(), timeout=30)
    assert (variable, ids["mig-2g.10gb"], gpus) == ("MIG-a05", ["MIG-a05"], [])
    variable, ids, gpus = ray.get(shown.options(num_gpus=1).remote(), timeout=30)
    assert (variable, ids["GPU"], gpus) == ("GPU-a2", ["GPU-a2"], ["GPU-a2"]), "the whole one"
    holders = [Holder.options(resources={"mig-1g.5gb": 1}).remote() for _ in range(3)]
    first_two = ray.get([holder.shown.remote() for holder in holders[:2]], timeout=30)
    assert sorted(first_two) == ["MIG-a0d", "MIG-a0e"]
    third = holders[2].shown.remote()
    assert ray.wait([third], timeout=0.5) == ([], [third]), "there are two"
    ray.kill(holders[0])
    assert ray.get(third, timeout=30) == first_two[0]
    status = commands.run("status", f"--address={ray.get_runtime_context().gcs_address}")
    assert "mig-1g.5gb 0" in status, status


def test_a_process_can_have_one(machine) -> None:
    machine("nvidia-a100-mig")
    for count in (2, 0.5):
        with pytest.raises(ValueError, match="a process can use one of them, whole, so ask for 1"):
            shown.options(resources={"mig-1g.5gb": count}).remote()
    both = shown.options(num_gpus=1, resources={"mig-1g.5gb": 1}).remote()
    with pytest.raises(TaskUnschedulableError, match="`mig-1g.5gb` and `GPU` together are no use to one process"):
        ray.get(both, timeout=30)
    free = ray.available_resources()
    assert (free["GPU"], free["mig-1g.5gb"]) == (1.0, 2.0), "nothing of it is held"


def test_instances_of_one_size_may_be_gpus(machine) -> None:
    assert machine("nvidia-h100-mig", "single") == {"GPU": 4.0}
    variable, ids, gpus = ray.get(shown.options(num_gpus=1).remote(), timeout=30)
    assert (variable, ids["GPU"], gpus) == ("MIG-b01", ["MIG-b01"], ["MIG-b01"])
    with pytest.raises(TaskUnschedulableError, match="2 of `GPU` are no use to one process"):
        ray.get(shown.options(num_gpus=2).remote(), timeout=30)
    with pytest.raises(ActorUnschedulableError, match="2 of `GPU` are no use to one process"):
        ray.get(Holder.options(num_gpus=2).remote().shown.remote(), timeout=30)
    halves = [Holder.options(num_gpus=0.5).remote() for _ in range(2)]
    one, other = ray.get([half.shown.remote() for half in halves], timeout=30)
    assert one == other, "shares of one"
    # Memory of one instance is asked for as that of a GPU is.
    assert ray.get(shown.options(gpu_memory="30GiB").remote(), timeout=30)[0] not in (None, one)


@ray.remote(num_cpus=0)
def kept() -> tuple[int, str | None]:
    """How much memory of its device a process has, and what keeps it to that."""
    (device,) = ray.get_runtime_context().get_devices()
    return device["memory_bytes"], device["memory_tier"]


def test_who_has_all_memory_of_an_instance_is_kept_to_it_by_the_instance(machine) -> None:
    machine("nvidia-h100-mig", "single", gpu_memory_enforcement="require:mig,framework")
    size, _ = ray.get(kept.options(num_gpus=1).remote(), timeout=30)
    assert ray.get(kept.options(gpu_memory=size).remote(), timeout=30) == (size, "mig")
    assert ray.get(kept.options(gpu_memory=size // 2).remote(), timeout=30)[1] == "framework", "half of one is no instance"


def test_a_bundle_may_hold_several(machine) -> None:
    machine("nvidia-a100-mig")
    group = ray.util.placement_group([{"mig-1g.5gb": 2, "CPU": 1}])
    ray.get(group.ready(), timeout=30)
    within = PlacementGroupSchedulingStrategy(group)
    options = {"resources": {"mig-1g.5gb": 1}, "scheduling_strategy": within}
    holders = [Holder.options(**options).remote() for _ in range(2)]
    assert sorted(ray.get([holder.shown.remote() for holder in holders], timeout=30)) == ["MIG-a0d", "MIG-a0e"]


def test_partitioned_gpus_may_be_left_out(machine) -> None:
    assert machine("nvidia-a100-mig", "none") == {"GPU": 1.0}
    ray.shutdown()
    assert machine("nvidia-a100-mig", num_gpus=0) == {}, "who wants no GPUs wants no parts of them"


def test_hardware_shows_instances_and_start_refuses_what_cannot_be(machine) -> None:
    told = commands.run("hardware", "--host-root", str(HOSTS / "nvidia-a100-mig"))
    assert "MIG 1g.5gb, 5 GiB, MIG-a0d, /dev/nvidia0 195:0, /dev/nvidia-caps/nvidia-cap16 511:16" in told, told
    with pytest.raises(ValueError, match="GPU 2 of this machine is whole: use --mig=mixed"):
        machine("nvidia-a100-mig", "single")
    with pytest.raises(ValueError, match="OXIRAY_MIG_STRATEGY .or --mig. is `both`, but it must be"):
        machine("nvidia-a100-mig", "both")
