"""A private cluster for each test file: what the tests share is the cluster, never an actor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster with four processors and two custom tokens."""
    ray.shutdown()
    ray.init(num_cpus=4, resources={"token": 2})
    yield
    ray.shutdown()
