"""What Ray Train's first version asks of the second: whether this process is one of its workers, and which frameworks there are."""

from __future__ import annotations

from enum import Enum

from oxiray.train import _inside


class TrainingFramework(Enum):
    """What a trainer trains with."""

    TORCH = "torch"
    JAX = "jax"
    TENSORFLOW = "tensorflow"
    XGBOOST = "xgboost"
    LIGHTGBM = "lightgbm"


def _in_ray_train_worker() -> bool:
    """Whether this is a worker of a training run."""
    return _inside.is_inside()


__all__ = ["TrainingFramework", "_in_ray_train_worker"]
