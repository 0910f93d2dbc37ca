"""A plugin of pytest: whatever Dask's tests compute without naming a scheduler is computed by Ray's."""

from __future__ import annotations

import dask
import pytest
import ray
from ray.util.dask import ray_dask_get


def pytest_sessionstart(session: pytest.Session) -> None:
    ray.init(num_cpus=2)
    # Not enable_dask_on_ray(), which sets how dataframes and bags are shuffled too.
    dask.config.set(scheduler=ray_dask_get)


def pytest_sessionfinish(session: pytest.Session) -> None:
    ray.shutdown()
