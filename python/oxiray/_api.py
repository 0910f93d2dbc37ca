"""The functions of the package: decorate, put, get, wait, look around."""

from __future__ import annotations

import inspect
import json
from typing import Any

from oxiray import _core, _session, actor, remote_function
from oxiray._core import ObjectRef, ObjectRefGenerator
from oxiray.actor import ActorHandle
from oxiray.exceptions import ActorHandleNotFoundError


def remote(*args: Any, **options: Any) -> Any:
    """Makes a function or a class run in processes of its own: `@remote`, or `@remote(num_gpus=1, ...)`."""
    if len(args) == 1 and not options and callable(args[0]):
        return _make(args[0], {})
    if args or not options:
        raise TypeError(
            "The @remote decorator must be applied to either a function or a class: write `@remote` without "
            "parentheses, or `@remote(num_gpus=1)` with keywords only"
        )

    return lambda target: _make(target, options)


def _make(target: Any, options: dict[str, Any]) -> Any:
    if inspect.isclass(target):
        return actor.make(target, options)
    if callable(target) and (inspect.isfunction(target) or inspect.isbuiltin(target) or hasattr(target, "__qualname__")):
        return remote_function.make(target, options)
    raise TypeError(f"The @remote decorator must be applied to either a function or a class, not to {target!r}")


def put(value: Any, **keywords: Any) -> Any:
    """Keeps a value where every process of the cluster can have it; returns a reference.

    Raises `TypeError` for a reference and for what cannot be serialized, `ObjectStoreFullError` where there is
    no room.
    """
    if keywords.pop("_owner", None) is not None:
        raise ValueError("put(_owner=...) does not exist any more: whoever puts a value owns it")
    keywords.pop("_tensor_transport", None)
    if keywords:
        raise TypeError(f"put() got an unexpected keyword argument '{next(iter(keywords))}'")
    _session.ensure()
    if isinstance(value, ObjectRef):
        raise TypeError("put() keeps values, and was given an ObjectRef: its value is kept already; pass the reference on")
    return _core.put(value)


def get(object_refs: Any, *, timeout: float | None = None) -> Any:
    """The value of a reference, or a list of the values of a list of references, waiting for each.

    `timeout` in seconds; 0 does not wait; `GetTimeoutError` past it. Raises what a task raised. A generator of
    references is returned as it is.
    """
    if not _core.is_connected():
        _session.ensure()
    if timeout is not None and timeout < 0:
        if timeout != -1:
            raise ValueError(f"get(timeout={timeout!r}): a timeout is None or -1 for none, or seconds from 0 on")
        timeout = None
    if isinstance(object_refs, ObjectRef):
        return _core.get_one(object_refs, timeout)
    if isinstance(object_refs, ObjectRefGenerator):
        return object_refs
    if not isinstance(object_refs, list):
        raise ValueError(
            f"Invalid type of object refs, {type(object_refs)}: get() takes an ObjectRef or a list of them, such as what "
            ".remote() and put() return"
        )
    return _core.get_all(object_refs, timeout)


def wait(
    ray_waitables: Any, *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[Any], list[Any]]:
    """Splits references, and generators of them by their next one, into `num_returns` whose value is there and the rest, waiting up to `timeout` seconds.

    Both lists keep the order given.
    """
    if not _core.is_connected():
        _session.ensure()
    if isinstance(ray_waitables, (ObjectRef, ObjectRefGenerator)):
        raise TypeError("wait() takes a list of ObjectRefs, and was given a single one: wrap it in a list")
    if not isinstance(ray_waitables, list):
        raise TypeError(f"wait() takes a list of ObjectRefs, and was given {type(ray_waitables)}")
    if timeout is not None and timeout < 0:
        raise ValueError(f"wait(timeout={timeout!r}): a timeout is None for none, or seconds from 0 on")
    if not ray_waitables:
        return [], []
    if num_returns <= 0:
        raise ValueError(f"wait(num_returns={num_returns}): at least 1 must be waited for")
    if num_returns > len(ray_waitables):
        raise ValueError(f"wait(num_returns={num_returns}): only {len(ray_waitables)} references were given")
    return _core.wait_some(ray_waitables, num_returns, timeout)


def kill(actor: Any, *, no_restart: bool = True) -> None:
    """Ends an actor's process at once; calls under way raise `ActorDiedError`.

    With `no_restart=False` an actor that has restarts left is made anew; what was under way raises
    `ActorUnavailableError`, or is run again where it has retries left.
    """
    if not isinstance(actor, ActorHandle):
        raise ValueError(
            f"kill() takes the handle of an actor, and was given {type(actor)}. To end a task, call cancel(ref, force=True)"
        )
    _session.ensure()
    if not actor._hold.is_current():
        raise ActorHandleNotFoundError(
            f"{actor!r} is of a connection that has ended: its actor went with it, or is reached with get_actor()"
        )
    _core.kill_actor(actor._actor_id, not no_restart)


def get_actor(name: str, namespace: str | None = None) -> Any:
    """The handle of the living actor of this name. Raises `ValueError` where there is none."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"get_actor() takes the name an actor was made with, which is never empty; {name!r} was given")
    if namespace is not None and (not isinstance(namespace, str) or not namespace):
        raise ValueError(f"a namespace is a string that is not empty; {namespace!r} was given")
    _session.ensure()
    actor_id, handle = _core.find_actor(name, namespace or "")
    return actor.from_bytes(actor_id, handle)


def nodes() -> list[dict[str, Any]]:
    """The machines of the cluster, each a dictionary with Ray's keys."""
    return [_node(node) for node in describe_nodes()]


def describe_nodes() -> list[dict[str, Any]]:
    """The machines of the cluster as the daemon describes them."""
    _session.ensure()
    described: list[dict[str, Any]] = json.loads(_core.cluster()[2])["nodes"]
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
    """What ran when, as events of Chrome's trace format; with `filename`, written there as JSON.

    Of each process the last thousand calls that ended; a worker that was killed takes its own along.
    """
    from oxiray.util.state.api import timeline as events

    found = events()
    if filename is None:
        return found
    with open(filename, "w") as file:
        json.dump(found, file)
    return None


def cluster_resources() -> dict[str, float]:
    """What the cluster offers in whole, by resource."""
    _session.ensure()
    return _core.cluster()[0]


def available_resources() -> dict[str, float]:
    """What is free now, by resource; what is used up is left out."""
    _session.ensure()
    return _core.cluster()[1]


def get_gpu_ids() -> list[Any]:
    """The GPUs granted to this task or actor: numbers, or names where the visibility variable named them.

    An empty list in a driver.
    """
    _session.ensure()
    granted = _core.context()["devices"].get("GPU")
    if granted is None:
        return []
    ids, preset = granted
    return list(ids) if preset else [int(identifier) for identifier in ids]
