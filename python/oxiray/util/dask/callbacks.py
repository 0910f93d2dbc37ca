"""What a program may have called while a graph of Dask is submitted and run: the hooks of `RayDaskCallback`.

Hooks that begin with `ray_pre` or `ray_post` followed by `task` run in the worker, the others in the program.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

from dask.callbacks import Callback

import oxiray

#: The hooks, by the names that `RayDaskCallback` takes.
CBS = ("ray_presubmit", "ray_postsubmit", "ray_pretask", "ray_posttask", "ray_postsubmit_all", "ray_finish")
#: The methods that a subclass may define instead.
CB_FIELDS = tuple(f"_{name}" for name in CBS)
#: Hooks that come in pairs: one that is absent keeps its place.
CBS_DONT_DROP = frozenset({"ray_pretask", "ray_posttask"})


class RayCallback(NamedTuple):
    """The hooks of one `RayDaskCallback`; None where it has none."""

    ray_presubmit: Any = None
    ray_postsubmit: Any = None
    ray_pretask: Any = None
    ray_posttask: Any = None
    ray_postsubmit_all: Any = None
    ray_finish: Any = None


class RayCallbacks(NamedTuple):
    """The hooks of several, by kind."""

    ray_presubmit_cbs: Any = ()
    ray_postsubmit_cbs: Any = ()
    ray_pretask_cbs: Any = ()
    ray_posttask_cbs: Any = ()
    ray_postsubmit_all_cbs: Any = ()
    ray_finish_cbs: Any = ()


class RayDaskCallback(Callback):  # type: ignore[misc]
    """Hooks around the tasks that a graph becomes; used as a context manager, or with `register()`.

    They are given by keyword, beside those of `dask.callbacks.Callback`, or as methods of a subclass whose names begin
    with an underscore:

    - `ray_presubmit(task, key, deps)`: before a task is submitted; what it returns, unless None, is taken for the result.
    - `ray_postsubmit(task, key, deps, object_ref)`: after that.
    - `ray_pretask(key, object_refs)`: in the worker, before the task runs, with the values that it needs.
    - `ray_posttask(key, result, pre_state)`: in the worker, after it; `pre_state` is what `ray_pretask` returned.
    - `ray_postsubmit_all(object_refs, dsk)`: when all tasks are submitted.
    - `ray_finish(result)`: when the results are there.
    """

    #: Hooks in force, of this thread's next computation.
    ray_active: ClassVar[set[RayCallback]] = set()

    def __init__(self, **kwargs: Any) -> None:
        for name in CBS:
            if (hook := kwargs.pop(name, None)) is not None:
                setattr(self, f"_{name}", hook)
        super().__init__(**kwargs)

    @property
    def _ray_callback(self) -> RayCallback:
        return RayCallback(*(getattr(self, name, None) for name in CB_FIELDS))

    def __enter__(self) -> RayDaskCallback:
        self._ray_entered = add_ray_callbacks(self)
        self._ray_entered.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *args: Any) -> None:
        super().__exit__(*args)
        self._ray_entered.__exit__(*args)

    def register(self) -> None:
        """Has the hooks called for every computation from now on."""
        RayDaskCallback.ray_active.add(self._ray_callback)
        super().register()

    def unregister(self) -> None:
        """Ends what `register` began. Raises KeyError where it did not."""
        RayDaskCallback.ray_active.remove(self._ray_callback)
        super().unregister()


class add_ray_callbacks:
    """A context in which these hooks are in force."""

    def __init__(self, *callbacks: Any) -> None:
        self.callbacks = [normalize_ray_callback(callback) for callback in callbacks]
        RayDaskCallback.ray_active.update(self.callbacks)

    def __enter__(self) -> add_ray_callbacks:
        return self

    def __exit__(self, *args: Any) -> None:
        RayDaskCallback.ray_active.difference_update(self.callbacks)


def normalize_ray_callback(cb: Any) -> RayCallback:
    """The hooks of `cb`. Raises TypeError where it is no `RayDaskCallback` and no `RayCallback`."""
    if isinstance(cb, RayDaskCallback):
        return cb._ray_callback
    if isinstance(cb, RayCallback):
        return cb
    raise TypeError(f"a callback must be a RayDaskCallback or a RayCallback, and {type(cb).__name__} was given")


def unpack_ray_callbacks(cbs: Iterable[Any] | None) -> RayCallbacks:
    """The hooks of several callbacks, by kind; a kind that nobody has is None."""
    given = [normalize_ray_callback(cb) for cb in cbs or ()]
    if not given:
        return RayCallbacks()
    kinds = zip(CBS, zip(*given, strict=True), strict=True)
    return RayCallbacks(*([hook for hook in hooks if hook or name in CBS_DONT_DROP] or None for name, hooks in kinds))


@contextlib.contextmanager
def local_ray_callbacks(callbacks: Any = None) -> Iterator[Any]:
    """The callbacks of a computation: those given, else those in force, which computations inside of it do not meet."""
    if callbacks is not None:
        yield callbacks
        return
    active, RayDaskCallback.ray_active = RayDaskCallback.ray_active, set()
    try:
        yield active
    finally:
        RayDaskCallback.ray_active = active


@oxiray.remote(num_cpus=0)
class _Progress:
    """Counts the tasks of a computation that were submitted and that have ended."""

    def __init__(self) -> None:
        self.submitted: dict[Any, float] = {}
        self.started: dict[Any, float] = {}
        self.finished: dict[Any, float] = {}

    def submit(self, key: Any, when: float) -> None:
        self.submitted[key] = when

    def start(self, key: Any, when: float) -> None:
        self.started[key] = when

    def finish(self, key: Any, when: float) -> None:
        self.finished[key] = when

    def counts(self) -> tuple[int, int]:
        return len(self.submitted), len(self.finished)

    def report(self) -> dict[Any, dict[str, float]]:
        return {
            key: {
                "execution_time": ended - self.started[key],
                "scheduling_time": self.started[key] - self.submitted[key],
            }
            for key, ended in self.finished.items()
        }


class ProgressBarCallback(RayDaskCallback):
    """Counts a computation's tasks in an actor, and prints when all have ended.

    `counts()` gives how many were submitted and how many have ended, `report()` each task's times in seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pb = _Progress.remote()

    def counts(self) -> tuple[int, int]:
        """How many tasks were submitted, and how many have ended."""
        counted: tuple[int, int] = oxiray.get(self.pb.counts.remote())
        return counted

    def report(self) -> dict[Any, dict[str, float]]:
        """How long each task that has ended waited and ran, in seconds."""
        times: dict[Any, dict[str, float]] = oxiray.get(self.pb.report.remote())
        return times

    def _ray_postsubmit(self, task: Any, key: Any, deps: Any, object_ref: Any) -> None:
        self.pb.submit.remote(key, time.time())

    def _ray_pretask(self, key: Any, object_refs: Any) -> None:
        self.pb.start.remote(key, time.time())

    def _ray_posttask(self, key: Any, result: Any, pre_state: Any) -> None:
        self.pb.finish.remote(key, time.time())

    def _ray_finish(self, result: Any) -> None:
        print("All tasks are completed.")
