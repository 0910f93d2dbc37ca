"""Clusters that most suites want; a folder whose tests need another says so in a conftest of its own."""

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


@pytest.fixture(scope="module")
def two_cpus() -> Iterator[None]:
    """One cluster of two processors for all tests of a module."""
    ray.shutdown()
    ray.init(num_cpus=2)
    yield
    ray.shutdown()
