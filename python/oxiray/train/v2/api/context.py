"""A worker's place, under the name of its module in Ray."""

from oxiray.train import TrainContext

__all__ = ["TrainContext"]
