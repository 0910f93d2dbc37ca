"""What of `scripts/gpu-acceptance` can be tried without a GPU: how it reads what Oxiray tells."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nvml
import pytest
from watching import wait_until

import ray

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "gpu-acceptance"
GIB = 1 << 30

own_pids = pytest.mark.skipif(
    os.readlink("/proc/self/ns/pid") != "pid:[4026531836]",
    reason="processes are called otherwise here than the library calls them",
)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the script defines."""
    found: dict[str, Any] = {"__name__": "acceptance", "__file__": str(SCRIPT)}
    exec(compile(SCRIPT.read_text(), SCRIPT, "exec"), found)
    return found


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[nvml.Answers]:
    ray.shutdown()
    yield nvml.Answers(tmp_path, monkeypatch, nvml.library())
    ray.shutdown()


def gpu(listed: dict[int, int]) -> str:
    processes = ",".join(f"{pid}:{bytes_}" for pid, bytes_ in listed.items())
    return f"NVIDIA H100|GPU-a||{80 * GIB}|{sum(listed.values())}|{processes}||0\n"


@own_pids
def test_a_process_that_is_not_oxirays_is_found_by_its_number(names: dict[str, Any], answers: nvml.Answers) -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        answers.write(gpu({stranger.pid: GIB}))
        ray.init(num_cpus=1, num_gpus=1)
        named, told = names["named_as_foreign"](stranger.pid, 30)
        assert named and "sleep" in told, told
        assert names["named_as_foreign"](stranger.pid + 1, 0)[0] is False
    finally:
        stranger.kill()
        stranger.wait()


@own_pids
def test_a_task_in_the_drivers_list_is_found_whatever_it_has_open(
    names: dict[str, Any], answers: nvml.Answers, tmp_path: Path
) -> None:
    answers.write(gpu({}))
    ray.init(num_cpus=1, num_gpus=1, device_isolation="watch")
    mark = tmp_path / "mark"

    @ray.remote(max_retries=0)
    def uses(mark: str) -> None:
        Path(mark).write_text(str(os.getpid()))
        while not Path(f"{mark}.done").exists():
            pass

    task = uses.remote(str(mark))
    wait_until(lambda: mark.exists() and mark.read_text() != "")
    assert names["listed_without_grant"](0)[0] is False
    answers.write(gpu({int(mark.read_text()): GIB}))
    found, told = names["listed_without_grant"](30)
    assert found, told
    Path(f"{mark}.done").touch()
    ray.get(task, timeout=30)


def test_the_lines_that_it_looks_for_are_those_that_oxiray_writes(names: dict[str, Any]) -> None:
    died = "killed by signal 6 (SIGABRT); GPU 2 reported Xid 31 (a memory page fault: an illegal address) 0.4 s before"
    assert names["xid_line"](died) == died.partition("; ")[2]
    assert names["xid_line"]("GPU 2 reported Xid 79 (the GPU has fallen off the bus) 0.4 s before") is None
    ray.shutdown()
    ray.init(num_cpus=1, num_gpus=1, gpu_memory="24GiB")

    @ray.remote(gpu_memory="8GiB", max_retries=0)
    def too_much() -> None:
        class OutOfMemoryError(RuntimeError):
            """As PyTorch's."""

        raise OutOfMemoryError("CUDA out of memory")

    with pytest.raises(ray.exceptions.RayTaskError) as raised:
        ray.get(too_much.remote(), timeout=60)
    ray.shutdown()
    assert names["cap_line"](str(raised.value), 8 * GIB) is not None, raised.value
    assert names["cap_line"](str(raised.value), 9 * GIB) is None
