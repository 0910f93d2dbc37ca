"""Priorities: the higher one goes first, also within a job, what is called is as urgent as its caller, and nobody is held up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ray
import ray.util.state
from ray.job_config import JobConfig
from ray.util.placement_group import placement_group, remove_placement_group


@pytest.fixture(autouse=True)
def _one_processor() -> Iterator[None]:
    ray.shutdown()
    ray.init(num_cpus=1, num_gpus=1)
    yield
    ray.shutdown()


@ray.remote(num_cpus=1)
def work(seconds: float) -> float:
    time.sleep(seconds)
    return time.time()


@ray.remote(num_cpus=0)
def priority() -> int:
    return ray.get_runtime_context().get_priority()


@ray.remote(num_cpus=0)
def parent(said: int | None) -> tuple[int, int]:
    child = priority if said is None else priority.options(priority=said)
    return ray.get_runtime_context().get_priority(), ray.get(child.remote())


def test_an_urgent_task_goes_before_the_backlog_of_its_own_job() -> None:
    backlog = [work.remote(0.05) for _ in range(1000)]
    ray.get(backlog[0])
    ray.get(work.options(priority=5).remote(0.0), timeout=60)
    done = len(ray.wait(backlog, num_returns=len(backlog), timeout=0)[0])
    # A lease is left alone for half a second, and what was sent to its worker is done.
    assert done < 600, done


def test_of_those_that_wait_the_more_urgent_is_served_first_whatever_it_is() -> None:
    holder = placement_group([{"GPU": 1}])
    ray.get(holder.ready())

    @ray.remote(num_gpus=1, num_cpus=0)
    class Later:
        def when(self) -> float:
            return time.time()

    plain = Later.remote()
    group = placement_group([{"GPU": 1}], priority=7)
    last = work.options(num_cpus=0, num_gpus=1, priority=-3).remote(0.0)
    urgent = work.options(num_cpus=0, num_gpus=1, priority=9).remote(0.0)
    answer = plain.when.remote()
    # All are in the queue: what comes later is answered later.
    assert len(ray.util.state.list_placement_groups()) == 2
    remove_placement_group(holder)
    first = ray.get(urgent, timeout=60)
    ray.get(group.ready(), timeout=60)
    assert ray.wait([answer], timeout=0.2)[0] == []
    created = time.time()
    remove_placement_group(group)
    second = ray.get(answer, timeout=60)
    assert first < created < second
    assert ray.wait([last], timeout=0.2)[0] == []
    ray.kill(plain)
    assert second < ray.get(last, timeout=60)


def test_one_that_has_no_room_holds_up_nobody_who_is_less_urgent() -> None:
    holder = placement_group([{"GPU": 1}])
    ray.get(holder.ready())
    waits = work.options(num_cpus=0, num_gpus=1, priority=100).remote(0.0)
    assert ray.get(work.options(priority=-100).remote(0.0), timeout=60)
    assert ray.wait([waits], timeout=0)[0] == []
    remove_placement_group(holder)
    ray.get(waits, timeout=60)


def test_a_large_request_is_not_overtaken_for_ever() -> None:
    ray.shutdown()
    ray.init(num_cpus=4, num_gpus=4)
    # Each has a process of its own, and so waits for its turn.
    small, large = (work.options(num_cpus=0, num_gpus=count) for count in (1, 4))
    running = [small.remote(0.01) for _ in range(8)]
    waits = large.remote(0.0)
    end = time.monotonic() + 90
    while not ray.wait([waits], timeout=0)[0]:
        assert time.monotonic() < end, "it is overtaken"
        _, running = ray.wait(running, num_returns=1)
        running.append(small.remote(0.01))
    ray.get(waits)


def test_what_is_called_is_as_urgent_as_its_caller_unless_it_says_otherwise() -> None:
    assert ray.get_runtime_context().get_priority() == 0
    assert ray.get(parent.remote(None)) == (0, 0)
    # The worker may be the same, and what it prepared to call is prepared anew.
    assert ray.get([parent.options(priority=4).remote(None), parent.options(priority=-4).remote(None)]) == [(4, 4), (-4, -4)]
    assert ray.get(parent.options(priority=4).remote(6)) == (4, 6)

    @ray.remote(num_cpus=0, priority=8)
    class Actor:
        def called(self) -> Any:
            return ray.get_runtime_context().get_priority(), ray.get(priority.remote())

    assert ray.get(Actor.remote().called.remote()) == (8, 8)


@pytest.mark.parametrize("given", [1001, -1001, True])
def test_what_is_no_priority_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="from -1000 to 1000, the higher one first"):
        ray.remote(priority=given)(lambda: None)
    with pytest.raises(ValueError, match="from -1000 to 1000"):
        placement_group([{"CPU": 1}], priority=given)
    with pytest.raises(TypeError, match="priority"):
        work.options(priority="high")


def test_a_jobs_priority_is_that_of_what_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    ray.shutdown()
    ray.init(num_cpus=1, job_config=JobConfig(priority=3))
    assert (ray.get_runtime_context().get_priority(), ray.get(parent.remote(None))) == (3, (3, 3))
    ray.shutdown()
    monkeypatch.setenv("OXIRAY_JOB_PRIORITY", "-20")
    ray.init(num_cpus=1)
    assert ray.get(parent.remote(None)) == (-20, -20)
    ray.shutdown()
    monkeypatch.setenv("OXIRAY_JOB_PRIORITY", "soon")
    with pytest.raises(ValueError, match="OXIRAY_JOB_PRIORITY"):
        ray.init(num_cpus=1)


def test_a_submitted_job_has_the_priority_that_was_said(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import ray\nray.init()\nprint('priority', ray.get_runtime_context().get_priority())\n")
    address = ray.get_runtime_context().gcs_address
    ran = "import sys; sys.argv[0] = 'oxiray'; from oxiray._cli import main; main()"
    submit = [sys.executable, "-c", ran, "job", "submit", f"--address={address}"]
    told = subprocess.run(
        [*submit, "--priority=12", "--", sys.executable, str(program)],
        capture_output=True, text=True, timeout=60, check=True, env={**os.environ, "RAY_ADDRESS": address},
    )  # fmt: skip
    assert "priority 12" in told.stdout, json.dumps([told.stdout, told.stderr])


def test_another_jobs_urgent_task_goes_before_a_backlog(tmp_path: Path) -> None:
    # Longer than the program may take.
    backlog = [work.remote(0.05) for _ in range(1300)]
    ray.get(backlog[0])
    program = (
        "import ray, time; ray.init(address={!r})\n"
        "print(ray.get(ray.remote(lambda: time.time()).remote()))"
    ).format(ray.get_runtime_context().gcs_address)  # fmt: skip
    environment = {**os.environ, "OXIRAY_JOB_PRIORITY": "1"}
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True, env=environment)
    assert ray.wait(backlog, num_returns=len(backlog), timeout=0)[1]
