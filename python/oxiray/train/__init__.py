"""Distributed training: a function that runs in every worker of a group, reports what it measured, and starts again from its last checkpoint."""

from __future__ import annotations

from oxiray import _missing
from oxiray.train._checkpoint import Checkpoint
from oxiray.train._configs import (
    CheckpointConfig,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    DataConfig,
    FailureConfig,
    LoggingConfig,
    PreemptionInfo,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    RunConfig,
    SyncConfig,
    UserCallback,
    ValidationConfig,
    ValidationFn,
    ValidationTaskConfig,
)
from oxiray.train._context import TrainContext, get_context
from oxiray.train._errors import ControllerError, NCCLHangError, PreemptionError, TrainingFailedError, WorkerGroupError
from oxiray.train._inside import get_all_reported_checkpoints, get_checkpoint, get_dataset_shard, get_preemption_info, report
from oxiray.train._result import Result
from oxiray.train._scaling import ScalingConfig
from oxiray.train.backend import BackendConfig
from oxiray.train.constants import TRAIN_DATASET_KEY

# This package is loaded when it is asked for, after those that are told of missing names together.
__getattr__ = _missing.attributes(__name__)

__all__ = [
    "TRAIN_DATASET_KEY",
    "BackendConfig",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointConsistencyMode",
    "CheckpointUploadMode",
    "ControllerError",
    "DataConfig",
    "FailureConfig",
    "LoggingConfig",
    "NCCLHangError",
    "PreemptionError",
    "PreemptionInfo",
    "ReportedCheckpoint",
    "ReportedCheckpointStatus",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "SyncConfig",
    "TrainContext",
    "TrainingFailedError",
    "UserCallback",
    "ValidationConfig",
    "ValidationFn",
    "ValidationTaskConfig",
    "WorkerGroupError",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "get_preemption_info",
    "report",
]
