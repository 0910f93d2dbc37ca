"""One cluster for a module of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[ray.RayContext]:
    """A private cluster with two CPUs."""
    ray.shutdown()
    yield ray.init(num_cpus=2, namespace="here")
    ray.shutdown()
