"""The functions of the package: decorate, put, get, wait, look around."""

from __future__ import annotations

import inspect
import json
from typing import Any

from oxiray import _async_context, _core, _serialization, _session, _without_effect, actor, remote_function
from oxiray._core import ObjectRef, ObjectRefGenerator
from oxiray.actor import ActorHandle
from oxiray.exceptions import ActorHandleNotFoundError


def remote(*args: Any, **options: Any) -> Any:
    """Makes a function a task, or a class an actor, that runs in another process: `@remote`, or `@remote(num_gpus=1, ...)`.

    Of functions and classes:

    num_cpus: int, float or None. Processors that a call, or an actor, holds. By default 1 for a call; for an actor 1 to be
        placed and none after that.
    num_gpus: int, float or None. GPUs, or a share of one; none by default.
    priority: int or None. Its priority, from -1000 to 1000: the higher one goes first; by default that of its caller. An
        option of Oxiray's own.
    preemptible: bool or None. Whether it may end early when a request of a higher priority waits for its resources, in a cluster
        with --preemption=on. It is then run, or created, again, whatever retries and restarts it has. False by default. An option of
        Oxiray's own.
    device_isolation: "variable", "watch", "fence", "require" or None. How far its process is kept from devices that it was not
        granted, where that is further than its node was started with: by a look at what it has open, by the kernel where that is
        possible, or by the kernel in any case, where DeviceIsolationError says why it cannot be. As its node by default; less
        than its node does is refused with that error, too. An option of Oxiray's own, also a field of runtime_env.
    gpu_memory: int, float, str or None. Memory of one GPU, in bytes or as "8GiB", in place of num_gpus; none by default. An
        option of Oxiray's own.
    memory: int, float or None. Bytes of the resource "memory"; none by default. Where the node can make control groups, it is
        also the most that its worker may use.
    resources: dict of str to number, or None. Further resources by name; none by default.
    accelerator_type: str or None. The kind of device its node must have, as ray.util.accelerators names it; any by default.
    name: str or None. For a task, the name that is shown; by default the function's name. For an actor, the name by which
        get_actor() finds it; none by default.
    runtime_env: dict, RuntimeEnv or None. Its packages, files and variables, on top of those of its job; none by default.
    scheduling_strategy: "DEFAULT", "SPREAD", an object of ray.util.scheduling_strategies, or None, the default.
    label_selector: dict of str to str, or None. Labels that its node must have; none by default.
    fallback_strategy: list of dict, or None. Label selectors to be tried one after the other; none by default.
    placement_group: PlacementGroup, "default" or None; placement_group_bundle_index: int (-1, any bundle, by default);
        placement_group_capture_child_tasks: bool or None. Deprecated: use scheduling_strategy.
    enable_task_events: bool. Without effect: the state API lists every call. True by default.
    _labels: dict or None. Without effect. None by default.

    Of functions:

    num_returns: int, "streaming", "dynamic" or None. How many references a call returns; by default 1, or a stream of them
        from a generator. "dynamic" is deprecated: one reference, whose value is a DynamicObjectRefGenerator of references to
        all that the call yielded. Use "streaming" instead.
    max_retries: int or None. How often it is run again after its worker died, -1 for always; by default
        RAY_TASK_MAX_RETRIES, else 3.
    retry_exceptions: bool or list of exception classes. Which of its exceptions are retried too; False by default.
    max_calls: int or None. After how many calls a worker ends, 0 for never; by default 1 for what holds a device, else 0.
    object_store_memory: None. Not for functions: anything else raises ValueError.
    _generator_backpressure_num_objects: int or None. How many objects of a generator may be unread before it waits; -1,
        the default, for any number.
    _num_objects_per_yield: int or None. How many references each yield returns; 1 by default.

    Of classes:

    max_restarts: int or None. How often an actor is made anew after its process died, -1 for always; 0 by default.
    max_task_retries: int or None. How often a call is sent again after that, -1 for always; 0 by default.
    max_pending_calls: int or None. How many calls of one process may be unanswered; -1, the default, for any number.
    max_concurrency: int or None. How many calls run at once; by default 1, or 1000 for a class with async methods.
    concurrency_groups: dict of str to int, list of dict, or None. Groups of threads by name, and how many each has; none by
        default.
    allow_out_of_order_execution: bool or None. Whether a call may overtake one that waits for its arguments; by default
        where calls run at once.
    namespace: str or None. Where its name is known; by default the job's namespace.
    lifetime: "detached", "non_detached" or None. Whether it outlives its handles and its job; by default what the job says.
    get_if_exists: bool. Whether the actor of this name is returned where there is one; False by default.
    object_store_memory: int or None. Deprecated, and without effect. None by default.
    enable_tensor_transport: bool or None. Whether calls and `put` may leave tensors with the actor (`tensor_transport`); by default
        where one of its methods says so.
    _actor_generator_backpressure_num_objects: int or None. Without effect. None by default.

    What has no effect is told of once, by the logger "ray".
    """
    if len(args) == 1 and not options and callable(args[0]):
        return _make(args[0], {})
    if args or not options:
        raise AssertionError(
            "The @ray.remote decorator must be applied either with no arguments and no parentheses, as `@ray.remote`, or with "
            f"keywords only, as `@ray.remote(num_gpus=1)`, and was given {', '.join(map(repr, args)) or 'empty parentheses'}"
        )

    return lambda target: _make(target, options)


