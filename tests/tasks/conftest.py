"""One cluster for the tests of a file, and a way to wait for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster of four CPUs."""
    ray.shutdown()
    ray.init(num_cpus=4)
    yield
    ray.shutdown()


def wait_until(condition: Callable[[], object], timeout: float = 30.0) -> None:
    """Waits for `condition`, looking at it often."""
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.002)


@pytest.fixture
def until() -> Callable[..., None]:
    """`until(condition, timeout=30.0)`."""
    return wait_until
