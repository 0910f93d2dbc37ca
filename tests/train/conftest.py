"""Clusters and runs for tests of training. They run in an environment of their own, which has PyTorch (see the Makefile)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


@pytest.fixture(scope="session", autouse=True)
def last_shutdown() -> Iterator[None]:
    """Ends the machine that tests share: what a group is forked from stays warm between them."""
    yield
    ray.shutdown()


@pytest.fixture
def all_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """For runs of which every rank fails: all are told together, however far apart a busy machine makes them fail."""
    monkeypatch.setattr("oxiray.train._failing._OTHERS_S", 60.0)


@pytest.fixture
def fit(tmp_path: Path) -> Callable[..., train.Result]:
    """Trains: `fit(function, workers=2, name="run", config=..., failures=0, trainer=TorchTrainer, ...)`.

    On a machine of eight CPUs, unless the test has started another.
    """
    if not ray.is_initialized():
        ray.init(num_cpus=8)

    def run(
        function: Callable[..., Any], workers: Any = 2, *, name: str = "run", failures: int = 0, hang: float | None = None,
        trainer: type = DataParallelTrainer, config: Any = None, **options: Any,
    ) -> train.Result:  # fmt: skip
        of_run = {key: options.pop(key) for key in ("checkpoint_config", "callbacks", "storage_filesystem") if key in options}
        return trainer(
            function,
            train_loop_config=config,
            scaling_config=options.pop("scaling", None) or train.ScalingConfig(num_workers=workers),
            run_config=train.RunConfig(
                name=name,
                storage_path=options.pop("storage_path", str(tmp_path / "runs")),
                worker_runtime_env=options.pop("environment", None),
                failure_config=options.pop("failure_config", None) or train.FailureConfig(max_failures=failures, hang_timeout_s=hang),
                **of_run,
            ),
            **options,
        ).fit()

    return run
