"""A private cluster for each test, of the size that the test names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray


@pytest.fixture
def cluster() -> Iterator[Callable[..., Any]]:
    """Starts a cluster: `cluster(num_cpus=2, num_gpus=1, ...)`. It ends with the test."""
    ray.shutdown()
    yield lambda **options: ray.init(**{"num_cpus": 2, **options})
    ray.shutdown()
