"""The rules behind `_options`: one row per keyword, one function per moment of checking.

Purpose: every refusal names what was given, the rule, and the way out.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oxiray import _core, _families, _gpu_memory, _labels, _without_effect
from oxiray._init_options import QUANTITY_MAX
from oxiray.runtime_env import check_device_isolation, checked as checked_runtime_env
from oxiray.util.placement_group import PlacementGroup
from oxiray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

#: The finest share the ledger keeps.
UNITS_PER_WHOLE = 10_000
#: The most results of one call, each of which takes memory in its caller before the call is made.
RESULTS_MAX = 100_000
STRATEGY_NAMES = ("DEFAULT", "SPREAD")
NONE = type(None)

Check = Callable[[str, Any], None]


@dataclass(frozen=True, slots=True)
class Rule:
    """The types a keyword may have, and what else must hold of its value."""

    types: tuple[type, ...]
    check: Check | None = None


def _at_least(least: int, meaning: str) -> Check:
    def check(name: str, value: Any) -> None:
        if value is not None and value < least:
            raise ValueError(f"The keyword '{name}' only accepts {meaning}. It is {value}")

    return check


def check_share(name: str, quantity: Any) -> None:
    """Refuse a quantity that no ledger can hold."""
    if quantity is None:
        return
    if not isinstance(quantity, (int, float)):
        raise TypeError(f"The quantity of resource {name} must be a number, but {quantity!r} is a {type(quantity)}")
    if quantity < 0:
        raise ValueError(f"The quantity of resource {name} cannot be negative: {quantity} was asked for")
    if not quantity <= QUANTITY_MAX:
        # As Ray, whose conversion to a whole number fails for what is infinite.
        kind = OverflowError if quantity > sys.float_info.max else ValueError
        raise kind(f"the quantity of resource {name} must be a finite number of at most {QUANTITY_MAX:.0e}, not {quantity}")
    if isinstance(quantity, float) and quantity != 0.0 and int(quantity * UNITS_PER_WHOLE) == 0:
        raise ValueError(
            f"The precision of the fractional quantity of resource {name} cannot go beyond 0.0001: {quantity} was "
            "asked for; round it up"
        )


def _check_resources(_: str, resources: Any) -> None:
    if resources is None:
        return
    for keyword, name in {"num_cpus": "CPU", **_families.OPTIONS}.items():
        if name in resources:
            raise ValueError(
                f"Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU' in 'resources' keyword: 'resources' "
                f"asks for {name}={resources[name]!r}; write {keyword}={resources[name]!r}"
            )
    if _gpu_memory.RESOURCE in resources:
        raise ValueError(f"'resources' asks for {_gpu_memory.RESOURCE}: use the 'gpu_memory' keyword instead")
    for name, quantity in resources.items():
        if not isinstance(name, str):
            raise TypeError(f"the names in 'resources' must be strings, but {name!r} is a {type(name)}")
        if quantity is None:
            raise TypeError(f"the quantity of resource {name} must be a number, but None was given: leave it out")
        check_share(name, quantity)
        if name not in _families.SHAREABLE:  # Theirs above one is checked at `.remote()`.
            check_device_quantity(name, quantity)


def check_device_quantity(name: str, quantity: float, *, in_bundle: bool = False) -> None:
    """Refuse a quantity that the vendor's devices cannot be cut into; the rules live with the device families."""
    _core.check_quantity(name, float(quantity), in_bundle)


#: What `num_returns` may be beside a number and None.
NUM_RETURNS_WORDS = ("streaming", "dynamic")


def _check_num_returns(_: str, value: Any) -> None:
    if isinstance(value, str) and value not in NUM_RETURNS_WORDS:
        raise ValueError(
            f"num_returns is {value!r}, but accepts only None (one result, or a stream from a generator), a "
            "non-negative integer, 'streaming', or 'dynamic'"
        )
    if isinstance(value, int) and value < 0:
        raise ValueError(
            f"The keyword 'num_returns' only accepts None, a non-negative integer, 'streaming' (for generators), or "
            f"'dynamic'. It is {value}"
        )
    if isinstance(value, int) and value > RESULTS_MAX:
        raise ValueError(
            f"num_returns is {value}, but a call has at most {RESULTS_MAX} results: yield them one by one from a generator "
            "(num_returns='streaming'), or return them in one list"
        )


def _check_retry_exceptions(_: str, value: Any) -> None:
    if isinstance(value, bool):
        return
    for kind in value:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ValueError(
                f"retry_exceptions must be either a boolean or a list of exceptions, but {kind!r} is no exception class"
            )


def _check_runtime_env(_: str, value: Any) -> None:
    checked_runtime_env(value)


