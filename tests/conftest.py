"""Clusters that most suites want; a folder whose tests need another says so in a conftest of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray


def pytest_configure(config: pytest.Config) -> None:
    """Gives each process that runs tests beside others a folder for its sessions: none finds another's clusters."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        return
    root = os.environ.get("RAY_TMPDIR")
    if root is None:
        folder = tempfile.TemporaryDirectory(prefix="oxiray-tests-")
        config.add_cleanup(folder.cleanup)
        root = folder.name
    own = Path(root, worker)
    own.mkdir(exist_ok=True)
    os.environ.pop("OXIRAY_TMPDIR", None)
    os.environ["RAY_TMPDIR"] = str(own)


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
