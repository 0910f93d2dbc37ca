"""Oxiray: runs Python functions and actors over processes, and hands each the accelerators it asked for.

It speaks Ray's public API: `import oxiray as ray`, or `import ray` with the alias distribution.
"""

from __future__ import annotations

import logging
import sys

from oxiray import _alias, _core as _core, _logging, _missing, exceptions as exceptions
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
from oxiray._cancellation import cancel
from oxiray._logging import LoggingConfig
from oxiray._session import RayContext, init, is_initialized, shutdown
from oxiray._version import RAY_COMMIT as __commit__, VERSION as __version__
from oxiray.actor import ActorClass, ActorClassInheritanceException, ActorHandle, ActorMethod, method
from oxiray.remote_function import RemoteFunction
from oxiray.runtime_context import RuntimeContext, get_runtime_context

from oxiray import actor as actor, runtime_context as runtime_context, runtime_env as runtime_env, util as util  # isort: skip
from oxiray._gathering import DynamicObjectRefGenerator  # isort: skip
from oxiray.cross_language import cpp_function, java_actor_class, java_function  # isort: skip

#: Ray's name for a reference's identifier.
ObjectID = ObjectRef
SCRIPT_MODE, WORKER_MODE, SPILL_WORKER_MODE, RESTORE_WORKER_MODE = 0, 1, 3, 4
logger = logging.getLogger("ray")

__all__ = [
    "ActorClass",
    "ActorClassID",
    "ActorClassInheritanceException",
    "ActorHandle",
    "ActorID",
    "ActorMethod",
    "ClusterID",
    "DynamicObjectRefGenerator",
    "FunctionID",
    "JobID",
    "LoggingConfig",
    "NodeID",
    "ObjectID",
    "PlacementGroupID",
    "ObjectRef",
    "ObjectRefGenerator",
    "RayContext",
    "RemoteFunction",
    "RuntimeContext",
    "TaskID",
    "UniqueID",
    "WorkerID",
    "__commit__",
    "__version__",
    "available_resources",
    "cancel",
    "cluster_resources",
    "cpp_function",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "is_initialized",
    "java_actor_class",
    "java_function",
    "kill",
    "method",
    "nodes",
    "put",
    "remote",
    "shutdown",
    "timeline",
    "wait",
]

_logging.install()
_missing.explain(sys.modules[__name__])
_alias.warn_of_ray()

# `import oxiray` is also what `import ray` gives: what was only needed here is no name of the package.
del annotations, logging, sys
