"""Dask's computations as tasks: `dask.compute(x, scheduler=ray_dask_get)`, or for all of them `enable_dask_on_ray()`.

Importing it has `dask.persist` and the collections' `persist()` leave their parts in the object store, where
`ray_dask_get` is the scheduler. Raises ImportError with Dask older than 2024.11, whose graphs are written in another way.
"""

from __future__ import annotations

import functools
from typing import Any

import dask
from dask.base import DaskMethodsMixin

if tuple(int(part) for part in dask.__version__.split(".")[:2]) < (2024, 11):
    raise ImportError(
        f"Dask on Ray requires Dask version 2024.11.0 or later, and {dask.__version__} is installed: upgrade dask"
    )

from oxiray.util.dask.callbacks import ProgressBarCallback, RayDaskCallback, local_ray_callbacks, unpack_ray_callbacks
from oxiray.util.dask.scheduler import (
    dataframe_optimize,
    disable_dask_on_ray,
    enable_dask_on_ray,
    is_ours,
    ray_dask_get,
    ray_dask_get_sync,
)

__all__ = [
    "ProgressBarCallback",
    "RayDaskCallback",
    "dataframe_optimize",
    "disable_dask_on_ray",
    "enable_dask_on_ray",
    "local_ray_callbacks",
    "ray_dask_get",
    "ray_dask_get_sync",
    "ray_dask_persist",
    "unpack_ray_callbacks",
]

#: Dask's own.
dask_persist = dask.persist
dask_persist_mixin = DaskMethodsMixin.persist


@functools.wraps(dask_persist)
def ray_dask_persist(*args: Any, **kwargs: Any) -> Any:
    """`dask.persist` whose results are references, where one of the schedulers here runs it."""
    return dask_persist(*args, **kwargs, **({"ray_persist": True} if is_ours(kwargs.get("scheduler")) else {}))


@functools.wraps(dask_persist_mixin)
def ray_dask_persist_mixin(self: Any, **kwargs: Any) -> Any:
    """The `persist()` of a collection, in the same way."""
    return dask_persist_mixin(self, **kwargs, **({"ray_persist": True} if is_ours(kwargs.get("scheduler")) else {}))


if getattr(dask.persist, "__module__", None) != __name__:
    dask.persist = ray_dask_persist
    DaskMethodsMixin.persist = ray_dask_persist_mixin
