"""One cluster for a module of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import ray

#: How long something that is bound to happen may take, in seconds.
PATIENCE = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ray.RayContext]:
    """A private cluster with two CPUs."""
    ray.shutdown()
    yield ray.init(num_cpus=2, namespace="here")
    ray.shutdown()


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Waits until what it is given is true."""
    import time

    def wait(holds: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, "it did not happen"

    return wait
