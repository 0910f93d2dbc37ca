"""One `fit()`: groups of workers, one after the other, until one is done or may not be replaced.

It runs where `fit()` was called and ends with that process; the run's folder is all that stays. It sleeps until there
is news: of a rank that ended, or of the exchange.

Invariants:
1. A group is ended whole before the next is asked for.
2. A report is in the rows, and a checkpoint in the list of checkpoints, before a worker goes on that waits for it.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import posixpath
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from oxiray import _api, _session, exceptions
from oxiray.train import _failing, _inside, _kept, _result
from oxiray.train._configs import DataConfig, ReportedCheckpoint, ReportedCheckpointStatus, RunConfig, RunContext, ValidationConfig, callbacks_of_environment
from oxiray.train._errors import (
    ControllerError,
    InsufficientClusterResourcesError,
    PreemptionError,
    WorkerGroupError,
    WorkerGroupStartupError,
)
from oxiray.train._group import Group, all_of, leaving_nodes, warn_interval_s, workers_that_fit
from oxiray.train._ingest import Ingest, Reservation
from oxiray.train._optional_demand import OptionalDemand
from oxiray.train._progress import Progress
from oxiray.train._told import Told
from oxiray.train._scaling import ScalingConfig
from oxiray.train._storage import Storage
from oxiray.train._validation import Validations

#: How often the machines of a group are looked at whose ranks may be excused, in seconds.
_WATCH_S = 1.0
#: For an elastic group, how long a size that should fit is waited for before a smaller one is tried, in seconds.
_FITS_S = 2.0


@dataclass
class Run:
    """What a trainer asks for."""

    work: bytes
    scaling: ScalingConfig
    config: RunConfig
    backend_config: Any
    environment: dict[str, Any]
    validation: ValidationConfig | None = None
    #: The function that validates, as bytes.
    validation_work: bytes = b""
    #: Datasets of Ray Data, or functions that make them.
    datasets: dict[str, Any] = field(default_factory=dict)
    data_config: DataConfig = field(default_factory=DataConfig)


@dataclass
class _Ended:
    """How a group ended: a result of rank 0, failures, or the wish for another size."""

    returned: Any = None
    failures: dict[int, Exception] = field(default_factory=dict)
    resize: int | None = None
    #: Whether what failed is that machines were taken away.
    is_preempted: bool = False


class Controller:
    """Runs one `fit()`."""

    def __init__(self, run: Run) -> None:
        config = run.config
        assert config.name and config.storage_path and config.failure_config and config.checkpoint_config  # filled in when made
        assert config.logging_config is not None
        self._run = run
        self._limits = config.failure_config
        self._callbacks = [*(config.callbacks or []), *callbacks_of_environment()]
        self._context = RunContext(config)
        self.progress = Progress(config.name, config.logging_config.log_level)
        self._told = Told(config.name)
        try:
            self.storage = Storage(config.storage_path, config.name, config.storage_filesystem)
        except Exception as error:
            raise ControllerError(error) from error
        self.kept = _kept.Kept(self.storage, config.checkpoint_config, self.progress.say)
        self._validations = Validations(run.validation, run.validation_work, self.kept, self.progress.say)
        self._backend = run.backend_config.backend_cls()
        self._optional_demand = OptionalDemand(run.scaling, config.name)
        self._reservation = Reservation(run.scaling, is_needed=bool(run.datasets))
        self._begun = time.monotonic()
        #: How many workers the last group had, or the next is to have.
        self._size = 0
        self._failures = 0
        self._preemptions = 0
        self._startup_failures = 0
        self._is_leaving = False
        #: When machines were looked at last whose ranks may be excused.
        self._watched = -math.inf

    def run(self) -> _result.Result:
        """Trains to the end. Raises `TrainingFailedError` of some kind."""
        try:
            self.storage.prepare()
            self.kept.load()
        except Exception as error:
            raise ControllerError(error) from error
        _session.ensure()
        try:
            while (ended := self._attempt()) is None or ended.failures or ended.resize is not None:
                if ended is not None and ended.failures:
                    self._count(ended)
                self.kept.rewind()
            with contextlib.suppress(exceptions.RayError):
                self._reservation.withdraw()
            self._validations.finish()
            self.kept.finish()
        finally:
            # The head forgets it anyway where it cannot be asked now.
            with contextlib.suppress(exceptions.RayError):
                self._optional_demand.withdraw()
                self._reservation.withdraw()
            self._validations.stop()
            self.kept.close()
        return _result.of(self.kept, ended.returned)

    def _attempt(self) -> _Ended | None:
        """One group, from its placement to its end; None where it could not be made ready and may be tried again."""
        begun = time.monotonic()
        group: Group | None = None
        leave: Callable[[], None] | None = None
        try:
            try:
                self._reservation.renew()
                group = self._place()
                self._start(group)
            except (exceptions.RayError, WorkerGroupStartupError, TimeoutError) as error:
                self._startup_failed(error)
                return None
            self.progress.use_of_devices = group.use_of_devices
            self.progress.note(f"{group.size} workers began after {time.monotonic() - begun:.2f} s: {_failing.places(group)}")
            ended = self._supervise(group)
            if ended.failures:
                group.has_failed = True
                ended.is_preempted = _failing.is_preempted(ended.failures, group, leaving_nodes())
            started = group
            leave = lambda: self._backend.on_shutdown(started, self._run.backend_config)  # noqa: E731
            return ended
        finally:
            self.progress.flush()
            self._told.flush()
            self.progress.use_of_devices = str
            if group is not None:
                group.end(leave)

    def _place(self) -> Group:
        """A group that has its place: of an elastic one, as many workers as there is room for."""
        scaling, environment = self._run.scaling, self._run.environment
        fit = workers_that_fit(scaling._resources_per_worker_not_none) if scaling.elasticity_enabled else 0
        # What an ended group held is not free yet: the size it had, or was to have, is asked for as well.
        size = max(scaling.min_workers, scaling.whole(min(scaling.max_workers, max(fit, self._size))))
        while True:
            self._optional_demand.publish(size)
            group = Group(scaling, size, environment, self.progress.say)
            try:
                if size == scaling.min_workers or group.is_placed(_FITS_S):
                    group.await_placement()
                    self._size = size
                    return group
                self.progress.note(f"{group.why_not(_FITS_S)}: trying with fewer")
            except BaseException:
                group.end()
                raise
            group.end()
            fit = workers_that_fit(scaling._resources_per_worker_not_none)
            size = max(scaling.min_workers, scaling.whole(min(size - 1, fit)))

    def _start(self, group: Group) -> None:
        backend, config = self._backend, self._run.backend_config
        group.patience_s = self._limits.hang_timeout_s
        group.rank(backend.needs_port, _shares_devices(backend))
        if self._run.datasets:
            nodes = [worker.facts["node_id"] for worker in group.workers]
            group.ingest = Ingest(self._run.datasets, self._run.data_config, nodes)
        latest = self.kept.latest
        if self._run.validation is not None:
            pending = [entry.name for entry in self.kept.entries if entry.validation is not None]
            group.expect(group.exchange.validate.remote(pending))
        kept = [
            ReportedCheckpoint(self.kept.checkpoint(entry), entry.metrics, ReportedCheckpointStatus(entry.status))
            for entry in self.kept.entries
        ]
        joined = []
        for worker in group.workers:
            session = _inside.Session(
                run=self._run.config.name or "",
                place=worker.place,
                exchange=group.exchange,
                storage=self.storage,
                checkpoint=self.kept.checkpoint(latest) if latest is not None else None,
                kept=kept,
                validates=self._run.validation is not None,
                device_indices=worker.device_indices,
                first_report=self.kept.reports,
                ingested=frozenset(self._run.datasets),
            )
            keeps_port = worker.place.world_rank == 0
            variables = {**_propagated(), **worker.variables}
            joined.append(group.expect(worker.handle.join.remote(session, variables, keeps_port)))
        backend.on_start(group, config)
        if not all(all_of(joined)):
            self.progress.say(
                f"not every machine sees {self.storage.path}: reporting a checkpoint will fail. Give RunConfig a "
                "storage_path that all machines share, or a URL"
            )
        backend.on_training_start(group, config)

    def _supervise(self, group: Group) -> _Ended:
        """Waits for the ranks, and keeps what they report."""
        work = _api.put(self._run.work)
        runs = {group.expect(_named(worker.handle.run, self._run.config.name, rank).remote(work)): rank for rank, worker in enumerate(group.workers)}
        ended, patience = _Ended(), _Patience(self._limits.hang_timeout_s, self._run.scaling)
        grace = _Grace(self._limits.preemption_grace_s)
        rank_0 = next(iter(runs))
        returned: Any = None
        news = group.expect(group.exchange.news.remote())
        told_all = is_kept = self._is_leaving = False
        while runs or not told_all:
            if self._validate(group):
                patience.begin()
            waiting = [*([] if told_all else [news]), *runs, *self._validations.references]
            ready, _ = _api.wait(waiting, timeout=self._longest_wait(None if ended.failures else patience, grace))
            if not ready and patience.is_over() and self._validations.references:
                # The ranks may be waiting for it.
                patience.begin()
            elif not ready and patience.is_over() and not ended.failures:
                ended.failures = _failing.hung(group, patience.limit or 0.0)
                return ended
            for one in ready:
                if one not in runs and one is not news:
                    continue
                if one is news:
                    patience.begin()
                    try:
                        events = _api.get(news)
                    except exceptions.RayError as error:
                        ended.failures = ended.failures or _failing.of_ranks(runs, group) or {0: _failing.lost_exchange(error)}
                        return ended
                    told_all = self._take(group, events)
                    news = group.expect(group.exchange.news.remote()) if not told_all else news
                    is_kept = any(kind == "checkpoint" for kind, _, _ in events)
                    continue
                try:
                    value = _api.get(one)
                    returned = pickle.loads(value) if one is rank_0 and value else returned
                    del runs[one]
                except exceptions.RayError:
                    if self._is_over(group, runs, ended, grace):
                        return ended
            if ended.failures:
                if is_kept or grace.is_over() or not runs:
                    return ended
                continue
            self._excuse(group)
            ended.resize = self._place_elsewhere(group) if is_kept and self._is_leaving else None
            if ended.resize is None:
                ended.resize = patience.room(group, is_kept=is_kept or self.kept.latest is None)
            if ended.resize is not None and runs:
                self.progress.note(f"there is room for {ended.resize} workers, of {group.size} now: starting again with them")
                self._size = ended.resize
                return ended
            is_kept = False
        ended.returned, ended.resize = returned, None
        return ended

    def _is_over(self, group: Group, runs: dict[Any, int], ended: _Ended, grace: _Grace) -> bool:
        """Notes the ranks that have failed; False where the others are given time to keep a checkpoint, once a machine is gone."""
        # The first failure is seldom alone: the others lose their peer.
        failures = _failing.of_ranks(runs, group)
        if not ended.failures:
            ended.failures = failures
            if grace.seconds_given <= 0 or not _failing.is_preempted(failures, group, leaving_nodes()):
                return True
            grace.begin()
            ranks = ", ".join(map(str, sorted(failures)))
            self.progress.say(f"the machine of rank {ranks} is gone: the others have {grace.seconds_given:g} s to keep a checkpoint")
        for one in [one for one, rank in runs.items() if rank in failures]:
            del runs[one]
        self._watched = -math.inf
        self._excuse(group)
        return not runs

    def _excuse(self, group: Group) -> None:
        """Has ranks on machines that are being drained be waited for no more, where that was asked for. Looks at most each `_WATCH_S`."""
        if not self._limits.relax_collectives_on_preemption or time.monotonic() - self._watched < _WATCH_S:
            return
        self._watched = time.monotonic()
        if excused := group.excuse(leaving_nodes()):
            self._is_leaving = True
            self.progress.note(f"the others go on without rank {', '.join(map(str, sorted(excused)))}, whose machine is being drained")

    def _longest_wait(self, patience: _Patience | None, grace: _Grace) -> float | None:
        """How long to wait for news at most, in seconds; renews what has to be renewed meanwhile. No patience: ranks have failed."""
        watch = _WATCH_S if self._limits.relax_collectives_on_preemption else None
        silence = None if patience is None else patience.seconds()
        limits = (silence, self._validations.seconds(), self._reservation.keep(), grace.seconds(), watch)
        return min((limit for limit in limits if limit is not None), default=None)

    def _place_elsewhere(self, group: Group) -> int | None:
        """How many workers there is room for without the machines that are being drained; None where that is too few."""
        leaving = leaving_nodes()
        staying = sum(worker.facts["node_id"] not in leaving for worker in group.workers)
        scaling = self._run.scaling
        size = scaling.whole(min(scaling.max_workers, staying + workers_that_fit(scaling._resources_per_worker_not_none)))
        return size if size >= scaling.min_workers else None

    def _take(self, group: Group, events: list[tuple[Any, ...]]) -> bool:
        """Keeps what the exchange tells; returns whether it was the last."""
        for kind, index, value in events:
            if kind == "ended":
                return True
            if kind == "late":
                what, missing = value
                ranks = ", ".join(str(rank) for rank in missing)
                self.progress.say(f"waiting for rank {ranks} to join {what} {index}, for {warn_interval_s():.0f} s more")
            elif kind == "dataset":
                self._reservation.settle()
                assert group.ingest is not None, "a rank asks for what it was told of"
                group.expect(group.exchange.hand_out.remote(value, *group.ingest.divide(value)))
            elif kind == "leaving":
                self._is_leaving = True
                self.progress.note(f"the machine of rank {value} is being drained: moving after the next checkpoint")
            elif kind == "report":
                self._reported(index, [pickle.loads(one) for one in value], None)
            elif kind == "checkpoint":
                packed, outcomes = value
                metrics = [pickle.loads(one) for one in packed]
                name, refused = self._keep(index, metrics[0], outcomes)
                if refused is None:
                    self._reported(index, metrics, name)
                asked = refused is None and any(validation for _, _, validation in outcomes)
                group.expect(group.exchange.settle.remote(index, refused, name if asked else None))
                self._validate(group)
        return False

    def _validate(self, group: Group) -> bool:
        """Goes on with validations, and tells the group of those that are over; returns whether there were any."""
        over = self._validations.proceed()
        for entry in over:
            group.expect(group.exchange.settle_validation.remote(entry.name, entry.status, pickle.dumps(entry.metrics)))
        return bool(over)

    def _keep(self, index: int, metrics: dict[str, Any], outcomes: list[Any]) -> tuple[str, str | None]:
        """Puts a checkpoint that all ranks have stored in its place; returns its name, and why that could not be."""
        name: str = outcomes[0][0]
        said = [outcome for _, outcome, _ in outcomes if isinstance(outcome, str)]
        validation = next((asked for _, _, asked in outcomes if asked is not None), None)
        try:
            if said:
                self.storage.remove(posixpath.basename(self.storage.staging(name)))
                return name, "; ".join(said)
            manifests = [outcome for _, outcome, _ in outcomes if outcome is not None]
            if len(manifests) == len(outcomes):
                self.storage.commit(name, dict(manifests))
            self.kept.add(_kept.Entry(name, metrics, index, validation))
        except Exception as error:
            return name, f"checkpoint {name} of report {index} could not be kept: {error}. Those kept before are untouched"
        return name, None

    def _reported(self, index: int, metrics: list[dict[str, Any]], name: str | None) -> None:
        self.kept.add_row(index, metrics[0], time.monotonic() - self._begun)
        self.progress.report(index, metrics[0])
        self._told.report(index, metrics[0], is_kept=name is not None)
        checkpoint = next((self.kept.checkpoint(one) for one in self.kept.entries if one.name == name), None)
        for callback in self._callbacks:
            try:
                callback.after_report(self._context, metrics, checkpoint)
            except Exception as error:
                raise ControllerError(error) from error

    def _count(self, ended: _Ended) -> None:
        """Raises where workers failed once too often, or lost their machines."""
        for callback in self._callbacks:
            callback.after_exception(self._context, ended.failures)
        text = _failing.told(ended.failures)
        if ended.is_preempted:
            self._preemptions += 1
            what, count, limit = "preemption, or loss of a drained machine,", self._preemptions, self._limits.max_preemption_failures
        else:
            self._failures += 1
            what, count, limit = "failure", self._failures, self._limits.max_failures
        if 0 <= limit < count:
            raise PreemptionError(text) if ended.is_preempted else WorkerGroupError(text, ended.failures)
        allowed = limit if limit >= 0 else "any number"
        latest = self.kept.latest
        start = f"checkpoint {latest.name}" if latest is not None else "the beginning, as no checkpoint was reported"
        self.progress.say(f"{what} {count} of {allowed} allowed, starting again from {start}:\n{text}")

    def _startup_failed(self, error: Exception) -> None:
        self._startup_failures += 1
        limit = self._limits.controller_failure_limit
        if isinstance(error, InsufficientClusterResourcesError) or not _failing.is_passing(error):
            raise ControllerError(error) from error
        if 0 <= limit < self._startup_failures or self._startup_failures > _failing.STARTUPS_MAX:
            raise ControllerError(error) from error
        self.progress.say(f"the workers could not be made ready, trying again: {error}")


class _Grace:
    """The time that ranks have to keep a checkpoint after a drained machine is gone."""

    def __init__(self, seconds_given: float) -> None:
        self.seconds_given = seconds_given
        self._until: float | None = None

    def begin(self) -> None:
        """A machine is gone."""
        self._until = time.monotonic() + self.seconds_given

    def seconds(self) -> float | None:
        """How long is left; None before one is gone."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def is_over(self) -> bool:
        """Whether it has gone by."""
        return self.seconds() == 0.0


