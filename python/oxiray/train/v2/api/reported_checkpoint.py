"""Checkpoints that are kept, under the name of the module in Ray."""

from oxiray.train import ReportedCheckpoint, ReportedCheckpointStatus

__all__ = ["ReportedCheckpoint", "ReportedCheckpointStatus"]
