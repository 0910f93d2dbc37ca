"""A plugin of pytest: joblib's backend `ray` is known before tests are collected, and is what scikit-learn's tests use.

joblib's own tests are parametrized by the backends that are registered, so that they meet this one too. With
`JOBLIB_DEFAULT=ray`, everything that names no backend runs on it, with two jobs.
"""

from __future__ import annotations

import os

import joblib
import pytest
import ray
from ray.util.joblib import register_ray

register_ray()


def pytest_sessionstart(session: pytest.Session) -> None:
    ray.init(num_cpus=2)
    if os.environ.get("JOBLIB_DEFAULT") == "ray":
        joblib.parallel_config(backend="ray", n_jobs=2)


def pytest_sessionfinish(session: pytest.Session) -> None:
    ray.shutdown()
