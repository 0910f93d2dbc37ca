"""The trainer whose workers are a process group of PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from oxiray.train._configs import DataConfig, RunConfig
from oxiray.train._scaling import ScalingConfig
from oxiray.train.data_parallel_trainer import DataParallelTrainer
from oxiray.train.torch.config import TorchConfig


class TorchTrainer(DataParallelTrainer):
    """Runs a function in every worker, with `torch.distributed` initialized between them.

    The backend is NCCL where the workers have GPUs and Gloo where not, unless `torch_config` names one.
    """

    __module__ = "oxiray.train.torch"

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        resume_from_checkpoint: Any = None,
        metadata: Any = None,
        validation_config: Any = None,
    ) -> None:
        config = torch_config if torch_config is not None else TorchConfig()
        if not isinstance(config, TorchConfig):
            raise ValueError(f"torch_config takes a ray.train.torch.TorchConfig, and was given {torch_config!r}")
        if config.backend is None:
            config = copy.copy(config)
            config.backend = "nccl" if scaling_config is not None and scaling_config.use_gpu else "gloo"
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=config,
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
            validation_config=validation_config,
        )
