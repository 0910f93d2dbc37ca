"""What the trainers of other frameworks ask of the training run that they are in, under Ray's name for it."""

from __future__ import annotations

from oxiray import _missing
from oxiray.train import _inside


class TrainFnUtils:
    """The run that this process is a worker of. Raises `RuntimeError` outside of any."""

    def is_distributed(self) -> bool:
        """Whether its workers are processes of their own, and not the one that called `fit()` (`num_workers=0`)."""
        return _inside.current("is_distributed").exchange is not None


_utils = TrainFnUtils()


def get_train_fn_utils() -> TrainFnUtils:
    """The one object that serves every run."""
    return _utils


__all__ = ["TrainFnUtils", "get_train_fn_utils"]

__getattr__ = _missing.attributes(__name__)
