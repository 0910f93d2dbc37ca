"""`gpu_memory`: bytes of one GPU in place of a share of one, how much frameworks are told they may take, and who takes more."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import commands
import nvml
import pytest

import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

GIB = 1 << 30


@pytest.fixture(scope="module", autouse=True)
def _two_gpus() -> Any:
    """A cluster with two GPUs of 16 GiB in name only."""
    ray.shutdown()
    ray.init(num_cpus=8, num_gpus=2, gpu_memory="16GiB")
    yield
    ray.shutdown()


@ray.remote(gpu_memory="6GiB", num_cpus=0)
class Holder:
    def facts(self) -> dict[str, Any]:
        return {
            "ids": ray.get_gpu_ids(),
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "resources": ray.get_runtime_context().get_assigned_resources(),
            "variables": {name: value for name, value in os.environ.items() if _is_of_memory(name)},
        }

    def devices(self) -> list[dict[str, Any]]:
        return ray.get_runtime_context().get_devices()

    def preloaded(self) -> tuple[str, str, str]:
        child = subprocess.run([sys.executable, "-c", "print(open('/proc/self/maps').read())"], capture_output=True, text=True)
        return os.environ.get("LD_PRELOAD", ""), Path("/proc/self/maps").read_text(), child.stdout


def _is_of_memory(name: str) -> bool:
    return any(part in name for part in ("GPU_MEM", "MEM_FRACTION", "MEM_LIMIT", "MEMORY_LIMIT_0"))


@ray.remote(gpu_memory=10 * GIB, num_cpus=0)
def device() -> int:
    return ray.get_gpu_ids()[0]


def test_a_gpu_is_shared_by_memory_and_no_further() -> None:
    holders = [Holder.remote() for _ in range(4)]
    facts = ray.get([holder.facts.remote() for holder in holders])
    assert [one["ids"] for one in facts] == [[0], [0], [1], [1]]
    assert [one["visible"] for one in facts] == ["0", "0", "1", "1"]
    assert facts[0]["resources"] == {"GPU": 0.375, "gpu_memory": 6 * GIB}
    # Four GiB of each are left.
    waits = device.remote()
    assert ray.wait([waits], timeout=0.5)[0] == []
    assert ray.get(device.options(gpu_memory="4 GiB").remote()) in (0, 1)
    assert ray.get(device.options(gpu_memory=None, num_gpus=0.25).remote()) in (0, 1)
    ray.kill(holders[2])
    ray.kill(holders[3])
    assert ray.get(waits, timeout=60) == 1
    ray.kill(holders[0])
    ray.kill(holders[1])


def test_what_a_framework_may_take_is_said_unless_the_user_says_otherwise() -> None:
    holder = Holder.options(gpu_memory=8 * GIB).remote()
    said = ray.get(holder.facts.remote())["variables"]
    # Half a GiB is what a process needs besides.
    kept = 8 * GIB - GIB // 2
    assert said["OXIRAY_GPU_MEMORY"] == str(8 * GIB)
    assert said["CUPY_GPU_MEMORY_LIMIT"] == str(kept)
    assert said["OXIRAY_GPU_MEMORY_FRACTION"] == said["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.4687"
    own = Holder.options(gpu_memory=1 * GIB, runtime_env={"env_vars": {"CUPY_GPU_MEMORY_LIMIT": "7"}}).remote()
    assert ray.get(own.facts.remote())["variables"]["CUPY_GPU_MEMORY_LIMIT"] == "7"
    whole = Holder.options(gpu_memory=None, num_gpus=1).remote()
    assert ray.get(whole.facts.remote())["variables"] == {}
    for one in (holder, own, whole):
        ray.kill(one)


def test_a_share_is_a_limit_where_that_is_asked_for() -> None:
    def said(**options: Any) -> dict[str, str]:
        holder = Holder.options(gpu_memory=None, **options).remote()
        variables: dict[str, str] = ray.get(holder.facts.remote())["variables"]
        ray.kill(holder)
        return variables

    capped = {"env_vars": {"OXIRAY_SHARE_MEMORY": "cap"}}
    assert said(num_gpus=0.25, runtime_env=capped)["OXIRAY_GPU_MEMORY"] == str(4 * GIB)
    assert said(num_gpus=0.25) == {}
    assert "OXIRAY_GPU_MEMORY" not in said(num_gpus=1, runtime_env=capped), "who has all of it may take all of it"


def test_what_no_gpu_has_is_refused_with_the_sizes() -> None:
    with pytest.raises(ray.exceptions.TaskUnschedulableError, match=re.escape("the largest GPU has 16.00 GiB")):
        ray.get(device.options(gpu_memory="17GiB").remote(), timeout=60)
    with pytest.raises(ray.exceptions.ActorUnschedulableError, match="gpu_memory: 20.00 GiB"):
        ray.get(Holder.options(gpu_memory=20 * GIB).remote().facts.remote(), timeout=60)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"gpu_memory": "8GiB", "num_gpus": 0.5}, ValueError, "were given together"),
        ({"gpu_memory": "eight"}, ValueError, "is no size"),
        ({"gpu_memory": -1}, ValueError, "at least one byte"),
        ({"gpu_memory": float("nan")}, ValueError, "at least one byte"),
        ({"gpu_memory": [8]}, TypeError, "gpu_memory"),
        ({"gpu_memory": True}, TypeError, "number of bytes"),
        ({"resources": {"GPU:memory": 1}}, ValueError, "gpu_memory"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_said(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ray.remote(**given)(lambda: None)


def test_sizes_are_bytes_or_texts() -> None:
    from oxiray._gpu_memory import size

    for text, bytes_ in {"8GiB": 8 << 30, "8 g": 8 << 30, "1.5GB": 1_500_000_000, "12": 12, "3 MiB": 3 << 20, "7kb": 7000}.items():
        assert size("gpu_memory", text) == bytes_, text


def test_a_custom_resource_of_that_name_is_the_programs_own() -> None:
    with pytest.raises(ray.exceptions.TaskUnschedulableError, match="no machine offers `gpu_memory`"):
        ray.get(ray.remote(lambda: 1).options(resources={"gpu_memory": 1}).remote(), timeout=60)


def test_bundles_have_memory_and_what_runs_in_them_has_parts_of_it() -> None:
    group = placement_group([{"gpu_memory": "12GiB", "CPU": 1}, {"GPU": 1}], strategy="STRICT_PACK")
    ray.get(group.ready(), timeout=60)
    assert group.bundle_specs[0] == {"gpu_memory": 12 * GIB, "CPU": 1}
    assert placement_group_table(group)["state"] == "CREATED"
    within = [PlacementGroupSchedulingStrategy(group, index) for index in (0, 1)]
    parts = [Holder.options(gpu_memory="6GiB", scheduling_strategy=within[0]).remote() for _ in range(2)]
    of_whole = Holder.options(gpu_memory="16GiB", scheduling_strategy=within[1]).remote()
    ids = [one["ids"] for one in ray.get([one.facts.remote() for one in (*parts, of_whole)], timeout=60)]
    assert ids[0] == ids[1] != ids[2]
    assert ray.wait([device.options(gpu_memory=1, scheduling_strategy=within[0]).remote()], timeout=0.5)[0] == []
    with pytest.raises(ValueError, match="'gpu_memory': 13958643712} cannot fit into bundle 0"):
        device.options(gpu_memory="13GiB", scheduling_strategy=within[0]).remote()
    remove_placement_group(group)
    with pytest.raises(ValueError, match="GPU and gpu_memory together"):
        placement_group([{"GPU": 1, "gpu_memory": 1}])


def test_status_says_who_asked_for_how_much() -> None:
    holder = Holder.remote()
    ray.get(holder.facts.remote())
    shown = commands.run("status", f"--address={ray.get_runtime_context().gcs_address}")
    # Nobody can tell who has memory of a device in name only: it is not said that anybody looks.
    assert "6.0 GiB (framework; what it uses is not known) of it: Holder" in shown, shown
    (device,) = ray.get(holder.devices.remote())
    assert (device["memory_tier"], device["memory_watched"]) == ("framework", False)
    ray.kill(holder)


def test_pytorch_is_told_when_it_is_imported_and_before(tmp_path: Path) -> None:
    # In the place of a PyTorch of 400 MB: a package with the two calls that are made.
    package = tmp_path / "torch"
    (package / "cuda").mkdir(parents=True)
    (package / "__init__.py").write_text("from torch import cuda\n")
    (package / "cuda" / "__init__.py").write_text(
        "queued, fractions = [], []\n"
        "_lazy_call = queued.append\n"
        "set_per_process_memory_fraction = fractions.append\n"
        "def init():\n    [call() for call in queued]\n"
    )

    def installed(version: str) -> str:
        found = tmp_path / "torch-0.dist-info"
        found.mkdir(exist_ok=True)
        (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        return str(tmp_path)

    def look() -> tuple[list[float], list[float], str | None]:
        import torch

        before = list(torch.cuda.fractions)
        torch.cuda.init()
        return before, torch.cuda.fractions, os.environ.get("PYTORCH_CUDA_ALLOC_CONF")

    def told(version: str, **variables: str) -> Any:
        environment = {"env_vars": {"PYTHONPATH": installed(version), **variables}}
        return ray.get(ray.remote(look).options(gpu_memory="8GiB", runtime_env=environment).remote(), timeout=60)

    assert told("2.6.0") == ([], [0.4687], None)
    assert told("2.11.1", PYTORCH_CUDA_ALLOC_CONF="") == ([], [0.4687], "per_process_memory_fraction:0.4687")
    both = "expandable_segments:True,per_process_memory_fraction:0.4687"
    assert told("2.11.1", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True") == ([], [0.4687], both)
    own = "per_process_memory_fraction:0.9"
    assert told("2.11.1", PYTORCH_CUDA_ALLOC_CONF=own) == ([], [0.4687], own)


def test_the_machine_is_one_whose_gpu_is_large_enough(request: pytest.FixtureRequest) -> None:
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "num_gpus": 1, "gpu_memory": 16 * GIB})
    request.addfinalizer(lambda: ray.init(num_cpus=8, num_gpus=2, gpu_memory="16GiB"))
    request.addfinalizer(cluster.shutdown)
    request.addfinalizer(ray.shutdown)
    large = cluster.add_node(num_cpus=4, num_gpus=1, gpu_memory=80 * GIB)
    ray.init(address=cluster.address)

    @ray.remote(gpu_memory="40GiB", num_cpus=0)
    class Large:
        def node(self) -> str:
            return ray.get_runtime_context().get_node_id()

    first, second = Large.remote(), Large.remote()
    assert ray.get([first.node.remote(), second.node.remote()], timeout=60) == [large.node_id] * 2
    third = Large.remote()
    waits = third.node.remote()
    assert ray.wait([waits], timeout=0.5)[0] == []
    why = commands.run("explain", third._actor_id.hex(), f"--address={cluster.address}")
    assert "GPU 0: 0 MiB free" in why and "it has 16.00 GiB gpu_memory, and 40.00 GiB is asked for" in why, why
    ray.kill(first)
    assert ray.get(waits, timeout=60) == large.node_id
    # Of the large GPU nothing is left, so that both bundles would be on the small one.
    apart = placement_group([{"gpu_memory": "8GiB"}] * 2, strategy="STRICT_SPREAD")
    assert not apart.wait(0.5)
    ray.kill(second)
    ray.get(apart.ready(), timeout=60)
    remove_placement_group(apart)


class OutOfMemoryError(RuntimeError):
    """Called as PyTorch's is."""


