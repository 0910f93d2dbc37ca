"""Training with PyTorch: a process group for the workers of a run, and what makes a loop distributed."""

from __future__ import annotations

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("PyTorch isn't installed. To install PyTorch, run 'pip install torch'", name="torch") from error

from oxiray.train.torch._devices import get_device, get_devices
from oxiray.train.torch._loop import (
    accelerate,
    backward,
    enable_reproducibility,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)
from oxiray.train.torch.config import TorchConfig
from oxiray.train.torch.torch_checkpoint import TorchCheckpoint
from oxiray.train.torch.torch_trainer import TorchTrainer

__all__ = [
    "TorchCheckpoint",
    "TorchConfig",
    "TorchTrainer",
    "accelerate",
    "backward",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
    "prepare_optimizer",
]
