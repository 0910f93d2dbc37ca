"""What makes the workers of a group able to speak to each other.

A backend is a class with three moments, each given the group: `worker_group.execute(function, *args)` runs a function
in every worker and returns what each returned, by rank.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class Backend:
    """Does nothing at any of the three moments."""

    #: Whether workers of one machine see the devices of all of them, as direct copies between devices need.
    share_cuda_visible_devices = False
    #: Whether rank 0 is to hold a port for the others: `worker_group.address`.
    needs_port = False

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        """The ranks are known, nothing of the user's has run."""

    def on_training_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        """The training function is about to run."""

    def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
        """The attempt is over: every rank's training function has returned, or one of them failed (`worker_group.has_failed`)
        and the workers are about to be killed. Calls to workers that do not answer fail after 30 s."""


class BackendConfig:
    """How a backend is set up; `backend_cls` says which it is."""

    __module__ = "oxiray.train.backend"

    @property
    def backend_cls(self) -> type[Backend]:
        """The backend's class."""
        return Backend

    @property
    def train_func_context(self) -> Any:
        """What makes the context in which the training function runs, in each worker."""
        return contextlib.nullcontext

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that every worker will import: processes that have them already are forked."""
        return ()

    @contextlib.contextmanager
    def in_this_process(self) -> Iterator[Any]:
        """Where this process stands while it runs the training function itself (`num_workers=0`): it is the only one."""
        from oxiray.train._inside import Place

        yield Place(0, 1, 0, 1, 0)

    def to_dict(self) -> dict[str, Any]:
        """The configuration as plain values."""
        return {}
