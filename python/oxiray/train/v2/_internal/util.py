"""What Ray Train's first version asks of the second: whether this process is one of its workers."""

from __future__ import annotations

from oxiray.train import _inside


def _in_ray_train_worker() -> bool:
    """Whether this is a worker of a training run."""
    return _inside.is_inside()


__all__ = ["_in_ray_train_worker"]