class _Patience:
    """How long nothing may happen."""

    def __init__(self, limit: float | None, scaling: ScalingConfig) -> None:
        self.limit = limit
        self._scaling = scaling
        self._every = scaling.elastic_resize_monitor_interval_s if scaling.elasticity_enabled else None
        self.begin()
        self._looked = time.monotonic()

    def begin(self) -> None:
        """Something has happened."""
        self._last = time.monotonic()

    def seconds(self) -> float | None:
        """How long to wait for news."""
        now = time.monotonic()
        ends = [] if self.limit is None else [self._last + self.limit]
        if self._every is not None:
            ends.append(max(self._looked, now) + self._every)
        return max(0.0, min(ends) - now) if ends else None

    def is_over(self) -> bool:
        """Whether the group counts as hung."""
        return self.limit is not None and time.monotonic() - self._last >= self.limit

    def room(self, group: Group, is_kept: bool) -> int | None:
        """The size that an elastic group could have, where it is time to look, nothing is lost by it, and that is more."""
        if self._every is None or not is_kept or time.monotonic() - self._looked < self._every:
            return None
        self._looked = time.monotonic()
        fit = group.size + workers_that_fit(self._scaling._resources_per_worker_not_none)
        size = self._scaling.whole(min(self._scaling.max_workers, fit))
        return size if size > group.size else None


def _named(method: Any, run: str | None, rank: int) -> Any:
    """The call of a rank, under a name by which lists and the page (`views/ranks.js`) know it."""
    return method.options(name=f"{run}: rank {rank}")


def _shares_devices(backend: Any) -> bool:
    told = os.environ.get("TRAIN_ENABLE_SHARE_CUDA_VISIBLE_DEVICES")
    return bool(backend.share_cuda_visible_devices) if told is None else told.lower() not in ("0", "false", "")


def _propagated() -> dict[str, str]:
    """What the driver's variables say of training."""
    return {name: value for name, value in os.environ.items() if name.startswith("RAY_TRAIN_")}
