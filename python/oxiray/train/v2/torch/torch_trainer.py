"""The trainer for PyTorch, under the name of its module in Ray's second version."""

from oxiray.train.torch import TorchTrainer

__all__ = ["TorchTrainer"]
