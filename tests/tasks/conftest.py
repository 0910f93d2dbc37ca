"""One cluster for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster of four CPUs."""
    ray.shutdown()
    ray.init(num_cpus=4)
    yield
    ray.shutdown()
