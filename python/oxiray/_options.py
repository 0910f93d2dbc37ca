"""What `@remote(...)` and `.options(...)` may say, checked and made definite.

Purpose: turn the keywords of a task or an actor into one frozen record with every
default filled in, so that nothing behind this module looks at raw keywords.

Invariants:
1. Kinds of error and the moment they arise are Ray's: most at decoration or
   `.options()`, those in `check_submittable` at `.remote()`.
2. A record holds the final demand: no quantity in it is zero or negative.
3. A record never changes; `.options()` makes another, built on the first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oxiray import (
    _core,
    _families,
    _gpu_memory,
    _option_rules as rules,
    _pickling,
    _without_effect,
    runtime_env as environments,
)

#: How often a task is run again after its process died, where nothing is said.
DEFAULT_MAX_RETRIES: int = _core.DEFAULT_MAX_RETRIES


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Everything a task's submission needs to know."""

    given: Mapping[str, Any] = field(repr=False)
    is_generator: bool
    num_returns: int | str
    max_calls: int
    #: Whether a process of its own runs it, so that the next holder of its devices meets clean ones.
    fresh: bool
    max_retries: int
    retry_exceptions: bool | tuple[type[BaseException], ...]
    name: str | None
    resources: dict[str, float]
    runtime_env: dict[str, Any] | None
    scheduling_strategy: Any
    label_selector: dict[str, str] | None
    fallback_strategy: list[dict[str, Any]] | None
    placement_group: Any
    placement_group_bundle_index: int
    placement_group_capture_child_tasks: bool | None
    enable_task_events: bool
    labels: dict[str, str] | None
    priority: int | None
    preemptible: bool
    generator_backpressure_num_objects: int
    num_objects_per_yield: int


@dataclass(frozen=True, slots=True)
class ActorOptions:
    """Everything an actor's creation needs to know.

    `placement` is the demand a machine must meet to take the actor; `running` is
    what the actor then holds for life.
    """

    given: Mapping[str, Any] = field(repr=False)
    placement: dict[str, float]
    running: dict[str, float]
    name: str | None
    namespace: str | None
    lifetime: str | None
    get_if_exists: bool
    max_concurrency: int | None
    max_restarts: int
    max_task_retries: int
    max_pending_calls: int
    concurrency_groups: dict[str, int]
    allow_out_of_order_execution: bool | None
    runtime_env: dict[str, Any] | None
    scheduling_strategy: Any
    label_selector: dict[str, str] | None
    fallback_strategy: list[dict[str, Any]] | None
    placement_group: Any
    placement_group_bundle_index: int
    placement_group_capture_child_tasks: bool | None
    enable_task_events: bool
    labels: dict[str, str] | None
    priority: int | None
    preemptible: bool

    def concurrency(self, *, is_async: bool) -> int:
        """How many calls may run at once: 1000 for an asyncio actor, else 1, unless said."""
        return self.max_concurrency or (1000 if is_async else 1)

    def is_unordered(self, *, is_async: bool) -> bool:
        """Whether a call may overtake earlier ones that wait for their arguments; by default where calls run at once."""
        if self.allow_out_of_order_execution is not None:
            return self.allow_out_of_order_execution
        return is_async or self.concurrency(is_async=False) > 1


def task_options(
    given: Mapping[str, Any],
    *,
    in_options: bool = False,
    base: TaskOptions | None = None,
    is_generator: bool = False,
) -> TaskOptions:
    """The options of a task; `base` is what the decorator said, where `given` comes from `.options()`."""
    is_generator = base.is_generator if base is not None else is_generator
    rules.check_keywords(given, rules.TASK_RULES, "remote functions")
    rules.check_task(given, in_options=in_options, is_generator=is_generator)
    _without_effect.tell("remote", given)
    merged = {**base.given, **given} if base is not None else dict(given)
    rules.check_placement_group(merged)
    # As in Ray, None asks for no CPU where a task says it.
    cpus = merged.get("num_cpus", 1)
    resources, max_calls, fresh = _core.task_demand(_asked(merged), cpus or 0, merged.get("max_calls"))
    num_returns = merged.get("num_returns")
    if num_returns is None:
        num_returns = "streaming" if is_generator else 1
    backpressure = merged.get("_generator_backpressure_num_objects")
    return TaskOptions(
        given=merged,
        is_generator=is_generator,
        num_returns=num_returns,
        max_calls=max_calls,
        fresh=fresh,
        max_retries=_max_retries(merged),
        retry_exceptions=_retry_exceptions(merged),
        resources=resources,
        generator_backpressure_num_objects=-1 if backpressure is None else backpressure,
        num_objects_per_yield=merged.get("_num_objects_per_yield") or 1,
        **_shared(merged),
    )


