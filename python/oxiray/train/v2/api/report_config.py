"""How a report treats its checkpoint, under the name of the module in Ray."""

from oxiray.train import CheckpointConsistencyMode, CheckpointUploadMode

__all__ = ["CheckpointConsistencyMode", "CheckpointUploadMode"]
