"""This process as libraries ask for it: whether it is connected, and who it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from oxiray import RESTORE_WORKER_MODE, SCRIPT_MODE, SPILL_WORKER_MODE, WORKER_MODE, _core, _events, _missing, _serialization, _session, _switches
from oxiray._api import (
    available_resources,
    cluster_resources,
    get,
    get_actor,
    get_gpu_ids,
    kill,
    nodes,
    put,
    remote,
    timeline,
    wait,
)
from oxiray._cancellation import cancel
from oxiray._common.utils import env_integer
from oxiray._core import ActorID, JobID, NodeID, ObjectRef, ObjectRefGenerator, TaskID, WorkerID
from oxiray._events import unhandled_error_handler as _unhandled_error_handler
from oxiray._session import RayContext, init, is_initialized, shutdown
from oxiray.util.serialization import StandaloneSerializationContext


class Worker:
    """This process. Everything is looked up when it is asked for, so that one object serves every connection."""

    @property
    def connected(self) -> bool:
        """Whether this process is connected."""
        return _core.is_connected()

    @property
    def mode(self) -> int | None:
        """`SCRIPT_MODE` in a driver, `WORKER_MODE` in a worker, None without a connection."""
        if not _core.is_connected():
            return None
        return WORKER_MODE if _core.context()["is_worker"] else SCRIPT_MODE

    @property
    def worker_id(self) -> bytes:
        """This process's identifier."""
        return WorkerID.from_hex(_core.context()["worker_id"]).binary()

    @property
    def current_job_id(self) -> JobID:
        """The job this process works for."""
        return JobID.from_hex(_core.context()["job_id"])

    @property
    def current_node_id(self) -> NodeID:
        """The machine this process runs on."""
        return NodeID.from_hex(_core.context()["node_id"])

    @property
    def current_task_id(self) -> TaskID:
        """The task that runs; nil in a driver."""
        task = _core.context()["task_id"]
        return TaskID.nil() if task is None else TaskID.from_hex(task)

    @property
    def actor_id(self) -> ActorID:
        """The actor that this process is; nil in others."""
        actor = _core.context()["actor_id"]
        return ActorID.nil() if actor is None else ActorID.from_hex(actor)

    @property
    def namespace(self) -> str:
        """Where this job's actors have their names."""
        return _core.context()["namespace"]

    @property
    def runtime_env(self) -> str:
        """The runtime environment in force, as JSON."""
        from oxiray.runtime_context import get_runtime_context

        return get_runtime_context().get_runtime_env_string()

    @property
    def node_ip_address(self) -> str:
        """This machine's address within the cluster."""
        from oxiray.util._node import get_node_ip_address

        return get_node_ip_address()

    @property
    def node(self) -> Any:
        """The connection's facts, as `address_info` and attributes; None without one."""
        return _Node(_session.address_info()) if _core.is_connected() else None

    @property
    def core_worker(self) -> CoreWorker:
        """What the native side of this process knows and is asked for."""
        return CoreWorker()

    @property
    def gcs_client(self) -> Any:
        """The values that the cluster keeps."""
        from oxiray._private.gcs_client import GcsClient

        return GcsClient()

    def get_serialization_context(self) -> SerializationContext:
        """How values of this process become bytes."""
        return SerializationContext()

    def check_connected(self) -> None:
        """Raises `RaySystemError` where this process is not connected."""
        if not _core.is_connected():
            from oxiray.exceptions import RaySystemError

            raise RaySystemError("Ray has not been started yet. You can start Ray with 'ray.init()'.")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"`global_worker.{name}` is private to Ray, and Oxiray has other insides: use get_runtime_context(), nodes() "
            "or ray.util.state",
            name=name,
            obj=self,
        )


class SerializationContext(StandaloneSerializationContext):
    """How values become bytes."""

    def serialize(self, value: Any) -> SerializedObject:
        """`value` as bytes; raises `TypeError` where it has none."""
        return SerializedObject(*_serialization.dumps(value))


