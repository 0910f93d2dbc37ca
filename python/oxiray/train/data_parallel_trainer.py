"""The trainer for any function and any backend."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

from oxiray import _pickling, _serialization
from oxiray.train import _data, _imports, _ingest, _inside, _kept, _result, _worker
from oxiray.train._configs import DataConfig, RunConfig, ValidationConfig
from oxiray.train._scaling import ScalingConfig
from oxiray.train.backend import BackendConfig


class DataParallelTrainer:
    """Runs a function in every worker of a group, which `ScalingConfig` describes.

    The function takes nothing, or `train_loop_config`. `backend_config` says what connects the workers, `datasets` are
    divided between them (`get_dataset_shard`): plain iterables, datasets of Ray Data, or functions that make such datasets.
    """

    __module__ = "oxiray.train.data_parallel_trainer"

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        resume_from_checkpoint: Any = None,
        metadata: Any = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        refused = {
            "resume_from_checkpoint": (resume_from_checkpoint, "pass it in train_loop_config; a run of the same name goes on by itself"),
            "metadata": (metadata, "use Checkpoint.set_metadata"),
        }
        for name, (value, way_out) in refused.items():
            if value is not None:
                raise DeprecationWarning(f"`{type(self).__name__}({name})` is deprecated: {way_out}")
        if validation_config is not None and not isinstance(validation_config, ValidationConfig):
            raise ValueError(f"validation_config takes a ray.train.ValidationConfig, and was given {validation_config!r}")
        if not callable(train_loop_per_worker):
            raise ValueError(f"train_loop_per_worker must be a function, but is {train_loop_per_worker!r}")
        self.train_loop_per_worker = train_loop_per_worker
        self.train_loop_config = train_loop_config
        self.backend_config = backend_config or BackendConfig()
        self.scaling_config = _of_kind("scaling_config", scaling_config, ScalingConfig)
        self.run_config = _of_kind("run_config", run_config, RunConfig)
        self.datasets = _data.check(datasets)
        self.validation_config = validation_config
        self.data_config = _of_kind("dataset_config", dataset_config, DataConfig)

    def fit(self) -> _result.Result:
        """Trains, and returns how that ended. Raises a kind of `TrainingFailedError` where it failed.

        A run of the same name and storage path starts from its last checkpoint (`get_checkpoint`).
        """
        arguments = self._arguments()
        if self.scaling_config.max_workers == 0:
            return self._fit_here(arguments)
        from oxiray.train._controller import Controller, Run

        _, of_data = _data.separated(self.datasets)
        validation = self.validation_config
        validates = travelling({"validation_config": validation.fn}) if validation is not None else b""
        run = Run(
            self._work(arguments), self.scaling_config, self.run_config, self.backend_config, self._environment(),
            validation, validates, of_data, self.data_config,
        )  # fmt: skip
        return Controller(run).run()

    def _arguments(self) -> tuple[Any, ...]:
        try:
            parameters = inspect.signature(self.train_loop_per_worker).parameters.values()
        except ValueError:
            return ()
        required = [one for one in parameters if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        if len(required) > 1:
            raise ValueError(
                f"train_loop_per_worker should take in 0 or 1 required arguments, but it accepts {len(required)} required "
                "arguments instead."
            )
        return (copy.copy(self.train_loop_config) if self.train_loop_config is not None else {},) if required else ()

    def _work(self, arguments: tuple[Any, ...]) -> bytes:
        """What every worker is to run, as bytes. Raises `TypeError` where it cannot travel."""
        plain, of_data = _data.separated(self.datasets)
        parts = {
            "train_loop_per_worker": self.train_loop_per_worker,
            "train_loop_config": arguments,
            "backend_config": self.backend_config.train_func_context,
            "datasets": plain,
            "dataset_config": self.data_config if plain else None,
            "DataContext": _ingest.context() if of_data else None,
        }
        return travelling(parts)

    def _environment(self) -> dict[str, Any]:
        """The environment of the workers: what was asked for, and what they are forked with."""
        environment = dict(self.run_config.worker_runtime_env or {})
        _, of_data = _data.separated(self.datasets)
        of_library = ["ray.data"] if any(map(_ingest.is_dataset, of_data.values())) else []
        learned = [*self.backend_config.preload, *_imports.learned(self.train_loop_per_worker), *of_library]
        if learned and "preload" not in environment:
            environment["preload"] = list(dict.fromkeys([*learned, _worker.__name__]))
        return environment

    def _fit_here(self, arguments: tuple[Any, ...]) -> _result.Result:
        """Runs the function in this process; nothing is kept but what it reports."""
        with self.backend_config.in_this_process() as place:
            plain, of_data = _data.separated(self.datasets)
            datasets = _data.divided(plain, self.data_config, place.world_rank, place.world_size)
            datasets |= _data.whole(of_data, place.world_size)
            session = _inside.Session(self.run_config.name or "", place, None, None, datasets=datasets)
            _inside.enter(session)
            try:
                with self.backend_config.train_func_context():
                    returned = self.train_loop_per_worker(*arguments)
            finally:
                _inside.enter(None)
        rows = [{"report": index, **_kept.plain(row)} for index, row in enumerate(session.history, 1)]
        last = session.history[-1] if session.history else None
        return _result.Result(last, session.checkpoint, None, "", [], returned, rows)

    @classmethod
    def restore(cls, *_: Any, **__: Any) -> NoReturn:
        """Raises `DeprecationWarning`: a run of the same name goes on by itself."""
        raise DeprecationWarning(f"`{cls.__name__}.restore` is deprecated: call fit() of a trainer with the same RunConfig(name, storage_path)")

    @classmethod
    def can_restore(cls, *_: Any, **__: Any) -> NoReturn:
        """Raises `DeprecationWarning`: a run of the same name goes on by itself."""
        raise DeprecationWarning(f"`{cls.__name__}.can_restore` is deprecated: call fit() of a trainer with the same RunConfig(name, storage_path)")


def travelling(parts: dict[str, Any]) -> bytes:
    """Values as bytes, functions of the program among them: one alone, several as a tuple. Raises `TypeError` where one cannot travel."""
    values = tuple(parts.values())
    try:
        return _pickling.dumps(values if len(values) > 1 else values[0])
    except Exception as error:
        for name, part in parts.items():
            found = "; ".join(
                f"{' -> '.join((name, *failure.path))} is a {type(failure.value).__qualname__}"
                for failure in _serialization.failing_parts(part, 3, ())
            )
            if found:
                raise TypeError(f"{name} cannot be sent to the workers: {found}. {_serialization.ADVICE}") from error
        raise


def _of_kind(name: str, value: Any, kind: type) -> Any:
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise ValueError(f"{name} takes a ray.train.{kind.__name__}, and was given {value!r}")
    return value
