"""What `fit()` raises."""

from __future__ import annotations


class TrainingFailedError(RuntimeError):
    """Training ended without success; `fit()` raises one of its kinds."""

    __module__ = "oxiray.train"


class WorkerGroupError(TrainingFailedError):
    """Workers raised, died or hung; `worker_failures` holds the exception of each rank that failed."""

    __module__ = "oxiray.train"

    def __init__(self, error_message: str, worker_failures: dict[int, Exception]) -> None:
        super().__init__("Training failed due to worker errors:\n" + error_message)
        self._error_message = error_message
        self.worker_failures = worker_failures

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._error_message, self.worker_failures)


class ControllerError(TrainingFailedError):
    """What surrounds the workers failed: placing them, keeping a checkpoint; `controller_failure` says how."""

    __module__ = "oxiray.train"

    def __init__(self, controller_failure: Exception) -> None:
        super().__init__(f"Training failed due to controller error:\n{controller_failure}")
        self.controller_failure = controller_failure
        self.with_traceback(controller_failure.__traceback__)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.controller_failure,)


class PreemptionError(TrainingFailedError):
    """The machines of the workers were taken away more often than `FailureConfig` allows."""

    __module__ = "oxiray.train"

    def __init__(self, preemption_info: object = None, drain_timed_out: bool = False) -> None:
        super().__init__(f"Training failed because machines of its workers were taken away: {preemption_info}")
        self.preemption_info = preemption_info
        self.drain_timed_out = drain_timed_out

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.preemption_info, self.drain_timed_out)


class NCCLHangError(TrainingFailedError):
    """The workers' collective calls made no progress."""

    __module__ = "oxiray.train"


class WorkerHungError(RuntimeError):
    """A worker neither reported nor ended by its deadline; the text holds where it was."""


class WorkerDiedError(RuntimeError):
    """A worker's process ended in the middle of its training function."""


class WorkerGroupStartupError(RuntimeError):
    """The workers could not be placed or made ready."""


class InsufficientClusterResourcesError(WorkerGroupStartupError):
    """No machine of the cluster could ever hold a worker as it is asked for."""


class CheckpointError(RuntimeError):
    """A checkpoint could not be kept, or what was kept is not what was reported."""


def outside(what: str) -> RuntimeError:
    """The error for asking about a worker where there is none."""
    return RuntimeError(
        f"`{what}` cannot be used outside of a Ray Train training function: it was called in the driver or in another "
        "process that trains nothing. Call it in the function that is given to a trainer, which `fit()` runs in each worker"
    )
