"""The cluster that tests of objects have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray
from spilled import MIB


@pytest.fixture(scope="module")
def small_store() -> Iterator[ray.RayContext]:
    """Two CPUs and a store of 80 MiB."""
    ray.shutdown()
    yield ray.init(num_cpus=2, object_store_memory=80 * MIB, log_to_driver=False)
    ray.shutdown()