def test_a_frameworks_error_for_want_of_memory_says_what_it_was_capped_at() -> None:
    def fail(text: str) -> None:
        raise OutOfMemoryError(text)

    def said(text: str, **options: Any) -> str:
        with pytest.raises(OutOfMemoryError) as raised:
            ray.get(ray.remote(fail).options(num_cpus=0, **options).remote(text), timeout=60)
        return str(raised.value)

    text = "CUDA out of memory. Tried to allocate 9.00 GiB."
    capped = said(text, gpu_memory="8GiB")
    assert f"{text}\nOxiray: this process was capped at 8 GiB (gpu_memory=8589934592, tier framework)" in capped, capped
    share = said(text, num_gpus=0.25, runtime_env={"env_vars": {"OXIRAY_SHARE_MEMORY": "cap"}})
    assert "capped at 4 GiB (a share that is a limit on memory, tier framework)" in share, share
    assert "Oxiray:" not in said(text, num_gpus=1) and "Oxiray:" not in said("no such file", gpu_memory="8GiB")


@pytest.fixture
def another_cluster(request: pytest.FixtureRequest) -> Any:
    """Starts another cluster in place of this module's."""
    ray.shutdown()
    request.addfinalizer(lambda: ray.init(num_cpus=8, num_gpus=2, gpu_memory="16GiB"))
    request.addfinalizer(ray.shutdown)
    return lambda **options: ray.init(num_cpus=4, num_gpus=1, gpu_memory="16GiB", **options)


