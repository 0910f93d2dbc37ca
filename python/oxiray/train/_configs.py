"""How a run is named, kept, restarted and shown."""

from __future__ import annotations

import copy
import importlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from oxiray import _missing
from oxiray._libraries import loading

#: Where an argument was left out that must not be given.
_DEPRECATED = "DEPRECATED"
#: The last name that was made up in this process, and how many had it.
_last_name = ("", 0)


def _refuse(owner: str, values: dict[str, Any], way_out: str) -> None:
    for name, value in values.items():
        if value != _DEPRECATED:
            raise DeprecationWarning(f"`{owner}({name})` is deprecated and does nothing: leave it out. {way_out}")


def _fresh_name() -> str:
    """A name for a run that has none. Two of one second differ, since a run of the same name would go on."""
    global _last_name
    name = time.strftime("ray_train_run-%Y-%m-%d_%H-%M-%S")
    before, count = _last_name
    _last_name = (name, count + 1 if name == before else 1)
    return name if name != before else f"{name}-{count + 1}"


def _whole(owner: str, name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        meaning = ", and -1 stands for any number" if least == -1 else ""
        raise ValueError(f"{owner}({name}={value!r}) must be a whole number from {least} on{meaning}")


@dataclass
class FailureConfig:
    """How often training starts again from its last checkpoint.

    `max_failures` counts workers that raise, die or hang, `max_preemption_failures` those that were preempted or whose machine
    was drained, `controller_failure_limit` groups that cannot be made ready; -1 is any number. With
    `relax_collectives_on_preemption`, `report` and `get_preemption_info` do not wait for ranks whose machine is being drained,
    unless rank 0 is one of them. When such a machine is gone, the other ranks go on for `preemption_grace_s` seconds, or until a
    checkpoint is kept. With `hang_timeout_s` (not in Ray), a group in which no rank reported for so many seconds is hung: the
    error shows where each rank was.
    """

    max_failures: int = 0
    fail_fast: Any = _DEPRECATED
    controller_failure_limit: int = -1
    max_preemption_failures: int = -1
    relax_collectives_on_preemption: bool = False
    preemption_grace_s: float = 0.0
    hang_timeout_s: float | None = None

    __module__ = "oxiray.train"

    def __post_init__(self) -> None:
        _refuse("ray.train.FailureConfig", {"fail_fast": self.fail_fast}, "max_failures=0 ends training at the first failure")
        for name in ("max_failures", "controller_failure_limit", "max_preemption_failures"):
            _whole("FailureConfig", name, getattr(self, name), -1)
        for name in ("preemption_grace_s", "hang_timeout_s"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, (int, float)) or value < 0):
                raise ValueError(f"FailureConfig({name}={value!r}) must be seconds from 0 on")


@dataclass
class CheckpointConfig:
    """Which checkpoints are kept: the last `num_to_keep`, or those with the best `checkpoint_score_attribute`."""

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"
    checkpoint_frequency: Any = _DEPRECATED
    checkpoint_at_end: Any = _DEPRECATED

    __module__ = "oxiray.train"

    def __post_init__(self) -> None:
        given = {"checkpoint_frequency": self.checkpoint_frequency, "checkpoint_at_end": self.checkpoint_at_end}
        _refuse("ray.train.CheckpointConfig", given, "Your training function decides when it reports a checkpoint")
        if self.num_to_keep is not None and (not isinstance(self.num_to_keep, int) or self.num_to_keep <= 0):
            raise ValueError(f"Received invalid num_to_keep: {self.num_to_keep}. Must be None or an integer >= 1.")
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError(
                f"CheckpointConfig(checkpoint_score_order={self.checkpoint_score_order!r}) must be 'max' or 'min'"
            )


@dataclass
class LoggingConfig:
    """What is shown of a run: `INFO` has a line for reports, `WARNING` only what needs attention."""

    log_level: str = "INFO"

    __module__ = "oxiray.train"

    def __post_init__(self) -> None:
        known = ("NOTSET", "DEBUG", "INFO", "WARNING", "WARN", "ERROR", "FATAL", "CRITICAL")
        level = self.log_level.upper() if isinstance(self.log_level, str) else None
        if level not in known:
            raise ValueError(f"LoggingConfig(log_level={self.log_level!r}) must be one of {', '.join(known)}")
        self.log_level = level


@dataclass
class SyncConfig:
    """Takes what Ray's does; nothing is left for it to decide."""

    sync_period: int = 300
    sync_timeout: int = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True

    __module__ = "oxiray.train"


