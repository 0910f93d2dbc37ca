"""Datasets of Ray Data in a run: what each rank of a group reads of them.

Ray Data is a library of Ray's, which is loaded from files of Ray's own (docs/libraries.md) and need not be installed: a
dataset is recognized by its class, and nothing of the library is imported before a program has one.

Invariants:
1. A dataset is divided for one group, when a rank of it first asks for its part, and never again for that group.
2. The actors that divide datasets for a group end with the group.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import pickle
import sys
import time
import uuid
from typing import Any

from oxiray import _api, _core, _pickling, exceptions
from oxiray.train._configs import DataConfig
from oxiray.train._errors import ControllerError
from oxiray.train._scaling import ScalingConfig

#: The actors that divide datasets may take so long to stop what they run, in seconds.
_STOP_S = 5.0
#: Ray Data's coordinator of resources may take so long to answer, in seconds.
_ANSWER_S = 5.0
#: A reservation is renewed after `_RENEW_S` seconds, and lapses after `_LAPSE_S`.
_RENEW_S, _LAPSE_S = 60.0, 180.0
_COORDINATOR = "ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator"


def is_dataset(value: Any) -> bool:
    """Whether a value is a `Dataset` of Ray Data."""
    return any(kind.__name__ == "Dataset" and kind.__module__ == "ray.data.dataset" for kind in type(value).__mro__)


def made(name: str, data: Any) -> Any:
    """The `Dataset` that was given to the trainer, or that the function makes which was given.

    Raises `ControllerError` where that function fails, or makes something else.
    """
    if is_dataset(data):
        return data
    try:
        found = data()
        if not is_dataset(found):
            raise TypeError(
                f"datasets[{name!r}] is a function that returned a {type(found).__name__}: have it return a ray.data.Dataset, or "
                "pass the iterable itself"
            )
    except Exception as error:
        raise ControllerError(error) from error
    return found


def context() -> Any:
    """The `DataContext` of this program, which the workers take over; None where the program has not loaded Ray Data."""
    module = sys.modules.get("ray.data.context")
    return None if module is None else module.DataContext.get_current()


def take_over(given: Any) -> None:
    """Makes a `DataContext` the one of this process."""
    if given is not None:
        importlib.import_module("ray.data.context").DataContext._set_current(given)


class Ingest:
    """The datasets of one group."""

    def __init__(self, datasets: dict[str, Any], config: DataConfig, nodes: list[str]) -> None:
        self._datasets = {name: made(name, data) for name, data in datasets.items()}
        # An overridden `configure` may keep things in its object: each group has its own.
        self._config = copy.deepcopy(config)
        self._nodes = nodes
        #: The parts that were given out, and the actors behind them.
        self._parts: list[Any] = []
        self._coordinators: dict[Any, Any] = {}
        self._stopping: list[Any] = []

    def divide(self, name: str) -> tuple[bool, Any]:
        """True and a reference to each rank's part of a dataset, or False and the exception as bytes."""
        try:
            parts = self._configured(name)
            for part in parts:
                coordinator = getattr(part, "_coord_actor", None)
                if coordinator is not None:
                    self._coordinators[coordinator._actor_id] = coordinator
            references = [_api.put(part) for part in parts]
        except Exception as error:
            return False, _as_bytes(name, error)
        self._parts += references
        return True, references

    def _configured(self, name: str) -> list[Any]:
        size = len(self._nodes)
        dataset = self._datasets[name]
        # The program's own dataset stays as it is, whatever `configure` sets in what it is given.
        given = self._config.configure(
            datasets={name: dataset.copy(dataset, _deep_copy=True)},
            world_size=size,
            worker_handles=None,
            worker_node_ids=list(self._nodes),
        )
        if not isinstance(given, list) or len(given) != size or any(name not in parts for parts in given):
            raise ValueError(
                f"{type(self._config).__name__}.configure() returned {_shown(given)} for the dataset {name!r}: it must return a "
                f"list of {size} dictionaries, one for each worker, that hold a DataIterator as {name!r}"
            )
        return [parts[name] for parts in given]

    def begin_to_stop(self) -> None:
        """Has the actors end what they run, and give back what they reserved; called while the ranks may still read."""
        for coordinator in self._coordinators.values():
            # It may be dead already, and is killed in any case.
            with contextlib.suppress(exceptions.RayError, AttributeError):
                self._stopping.append(coordinator.shutdown_executor.remote())

    def stop(self) -> None:
        """Ends the actors."""
        if self._stopping:
            _api.wait(self._stopping, num_returns=len(self._stopping), timeout=_STOP_S)
        for coordinator in self._coordinators.values():
            _api.kill(coordinator)
        for stopped in self._stopping:
            # What is looked at is not reported as a failure that nobody saw.
            with contextlib.suppress(Exception):
                _api.get(stopped, timeout=_STOP_S)
        self._coordinators.clear()
        self._stopping.clear()
        self._parts.clear()