def test_only_what_was_asked_for_keeps_memory_and_is_named(another_cluster: Any) -> None:
    another_cluster(gpu_memory_enforcement="none")
    holder = Holder.remote()
    own = {"OXIRAY_GPU_MEMORY": str(6 * GIB), "OXIRAY_GPU_MEMORY_TIER": "none"}
    assert ray.get(holder.facts.remote(), timeout=60)["variables"] == own
    assert ray.get(holder.devices.remote())[0]["memory_tier"] == "none"
    shown = commands.run("status", f"--address={ray.get_runtime_context().gcs_address}")
    assert "6.0 GiB (kept by nothing; what it uses is not known) of it: Holder" in shown, shown


def test_a_library_of_the_users_keeps_memory_in_workers_and_what_they_start(another_cluster: Any, library: str) -> None:
    another_cluster(gpu_memory_library=library)
    own = {"env_vars": {"LD_PRELOAD": "/does/not/exist.so", "CUDA_DEVICE_MEMORY_LIMIT_0": "1t"}}
    for environment, preload in (({}, library), (own, f"{library}:/does/not/exist.so")):
        holder = Holder.options(runtime_env=environment).remote()
        said, maps, of_child = ray.get(holder.preloaded.remote(), timeout=60)
        assert said == preload and library in maps and library in of_child, said
        assert ray.get(holder.facts.remote())["variables"]["CUDA_DEVICE_MEMORY_LIMIT_0"] == "6144m"
        assert ray.get(holder.devices.remote())[0]["memory_tier"] == "interposer"
        ray.kill(holder)
    whole = Holder.options(gpu_memory=None, num_gpus=1).remote()
    said, maps, _ = ray.get(whole.preloaded.remote(), timeout=60)
    assert said == "" and library not in maps, "who asked for no memory is left alone"


