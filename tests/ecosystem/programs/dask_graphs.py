"""Dask's computations as tasks: the results are those of Dask's own scheduler, and what is persisted stays in the store."""

from __future__ import annotations

import operator
import os
import time
from typing import Any

import dask
import dask.array
import dask.dataframe
import pandas
import ray
from dask import delayed
from ray.util.dask import ProgressBarCallback, RayDaskCallback, disable_dask_on_ray, enable_dask_on_ray, ray_dask_get


def check_collections() -> None:
    numbers = dask.array.arange(10_000, chunks=1_000).reshape(100, 100)
    frame = dask.dataframe.from_pandas(pandas.DataFrame({"a": range(100), "b": [n % 3 for n in range(100)]}), npartitions=4)
    for asked in (numbers.T.dot(numbers).sum(), frame.groupby("b").a.sum(), frame.shuffle("b").a.nunique()):
        ours, theirs = asked.compute(scheduler=ray_dask_get), asked.compute(scheduler="synchronous")
        assert (ours == theirs).all() if hasattr(ours, "all") else ours == theirs
    kept = (numbers + 1).persist(scheduler=ray_dask_get)
    assert all(isinstance(part, ray.ObjectRef) for part in dict(kept.__dask_graph__()).values())
    assert kept.sum().compute(scheduler=ray_dask_get) == 10_000 * 10_001 // 2


def check_delayed() -> None:
    assert delayed(os.getpid)().compute(scheduler=ray_dask_get) != os.getpid()
    one = delayed(operator.add)(1, 2)
    nested = {"of": [delayed(operator.mul)(one, one), 5], "own": one}
    assert dask.compute(nested, scheduler=ray_dask_get) == ({"of": [9, 5], "own": 3},)
    try:
        delayed(operator.truediv)(1, delayed(operator.sub)(one, 3)).compute(scheduler=ray_dask_get)
    except ZeroDivisionError as error:
        assert "division by zero" in str(error)
    else:
        raise AssertionError("the exception of a task was swallowed")


def check_options() -> None:
    with dask.annotate(ray_remote_args={"resources": {"part": 1}}):
        held = delayed(lambda: ray.get_runtime_context().get_assigned_resources())()
    assert held.compute(scheduler=ray_dask_get, optimize_graph=False)["part"] == 1
    assert held.compute(scheduler=ray_dask_get, ray_remote_args={"num_cpus": 2}, optimize_graph=False)["CPU"] == 2
    try:
        held.compute(scheduler=ray_dask_get, resources={"part": 1})
    except ValueError as error:
        assert "ray_remote_args" in str(error)
    else:
        raise AssertionError("resources of Dask's own cluster were accepted")


def check_callbacks() -> None:
    seen: list[Any] = []
    hooks = RayDaskCallback(
        ray_presubmit=lambda task, key, deps: 40 if key == "replaced" else None,
        ray_postsubmit=lambda task, key, deps, ref: seen.append(key),
        ray_postsubmit_all=lambda refs, graph: seen.append("all"),
        ray_finish=lambda result: seen.append("finish"),
    )
    with hooks:
        found = ray_dask_get({"replaced": (operator.add, 1, 1), "sum": (operator.add, "replaced", 2)}, ["sum"])
    assert list(found) == [42]
    assert seen == ["sum", "all", "finish"]
    bar = ProgressBarCallback()
    with bar:
        dask.array.ones(40, chunks=10).sum().compute(scheduler=ray_dask_get)
    # The last tasks tell the counter that they have ended while their results travel.
    deadline = time.monotonic() + 30
    while len(set(bar.counts())) > 1:
        assert time.monotonic() < deadline, bar.counts()
    assert bar.counts()[0] > 0


def main() -> None:
    ray.init(num_cpus=2, resources={"part": 1})
    check_collections()
    check_delayed()
    check_options()
    check_callbacks()
    with enable_dask_on_ray():
        assert delayed(os.getpid)().compute() != os.getpid()
    enable_dask_on_ray()
    assert delayed(os.getpid)().compute() != os.getpid()
    disable_dask_on_ray()
    assert delayed(os.getpid)().compute() == os.getpid()
    print("equal")


if __name__ == "__main__":
    main()