class UserCallback:
    """What a program hears of a run. Called where `fit()` was called, between reports."""

    __module__ = "oxiray.train"

    def after_report(self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        """All ranks have reported; `metrics` has one entry for each rank."""

    def after_exception(self, run_context: RunContext, worker_exceptions: dict[int, Exception]) -> None:
        """Ranks have failed."""


def callbacks_of_environment() -> list[UserCallback]:
    """One of each class that `RAY_TRAIN_CALLBACKS` names, as in `module.Class,other.Class`. Raises `ValueError` for what is none."""
    found = []
    for named in filter(None, (part.strip() for part in os.environ.get("RAY_TRAIN_CALLBACKS", "").split(","))):
        module, _, name = named.rpartition(".")
        try:
            kind = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"RAY_TRAIN_CALLBACKS names {named!r}, which cannot be imported: {error}") from error
        if not isinstance(kind, type) or not issubclass(kind, UserCallback):
            raise ValueError(f"RAY_TRAIN_CALLBACKS names {named!r}, which is no class derived from `ray.train.UserCallback`")
        found.append(kind())
    return found


@dataclass
class RunContext:
    """What a callback may know of the run."""

    run_config: RunConfig

    __module__ = "oxiray.train"


@dataclass
class RunConfig:
    """How a run is called, where it keeps what it reports, and what happens when workers fail.

    `storage_path` is a folder, shared by the machines where there are several, or a URL that fsspec knows, as
    `s3://bucket/folder`. A run of the same name and path starts from its last checkpoint.
    """

    name: str | None = None
    storage_path: str | None = None
    storage_filesystem: Any = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    callbacks: list[UserCallback] | None = None
    worker_runtime_env: dict[str, Any] | None = None
    logging_config: LoggingConfig | None = None
    sync_config: Any = _DEPRECATED
    verbose: Any = _DEPRECATED
    stop: Any = _DEPRECATED
    progress_reporter: Any = _DEPRECATED
    log_to_file: Any = _DEPRECATED

    __module__ = "oxiray.train"

    def __post_init__(self) -> None:
        tuned = {name: getattr(self, name) for name in ("sync_config", "verbose", "stop", "progress_reporter", "log_to_file")}
        _refuse("ray.train.RunConfig", tuned, "It belonged to Ray Tune")
        self.name = self.name or _fresh_name()
        if not isinstance(self.name, str) or any(part in ("", ".", "..") for part in self.name.split("/")):
            raise ValueError(f"RunConfig(name={self.name!r}) must be a name for a folder below storage_path, without `.` or `..`")
        self.storage_path = os.fspath(self.storage_path or os.path.expanduser("~/ray_results"))
        kinds = {"failure_config": FailureConfig, "checkpoint_config": CheckpointConfig, "logging_config": LoggingConfig}
        for name, kind in kinds.items():
            if getattr(self, name) is None:
                setattr(self, name, kind())
            elif not isinstance(getattr(self, name), kind):
                raise ValueError(
                    f"Invalid `{kind.__name__}` type: RunConfig({name}) takes a ray.train.{kind.__name__}, and was given "
                    f"{getattr(self, name)!r}"
                )
        self.callbacks = list(self.callbacks or [])
        for callback in self.callbacks:
            if not isinstance(callback, UserCallback):
                raise ValueError(
                    f"All callbacks must be instances of `ray.train.UserCallback`, and {callback!r} is none: derive its "
                    "class from it"
                )
        self.worker_runtime_env = dict(self.worker_runtime_env or {})


class DataConfig:
    """Which datasets are divided between the workers; the others are given whole to each.

    Two settings apply to datasets of Ray Data. `execution_options` are the `ExecutionOptions` for all of them, or a dictionary
    of them by the dataset's name. With `enable_shard_locality`, a worker is given blocks that lie on its node where it can be.
    """

    __module__ = "oxiray.train"

    def __init__(
        self, datasets_to_split: str | list[str] = "all", execution_options: Any = None, enable_shard_locality: bool = True
    ) -> None:
        if datasets_to_split != "all" and not isinstance(datasets_to_split, list):
            raise TypeError(f"`datasets_to_split` should be a 'all' or a list of strings, but is {datasets_to_split!r}")
        # Subclasses written for Ray read these names.
        self._datasets_to_split = datasets_to_split
        self._user_execution_options = execution_options
        self._enable_shard_locality = enable_shard_locality

    def splits(self, name: str) -> bool:
        """Whether the dataset of this name is divided."""
        return self._datasets_to_split == "all" or name in self._datasets_to_split

    def configure(
        self,
        datasets: dict[str, Any],
        world_size: int,
        worker_handles: list[Any] | None,
        worker_node_ids: list[str] | None,
        **kwargs: Any,
    ) -> list[dict[str, Any]]:
        """What each worker reads of these datasets of Ray Data: a dictionary of `DataIterator` by name, for each rank.

        It is called with one dataset at a time, in the process that called `fit()`, when a worker of a group first asks for
        that dataset. A subclass may divide datasets in another way.
        """
        hints = worker_node_ids if self._enable_shard_locality else None
        given: list[dict[str, Any]] = [{} for _ in range(world_size)]
        for name, dataset in datasets.items():
            own = dataset.copy(dataset, _deep_copy=True)
            if own.name is None:
                own.set_name(name)
            own.context.execution_options = self._resolve_execution_options(name)
            if self.splits(name):
                parts = own.streaming_split(world_size, equal=True, locality_hints=hints)
            else:
                parts = [own.iterator() for _ in range(world_size)]
            for of_rank, part in zip(given, parts, strict=True):
                of_rank[name] = part
        return given

    def _resolve_execution_options(self, name: str) -> Any:
        """A copy of the options that a dataset is executed with."""
        options = self._user_execution_options
        if isinstance(options, dict):
            options = options.get(name)
        return copy.deepcopy(options or self.default_ingest_options())

    @staticmethod
    def default_ingest_options() -> Any:
        """The `ExecutionOptions` of a dataset for which none are given: limits, order and progress as the `DataContext` says."""
        if not loading.serves("data"):
            raise ImportError(_missing.advice("data"), name="ray.data")
        data = importlib.import_module("ray.data")
        options = data.DataContext.get_current().execution_options
        return data.ExecutionOptions(
            resource_limits=options.resource_limits,
            exclude_resources=options.exclude_resources,
            preserve_order=options.preserve_order,
            verbose_progress=options.verbose_progress,
        )


