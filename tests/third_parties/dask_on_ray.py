"""A plugin of pytest: whatever Dask's tests compute without naming a scheduler is computed by Ray's."""

from __future__ import annotations

import pytest
import ray
from ray.util.dask import enable_dask_on_ray


def pytest_sessionstart(session: pytest.Session) -> None:
    ray.init(num_cpus=2)
    enable_dask_on_ray()


def pytest_sessionfinish(session: pytest.Session) -> None:
    ray.shutdown()
