"""The names of Ray's native module that programs import, for compatibility: identifiers, errors, keys of labels, and codes."""

from __future__ import annotations

import abc
import enum
from contextvars import Token

from oxiray import _core, _missing
from oxiray._async_context import current_call, has_async_methods
from oxiray._common.network_utils import build_address, get_localhost_ip, is_ipv6, is_localhost, parse_address
from oxiray._common.utils import decode, get_or_create_event_loop
from oxiray._core import (
    ActorClassID,
    ActorID,
    ClusterID,
    FunctionID,
    JobID,
    NodeID,
    ObjectRef,
    ObjectRefGenerator,
    PlacementGroupID,
    TaskID,
    UniqueID,
    WorkerID,
)
from oxiray._gathering import DynamicObjectRefGenerator
from oxiray._generators import StreamingGeneratorStats
from oxiray._labels import matches as node_labels_match_selector
from oxiray._private.async_compat import is_async_func, sync_to_async
from oxiray._private.gcs_client import GcsClient
from oxiray._private.time_series import merge_instantaneous_total_cython, time_weighted_average_cython
from oxiray._private.utils import binary_to_hex
from oxiray._subscribers import GcsErrorSubscriber, GcsLogSubscriber
from oxiray.exceptions import (
    ActorAlreadyExistsError,
    ActorDiedError,
    ActorHandleNotFoundError,
    AsyncioActorExit,
    AuthenticationError,
    GetTimeoutError,
    ObjectRefStreamEndOfStreamError,
    ObjectStoreFullError,
    OutOfDiskError,
    PendingCallsLimitExceeded,
    RayActorError,
    RayError,
    RaySystemError,
    RayTaskError,
    RpcError,
    TaskCancelledError,
)
from oxiray.util._node import address_towards, get_node_ip_address

ObjectID = ObjectRef
StreamingObjectRefGenerator = ObjectRefGenerator

# Labels that nodes have, and the variables that say them.
RAY_NODE_ID_KEY = "ray.io/node-id"
RAY_NODE_ACCELERATOR_TYPE_KEY = "ray.io/accelerator-type"
RAY_NODE_GROUP_KEY = "ray.io/node-group"
RAY_NODE_MARKET_TYPE_KEY = "ray.io/market-type"
RAY_NODE_REGION_KEY = "ray.io/availability-region"
RAY_NODE_ZONE_KEY = "ray.io/availability-zone"
RAY_NODE_TPU_POD_TYPE_KEY = "ray.io/tpu-pod-type"
RAY_NODE_TPU_SLICE_NAME_KEY = "ray.io/tpu-slice-name"
RAY_NODE_TPU_TOPOLOGY_KEY = "ray.io/tpu-topology"
RAY_NODE_TPU_WORKER_ID_KEY = "ray.io/tpu-worker-id"
NODE_MARKET_TYPE_ENV = "RAY_NODE_MARKET_TYPE"
NODE_REGION_ENV = "RAY_NODE_REGION"
NODE_TYPE_NAME_ENV = "RAY_NODE_TYPE_NAME"
NODE_ZONE_ENV = "RAY_NODE_ZONE"

RAY_INTERNAL_NAMESPACE_PREFIX = "_ray_internal_"
IMPLICIT_RESOURCE_PREFIX = "node:__internal_implicit_resource_"
RESOURCE_UNIT_SCALING = 10000
STREAMING_GENERATOR_RETURN = -2

GRPC_STATUS_CODE_UNKNOWN = 2
GRPC_STATUS_CODE_DEADLINE_EXCEEDED = 4
GRPC_STATUS_CODE_RESOURCE_EXHAUSTED = 8
GRPC_STATUS_CODE_UNIMPLEMENTED = 12
GRPC_STATUS_CODE_UNAVAILABLE = 14


class BaseID(abc.ABC):
    """What every identifier is an instance of."""


for _kind in (
    ActorClassID, ActorID, ClusterID, FunctionID, JobID, NodeID, ObjectRef, PlacementGroupID, TaskID, UniqueID, WorkerID,
):  # fmt: skip
    BaseID.register(_kind)


class MessagePackSerializer:
    """Reads what Ray's native side writes, which Oxiray's does not."""

    @staticmethod
    def loads(*_: object) -> object:
        """Raises `NotImplementedError`."""
        raise NotImplementedError("values do not travel as msgpack in Oxiray: use cloudpickle, or util.serialization")


class Language(enum.IntEnum):
    """The language that a task or an actor is written in."""

    PYTHON = 0
    JAVA = 1
    CPP = 2


class _AsyncTaskId:
    """The call of an async actor that runs, with the methods of a context variable."""

    def get(self, default: TaskID | None = None) -> TaskID | None:
        """Its task; `default` outside of such a call."""
        call = current_call.get()
        return default if call is None else TaskID.from_hex(call[0])

    def set(self, task: TaskID | None) -> Token[tuple[str, str, str] | None]:
        """Whom calls from here on are made for: with None, for no call, so that they are not cancelled with the one that runs."""
        names = (current_call.get() or ("", "", ""))[1:]
        return current_call.set(None if task is None else (task.hex(), *names))

    def reset(self, token: Token[tuple[str, str, str] | None]) -> None:
        """Takes back what `set` did."""
        current_call.reset(token)


async_task_id = _AsyncTaskId()


def get_all_interfaces_ip() -> str:
    """The address that a server listens on to be reached through every interface of this machine."""
    return "0.0.0.0"


def node_ip_address_from_perspective(address: str | None = None) -> str:
    """This machine's address as it is seen from `host:port`; within the cluster where none is given."""
    return get_node_ip_address() if address is None else address_towards(address)


_title = ""


def setproctitle(title: str) -> None:
    """Names a worker in lists of processes, behind `ray::`; other processes keep the name that they have."""
    global _title
    _title = title
    _core.show_title(title.removeprefix("ray::"))


def getproctitle() -> str:
    """What `setproctitle` named this process last; empty where it did not."""
    return _title


__all__ = [
    "ActorAlreadyExistsError",
    "ActorClassID",
    "ActorDiedError",
    "ActorHandleNotFoundError",
    "ActorID",
    "AsyncioActorExit",
    "AuthenticationError",
    "BaseID",
    "ClusterID",
    "DynamicObjectRefGenerator",
    "FunctionID",
    "GcsClient",
    "GcsErrorSubscriber",
    "GcsLogSubscriber",
    "GetTimeoutError",
    "JobID",
    "Language",
    "MessagePackSerializer",
    "NodeID",
    "ObjectID",
    "ObjectRef",
    "ObjectRefGenerator",
    "ObjectRefStreamEndOfStreamError",
    "ObjectStoreFullError",
    "OutOfDiskError",
    "PendingCallsLimitExceeded",
    "PlacementGroupID",
    "RayActorError",
    "RayError",
    "RaySystemError",
    "RayTaskError",
    "RpcError",
    "StreamingGeneratorStats",
    "StreamingObjectRefGenerator",
    "TaskCancelledError",
    "TaskID",
    "UniqueID",
    "WorkerID",
    "async_task_id",
    "binary_to_hex",
    "build_address",
    "decode",
    "get_all_interfaces_ip",
    "get_localhost_ip",
    "get_or_create_event_loop",
    "getproctitle",
    "has_async_methods",
    "is_async_func",
    "is_ipv6",
    "is_localhost",
    "merge_instantaneous_total_cython",
    "node_ip_address_from_perspective",
    "node_labels_match_selector",
    "parse_address",
    "setproctitle",
    "sync_to_async",
    "time_weighted_average_cython",
]

__getattr__ = _missing.attributes(__name__)
