"""The workers of one attempt: placed together, ranked, started and ended together.

Invariants:
1. Ranks of one machine follow each other, by the first device each has.
2. When a group has ended, its placement group is removed: what its workers held goes back as each process ends.
"""

from __future__ import annotations

import math
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oxiray import _api, _core, _slices, actor, exceptions
from oxiray.train import _inside, _placing, _use
from oxiray.train._exchange import Exchange
from oxiray.train._ingest import Ingest
from oxiray.train._scaling import ScalingConfig
from oxiray.train._worker import RayTrainWorker
from oxiray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from oxiray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

#: Calls that are kept in mind besides two for each worker.
_EXPECTED_MAX = 64
#: How long a call to a killed worker may take to fail, in seconds.
_LET_GO_S = 5.0
#: Workers have so long to leave their process group, in seconds.
_SHUTDOWN_S = 30.0

_worker_class = actor.make(RayTrainWorker, {"num_cpus": 0})
_exchange_class = actor.make(Exchange, {"num_cpus": 0, "max_concurrency": 1_000_000})


@dataclass
class Worker:
    """One rank, as the controller sees it."""

    handle: Any
    facts: dict[str, Any]
    place: _inside.Place
    variables: dict[str, str]
    device_indices: list[int] | None


class Group:
    """The workers of one attempt."""

    def __init__(self, scaling: ScalingConfig, size: int, environment: dict[str, Any], say: Callable[[str], None]) -> None:
        self.size = size
        self._scaling = scaling
        self._say = say
        self._handles: list[Any] = []
        self.workers: list[Worker] = []
        #: How long the workers may take for one step of their start or end, in seconds; None for ever.
        self.patience_s: float | None = None
        #: Whether a rank has failed, so that the others may never come to the end of a collective operation.
        self.has_failed = False
        self._expected: set[Any] = set()
        #: Ranks that the others do not wait for any more.
        self.excused: set[int] = set()
        #: The datasets of Ray Data that the ranks read.
        self.ingest: Ingest | None = None
        self._environment = environment
        self._placement: PlacementGroup | None = None
        self._is_placed = False
        #: The TPU slices that are this group's, where its workers need whole ones.
        self._reserved: PlacementGroup | None = None
        #: How many TPU slices the workers are on; 0 where they need no whole one.
        self.slices = size // scaling.workers_per_slice if scaling.slice is not None else 0
        if scaling.slice is not None:
            self._reserved = scaling.slice.reserve(self.slices)
        else:
            # Asked for at once, so that they start the moment they are placed.
            self._ask_for_workers(scaling.selectors(size))
        self.exchange = _exchange_class.remote(size, warn_interval_s())

    def _ask_for_workers(self, selectors: list[dict[str, str]] | None) -> None:
        needs = self._scaling._resources_per_worker_not_none
        if needs:
            self._placement = placement_group(
                [dict(needs) for _ in range(self.size)],
                self._scaling.placement_strategy,
                bundle_label_selector=selectors,
                priority=self._scaling.priority,
                preemptible=self._scaling.preemptible,
            )
        self._handles = [self._make(index, needs, self._environment) for index in range(self.size)]

    def _make(self, index: int, needs: dict[str, float], environment: dict[str, Any]) -> Any:
        rest = {name: amount for name, amount in needs.items() if name not in ("CPU", "GPU", "memory", "gpu_memory")}
        options: dict[str, Any] = {"num_cpus": needs.get("CPU", 0), "num_gpus": needs.get("GPU", 0), "resources": rest}
        options |= {name: needs[name] for name in ("memory", "gpu_memory") if name in needs}
        if environment:
            options["runtime_env"] = environment
        if self._placement is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._placement, index)
        return _worker_class.options(**options).remote()

    def await_placement(self) -> None:
        """Returns when every worker has its place. Says what it waits for; raises where that can never be."""
        while (waited := self._waited_for()) is not None:
            _placing.await_placement(*waited, self._scaling, self._say)
            self._has_place()

    def is_placed(self, timeout_s: float) -> bool:
        """Whether every worker has its place within so many seconds."""
        while (waited := self._waited_for()) is not None:
            if not waited[0].wait(timeout_s):
                return False
            self._has_place()
        return True

    def why_not(self, waited_s: float) -> str:
        """Why a group that waits has no place, machine by machine."""
        waited = self._waited_for()
        return _placing.why(*waited, waited_s)[0] if waited is not None else ""

    def _waited_for(self) -> tuple[PlacementGroup, str] | None:
        """What is to have its place next, in words: the slices, then the workers on them. None where all have."""
        if self._reserved is not None and not self._handles:
            topology = self._scaling.topology
            return self._reserved, f"{self.slices} TPU slices of topology {topology}"
        if self._placement is not None and not self._is_placed:
            return self._placement, f"{self.size} workers of {self._scaling._resources_per_worker_not_none}"
        return None

    def _has_place(self) -> None:
        if self._reserved is not None and not self._handles:
            each = self._scaling.workers_per_slice
            self._ask_for_workers([{_slices.NAME: name} for name in _slices.names(self._reserved) for _ in range(each)])
        else:
            self._is_placed = True

    def rank(self, wants_port: bool, shares_devices: bool) -> None:
        """Asks each worker where it is, and gives out the ranks."""
        found = all_of([self.expect(handle.describe.remote(wants_port)) for handle in self._handles])
        nodes: dict[str, list[tuple[Any, dict[str, Any]]]] = {}
        for handle, facts in zip(self._handles, found, strict=True):
            nodes.setdefault(facts["node_id"], []).append((handle, facts))
        order = _slices.hosts_in_order() if self.slices else {}
        machines = sorted(nodes, key=lambda node: order.get(node, ("", 0)))
        for node_rank, members in enumerate(nodes[machine] for machine in machines):
            members.sort(key=lambda member: _first_device(member[1]))
            union = shared_devices([facts for _, facts in members]) if shares_devices else {}
            for local_rank, (handle, facts) in enumerate(members):
                place = _inside.Place(len(self.workers), self.size, local_rank, len(members), node_rank)
                variables = {name: ",".join(ids) for name, ids in union.items() if name in facts["visible"]}
                indices = next(
                    ([union[name].index(own) for own in facts["visible"][name]] for name in variables), None
                )
                self.workers.append(Worker(handle, facts, place, variables, indices))

    def use_of_devices(self) -> str:
        """How much the workers' devices are used, in words; empty where they have none, or nobody can tell."""
        held = {
            (worker.facts["node_id"], resource, str(own).strip())
            for worker in self.workers
            for resource, ids in worker.facts["devices"].items()
            for own in ids
        }
        if not held or not _core.is_connected():
            return ""
        try:
            return _use.told(_api.describe_nodes(), held)
        except (exceptions.RayError, OSError):
            return ""  # the head is away: a line without use is better than none

    @property
    def address(self) -> tuple[str, int]:
        """The host and port that rank 0 holds for the others."""
        facts = self.workers[0].facts
        return str(facts["host"]), int(facts["port"])

    def expect(self, call: Any) -> Any:
        """Notes a call that may be under way when the group ends, so that its failure then is no news."""
        if len(self._expected) > 2 * self.size + _EXPECTED_MAX:
            done, waiting = _api.wait(list(self._expected), num_returns=len(self._expected), timeout=0)
            self._expected = set(waiting)
        self._expected.add(call)
        return call

    def __len__(self) -> int:
        return self.size

    def get_resources_per_worker(self) -> dict[str, float]:
        """What each worker was given."""
        return self._scaling._resources_per_worker_not_none

    def execute_async(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Runs a function in every worker; returns references, by rank."""
        return [self.execute_single_async(rank, function, *args, **kwargs) for rank in range(len(self.workers))]

    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Runs a function in every worker; returns what each returned, by rank."""
        return all_of(self.execute_async(function, *args, **kwargs), self.patience_s)

    def execute_single_async(self, rank: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs a function in one worker; returns a reference."""
        return self.expect(self.workers[rank].handle.__ray_call__.remote(_without_actor(function), *args, **kwargs))

    def execute_single(self, rank: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs a function in one worker; returns what it returned."""
        return _api.get(self.execute_single_async(rank, function, *args, **kwargs), timeout=self.patience_s)

    def excuse(self, ends: dict[str, int | None]) -> set[int]:
        """Has the others not wait for ranks of these machines, each with the millisecond since 1970 at which it ends, where that
        is known; returns who is excused now. Nobody is where rank 0 would be: the others could keep no checkpoint without it.
        """
        found = {rank: node for rank, worker in enumerate(self.workers) if (node := worker.facts["node_id"]) in ends}
        fresh = {rank: pickle.dumps((node, ends[node])) for rank, node in found.items() if rank not in self.excused}
        if 0 in found or not fresh:
            return set()
        self.excused.update(fresh)
        self.expect(self.exchange.excuse.remote(fresh))
        return set(fresh)

    def end(self, leave: Callable[[], None] | None = None) -> None:
        """Ends every worker, after `leave` where that is given, and gives back what they held."""
        self.patience_s = _SHUTDOWN_S
        try:
            if leave is not None:
                leave()
        except Exception as error:
            # What a rank raised matters more than what the backend raises after it.
            if not self.has_failed and not isinstance(error, (exceptions.RayError, TimeoutError)):
                raise
            self._say(f"the workers could not leave their process group: {error}")
        finally:
            if _core.is_connected():
                if self.ingest is not None:
                    self.ingest.begin_to_stop()
                for handle in [*self._handles, self.exchange]:
                    _api.kill(handle)
                for placement in (self._placement, self._reserved):
                    if placement is not None:
                        remove_placement_group(placement)
                if self.ingest is not None:
                    self.ingest.stop()
                self._let_go()

    def _let_go(self) -> None:
        """Looks at what calls under way have come to, which is the end of their group."""
        while self._expected:
            try:
                _api.get(self._expected.pop(), timeout=_LET_GO_S)
            except (exceptions.RayError, TimeoutError):
                continue


def all_of(references: list[Any], timeout_s: float | None = None) -> list[Any]:
    """What each call returned. Raises what the first to fail raised, though others never end; `TimeoutError` past the time."""
    waiting = references
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while waiting:
        ready, waiting = _api.wait(waiting, timeout=None if end is None else max(0.0, end - time.monotonic()))
        if not ready:
            late = [index for index, one in enumerate(references) if one in waiting]
            raise TimeoutError(f"rank {', '.join(map(str, late))} did not answer within {timeout_s:g} s")
        _api.get(ready)
    return list(_api.get(references))


def _without_actor(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(worker: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _first_device(facts: dict[str, Any]) -> tuple[bool, int, str]:
    ids = [str(own) for granted in facts["devices"].values() for own in granted]
    if not ids:
        return True, 0, ""
    first = min(ids, key=lambda own: (int(own) if own.isdigit() else 0, own))
    return False, int(first) if first.isdigit() else 0, first


def shared_devices(members: list[dict[str, Any]]) -> dict[str, list[str]]:
    """For each variable that shows devices, those of all workers of a machine, in order."""
    union: dict[str, set[str]] = {}
    for facts in members:
        for name, ids in facts["visible"].items():
            union.setdefault(name, set()).update(ids)
    return {name: sorted(ids, key=lambda own: (int(own) if own.isdigit() else 0, own)) for name, ids in union.items()}


def leaving_nodes() -> dict[str, int | None]:
    """The machines that are being drained, or ended so, each with the millisecond since 1970 at which it ends, where that is known."""
    now = time.time()
    found: dict[str, int | None] = {}
    for node in _api.describe_nodes():
        if draining := node.get("draining"):
            left = draining.get("deadline_s")
            found[node["node_id"]] = None if left is None else int((now + left) * 1000)
        elif str(node.get("death", "")).startswith("it was drained"):
            found[node["node_id"]] = int(now * 1000)
    return found


def workers_that_fit(needs: dict[str, float]) -> int:
    """How many workers the free resources of the machines would hold now, without what placing them has to heed."""
    if not needs:
        return 1 << 30
    count = 0
    for node in _api.describe_nodes():
        if node.get("alive", True) and not node.get("draining"):
            free = node.get("available", {})
            count += min(math.floor(free.get(name, 0.0) / amount + 1e-9) for name, amount in needs.items())
    return count


def warn_interval_s() -> float:
    """After how many seconds ranks that are missing in a meeting are named."""
    return float(os.environ.get("RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S", "60"))