def _make(target: Any, options: dict[str, Any]) -> Any:
    if isinstance(target, (remote_function.RemoteFunction, actor.ActorClass)):
        raise TypeError(f"{target!r} is decorated with @remote already: change its options with .options(...)")
    if inspect.isclass(target):
        return actor.make(target, options)
    if callable(target) and (inspect.isfunction(target) or inspect.isbuiltin(target) or hasattr(target, "__qualname__")):
        return remote_function.make(target, options)
    raise TypeError(f"The @ray.remote decorator must be applied to either a function or a class. It was applied to {target!r}")


def put(value: Any, **keywords: Any) -> Any:
    """Stores a value in the object store and returns a reference, with which every process of the cluster can read it.

    With `_tensor_transport`, as of methods, the value's tensors stay with this actor until somebody asks for them. Raises
    `TypeError` if the value is a reference or cannot be serialized, `ObjectStoreFullError` if there is no room, and `ValueError` for
    a transport that is none, or that cannot be used here.
    """
    if keywords and (transport := _checked_put(keywords)) is not None:
        from oxiray import _device_objects

        value = _device_objects.put_aside(value, transport)
    if not _core.is_connected():
        _session.ensure()
    if isinstance(value, ObjectRef):
        raise TypeError(
            "Calling 'put' on an ray.ObjectRef is not allowed: its value is kept already. Pass the reference on, or put a list "
            "that contains it"
        )
    try:
        return _core.put(value)
    except TypeError as error:
        if error.__cause__ is None:
            raise
        raise _serialization.refused(f"the put value {_serialization.shown(value)}", value, error.__cause__) from None


def _checked_put(keywords: dict[str, Any]) -> str | None:
    if keywords.pop("_owner", None) is not None:
        raise ValueError("put(_owner=...) does not exist any more: whoever puts a value owns it")
    transport: str | None = keywords.pop("_tensor_transport", None)
    if keywords:
        raise TypeError(f"put() got an unexpected keyword argument '{next(iter(keywords))}'")
    return transport


#: Where the tensors of a reference's value are to be when it is read: buffers, or a device.
targets: dict[ObjectRef, tuple[list[Any] | None, str | None]] = {}


def get(object_refs: Any, *, timeout: float | None = None, _use_object_store: bool = False) -> Any:
    """Waits for the value of a reference, or for those of a list of references, and returns it or a list of them.

    `timeout` is in seconds: `GetTimeoutError` is raised when a value is not there by then; 0 does not wait. An exception
    that the task raised is raised here. A generator of references is returned as it is. With `_use_object_store`, tensors that
    stayed with an actor are read through the object store, whatever their transport is.
    """
    if not _core.is_connected():
        _session.ensure()
    if timeout is not None and timeout < 0:
        if timeout != -1:
            raise ValueError(f"get(timeout={timeout!r}): a timeout is None or -1 for none, or seconds from 0 on")
        timeout = None
    if _async_context.is_to_warn:
        _async_context.warn_of_blocking()
    if targets or _use_object_store:
        from oxiray import _device_objects

        return _device_objects.get_as_wanted(object_refs, timeout, through_the_store=_use_object_store)
    return _got(object_refs, timeout)


def _got(object_refs: Any, timeout: float | None) -> Any:
    if isinstance(object_refs, ObjectRef):
        return _core.get_one(object_refs, timeout)
    if isinstance(object_refs, ObjectRefGenerator):
        return object_refs
    if not isinstance(object_refs, list):
        raise ValueError(
            f"Invalid type of object refs, {type(object_refs)}, is given. 'object_refs' must either be an ObjectRef or a list of "
            "ObjectRefs. These are what .remote() and put() return"
        )
    return _core.get_all(object_refs, timeout)


def wait(
    ray_waitables: Any, *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[Any], list[Any]]:
    """Waits until `num_returns` of the references are ready, or for `timeout` seconds; returns those that are ready and the rest.

    A generator of references is ready when its next reference is. Both lists keep the given order. With `fetch_local`, large
    values on other nodes are fetched to this one.
    """
    if not _core.is_connected():
        _session.ensure()
    if isinstance(ray_waitables, (ObjectRef, ObjectRefGenerator)):
        raise TypeError(f"wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got a single {type(ray_waitables)}: wrap it in a list")
    if not isinstance(ray_waitables, list):
        raise TypeError(f"wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got {type(ray_waitables)}")
    if timeout is not None and timeout < 0:
        raise ValueError(
            f"The 'timeout' argument must be nonnegative. Received {timeout!r}: it is seconds from 0 on, or None for no limit"
        )
    if not ray_waitables:
        return [], []
    if num_returns <= 0:
        raise ValueError(f"Invalid number of objects to return {num_returns}. At least 1 must be waited for")
    if num_returns > len(ray_waitables):
        raise ValueError(
            "num_returns cannot be greater than the number of ray_waitables provided to ray.wait: it is "
            f"{num_returns}, and {len(ray_waitables)} were given"
        )
    return _core.wait_some(ray_waitables, num_returns, timeout, fetch_local)


