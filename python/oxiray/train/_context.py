"""What a worker may know of itself."""

from __future__ import annotations

from typing import Any, NoReturn

from oxiray.train import _inside


class TrainContext:
    """A worker's place in the run."""

    __module__ = "oxiray.train"

    def get_world_size(self) -> int:
        """How many workers train."""
        return _inside.current("get_world_size").place.world_size

    def get_world_rank(self) -> int:
        """This worker's number among all, from 0."""
        return _inside.current("get_world_rank").place.world_rank

    def get_local_rank(self) -> int:
        """This worker's number among those of its machine, from 0."""
        return _inside.current("get_local_rank").place.local_rank

    def get_local_world_size(self) -> int:
        """How many workers train on this machine."""
        return _inside.current("get_local_world_size").place.local_world_size

    def get_node_rank(self) -> int:
        """This machine's number among those that train, from 0."""
        return _inside.current("get_node_rank").place.node_rank

    def get_experiment_name(self) -> str:
        """The run's name."""
        return _inside.current("get_experiment_name").run

    def get_storage(self) -> Any:
        """Where the run keeps what it reports: `storage.path`, and `storage.filesystem` where that is a URL."""
        return _inside.current("get_storage").storage

    def get_metadata(self) -> NoReturn:
        """Was Ray Tune's; raises `DeprecationWarning`, as do the four below."""
        raise _of_tune("get_metadata")

    def get_trial_name(self) -> NoReturn:
        """Use `get_experiment_name`."""
        raise _of_tune("get_trial_name")

    def get_trial_id(self) -> NoReturn:
        """Use `get_experiment_name`."""
        raise _of_tune("get_trial_id")

    def get_trial_resources(self) -> NoReturn:
        """Use `ray.get_runtime_context().get_assigned_resources()`."""
        raise _of_tune("get_trial_resources")

    def get_trial_dir(self) -> NoReturn:
        """Use `get_storage().path`."""
        raise _of_tune("get_trial_dir")


def _of_tune(name: str) -> DeprecationWarning:
    return DeprecationWarning(
        f"`ray.train.get_context().{name}` is deprecated, as it belonged to Ray Tune: use get_experiment_name(), "
        "get_storage(), or pass what the function needs as train_loop_config"
    )


_context = TrainContext()


def get_context() -> TrainContext:
    """This worker's place in the run. Raises `RuntimeError` outside of a training function."""
    _inside.current("get_context")
    return _context