def test_clients_of_an_mps_server_are_told_their_limit(
    another_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = tmp_path / "host"
    shutil.copytree(nvml.ROOT / "tests" / "fixtures" / "hosts" / "nvidia-h100x8", host)
    description = json.loads((host / "host.json").read_text())
    description.setdefault("environment", {})["CUDA_MPS_PIPE_DIRECTORY"] = "/run/mps"
    question = "/bin/sh -c echo get_server_list | nvidia-cuda-mps-control"
    description.setdefault("commands", {})[question] = {"status": 0}
    (host / "host.json").write_text(json.dumps(description))
    monkeypatch.setenv("OXIRAY_HOST_ROOT", str(host))
    another_cluster(gpu_memory_enforcement="require:mps,framework")
    holder = Holder.remote()
    said = ray.get(holder.facts.remote(), timeout=60)["variables"]
    assert said["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=6144M" and "OXIRAY_GPU_MEMORY_FRACTION" in said
    assert ray.get(holder.devices.remote())[0]["memory_tier"] == "mps"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"gpu_memory_enforcement": "require:mps"}, "require:mps: it does not work here: CUDA_MPS_PIPE_DIRECTORY is not set"),
        ({"gpu_memory_enforcement": "require:watched"}, "require:watched: it does not work here"),
        ({"gpu_memory_enforcement": "require:mig"}, "require:mig: it does not work here: no GPU that is offered here is an instance"),
        ({"gpu_memory_enforcement": "require:dmem"}, "require:dmem: it does not work here: only drivers of AMD's and Intel's GPUs"),
        ({"gpu_memory_enforcement": "framework,magic"}, "`magic` is nothing that keeps memory of GPUs"),
        ({"gpu_memory_library": "/no/such/library.so"}, "gpu-memory-library=/no/such/library.so .* there is no such file"),
    ],
)
def test_what_cannot_keep_memory_and_is_required_keeps_a_node_from_starting(
    another_cluster: Any, given: dict[str, str], text: str
) -> None:
    with pytest.raises(Exception, match=text):
        another_cluster(**given)


