"""Clusters with a cache of their own, and wheels made on the spot: nothing here needs a network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from wheels import Wheels


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the module's sessions, cache and wheels lie."""
    folder = tmp_path_factory.mktemp("environments")
    patch = pytest.MonkeyPatch()
    patch.setenv("OXIRAY_TMPDIR", str(folder))
    yield folder
    patch.undo()


@pytest.fixture
def cluster(place: Path) -> Iterator[Callable[..., Any]]:
    """Starts a cluster with a job's environment: `cluster(runtime_env={...})`. It ends with the test."""
    ray.shutdown()
    yield lambda **options: ray.init(**{"num_cpus": 4, **options})
    ray.shutdown()


@pytest.fixture(scope="module")
def shared(place: Path) -> Iterator[None]:
    """One cluster for all tests of a module that ask nothing of their job."""
    ray.shutdown()
    ray.init(num_cpus=4)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def wheels(place: Path) -> Wheels:
    """Wheels of `tinyone` 1.0 and 2.0, and of `needy`, which requires what there is nowhere."""
    made = Wheels(place / "wheels")
    made.make("tinyone", "1.0")
    made.make("tinyone", "2.0")
    made.make("needy", "1.0", requires="nowhere-to-be-found")
    return made


@pytest.fixture
def installed(place: Path) -> Callable[[], list[Path]]:
    """The environments in the cache that are whole."""
    return lambda: sorted(place.glob(f"oxiray-{os.geteuid()}/cache/environments/*/complete"))