def _as_bytes(name: str, error: Exception) -> bytes:
    try:
        packed = _pickling.dumps(error)
        pickle.loads(packed)
        return packed
    except Exception:
        return _pickling.dumps(RuntimeError(f"the dataset {name!r} could not be divided: {type(error).__name__}: {error}"))


def _shown(given: Any) -> str:
    if isinstance(given, list):
        return f"a list of {len(given)}"
    return f"a {type(given).__name__}"


class Reservation:
    """What the workers of a run take, as Ray Data is told, which plans with the rest of the cluster.

    A run without datasets of Ray Data reserves nothing.
    """

    def __init__(self, scaling: ScalingConfig, is_needed: bool) -> None:
        self._scaling = scaling
        self._is_needed = is_needed
        self._who = f"train-{uuid.uuid4().hex}"
        self._coordinator: Any = None
        self._asked: Any = None
        self._renewed = 0.0

    def keep(self) -> float | None:
        """Renews the reservation where it is time to; returns how many seconds that is good for, or None without one."""
        if self._coordinator is None:
            return None
        if time.monotonic() - self._renewed >= _RENEW_S:
            self.renew()
        return max(0.0, self._renewed + _RENEW_S - time.monotonic())

    def renew(self) -> None:
        """Reserves for the largest group that the run may have. It does not wait for the answer."""
        if not self._is_needed:
            return
        try:
            module = importlib.import_module(_COORDINATOR)
            self._coordinator = self._coordinator or module.get_or_create_autoscaling_coordinator()
        except (ImportError, AttributeError):
            # A version of Ray Data without a coordinator.
            self._is_needed = False
            return
        size = self._scaling.max_workers
        needs = self._scaling._resources_per_worker_not_none
        # Memory of a GPU is a resource that Ray Data does not know.
        bundle = {resource: amount for resource, amount in needs.items() if resource != "gpu_memory"}
        self._look_at()
        self._renewed = time.monotonic()
        self._asked = self._coordinator.request_resources.remote(
            requester_id=self._who,
            resources=[dict(bundle) for _ in range(size)],
            label_selectors=self._scaling.selectors(size),
            expire_after_s=_LAPSE_S,
            priority=module.ResourceRequestPriority.HIGH,
        )

    def settle(self) -> None:
        """Waits until Ray Data knows of the reservation."""
        if self._asked is not None:
            _api.wait([self._asked], timeout=_ANSWER_S)

    def withdraw(self) -> None:
        """Ends the reservation. It lapses anyway."""
        if self._coordinator is None or not _core.is_connected():
            return
        self._look_at()
        self._asked = self._coordinator.cancel_request.remote(requester_id=self._who)
        self.settle()
        self._look_at()
        self._coordinator = None

    def _look_at(self) -> None:
        # The coordinator may have died, and what it was asked is no matter then: Ray Data plans with all there is.
        asked, self._asked = self._asked, None
        if asked is not None:
            with contextlib.suppress(exceptions.RayError):
                _api.get(asked, timeout=_ANSWER_S)
