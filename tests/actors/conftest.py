"""A private cluster for each test file: what the tests share is the cluster, never an actor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster with four processors and two custom tokens."""
    ray.shutdown()
    ray.init(num_cpus=4, resources={"token": 2})
    yield
    ray.shutdown()


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_until(condition: Callable[[], bool], timeout: float = 20.0) -> None:
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def alive() -> Callable[[int], bool]:
    """Whether a process lives."""
    return _is_alive


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Waits for a condition."""
    return _wait_until
