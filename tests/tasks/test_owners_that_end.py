"""Workers that serve once, and own what others still wait for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from watching import wait_until


@pytest.fixture(scope="module", autouse=True)
def one_of_each() -> Iterator[None]:
    """A machine with one CPU and one device, so that nothing runs beside who keeps either."""
    ray.shutdown()
    ray.init(num_cpus=1, num_gpus=1)
    yield
    ray.shutdown()


@ray.remote
def child(gate: Path) -> str:
    while not gate.exists():
        time.sleep(0.005)
    return "a child's value"


@ray.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        self.count += 1
        return self.count


def parent(gate: Path) -> list[Any]:
    return [child.remote(gate)]


def mother() -> Any:
    return Counter.options(num_cpus=0).remote()


@ray.remote(num_cpus=0)
def read(references: list[Any]) -> Any:
    return ray.get(references[0])


ONCE = {"max_calls": {"max_calls": 1}, "device": {"num_gpus": 1}}


@pytest.mark.parametrize("once", ONCE.values(), ids=ONCE)
def test_a_worker_that_serves_once_stays_until_its_tasks_have_ended(tmp_path: Path, once: dict[str, int]) -> None:
    gate = tmp_path / "gate"
    references = ray.get(ray.remote(**once)(parent).remote(gate), timeout=60)
    by_another = read.remote(references)
    # Longer than a worker has for its end.
    assert ray.wait([*references, by_another], timeout=12)[0] == []
    gate.touch()
    assert ray.get([*references, by_another], timeout=60) == ["a child's value"] * 2
    wait_until(lambda: ray.available_resources().get("GPU") == 1 and ray.available_resources().get("CPU") == 1)


@pytest.mark.parametrize("once", ONCE.values(), ids=ONCE)
def test_an_actor_lives_as_long_as_its_handle_although_its_makers_work_is_done(once: dict[str, int]) -> None:
    counter = ray.get(ray.remote(**once)(mother).remote(), timeout=60)
    assert [ray.get(counter.next.remote(), timeout=60) for _ in range(3)] == [1, 2, 3]
    del counter
    wait_until(lambda: ray.available_resources().get("GPU") == 1 and ray.available_resources().get("CPU") == 1)
