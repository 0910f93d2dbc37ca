"""This process as libraries ask for it: whether it is connected, and who it is."""

from __future__ import annotations

import os
from typing import Any

from oxiray import RESTORE_WORKER_MODE, SCRIPT_MODE, SPILL_WORKER_MODE, WORKER_MODE, _core, _missing, _session
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
from oxiray._core import ActorID, JobID, NodeID, ObjectRef, ObjectRefGenerator, TaskID, WorkerID
from oxiray._events import unhandled_error_handler as _unhandled_error_handler
from oxiray._session import RayContext, init, is_initialized, shutdown


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


class _Node:
    """The machine's part of a connection, by the names Ray's has."""

    def __init__(self, address_info: dict[str, Any]) -> None:
        self.address_info = address_info
        self.node_id = self.unique_id = address_info["node_id"]
        self.node_ip_address = address_info["node_ip_address"]
        self.gcs_address = self.address = address_info["address"]

    def get_session_dir_path(self) -> str:
        """The session's directory."""
        return str(self.address_info["session_dir"])

    def get_logs_dir_path(self) -> str:
        """The directory of the session's logs."""
        return os.path.join(self.address_info["session_dir"], "logs")


global_worker = Worker()


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

__getattr__ = _missing.attributes(__name__)
