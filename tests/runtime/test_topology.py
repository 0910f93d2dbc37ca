"""Which of several free devices are taken: those that are near to each other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import commands
import nvml
import pytest

import ray

#: Where the recorded machine has its GPUs: four on each of two NUMA nodes.
BUSES = ["19", "3B", "4C", "5D", "9B", "BB", "CB", "DB"]
EIGHT = "".join(f"NVIDIA A100|GPU-{slot}|00000000:{bus}:00.0|42949672960|0|||0\n" for slot, bus in enumerate(BUSES))
FOUR = "".join(EIGHT.splitlines(keepends=True)[:4])


@pytest.fixture(scope="module")
def library() -> str:
    """The library that answers as NVML does."""
    return nvml.library()


@pytest.fixture
def answers(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> nvml.Answers:
    ray.shutdown()
    request.addfinalizer(ray.shutdown)
    return nvml.Answers(tmp_path, monkeypatch, library)


@ray.remote(num_cpus=0)
class Holder:
    def gpus(self) -> list[int]:
        return [int(gpu) for gpu in ray.get_gpu_ids()]


def held(count: int) -> tuple[Holder, list[int]]:
    """An actor with so many GPUs, and which."""
    holder = Holder.options(num_gpus=count).remote()
    return holder, ray.get(holder.gpus.remote(), timeout=30)


def test_linked_devices_go_together_and_a_single_one_breaks_up_no_pair(answers: nvml.Answers) -> None:
    # NVLinks between 0 and 2, and between 1 and 3.
    answers.write(FOUR + "".join(f"pair={pair}:NODE{',NV4' if pair in ('0:2', '1:3') else ''}\n" for pair in PAIRS))
    ray.init(num_cpus=2)
    first, gpus = held(2)
    assert gpus == [0, 2]
    near = "the nearest to each other that were free (one NUMA node, 4 direct links between each two)"
    [had] = json.loads(commands.run("explain", first._actor_id.hex(), "--json"))["devices"]
    assert (had["resource"], had["slots"], had["is_held"], had["why"]) == ("GPU", [0, 2], True, near)
    single, gpus = held(1)
    assert gpus == [1]
    lowest = "the lowest that was free"
    shown = commands.run("explain", single._actor_id.hex(), "--wide")
    assert re.search(rf"^it has GPU 1 on [0-9.]+: {lowest}$", shown, re.MULTILINE), shown
    rows = json.loads(commands.run("status", "--json"))["devices"]
    choices = {row["slot"]: [holder["choice"] for holder in row["holders"]] for row in rows}
    assert choices == {0: [near], 1: [lowest], 2: [near], 3: []}
    ray.kill(first)
    _, gpus = held(1)
    assert gpus == [3], "0 and 2 are a pair"
    _, gpus = held(2)
    assert gpus == [0, 2]
    del single


PAIRS = [f"{one}:{other}" for one in range(4) for other in range(one + 1, 4)]


def test_what_is_on_one_numa_node_goes_together(answers: nvml.Answers) -> None:
    answers.write(EIGHT)
    ray.init(num_cpus=2)
    # Each holds its own until the end.
    one, gpus = held(1)
    assert gpus == [0]
    four, gpus = held(4)
    assert gpus == [4, 5, 6, 7], "three are left on the first NUMA node"
    two, gpus = held(2)
    assert gpus == [1, 2]
    del one, four, two


def test_the_lowest_numbers_are_taken_where_that_is_asked_for(
    answers: nvml.Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.write(FOUR + "pair=0:2:NODE,NV4\npair=0:1:NODE\n")
    monkeypatch.setenv("OXIRAY_DEVICE_ORDER", "lowest")
    ray.init(num_cpus=2)
    assert held(2)[1] == [0, 1]
    ray.shutdown()
    monkeypatch.setenv("OXIRAY_DEVICE_ORDER", "random")
    with pytest.raises(Exception, match="the order of devices is `random`; it is to be `topology` or `lowest`"):
        ray.init(num_cpus=2)


def test_devices_are_shown_by_uuid_where_that_is_asked_for(answers: nvml.Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    answers.write(FOUR)
    monkeypatch.setenv("OXIRAY_VISIBLE_DEVICES", "uuid")
    ray.init(num_cpus=2)

    @ray.remote(num_gpus=2)
    def shown() -> tuple[str, list[int]]:
        return os.environ["CUDA_VISIBLE_DEVICES"], ray.get_gpu_ids()

    listed, gpus = ray.get(shown.remote(), timeout=60)
    uuids = [line.split("|")[1] for line in FOUR.splitlines() if "|" in line]
    assert listed == ",".join(uuids[gpu] for gpu in gpus) and len(gpus) == 2


def test_the_command_shows_how_devices_are_connected(answers: nvml.Answers) -> None:
    answers.write(FOUR + "pair=0:1:PIX\npair=0:2:SYS,NV4\npair=0:3:SYS\npair=1:2:SYS\npair=1:3:SYS,NV4\npair=2:3:PIX\n")
    shown = commands.run("hardware", "--topology")
    matrix = shown[shown.index("How NVIDIA GPUs are connected") :].splitlines()[:6]
    assert [line.split() for line in matrix[1:]] == [
        ["[0]", "[1]", "[2]", "[3]"],
        ["[0]", "X", "PIX", "NV4", "SYS"],
        ["[1]", "PIX", "X", "SYS", "NV4"],
        ["[2]", "NV4", "SYS", "X", "PIX"],
        ["[3]", "SYS", "NV4", "PIX", "X"],
    ]
    answers.write(FOUR)
    assert "How NVIDIA GPUs are connected is not known beyond their NUMA nodes" in commands.run("hardware", "--topology")


def test_the_command_shows_how_near_devices_are_and_links_that_are_of_no_use(answers: nvml.Answers) -> None:
    pairs = "pair=0:1:PIX\npair=0:2:SYS,NV4\npair=0:3:SYS\npair=1:2:SYS\npair=1:3:SYS,NV4\npair=2:3:PIX\n"
    answers.write(FOUR + pairs + "p2p=1:3:4\npersistence=0:1\npersistence=1:0\nfield=2:30:2\n")
    shown = commands.run("hardware", "--topology")
    meanings = "NV4: four NVLinks; PIX: one PCIe switch; SYS: the link between NUMA nodes"
    why = "* [1] and [3] do not reach each other's memory over their links: a setting of the driver forbids it"
    assert meanings in shown and why in shown and "NV4*" in shown, shown
    scores = shown[shown.index("How near they are") :].splitlines()[1:6]
    assert [line.split() for line in scores[1:]] == [
        ["[0]", "X", "50", "410", "10"],
        ["[1]", "50", "X", "10", "10"],
        ["[2]", "410", "10", "X", "50"],
        ["[3]", "10", "10", "50", "X"],
    ]
    lines = {line.strip()[:3]: line for line in shown.splitlines() if line.strip().startswith("[") and "GPU-" in line}
    assert "persistence mode on" in lines["[0]"] and "persistence mode off" in lines["[1]"], lines
    assert "2 pages of its memory are out of use for their errors" in lines["[2]"], lines
    # 1 and 3 would be the nearest of these, if their links were of use.
    ray.init(num_cpus=2)
    first, gpus = held(2)
    assert gpus == [0, 2]
    second, gpus = held(2)
    assert gpus == [1, 3]
    del first, second


GB200 = Path(__file__).parents[1] / "fixtures" / "hosts" / "nvidia-gb200"


@pytest.mark.parametrize("setting", ["local", "off"])
def test_a_worker_runs_near_its_devices_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, setting: str
) -> None:
    ray.shutdown()
    request.addfinalizer(ray.shutdown)
    monkeypatch.setenv("OXIRAY_HOST_ROOT", str(GB200))
    monkeypatch.setenv("OXIRAY_PIN_CPUS", setting)
    ray.init(num_cpus=2)
    # The recorded machine has processor 0 beside GPUs 0 and 1, and processor 1 beside the others.
    everywhere = set(os.sched_getaffinity(0))
    near = [{0} & everywhere, {1} & everywhere] if setting == "local" else [everywhere, everywhere]

    @ray.remote(num_cpus=0)
    def processors() -> tuple[list[int], set[int], set[int]]:
        child = "import os; print(*os.sched_getaffinity(0))"
        printed = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True, timeout=30).stdout
        gpus = [int(gpu) for gpu in ray.get_gpu_ids()]
        return gpus, set(os.sched_getaffinity(0)), {int(cpu) for cpu in printed.split()}

    for count in (1, 2):
        gpus, own, childs = ray.get(processors.options(num_gpus=count).remote(), timeout=60)
        assert own == childs == near[gpus[0] // 2], (gpus, own)
    for anywhere in ({"num_gpus": 4}, {"num_gpus": 0.5}, {"num_gpus": 0}, {"num_gpus": 1, "num_cpus": 2}):
        assert ray.get(processors.options(**anywhere).remote(), timeout=60)[1] == everywhere, anywhere


def test_a_place_for_workers_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ray.shutdown()
    monkeypatch.setenv("OXIRAY_PIN_CPUS", "near")
    with pytest.raises(ValueError, match="is `near`; it is to be `local` or `off`"):
        ray.init(num_cpus=1)
