"""What a driver, task or actor may know of itself."""

from __future__ import annotations

import json
import logging
from typing import Any

from oxiray import _core, _environment, _families, _session
from oxiray._async_context import current_call

logger = logging.getLogger("oxiray")

#: Resources that have devices in Ray and no family here: programs may look them up all the same.
_RAYS_OWN = ("RBLN", "FURIOSA", "MBLT", "TTNPU")


def _facts(what: str) -> dict[str, Any]:
    if not _core.is_connected():
        raise RuntimeError(f"{what} is not available, because this process is not connected: call init() first")
    return _core.context()


class RuntimeContext:
    """Facts of the process and task that ask. One object serves all."""

    def get_job_id(self) -> str:
        """The job, as 8 hexadecimal digits."""
        return _facts("Job ID")["job_id"]

    def get_node_id(self) -> str:
        """The machine, as 56 hexadecimal digits."""
        return _facts("Node ID")["node_id"]

    def get_node_labels(self) -> dict[str, str]:
        """The labels of this machine."""
        node_id = _facts("Node labels")["node_id"]
        nodes = json.loads(_core.cluster()[2]).get("nodes", [])
        return next((dict(node["labels"]) for node in nodes if node["node_id"] == node_id), {})

    def get_worker_id(self) -> str:
        """This process, as 56 hexadecimal digits."""
        return _facts("Worker ID")["worker_id"]

    def get_task_id(self) -> str | None:
        """The running task, as 48 hexadecimal digits; None (and a warning) in a driver."""
        return self._of_worker("task_id", "task id")

    def get_actor_id(self) -> str | None:
        """This actor, as 32 hexadecimal digits; None in tasks, None (and a warning) in a driver."""
        return self._of_worker("actor_id", "actor id")

    def get_task_name(self) -> str | None:
        """The running task's name, `f` or `Class.method`; None (and a warning) in a driver."""
        return self._of_worker("task_name", "task name")

    def get_task_function_name(self) -> str | None:
        """The running function's name; None (and a warning) in a driver."""
        return self._of_worker("function_name", "function name")

    def get_actor_name(self) -> str | None:
        """This actor's registered name, empty where it has none; None in tasks and drivers."""
        facts = _facts("Actor name")
        return facts["actor_name"] if facts["actor_id"] is not None else None

    def _of_worker(self, key: str, words: str) -> Any:
        facts = _facts(words.capitalize())
        if not facts["is_worker"]:
            logger.warning("a driver has no %s: ask in a task or an actor", words)
            return None
        call = current_call.get()
        if call is not None and key != "actor_id":
            return dict(zip(("task_id", "task_name", "function_name"), call, strict=True))[key]
        return facts[key]

    def is_canceled(self) -> bool:
        """Whether the running call was cancelled: what a method asks now and then that may be.

        Raises `RuntimeError` in drivers and in async methods, which meet `asyncio.CancelledError`.
        """
        if not _facts("Cancellation")["is_worker"]:
            raise RuntimeError("is_canceled() is for tasks and actors' methods, and a driver is cancelled by nobody")
        if current_call.get() is not None:
            raise RuntimeError(
                "is_canceled() is for methods that are plain functions: an async one that is cancelled meets "
                "asyncio.CancelledError where it awaits something"
            )
        return _core.is_cancelled()

    @property
    def worker(self) -> Any:
        """This process, as `ray._private.worker.global_worker` has it."""
        from oxiray._private.worker import global_worker

        return global_worker

    @property
    def namespace(self) -> str:
        """Where this job's actors have their names."""
        return _facts("Namespace")["namespace"]

    @property
    def gcs_address(self) -> str:
        """What `init(address=...)` takes to come here."""
        return _facts("Address")["address"]

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether this actor was started anew after its process died. Raises `RuntimeError` outside of actors."""
        facts = _facts("Actor")
        if facts["actor_id"] is None:
            raise RuntimeError("was_current_actor_reconstructed is for actors, and this process is none")
        return facts["restarts"] > 0

    @property
    def current_actor(self) -> Any:
        """A handle of the actor that asks, which does not keep it. Raises `RuntimeError` outside of actors."""
        facts = _facts("Current actor")
        if facts["actor_id"] is None:
            raise RuntimeError("current_actor is for actors, and this process is none")
        from oxiray import _worker, actor

        return actor.from_bytes(_core.ActorID.from_hex(facts["actor_id"]), _worker.own_traits)

    @property
    def runtime_env(self) -> dict[str, Any]:
        """The runtime environment in force."""
        from oxiray.runtime_env import RuntimeEnv

        return RuntimeEnv(_validate=False, **_environment.public(_session.job_environment))

    def get_runtime_env_string(self) -> str:
        """The runtime environment in force, as JSON."""
        return json.dumps(_environment.public(_session.job_environment), sort_keys=True, default=repr)

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """For every accelerator resource the ids granted to this task or actor, ascending; empty lists in a driver."""
        granted = _facts("Accelerator ids")["devices"]
        return {name: list(granted[name][0]) if name in granted else [] for name in (*_families.DEVICES, *_RAYS_OWN)}

    def get_assigned_resources(self) -> dict[str, float]:
        """Everything granted to this task or actor."""
        facts = _facts("Assigned resources")
        if not facts["is_worker"]:
            raise RuntimeError("a driver is assigned no resources: ask in a task or an actor")
        return facts["resources"]

    def get_placement_group_id(self) -> str | None:
        """The placement group of this task or actor, as 36 hexadecimal digits; None outside of any."""
        return _facts("Placement group")["placement_group"]

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether what this task or actor makes runs in its placement group too, unless it says otherwise."""
        return _facts("Placement group")["captures"]

    def get_session_name(self) -> str:
        """The session's name."""
        return _facts("Session")["session"].rpartition("/")[2]

    def get_temp_dir(self) -> str:
        """The directory that holds the session's."""
        return _facts("Session")["session"].rpartition("/")[0]

    def get_node_labels(self) -> dict[str, str]:
        """The labels of the machine this process runs on."""
        from oxiray import _api

        here = self.get_node_id()
        return next((dict(node["Labels"]) for node in _api.nodes() if node["NodeID"] == here), {})


_context = RuntimeContext()


def get_runtime_context() -> RuntimeContext:
    """What this process may know of itself."""
    return _context