def _check_lifetime(_: str, value: Any) -> None:
    if value not in (None, "detached", "non_detached"):
        raise ValueError(
            f"actor `lifetime` argument must be one of 'detached', 'non_detached' and None, but is {value!r}"
        )


def _check_backpressure(name: str, value: Any) -> None:
    if value == 0:
        raise ValueError(
            f"{name}=0 is not allowed, since nothing could ever be yielded: give the number of unread objects to "
            "stop at (at least 1), or -1 for no limit"
        )


def _check_task_store_memory(_: str, value: Any) -> None:
    if value is not None:
        raise ValueError(
            "setting 'object_store_memory' is not implemented for tasks: leave it out, or size the store with "
            "init(object_store_memory=...)"
        )


def _check_actor_store_memory(name: str, value: Any) -> None:
    _at_least(0, "None, 0 or a positive integer")(name, value)
    if value is not None:
        warnings.warn(
            "Setting 'object_store_memory' for actors is deprecated since it doesn't actually reserve memory: leave it out",
            DeprecationWarning,
            stacklevel=5,
        )


def _check_concurrency_groups(_: str, value: Any) -> None:
    groups = value if value is not None else {}
    if isinstance(groups, list):
        for group in groups:
            if not isinstance(group, dict) or not {"name", "max_concurrency"} <= set(group):
                raise ValueError(f"a concurrency group needs a 'name' and a 'max_concurrency', but one is {group!r}")
        groups = {group["name"]: group["max_concurrency"] for group in groups}
    for name, limit in groups.items():
        well_typed = isinstance(name, str) and isinstance(limit, int)
        if not well_typed or limit < 1:
            kind = ValueError if well_typed else TypeError
            raise kind(
                "concurrency_groups maps a group's name to how many of its methods may run at once (at least 1), "
                f"but has {name!r}: {limit!r}"
            )


def check_priority(name: str, value: Any) -> None:
    """Refuse what is no priority; None stands for that of the caller."""
    least, most = _core.PRIORITIES
    if value is not None and (isinstance(value, bool) or not least <= value <= most):
        raise ValueError(f"{name} must be a whole number from {least} to {most}, the higher one first. It is {value}")


def _check_device_isolation(name: str, value: Any) -> None:
    if value is not None:
        check_device_isolation(name, value)


_RETRIES = _at_least(-1, "None, 0, -1 or a positive integer, where -1 represents infinity")
_COUNT = _at_least(0, "None, 0 or a positive integer")
_STRATEGIES = (
    NONE,
    str,
    PlacementGroupSchedulingStrategy,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
)

_SHARED: dict[str, Rule] = {
    "label_selector": Rule((dict, NONE), _labels.check_selector),
    "fallback_strategy": Rule((list, NONE), _labels.check_fallback),
    "accelerator_type": Rule((str, NONE)),
    "memory": Rule((float, int, NONE), check_share),
    "gpu_memory": Rule((float, int, str, NONE), _gpu_memory.check),
    "priority": Rule((int, NONE), check_priority),
    "preemptible": Rule((bool, NONE)),
    "device_isolation": Rule((str, NONE), _check_device_isolation),
    "name": Rule((str, NONE)),
    "num_cpus": Rule((float, int, NONE), check_share),
    **dict.fromkeys(_families.OPTIONS, Rule((float, int, NONE), check_share)),
    "placement_group": Rule((NONE, str, PlacementGroup)),
    "placement_group_bundle_index": Rule((int,)),
    "placement_group_capture_child_tasks": Rule((bool, NONE)),
    "resources": Rule((dict, NONE), _check_resources),
    "runtime_env": Rule((dict, NONE), _check_runtime_env),
    "scheduling_strategy": Rule(_STRATEGIES),
    "enable_task_events": Rule((bool,)),
    "_labels": Rule((dict, NONE)),
}

TASK_RULES: dict[str, Rule] = {
    **_SHARED,
    "object_store_memory": Rule((int, NONE), _check_task_store_memory),
    "max_calls": Rule((int, NONE), _COUNT),
    "max_retries": Rule((int, NONE), _RETRIES),
    "num_returns": Rule((int, str, NONE), _check_num_returns),
    "retry_exceptions": Rule((bool, list, tuple), _check_retry_exceptions),
    "_generator_backpressure_num_objects": Rule((int, NONE), _check_backpressure),
    "_num_objects_per_yield": Rule((int, NONE), _at_least(1, "a positive integer")),
}

