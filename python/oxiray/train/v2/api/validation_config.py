"""Validation of checkpoints, under the name of the module in Ray."""

from oxiray.train import ValidationConfig, ValidationFn, ValidationTaskConfig

__all__ = ["ValidationConfig", "ValidationFn", "ValidationTaskConfig"]