def actor_options(
    given: Mapping[str, Any], *, in_options: bool = False, base: ActorOptions | None = None
) -> ActorOptions:
    """The options of an actor; `base` is what the decorator said, where `given` comes from `.options()`."""
    rules.check_keywords(given, rules.ACTOR_RULES, "actors")
    merged = {**base.given, **given} if base is not None else dict(given)
    rules.check_actor(given, merged, in_options=in_options)
    _without_effect.tell("remote", given)
    rules.check_placement_group(merged)
    placement, running = _core.actor_demand(_asked(merged), merged.get("num_cpus"))
    max_pending_calls = merged.get("max_pending_calls")
    return ActorOptions(
        given=merged,
        placement=placement,
        running=running,
        namespace=merged.get("namespace"),
        lifetime=merged.get("lifetime"),
        get_if_exists=merged.get("get_if_exists", False),
        max_concurrency=merged.get("max_concurrency"),
        max_restarts=merged.get("max_restarts") or 0,
        max_task_retries=merged.get("max_task_retries") or 0,
        max_pending_calls=-1 if max_pending_calls is None else max_pending_calls,
        concurrency_groups=_concurrency_groups(merged),
        allow_out_of_order_execution=merged.get("allow_out_of_order_execution"),
        **_shared(merged),
    )


def check_submittable(options: TaskOptions | ActorOptions, *, is_async: bool = False) -> None:
    """Raise what Ray raises at `.remote()` only; the answer is the same for the same record, so ask once.

    `is_async`: whether the actor's class has an asyncio method.
    """
    rules.check_strategy(options.scheduling_strategy)
    rules.check_named_group(options.placement_group, options.placement_group_bundle_index)
    rules.check_submitted_resources(options.given)
    if isinstance(options, ActorOptions):
        rules.check_submitted_actor(options.given, is_async=is_async)


def _asked(merged: Mapping[str, Any]) -> dict[str, float]:
    """What is asked for besides CPUs, by the name of the resource."""
    demand = {name: float(quantity) for name, quantity in (merged.get("resources") or {}).items()}
    for option, resource in _families.OPTIONS.items():
        if merged.get(option) is not None:
            demand[resource] = float(merged[option])
    if merged.get("memory") is not None:
        demand["memory"] = float(int(merged["memory"]))
    if memory := _gpu_memory.asked(merged):
        demand[_gpu_memory.RESOURCE] = memory
    if merged.get("accelerator_type") is not None:
        resource, share = _core.accelerator_type(merged["accelerator_type"])
        demand[resource] = share
    return demand


def _max_retries(merged: Mapping[str, Any]) -> int:
    given = merged.get("max_retries")
    if given is not None:
        return int(given)
    text = os.environ.get("RAY_TASK_MAX_RETRIES")
    if not text:
        return DEFAULT_MAX_RETRIES
    try:
        value = int(text)
    except ValueError:
        value = -2
    if value < -1:
        raise ValueError(
            f"the environment variable RAY_TASK_MAX_RETRIES is {text!r}, but must be -1 (no limit), 0, or a "
            "positive integer: correct or unset it"
        )
    return value


def _retry_exceptions(merged: Mapping[str, Any]) -> bool | tuple[type[BaseException], ...]:
    given = merged.get("retry_exceptions", False)
    return given if isinstance(given, bool) else tuple(given)


def retried_as_sent(wanted: bool | tuple[type[BaseException], ...] | list[type[BaseException]], language: str) -> bytes:
    """What tells a worker which errors are retried; empty for none.

    Raises:
        ValueError: exception classes were named for what runs in another language, which raises none of them.
    """
    if not wanted:
        return b""
    if language == "rust" and wanted is not True:
        names = ", ".join(kind.__name__ for kind in wanted)
        raise ValueError(
            f"retry_exceptions names {names}, but what runs is Rust and raises no exceptions of Python: say "
            "retry_exceptions=True, which stands for any error"
        )
    return _pickling.dumps(wanted)


def groups_of(options: ActorOptions, methods: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The concurrency groups of an actor whose methods have such options, with the one that hands out its tensors."""
    from oxiray import _device_objects

    enabled = options.given.get("enable_tensor_transport")
    has_transports = any(given.get("tensor_transport") not in _device_objects.ORDINARY for given in methods)
    if has_transports and enabled is False:
        raise ValueError(
            "Actor class has methods with @ray.method(tensor_transport=...) decorator but @ray.remote(enable_tensor_transport=False). "
            "Either set enable_tensor_transport=True or remove the @ray.method(tensor_transport=...) decorator from the methods."
        )
    return {**options.concurrency_groups, **({_device_objects.GROUP: 1} if enabled or has_transports else {})}


def _concurrency_groups(merged: Mapping[str, Any]) -> dict[str, int]:
    given = merged.get("concurrency_groups") or {}
    if isinstance(given, dict):
        return dict(given)
    return {group["name"]: group["max_concurrency"] for group in given}


def _shared(merged: Mapping[str, Any]) -> dict[str, Any]:
    bundle_index = merged.get("placement_group_bundle_index", -1)
    return {
        "name": merged.get("name"),
        "runtime_env": environments.checked(
            environments.with_device_isolation(merged.get("runtime_env"), merged.get("device_isolation"))
        ),
        "scheduling_strategy": merged.get("scheduling_strategy"),
        "label_selector": merged.get("label_selector"),
        "fallback_strategy": merged.get("fallback_strategy"),
        "placement_group": merged.get("placement_group", "default"),
        "placement_group_bundle_index": bundle_index,
        "placement_group_capture_child_tasks": merged.get("placement_group_capture_child_tasks"),
        "enable_task_events": merged.get("enable_task_events", True),
        "labels": merged.get("_labels"),
        "priority": merged.get("priority"),
        "preemptible": bool(merged.get("preemptible")),
    }
