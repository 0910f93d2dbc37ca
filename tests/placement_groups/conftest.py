"""A recorded machine with eight GPUs for each module, and clusters of other sizes for the tests that want one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

HOSTS = Path(__file__).resolve().parent.parent / "fixtures" / "hosts"


@pytest.fixture
def cluster() -> Iterator[Callable[..., Any]]:
    """Starts a cluster: `cluster(num_cpus=4, num_gpus=2, ...)`. It ends with the test."""
    ray.shutdown()
    yield lambda **options: ray.init(**{"num_cpus": 4, **options})
    ray.shutdown()


@pytest.fixture(scope="module")
def eight_gpus() -> Iterator[None]:
    """A machine with eight recorded H100s, for the whole module."""
    ray.shutdown()
    os.environ["OXIRAY_HOST_ROOT"] = str(HOSTS / "nvidia-h100x8")
    try:
        ray.init(num_cpus=8, resources={"widgets": 4})
    finally:
        del os.environ["OXIRAY_HOST_ROOT"]
    yield
    ray.shutdown()
