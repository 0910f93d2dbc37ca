"""What is public here takes what it takes in Ray 2.60: the same parameters, in the same order, with the same defaults.

`ray_signatures.json` was written by `scripts/read-ray-names`, so that Ray itself is not needed.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import oxiray
import pytest
from oxiray import compat

SIGNATURES: dict[str, str] = json.loads(Path(__file__).with_name("ray_signatures.json").read_text())


def found(name: str) -> Any:
    """What has this name here; None where nothing has."""
    here: Any = oxiray
    dotted = ""
    for part in name.split(".")[1:]:
        dotted = f"{dotted}.{part}"
        following = vars(here).get(part) if isinstance(here, type) else getattr(here, part, None)
        if following is None and not isinstance(here, type):
            following = compat._module(f"oxiray{dotted}")
        if following is None:
            return None
        here = following
    return here


def parameters(text: str) -> list[tuple[str, str, str]]:
    """Kind, name and default of each parameter, of a signature as `inspect` writes it."""
    scope: dict[str, Any] = {}
    exec(f"def function{text}: pass", {}, scope)
    return described(scope["function"])


def described(function: Any) -> list[tuple[str, str, str]]:
    plain = (type(None), bool, int, float, str)
    shown = []
    for one in inspect.signature(function).parameters.values():
        default = "required" if one.default is one.empty else repr(one.default) if isinstance(one.default, plain) else "..."
        name = "" if one.kind is one.VAR_KEYWORD else one.name
        shown.append((one.kind.description, name, "..." if default == "Ellipsis" else default))
    return shown


#: Those that differ, each with why.
DIFFERENT = {
    "ray.ObjectRefGenerator": "nobody but the runtime makes one",
    "ray.util.actor_group.ActorGroup": "Ray hides its parameters behind *args and **kwargs",
    "ray.init": "its keywords are those of init_options, compared below",
    "ray.put": "what Ray hides is taken among the keywords",
    "ray.method": "takes no positional arguments, and Ray's take none either",
    "ray.job_config.JobConfig": "priority is an argument of our own",
    "ray.runtime_context.RuntimeContext": "nobody but the runtime makes one",
    "ray.runtime_env.RuntimeEnv": "takes any field, as plugins of Ray do",
    "ray.shutdown": "_exiting_interpreter is for the runtime itself",
    "ray.util.multiprocessing.pool.AsyncResult": "nobody but a pool makes one",
    "ray.util.multiprocessing.pool.IMapIterator": "nobody but a pool makes one",
    "ray.util.multiprocessing.pool.OrderedIMapIterator": "nobody but a pool makes one",
    "ray.util.multiprocessing.pool.UnorderedIMapIterator": "nobody but a pool makes one",
    "ray.util.multiprocessing.pool.IMapIterator.next": "takes a timeout, as Python's own does",
    "ray.util.multiprocessing.Pool.starmap_async": "takes a chunksize, as Python's own does",
    "ray.util.multiprocessing.pool.Pool.starmap_async": "takes a chunksize, as Python's own does",
    "ray.util.placement_group": "priority and preemptible are of our own",
    "ray.util.state.common.JobState": "a dataclass here, as the other rows are",
}

THERE = [
    name
    for name in SIGNATURES
    if not name.startswith(("ray.data", "ray.util.client")) and callable(found(name)) and name not in DIFFERENT
]


def test_enough_is_compared() -> None:
    assert len(THERE) > 100
    assert [name for name in DIFFERENT if name not in SIGNATURES] == []
    assert {"ray.wait", "ray.kill", "ray.util.state.list_tasks", "ray.util.queue.Queue.put"} <= set(THERE)


@pytest.mark.parametrize("name", THERE)
def test_parameters_and_defaults_are_those_of_ray(name: str) -> None:
    assert described(found(name)) == parameters(SIGNATURES[name])


def test_init_takes_what_rays_does() -> None:
    from oxiray._init_options import init_options

    here = {name: default for _, name, default in described(init_options) if name not in ("", "logging_level")}
    rays = {name: default for _, name, default in parameters(SIGNATURES["ray.init"]) if name not in ("", "logging_level")}
    rays = {name: default for name, default in rays.items() if name not in ("logging_format",)}
    assert {name: here.get(name) for name in rays} == rays