class CheckpointUploadMode(Enum):
    """When `report` returns: with the checkpoint kept, while it is being kept, or it is in its place already."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    NO_UPLOAD = "NO_UPLOAD"


class CheckpointConsistencyMode(Enum):
    """Which checkpoints are listed: all that are kept, or those that were validated."""

    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


class ReportedCheckpointStatus(Enum):
    """What became of a checkpoint."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_FAILED = "VALIDATION_FAILED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"


@dataclass
class ReportedCheckpoint:
    """A checkpoint that is kept, with what was reported beside it."""

    checkpoint: Any
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED

    __module__ = "oxiray.train"


@dataclass
class PreemptionInfo:
    """Which machines are taken away, or workers preempted, with the ranks that are there, and when the first of them ends.

    `deadline_ms` is in milliseconds since 1970; None where a machine ends when nothing is left there.
    """

    deadline_ms: int | None = None
    preempted_node_to_ranks: dict[str, list[int]] = field(default_factory=dict)

    __module__ = "oxiray.train"

    @property
    def preempted_node_ids(self) -> list[str]:
        """The machines."""
        return sorted(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """The ranks on those machines."""
        return sorted(rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks)


#: What a validation function is: it is given a checkpoint and `fn_kwargs`, and returns metrics.
ValidationFn = Callable[..., dict[str, Any]]


@dataclass
class ValidationTaskConfig:
    """One validation: what its function is given besides the checkpoint, and how many seconds it may take."""

    fn_kwargs: dict[str, Any] | None = None
    timeout_s: float | None = None

    __module__ = "oxiray.train"

    def __post_init__(self) -> None:
        if self.fn_kwargs is None:
            self.fn_kwargs = {}
        if self.timeout_s is not None and (not isinstance(self.timeout_s, (int, float)) or not self.timeout_s > 0):
            raise ValueError(f"ValidationTaskConfig(timeout_s={self.timeout_s!r}) must be seconds above 0, or None for no limit")


@dataclass
class ValidationConfig:
    """How checkpoints are validated that are reported with `validation`: `fn` runs as a task beside the training.

    `task_config` is what every validation is given, `ray_remote_kwargs` are the options of the task: its resources, its
    retries. What `fn` returns joins the checkpoint's metrics, by which checkpoints are kept.
    """

    fn: ValidationFn
    task_config: ValidationTaskConfig = field(default_factory=ValidationTaskConfig)
    ray_remote_kwargs: dict[str, Any] = field(default_factory=dict)

    __module__ = "oxiray.train"

    def __post_init__(self) -> None:
        self.task_config = self.task_config if self.task_config is not None else ValidationTaskConfig()
        self.ray_remote_kwargs = dict(self.ray_remote_kwargs or {})
        if not callable(self.fn):
            raise ValueError(f"ValidationConfig(fn={self.fn!r}) must be a function that takes a checkpoint and returns metrics")
        if not isinstance(self.task_config, ValidationTaskConfig):
            raise ValueError(f"ValidationConfig(task_config={self.task_config!r}) takes a ray.train.ValidationTaskConfig")


def validation_spec(validation: Any) -> dict[str, Any] | bool:
    """What `report(validation=...)` asked for, as JSON holds it. Raises `ValueError` for what that cannot hold."""
    if validation is True:
        return True
    if not isinstance(validation, ValidationTaskConfig):
        raise ValueError(f"report(validation={validation!r}) is True, False, or a ray.train.ValidationTaskConfig")
    spec = {"fn_kwargs": validation.fn_kwargs, "timeout_s": validation.timeout_s}
    try:
        json.dumps(spec)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"ValidationTaskConfig(fn_kwargs) of a report holds what JSON cannot ({error}): it is kept with the checkpoint "
            "until that is validated. Pass numbers, texts, lists and dictionaries, or set it in ValidationConfig(task_config)"
        ) from error
    return spec
