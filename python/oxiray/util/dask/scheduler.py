"""Dask's graphs as tasks: every task of a graph is one call, whose arguments are references to what it needs.

Purpose: the schedulers `ray_dask_get` and `ray_dask_get_sync`. Dask's own synchronous scheduler walks a graph in which
every task is replaced by its submission; it keeps Dask's order, aliases, callbacks, and forgets references as soon as
nothing in the graph needs them. Nothing waits in between: a call starts when its arguments are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import dask
from dask._task_spec import Alias, DataNode, GraphNode, Task, TaskRef, convert_legacy_graph
from dask.base import get_scheduler
from dask.local import get_sync
from dask.sizeof import sizeof

import oxiray
from oxiray._core import ObjectRef
from oxiray.util.dask.callbacks import RayCallbacks, local_ray_callbacks, unpack_ray_callbacks
from oxiray.util.dask.common import unpack_object_refs

#: Values of a graph from this size on are put once instead of being sent with each call that needs them.
PUT_BYTES_MIN = 100 * 1024
TOP_LEVEL_RESOURCES_ERR_MSG = (
    'Use ray_remote_args={"resources": {...}} instead of resources={...}: the latter is for Dask\'s own cluster'
)


def enable_dask_on_ray(shuffle: str | None = "tasks", use_shuffle_optimization: bool | None = True) -> Any:
    """Has Dask compute with `ray_dask_get`, until `disable_dask_on_ray()`, or within the context that this returns.

    `shuffle` is Dask's method to shuffle dataframes; "disk" needs a folder that all machines share. Ray's own
    optimization of shuffles served versions of Dask before 2025; `use_shuffle_optimization` names it in Dask's settings.
    """
    optimize = dataframe_optimize if use_shuffle_optimization else None
    return dask.config.set({"scheduler": ray_dask_get, "dataframe.shuffle.method": shuffle, "dataframe_optimize": optimize})


def disable_dask_on_ray() -> Any:
    """Has Dask compute with its own schedulers again, for good or within the context that this returns."""
    return dask.config.set({"scheduler": None, "dataframe.shuffle.method": None, "dataframe_optimize": None})


def dataframe_optimize(dsk: Any, keys: Any, **kwargs: Any) -> Any:
    """The graph as it is: Dask from 2025 on optimizes shuffles itself."""
    return dsk


def is_ours(scheduler: Any) -> bool:
    """Whether `scheduler`, else the one that Dask's settings name, is one of this module's."""
    return get_scheduler(scheduler=scheduler) in (ray_dask_get, ray_dask_get_sync)


def ray_dask_get(
    dsk: Any,
    keys: Any,
    *,
    ray_callbacks: Any = None,
    ray_persist: bool = False,
    ray_remote_args: Mapping[str, Any] | None = None,
    **dask_options: Any,
) -> Any:
    """The values of `keys` in the graph `dsk`: a scheduler for `dask.compute(scheduler=...)`.

    `ray_remote_args` are options of every task; `dask.annotate(ray_remote_args={...})` gives those of some. With
    `ray_persist` the results are references. `ray_callbacks` are `RayDaskCallback`s, in the place of those in force.
    Keywords of Dask's other schedulers, such as `num_workers` and `pool`, are about their threads and change nothing.
    Raises ValueError for `resources`, and what a task raised.
    """
    annotations = dask.get_annotations()
    if "resources" in dask_options or "resources" in annotations:
        raise ValueError(TOP_LEVEL_RESOURCES_ERR_MSG)
    graph, own = _graph_and_options(dsk)
    options = {**(ray_remote_args or {}), **annotations.get("ray_remote_args", {})}
    with local_ray_callbacks(ray_callbacks) as active:
        hooks = unpack_ray_callbacks(active)
        calls = {key: _submitting(node, hooks, {**options, **own.get(key, {})}) for key, node in graph.items()}
        result = get_sync(calls, keys)
        # What only these hold need not be kept until the last task has ended.
        del calls
        for hook in hooks.ray_postsubmit_all_cbs or ():
            hook(result, graph)
        del graph, dsk
        if not ray_persist:
            refs, repack = unpack_object_refs(result)
            (result,) = repack(oxiray.get(refs))
        for hook in hooks.ray_finish_cbs or ():
            hook(result)
    return result


def ray_dask_get_sync(dsk: Any, keys: Any, **kwargs: Any) -> Any:
    """`ray_dask_get`, by the name under which Ray submits without threads: both do here."""
    return ray_dask_get(dsk, keys, **kwargs)


def _graph_and_options(dsk: Any) -> tuple[dict[Any, GraphNode], dict[Any, dict[str, Any]]]:
    """The graph in the form that names its tasks' dependencies, and what annotations say of tasks' options, by key."""
    if isinstance(dsk, Mapping):
        graph = dsk
        layers = getattr(dsk, "layers", {}).values()
        annotated = [
            (name, dict.fromkeys(layer.get_output_keys(), value))
            for layer in layers
            for name, value in (layer.annotations or {}).items()
        ]
    else:
        graph = dsk.__dask_graph__()
        annotated = list(dsk.__dask_annotations__().items())
    options: dict[Any, dict[str, Any]] = {}
    for name, by_key in annotated:
        if name == "resources":
            raise ValueError(TOP_LEVEL_RESOURCES_ERR_MSG)
        if name == "ray_remote_args":
            for key, value in by_key.items():
                options.setdefault(key, {}).update(value)
    return convert_legacy_graph(graph), options


def _submitting(node: GraphNode, hooks: RayCallbacks, options: dict[str, Any]) -> GraphNode:
    """A node whose value is a reference to that of `node`."""
    if isinstance(node, DataNode):
        is_large = not isinstance(node.value, ObjectRef) and sizeof(node.value) >= PUT_BYTES_MIN
        return DataNode(node.key, oxiray.put(node.value)) if is_large else node
    if isinstance(node, Alias):
        return node
    needed = list(node.dependencies)
    return Task(node.key, _Submission(node, needed, hooks, options), *(TaskRef(key) for key in needed))


class _Submission:
    """Submits one task of a graph, given what it needs; called in the program."""

    def __init__(self, task: GraphNode, needed: list[Any], hooks: RayCallbacks, options: dict[str, Any]) -> None:
        self.task = task
        self.needed = needed
        self.hooks = hooks
        self.options = options

    def __call__(self, *values: Any) -> Any:
        key, hooks = self.task.key, self.hooks
        dependencies = dict(zip(self.needed, values, strict=True))
        instead = [hook(self.task, key, dependencies) for hook in hooks.ray_presubmit_cbs or ()]
        if found := [value for value in instead if value is not None]:
            return found[0]
        call = _run.options(**{"name": f"dask:{key}", **self.options})
        inside = (hooks.ray_pretask_cbs or (), hooks.ray_posttask_cbs or ())
        ref = call.remote(self.task, self.needed, *inside, *values)
        for hook in hooks.ray_postsubmit_cbs or ():
            hook(self.task, key, dependencies, ref)
        return ref


@oxiray.remote
def _run(task: GraphNode, needed: list[Any], before: Iterable[Any], after: Iterable[Any], *values: Any) -> Any:
    """Runs one task of a graph, in a worker."""
    states = [hook(task.key, values) if hook else None for hook in before]
    result = _resolved(task)(dict(zip(needed, values, strict=True)))
    for hook, state in zip(after, states, strict=True):
        if hook:
            hook(task.key, result, state)
    return result


def _resolved(value: Any) -> Any:
    """`value` without references: what was persisted may stand inside of a task that Dask made of several."""
    if isinstance(value, ObjectRef):
        return oxiray.get(value)
    if isinstance(value, DataNode):
        return DataNode(value.key, oxiray.get(value.value)) if isinstance(value.value, ObjectRef) else value
    if isinstance(value, Task):
        # A worker has read a copy of its own.
        value.args, value.kwargs = _resolved(value.args), _resolved(value.kwargs)
        return value
    if type(value) in (list, tuple):
        return type(value)(_resolved(part) for part in value)
    if type(value) is dict:
        return {key: _resolved(part) for key, part in value.items()}
    return value
