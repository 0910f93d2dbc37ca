"""What a driver, task or actor may know of itself."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

from oxiray import _core, _environment, _families, _session
from oxiray._async_context import current_call
from oxiray.util.annotations import RayDeprecationWarning

if TYPE_CHECKING:
    from oxiray._preemption import Preemption

logger = logging.getLogger("ray")

#: Resources that have devices in Ray and no family here: programs may look them up all the same.
_RAYS_OWN = ("RBLN", "FURIOSA", "MBLT", "TTNPU")


def _check_connected(what: str) -> None:
    if not _core.is_connected():
        raise RuntimeError(f"{what} is not available because Ray has not been initialized. Call ray.init() first")


def _facts(what: str) -> dict[str, Any]:
    _check_connected(what)
    return _core.context()


def _deprecated(advice: str) -> None:
    warnings.warn(
        f"This API is deprecated and may be removed in future Ray releases.\n{advice}", RayDeprecationWarning, stacklevel=3
    )


def _check_worker() -> None:
    if not _facts("Task ID")["is_worker"]:
        raise AssertionError("This method is only available when the process is a worker: ask in a task or an actor")


class RuntimeContext:
    """Facts of the process and task that ask. One object serves all."""

    def get(self) -> dict[str, Any]:
        """Deprecated: the job, the machine and the namespace, and in workers the task and the actor, by `job_id` and so on."""
        _deprecated("Use get_xxx_id() methods to get relevant ids instead")
        facts = _facts("Identifiers")
        known = {
            "job_id": _core.JobID.from_hex(facts["job_id"]),
            "node_id": _core.NodeID.from_hex(facts["node_id"]),
            "namespace": facts["namespace"],
        }
        if facts["is_worker"]:
            known["task_id"] = self._task_id()
            if facts["actor_id"] is not None:
                known["actor_id"] = _core.ActorID.from_hex(facts["actor_id"])
        return known

    def _task_id(self) -> Any:
        task = self._of_worker("task_id", "task id")
        return None if task is None else _core.TaskID.from_hex(task)

    @property
    def job_id(self) -> Any:
        """Deprecated: the job, as `JobID`."""
        _deprecated("Use get_job_id() instead")
        return _core.JobID.from_hex(_facts("Job ID")["job_id"])

    @property
    def node_id(self) -> Any:
        """Deprecated: the machine, as `NodeID`."""
        _deprecated("Use get_node_id() instead")
        return _core.NodeID.from_hex(_facts("Node ID")["node_id"])

    @property
    def task_id(self) -> Any:
        """Deprecated: the running task, as `TaskID`. Raises `AssertionError` in a driver."""
        _deprecated("Use get_task_id() instead")
        _check_worker()
        return self._task_id()

    @property
    def actor_id(self) -> Any:
        """Deprecated: this actor, as `ActorID`; None in tasks. Raises `AssertionError` in a driver."""
        _deprecated("Use get_actor_id() instead")
        _check_worker()
        actor = self.get_actor_id()
        return None if actor is None else _core.ActorID.from_hex(actor)

    @property
    def current_placement_group_id(self) -> Any:
        """Deprecated: the placement group of this task or actor, as `PlacementGroupID`; nil outside of any."""
        _deprecated("Use get_placement_group_id() instead")
        group = _facts("Placement group")["placement_group"]
        return _core.PlacementGroupID.nil() if group is None else _core.PlacementGroupID.from_hex(group)

    def get_job_id(self) -> str:
        """The job, as 8 hexadecimal digits."""
        return _facts("Job ID")["job_id"]

    def get_node_id(self) -> str:
        """The machine, as 56 hexadecimal digits."""
        return _facts("Node ID")["node_id"]

    def get_worker_id(self) -> str:
        """This process, as 56 hexadecimal digits."""
        return _facts("Worker ID")["worker_id"]

    def get_priority(self) -> int:
        """How urgent this program, task or actor is, and what it makes, unless something else is said of that; 0 by default. A
        method of Oxiray's own."""
        return int(_facts("Priority")["priority"])

    def preemption(self, timeout_s: float = 0.0) -> Preemption | None:
        """That this task or actor is to end early, since something of a higher priority waits for what it holds; else None.

        The answer has `deadline_s`, the seconds until it is killed at the latest, and `reason`. Waits up to `timeout_s` seconds to
        be told. Only what was made with `preemptible=True` is ever told, or what runs within such a placement group; cheap
        enough to ask in every step of a loop. A task that goes on gets SIGTERM when half of the time is over, which raises
        `SystemExit` in it. Raises `ValueError` for a time that is none. A method of Oxiray's own.
        """
        if not 0 <= timeout_s < float("inf"):
            raise ValueError(f"timeout_s is {timeout_s!r}; it is a number of seconds, such as 5")
        if not _facts("Preemption")["is_worker"] or (timeout_s == 0 and _core.preempted() is None):
            return None
        from oxiray import _preemption

        return _preemption.current(timeout_s)

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
        """The running function's name, `module.f` or `module.Class.method`; None (and a warning) in a driver."""
        return self._of_worker("function_name", "function name")

    def get_actor_name(self) -> str | None:
        """This actor's registered name, empty where it has none; None in tasks and drivers."""
        facts = _facts("Actor name")
        return facts["actor_name"] if facts["actor_id"] is not None else None

    def _of_worker(self, key: str, words: str) -> Any:
        facts = _facts(words.capitalize())
        if not facts["is_worker"]:
            logger.warning("This method is only available when the process is a worker. A driver has no %s", words)
            return None
        call = current_call.get()
        if call is not None and key != "actor_id":
            facts = {**facts, **dict(zip(("task_id", "task_name", "function_name"), call, strict=True))}
        if key == "function_name" and facts[key] is not None:
            from oxiray import _worker

            return _worker.function_name(facts)
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
            raise RuntimeError("This method is only available in an actor. This process is none")
        return facts["restarts"] > 0

    @property
    def current_actor(self) -> Any:
        """A handle of the actor that asks, which does not keep it. Raises `RuntimeError` outside of actors."""
        facts = _facts("Current actor")
        if facts["actor_id"] is None:
            raise RuntimeError("This method is only available in an actor. This process is none")
        from oxiray import _worker, actor

        return actor.from_bytes(_core.ActorID.from_hex(facts["actor_id"]), _worker.own_traits)

    @property
    def runtime_env(self) -> dict[str, Any]:
        """The runtime environment in force."""
        from oxiray.runtime_env import RuntimeEnv

        return RuntimeEnv(_validate=False, **_environment.public(_session.job_environment))

    def get_runtime_env_string(self) -> str:
        """The runtime environment in force, as JSON."""
        return _environment.as_json(_session.job_environment)

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """For every accelerator resource the ids granted to this task or actor, ascending; empty lists in a driver.

        Of instances of partitioned GPUs (`mig-1g.10gb`) only a granted one is in it.
        """
        granted = _facts("Accelerator ids")["devices"]
        named = dict.fromkeys((*_families.DEVICES, *_RAYS_OWN, *granted))
        return {name: list(granted[name][0]) if name in granted else [] for name in named}

    def get_resource_ids(self) -> dict[str, list[str]]:
        """Deprecated: as `get_accelerator_ids`."""
        _deprecated("Use get_accelerator_ids() instead")
        return self.get_accelerator_ids()

    def get_devices(self) -> list[dict[str, Any]]:
        """The devices granted to this task or actor, as far as they are known; empty in a driver. A method of Oxiray's own.

        Each has its `resource` (`GPU`), `slot` (its number on the node), `ordinal` (what frameworks call it here: `cuda:0`), `id` (as
        `get_accelerator_ids` tells), `uuid` and `pci_address` (None where they are not known), `share` (1.0 for all of it),
        `memory_bytes` (what of its memory is granted, in bytes; None where its size is not known), and `isolation`: what keeps this
        process from other devices, as `oxiray status` says it (`variable`, `watched`, `landlock`, `cgroup1`, `cgroup`). Where that
        memory is a limit, `memory_tier` is the strongest of what keeps this process to it (`mig`, `dmem`, `mps`,
        `interposer`, `framework`, `watched` or `none`; None where it is no limit), and `memory_watched` says whether it is ended if it is seen with more.
        """
        _check_connected("Devices")
        return _core.devices()

    def get_assigned_resources(self) -> dict[str, float]:
        """Everything granted to this task or actor."""
        facts = _facts("Assigned resources")
        if not facts["is_worker"]:
            raise AssertionError("This method is only available when the process is a worker. A driver holds no resources")
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
    """Returns what this process knows of itself: its job, task, actor, node and devices. Connects first if necessary."""
    _session.ensure()
    return _context