def kill(actor: Any, *, no_restart: bool = True) -> None:
    """Ends an actor's process at once; calls that run raise `ActorDiedError`.

    With `no_restart=False`, an actor that has restarts left is created again; calls that ran raise
    `ActorUnavailableError`, or are run again if they have retries left.
    """
    if not isinstance(actor, ActorHandle):
        raise ValueError(
            f"ray.kill() only supported for actors. For tasks, try ray.cancel(). Got: {type(actor)}. To end a task's process, "
            "call cancel(ref, force=True)"
        )
    _session.ensure()
    if not actor._hold.is_current():
        raise ActorHandleNotFoundError(
            f"ActorHandle objects are not valid across Ray sessions. {actor!r} is of a connection that has ended: its actor "
            "went with it, or is reached with get_actor()"
        )
    _core.kill_actor(actor._actor_id, not no_restart)


def get_actor(name: str, namespace: str | None = None) -> Any:
    """Returns the handle of the living actor with this name.

    Raises `ValueError` if there is none, or if the name or the namespace is empty, and `TypeError` if one of them is not a
    string.
    """
    if not name:
        raise ValueError(f"Please supply a non-empty value to get_actor, the name that an actor was made with; {name!r} was given")
    if not isinstance(name, str):
        raise TypeError(f"get_actor() takes the name that an actor was made with, which is a string; {name!r} was given")
    if namespace is not None and not isinstance(namespace, str):
        raise TypeError(f"namespace must be None or a string. {namespace!r} was given")
    if namespace == "":
        raise ValueError('"" is not a valid namespace. Pass None to not specify a namespace')
    _session.ensure()
    try:
        actor_id, handle = _core.find_actor(name, namespace or "")
    except ValueError as error:
        raise ValueError(
            f"Failed to look up actor with name '{name}'. This could because 1. You are trying to look up a named actor you "
            f"didn't create. 2. The named actor died. 3. You did not use a namespace matching the namespace of the actor. {error}"
        ) from None
    return actor.from_bytes(actor_id, handle)


def nodes() -> list[dict[str, Any]]:
    """Returns the nodes of the cluster, each as a dictionary with Ray's keys."""
    return [_node(node) for node in describe_nodes()]


def describe_nodes() -> list[dict[str, Any]]:
    """The machines of the cluster as the daemon describes them."""
    _session.ensure()
    described: list[dict[str, Any]] = _core.cluster()["nodes"]
    return described


def _node(node: dict[str, Any]) -> dict[str, Any]:
    address = node.get("address") or "127.0.0.1"
    labels = {"ray.io/node-id": node["node_id"], **node.get("labels", {})}
    return {
        "NodeID": node["node_id"],
        "Alive": node.get("alive", True),
        "alive": node.get("alive", True),
        "NodeManagerAddress": address,
        "NodeManagerHostname": node.get("hostname", ""),
        "NodeManagerPort": 0,
        "ObjectManagerPort": 0,
        "ObjectStoreSocketName": "",
        "RayletSocketName": node.get("socket", ""),
        "MetricsExportPort": 0,
        "MetricsAgentPort": 0,
        "DashboardAgentListenPort": 0,
        "RuntimeEnvAgentPort": 0,
        "NodeName": node.get("name") or address,
        "DeathReason": 0,
        "DeathReasonMessage": node.get("death", ""),
        "Resources": node.get("resources", {}),
        "Labels": labels,
    }


def timeline(filename: str | None = None) -> list[dict[str, Any]] | None:
    """Returns when each call ran, as events of Chrome's trace format; with `filename`, writes them to that file as JSON.

    The list has the last thousand calls that ended in each process. The calls of a worker that was killed are missing.
    """
    from oxiray.util.state.api import timeline as events

    found = events()
    if filename is None:
        return found
    with open(filename, "w") as file:
        json.dump(found, file)
    return None


def cluster_resources() -> dict[str, float]:
    """Returns the resources that the cluster has in total, by name."""
    _session.ensure()
    return _core.cluster()["totals"]


def available_resources() -> dict[str, float]:
    """Returns the resources that are free now, by name. A resource that is used up is left out."""
    _session.ensure()
    return _core.cluster()["available"]


def get_gpu_ids() -> list[Any]:
    """Returns the GPUs that this task or actor was granted: their numbers, or their names if the visibility variable has names.

    In a driver the list is empty.
    """
    _session.ensure()
    granted = _core.context()["devices"].get("GPU")
    if granted is None:
        return []
    ids, preset = granted
    return list(ids) if preset else [int(identifier) for identifier in ids]