ACTOR_RULES: dict[str, Rule] = {
    **_SHARED,
    "object_store_memory": Rule((int, NONE), _check_actor_store_memory),
    "concurrency_groups": Rule((list, dict, NONE), _check_concurrency_groups),
    "enable_tensor_transport": Rule((bool, NONE)),
    "lifetime": Rule((str, NONE), _check_lifetime),
    "max_concurrency": Rule((int, NONE), _COUNT),
    "max_restarts": Rule((int, NONE), _RETRIES),
    "max_task_retries": Rule((int, NONE), _RETRIES),
    "max_pending_calls": Rule((int, NONE), _RETRIES),
    "namespace": Rule((str, NONE)),
    "get_if_exists": Rule((bool,)),
    "allow_out_of_order_execution": Rule((bool, NONE)),
    "_actor_generator_backpressure_num_objects": Rule((int, NONE), _check_backpressure),
}


def check_keywords(given: Mapping[str, Any], table: Mapping[str, Rule], target: str) -> None:
    """Check each keyword by itself: known, of the right type, in range."""
    for name, value in given.items():
        rule = table.get(name)
        if rule is None:
            raise ValueError(f"Invalid option keyword {name} for {target}. Valid ones are {sorted(table)}.")
        if not isinstance(value, rule.types):
            expected = rule.types if len(rule.types) > 1 else rule.types[0]
            raise TypeError(
                f"The type of keyword '{name}' must be {expected}, but received type {type(value)} ({value!r})"
            )
        if rule.check is not None:
            rule.check(name, value)


def check_streaming(num_returns: Any, *, is_generator: bool) -> None:
    """Check that only what yields is asked for its results one by one."""
    if isinstance(num_returns, str) and not is_generator:
        raise ValueError(
            f"num_returns={num_returns!r} can only be used with generator functions (functions that use 'yield'), "
            "and this function is none: leave num_returns out, or give the number of results"
        )
    if num_returns == "dynamic":
        warnings.warn(
            "num_returns='dynamic' is deprecated; leave it out to get a stream", DeprecationWarning, stacklevel=5
        )


def check_task(given: Mapping[str, Any], *, in_options: bool, is_generator: bool) -> None:
    """Check what depends on where a task's keywords stand and on its function."""
    check_streaming(given.get("num_returns"), is_generator=is_generator)
    if not in_options:
        return
    if given.get("max_calls") is not None:
        raise ValueError("Setting 'max_calls' is not supported in '.options()'. Say it in the decorator.")
    if "_num_objects_per_yield" in given:
        raise ValueError("'_num_objects_per_yield' cannot be set per call: say it in the decorator.")


def check_actor(given: Mapping[str, Any], merged: Mapping[str, Any], *, in_options: bool) -> None:
    """Check what depends on where an actor's keywords stand and on each other."""
    if merged.get("get_if_exists") and not merged.get("name"):
        raise ValueError("The actor name must be specified to use `get_if_exists`. Add name=...")
    if in_options and given.get("concurrency_groups") is not None:
        raise ValueError("Setting 'concurrency_groups' is not supported in '.options()'. Say it in the decorator.")


METHOD_RULES: dict[str, Rule] = {
    "num_returns": Rule((int, str, NONE), _check_num_returns),
    "concurrency_group": Rule((str, NONE)),
    "max_task_retries": Rule((int, NONE), _RETRIES),
    "retry_exceptions": Rule((bool, list, tuple, NONE), lambda n, v: _check_retry_exceptions(n, v or False)),
    "_generator_backpressure_num_objects": Rule((int, NONE), _check_backpressure),
    "_num_objects_per_yield": Rule((int, NONE), _at_least(1, "a positive integer")),
    "enable_task_events": Rule((bool,)),
    "tensor_transport": Rule((str, NONE), lambda _, value: _check_transport(value)),
}


def _check_transport(name: str | None) -> None:
    from oxiray import _device_objects

    if name not in _device_objects.ORDINARY:
        _device_objects.transport_named(name)


def check_method(given: Mapping[str, Any]) -> None:
    """Check what `@method(...)` says; an unknown keyword is an AssertionError, as in Ray."""
    unknown = sorted(set(given) - set(METHOD_RULES))
    if unknown:
        raise AssertionError(
            f"Unexpected keyword argument to @ray.method: {unknown[0]!r}. The supported keyword arguments are "
            f"{sorted(METHOD_RULES)}."
        )
    check_keywords(given, METHOD_RULES, "methods")
    _without_effect.tell("method", given)


#: What one call of an actor's method may say.
METHOD_CALL_RULES: dict[str, Rule] = {**METHOD_RULES, "name": Rule((str, NONE)), "_labels": Rule((dict, NONE))}


