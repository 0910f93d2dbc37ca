"""What `fit()` raises, under the name of its module in Ray."""

from oxiray.train import ControllerError, NCCLHangError, PreemptionError, TrainingFailedError, WorkerGroupError

__all__ = ["ControllerError", "NCCLHangError", "PreemptionError", "TrainingFailedError", "WorkerGroupError"]