@pytest.fixture(scope="module")
def library() -> str:
    """The library that answers as NVML does."""
    return nvml.library()


@pytest.mark.parametrize(
    ("asked", "how"),
    [({"gpu_memory": "8GiB"}, "(gpu_memory=8589934592, watched)"), ({"num_gpus": 0.1}, "(a share that is a limit on memory, watched)")],
    ids=["bytes", "share"],
)
def test_who_takes_more_than_it_asked_for_is_ended_and_nobody_else(
    library: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    asked: dict[str, Any],
    how: str,
) -> None:
    monkeypatch.setenv("OXIRAY_SHARE_MEMORY", "cap")
    answers = nvml.Answers(tmp_path, monkeypatch, library)

    def write(*held: tuple[int, int]) -> None:
        listed = ",".join(f"{pid}:{bytes_}" for pid, bytes_ in held)
        answers.write(f"NVIDIA H100|GPU-a||{80 * GIB}|{sum(of for _, of in held)}|{listed}||\n")

    write()
    ray.shutdown()
    ray.init(num_cpus=4, num_gpus=1)
    request.addfinalizer(lambda: ray.init(num_cpus=8, num_gpus=2, gpu_memory="16GiB"))
    request.addfinalizer(ray.shutdown)

    @ray.remote(num_cpus=0, max_retries=3, **asked)
    def greedy(told: str) -> None:
        child = subprocess.Popen(["sleep", "600"])
        Path(told).write_text(f"{os.getpid()} {child.pid}")
        child.wait()

    def pids(told: Path) -> tuple[int, int]:
        while not (told.exists() and told.read_text()):
            time.sleep(0.01)
        own, child = told.read_text().split()
        return int(own), int(child)

    modest, wild = tmp_path / "modest", tmp_path / "wild"
    stays, goes = greedy.remote(str(modest)), greedy.remote(str(wild))
    (first, _), (second, child) = pids(modest), pids(wild)
    if os.readlink("/proc/self/ns/pid") != "pid:[4026531836]":
        pytest.skip("processes are called otherwise here than the library calls them")
    # What a process needs besides is not held against it; what its children have is its own.
    write((first, 8 * GIB + GIB // 2), (second, 5 * GIB), (child, 4 * GIB), (1, 60 * GIB))
    with pytest.raises(ray.exceptions.DeviceMemoryExceededError) as raised:
        ray.get(goes, timeout=60)
    assert isinstance(raised.value, ray.exceptions.OutOfMemoryError)
    text = str(raised.value)
    assert f"used 9.00 GiB of the memory of GPU 0 and had asked for 8.00 GiB {how}" in text, text
    assert ray.wait([stays], timeout=0.1)[0] == []
    shown = commands.run("status", f"--address={ray.get_runtime_context().gcs_address}")
    assert "8.0 GiB (framework, watched; it uses 8.5 GiB) of it: greedy" in shown, shown
    write()
    ray.cancel(stays, force=True)