class SerializedObject:
    """A value as bytes: a pickle, and the buffers beside it."""

    def __init__(self, parts: list[Any], buffers: list[memoryview]) -> None:
        self._parts = parts
        self._buffers = buffers

    @property
    def total_bytes(self) -> int:
        """How many bytes it takes."""
        return sum(memoryview(part).nbytes for part in (*self._parts, *self._buffers))


class CoreWorker:
    """The native side of this process, as libraries ask it."""

    def add_object_out_of_scope_callback(self, object_ref: ObjectRef[Any], callback: Callable[[bytes], None]) -> bool:
        """Calls `callback(identifier)` in another thread when nothing in this process refers to the object any more: no
        reference, no call under way that it is an argument of, no object that contains it.

        False where this process does not own the object, and then nothing is called.
        """
        return _events.when_ended(object_ref, callback)

    def get_disable_job_level_lineage_reconstruction(self) -> bool:
        """Whether lost objects of this job are not made again, as RAY_lineage_pinning_enabled=0 says."""
        return not _switches.read().lineage[0]

    def get_local_memory_store_bytes_used(self) -> int:
        """0: what small values take in this process is not counted."""
        return 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"`core_worker.{name}` is private to Ray, and Oxiray has other insides", name=name, obj=self)


class _Node:
    """The machine's part of a connection, by the names Ray's has."""

    def __init__(self, address_info: dict[str, Any]) -> None:
        self.address_info = address_info
        self.node_id = self.unique_id = address_info["node_id"]
        self.node_ip_address = address_info["node_ip_address"]
        self.gcs_address = self.address = address_info["address"]

    @property
    def max_bytes(self) -> int:
        """The size at which a library's file of logs is set aside, in bytes."""
        return env_integer("RAY_ROTATION_MAX_BYTES", _LOG_BYTES)

    @property
    def backup_count(self) -> int:
        """How many of those are kept."""
        return env_integer("RAY_ROTATION_BACKUP_COUNT", 1)

    @property
    def cluster_id(self) -> str:
        """What tells this cluster from others: its session's name."""
        return self.session_name

    @property
    def session_name(self) -> str:
        """The session's name."""
        return os.path.basename(str(self.address_info["session_dir"]))

    def get_session_dir_path(self) -> str:
        """The session's directory."""
        return str(self.address_info["session_dir"])

    def get_logs_dir_path(self) -> str:
        """The directory of the session's logs."""
        return os.path.join(self.address_info["session_dir"], "logs")


#: As workers' files.
_LOG_BYTES = 64 << 20

global_worker = Worker()
#: Whether somebody was warned of `get` in an event loop, or needs not to be: Ray Serve sets it.
blocking_get_inside_async_warned = False
#: What Ray calls a process that runs everything itself, which Oxiray does not have.
LOCAL_MODE = 2
#: Functions that are called after each connecting of a driver.
_post_init_hooks = _session.post_init_hooks


def _mode(worker: Worker = global_worker) -> int | None:
    """`SCRIPT_MODE` in a driver, `WORKER_MODE` in a worker, None without a connection."""
    return worker.mode


def get_global_worker() -> Worker:
    """This process."""
    return global_worker


__all__ = [
    "RESTORE_WORKER_MODE",
    "SCRIPT_MODE",
    "SPILL_WORKER_MODE",
    "WORKER_MODE",
    "RayContext",
    "ObjectRef",
    "ObjectRefGenerator",
    "Worker",
    "available_resources",
    "cancel",
    "cluster_resources",
    "get",
    "get_actor",
    "get_global_worker",
    "get_gpu_ids",
    "global_worker",
    "init",
    "is_initialized",
    "kill",
    "nodes",
    "put",
    "remote",
    "shutdown",
    "timeline",
    "wait",
]

__getattr__ = _missing.attributes(__name__, _global_node=lambda: global_worker.node)