def check_method_call(given: Mapping[str, Any], groups: tuple[str, ...]) -> None:
    """Check what `.options(...)` of an actor's method says; `groups` are the actor's concurrency groups."""
    for option in given:
        if option not in METHOD_CALL_RULES:
            raise TypeError(
                f"ActorMethod.options() got an unexpected keyword argument '{option}': a method uses what its actor "
                f"holds; ask for resources where the actor is made. A method takes {', '.join(sorted(METHOD_CALL_RULES))}"
            )
    check_keywords(given, METHOD_CALL_RULES, "methods")
    _without_effect.tell("method", given)
    check_group("this call", given.get("concurrency_group"), groups)


def check_group(which: str, group: str | None, groups: tuple[str, ...]) -> None:
    """Refuse a concurrency group that the actor does not have."""
    if group is not None and group not in groups:
        raise ValueError(
            f"{which} is to run in concurrency group {group!r}, and the actor has "
            f"{', '.join(map(repr, groups)) or 'none'}: name it in concurrency_groups={{...}} of @remote"
        )


def check_placement_group(merged: Mapping[str, Any]) -> None:
    """Check the old way of naming a placement group against the new one."""
    if merged.get("placement_group", "default") == "default":
        return
    if merged.get("scheduling_strategy") is not None:
        raise ValueError(
            "both 'placement_group' and 'scheduling_strategy' are given. Placement groups should be specified via "
            "the scheduling_strategy option. The placement_group option is deprecated."
        )
    warnings.warn(
        "placement_group parameter is deprecated. Use scheduling_strategy=PlacementGroupSchedulingStrategy(...) instead, "
        "of ray.util.scheduling_strategies",
        DeprecationWarning,
        stacklevel=4,
    )


def check_strategy(strategy: Any) -> None:
    """Check a scheduling strategy's name (at `.remote()`)."""
    if isinstance(strategy, str) and strategy not in STRATEGY_NAMES:
        raise ValueError(
            f"Invalid scheduling_strategy value {strategy}. Valid values are {list(STRATEGY_NAMES)}, or an object "
            "of oxiray.util.scheduling_strategies."
        )
    if isinstance(strategy, PlacementGroupSchedulingStrategy):
        check_named_group(strategy.placement_group, strategy.placement_group_bundle_index)


def check_named_group(group: Any, bundle_index: int) -> None:
    """Check what is said of a placement group (at `.remote()`), as far as that shows without asking for it.

    Which group `"default"` stands for is known where the work is placed, and its bundle is looked at there.
    """
    if group is None and bundle_index != -1:
        raise ValueError(
            "If placement group is not set, the value of bundle index must be -1. placement_group_bundle_index is "
            f"{bundle_index}: leave it out, or give a placement group"
        )
    if group not in (None, "default") and not isinstance(group, PlacementGroup):
        raise ValueError(
            f"placement_group is {group!r}, which is no placement group: pass what placement_group(...) returned, or "
            "leave it out"
        )


def check_submitted_resources(given: Mapping[str, Any]) -> None:
    """Check the demand as a whole (at `.remote()`)."""
    resources = given.get("resources") or {}
    for name in ("memory", "object_store_memory"):
        if name in resources:
            raise ValueError(
                f"The resources dictionary must not contain the key 'memory' or 'object_store_memory', but asks for "
                f"{name}={resources[name]!r}; use the '{name}' keyword instead"
            )
    for name in resources:
        if name == "bundle" or name.startswith("bundle_group"):
            raise ValueError(f"the resource name {name!r} is reserved for placement groups: use another name")
    for option, resource in _families.OPTIONS.items():
        if given.get(option) is not None:
            check_device_quantity(resource, given[option])
    for name in _families.SHAREABLE:
        if name in resources:
            check_device_quantity(name, resources[name])


def check_submitted_actor(given: Mapping[str, Any], *, is_async: bool) -> None:
    """Check an actor's name and order of execution (at `.remote()`)."""
    if given.get("name") == "":
        raise ValueError("Actor name cannot be an empty string. Leave the name out for an actor without one.")
    if given.get("namespace") == "":
        raise ValueError('"" is not a valid namespace. Leave it out to use the namespace of this program.')
    if given.get("allow_out_of_order_execution") is not False:
        return
    if is_async:
        raise ValueError(
            "If you're using async actors, Ray can't execute actor tasks in order: allow_out_of_order_execution=False was "
            "given, and the methods of an asyncio actor interleave. Leave it out, or make the methods plain functions"
        )
    if (given.get("max_concurrency") or 1) > 1:
        raise ValueError(
            "If you're using multi-threaded actors, Ray can't execute actor tasks in order: "
            f"allow_out_of_order_execution=False was given with max_concurrency={given['max_concurrency']}. Leave one of "
            "them out"
        )
