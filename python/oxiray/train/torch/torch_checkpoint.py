"""Checkpoints that hold a model of PyTorch."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from oxiray.train._checkpoint import Checkpoint

_FILE = "model.pt"


class TorchCheckpoint(Checkpoint):
    """A checkpoint with one file: a model's state, or a whole model."""

    __module__ = "oxiray.train.torch"

    @classmethod
    def from_state_dict(cls, state_dict: dict[str, Any], *, preprocessor: Any = None) -> TorchCheckpoint:
        """Writes a model's state to a new folder."""
        return cls._write(state_dict, preprocessor)

    @classmethod
    def from_model(cls, model: Any, *, preprocessor: Any = None) -> TorchCheckpoint:
        """Writes a whole model to a new folder."""
        return cls._write(model, preprocessor)

    @classmethod
    def _write(cls, value: Any, preprocessor: Any) -> TorchCheckpoint:
        import torch

        if preprocessor is not None:
            raise NotImplementedError("TorchCheckpoint(preprocessor=...) belongs to Ray Data: keep it beside the checkpoint")
        folder = tempfile.mkdtemp(prefix="checkpoint-")
        torch.save(value, os.path.join(folder, _FILE))
        return cls(folder)

    def get_model(self, model: Any = None) -> Any:
        """The model: that of the checkpoint, or `model` with its state loaded."""
        import torch

        with self.as_directory() as folder:
            held = torch.load(os.path.join(folder, _FILE), map_location="cpu", weights_only=model is not None)
        if not isinstance(held, torch.nn.Module):
            if model is None:
                raise ValueError("this checkpoint holds a state and no model: call get_model(model) with one to load it into")
            model.load_state_dict({name.removeprefix("module."): value for name, value in held.items()})
            return model
        return held
