"""Where a task or an actor wants to run, as the runtime is told.

Purpose: strategies and label selectors, checked before, become one tuple that holds no class of ours.
"""

from __future__ import annotations

import re
from typing import Any

from oxiray import _core, _gpu_memory, _options
from oxiray.util.placement_group import PlacementGroup, check_placement_group_index
from oxiray.util.scheduling_strategies import (
    Exists,
    In,
    LabelOperator,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    PlacementGroupSchedulingStrategy,
)

Condition = tuple[str, int, list[str]]
#: Kind, node, soft, spill, fail, hard conditions, preferred conditions, selectors, placement group, bundle, captures: the fields of the wire's `Strategy`.
Told = tuple[int, bytes, bool, bool, bool, list[Condition], list[Condition], list[list[Condition]], bytes, int, bool]

_DEFAULT, _SPREAD, _NODE, _LABELS, _WITHIN = range(5)
_NO_GROUP = (b"", 0, False)
_IN, _NOT_IN, _EXISTS, _MISSING = range(1, 5)
_SELECTOR = re.compile(r"(!?)(?:in\((.*)\)|(.*))", re.DOTALL)


def told(options: _options.TaskOptions | _options.ActorOptions, label: str) -> Told | None:
    """What the runtime is told; None for any machine, chosen the default way.

    Raises `ValueError` where a placement group cannot take what `label` asks for.
    """
    home = _within(options, label)
    if home is not None:
        return home
    strategy = options.scheduling_strategy
    selectors = _selectors(options)
    if isinstance(strategy, NodeAffinitySchedulingStrategy):
        node = bytes.fromhex(strategy.node_id)
        spill, fail = strategy._spill_on_unavailable, strategy._fail_on_unavailable
        return _NODE, node, strategy.soft, spill, fail, [], [], selectors, *_NO_GROUP
    if isinstance(strategy, NodeLabelSchedulingStrategy):
        hard, preferred = _conditions(strategy.hard), _conditions(strategy.soft)
        return _LABELS, b"", False, False, False, hard, preferred, selectors, *_NO_GROUP
    kind = _SPREAD if strategy == "SPREAD" else _DEFAULT
    return (kind, b"", False, False, False, [], [], selectors, *_NO_GROUP) if kind or selectors else None


def taken(options: _options.TaskOptions | _options.ActorOptions) -> Any:
    """The strategy that what is made has: that of the placement group which captures it, where one does."""
    within = _group_of(options)
    return options.scheduling_strategy or "DEFAULT" if within is None else PlacementGroupSchedulingStrategy(*within)


def _within(options: _options.TaskOptions | _options.ActorOptions, label: str) -> Told | None:
    """Where a placement group is named, or captures what this process makes."""
    within = _group_of(options)
    if within is None:
        return None
    group, index, captures = within
    _check_room(group, index, options, label)
    return _WITHIN, b"", False, False, False, [], [], [], group.id.binary(), index + 1, captures


def _group_of(options: _options.TaskOptions | _options.ActorOptions) -> tuple[PlacementGroup, int, bool] | None:
    strategy = options.scheduling_strategy
    if isinstance(strategy, PlacementGroupSchedulingStrategy):
        group, index = strategy.placement_group, strategy.placement_group_bundle_index
        captures = strategy.placement_group_capture_child_tasks
    elif strategy is None:
        group, index = options.placement_group, options.placement_group_bundle_index
        captures = options.placement_group_capture_child_tasks
    else:
        check_placement_group_index(PlacementGroup.empty(), options.placement_group_bundle_index)
        return None
    if captures is None or group == "default":
        context = _core.context()
        captures = context["captures"] if captures is None else captures
        if group == "default":
            here = context["placement_group"] if captures else None
            group = None if here is None else PlacementGroup(_core.PlacementGroupID.from_hex(here))
    if not isinstance(group, PlacementGroup):
        group = PlacementGroup.empty()
    check_placement_group_index(group, index)
    return None if group.is_empty else (group, index, bool(captures))


def _check_room(
    group: PlacementGroup, index: int, options: _options.TaskOptions | _options.ActorOptions, label: str
) -> None:
    specs = group.bundle_specs
    bundles = specs if index == -1 else [specs[index]]
    is_actor = isinstance(options, _options.ActorOptions)
    held = options.running if isinstance(options, _options.ActorOptions) else options.resources
    if not any(_fits(held, bundle) for bundle in bundles):
        which = "any bundles for the placement group" if index == -1 else f"bundle {index} of the placement group"
        raise ValueError(
            f"Cannot schedule {label} with the placement group because the resource request {_shown(held)} cannot fit into {which}, "
            f"{bundles}. Ask for less, or make the group with larger bundles"
        )
    if is_actor and not any(_fits(options.placement, bundle) for bundle in bundles):
        raise ValueError(
            f"Cannot schedule {label} with the placement group because the resource request {_shown(options.placement)} cannot fit "
            f"into any bundles for the placement group, {bundles}: an actor needs {options.placement.get('CPU', 0):g} CPU while "
            "it is made unless num_cpus says otherwise. Add CPU to a bundle, or pass num_cpus=0"
        )


def _shown(demand: dict[str, float]) -> dict[str, float]:
    named = _gpu_memory.outward(demand).items()
    return {name: int(amount) if amount == int(amount) else amount for name, amount in named}


def _fits(demand: dict[str, float], bundle: dict[str, float]) -> bool:
    return all(bundle.get(name, 0) >= amount or _may_fit(name, amount, bundle) for name, amount in demand.items())


def _may_fit(name: str, amount: float, bundle: dict[str, float]) -> bool:
    """Whether memory of a GPU comes out of a share of one, or the other way round: its machine knows the size."""
    if name == _gpu_memory.RESOURCE:
        return bundle.get(_gpu_memory.OPTION, 0) >= amount or bundle.get("GPU", 0) > 0
    return name == "GPU" and amount < 1 and bundle.get(_gpu_memory.OPTION, 0) > 0


def _conditions(operators: dict[str, LabelOperator]) -> list[Condition]:
    return [(key, *_operator(operator)) for key, operator in sorted(operators.items())]


def _operator(operator: LabelOperator) -> tuple[int, list[str]]:
    if isinstance(operator, In):
        return _IN, list(operator.values)
    if isinstance(operator, NotIn):
        return _NOT_IN, list(operator.values)
    return (_EXISTS, []) if isinstance(operator, Exists) else (_MISSING, [])


def _selectors(options: _options.TaskOptions | _options.ActorOptions) -> list[list[Condition]]:
    """The selector and what to fall back to, in order. A fallback without a first choice has nothing to follow."""
    if not options.label_selector:
        return []
    fallbacks = [strategy["label_selector"] for strategy in options.fallback_strategy or []]
    return [selector(one) for one in [options.label_selector, *fallbacks]]


def selector(given: dict[str, str]) -> list[Condition]:
    """The conditions of a label selector that was checked."""
    return [_condition(key, text) for key, text in sorted(given.items())]


def conditions(given: dict[str, str]) -> list[dict[str, Any]]:
    """The same, as the autoscaler is told of them."""
    return [{"key": key, "operator": operator, "values": list(values)} for key, operator, values in selector(given)]


def _condition(key: str, text: str) -> Condition:
    """`v`, `!v`, `in(a,b)` or `!in(a,b)`; the syntax was checked with the option."""
    negated, several, single = _SELECTOR.fullmatch(text).groups()  # type: ignore[union-attr]
    values = [single] if several is None else [value.strip() for value in several.split(",")]
    return key, _NOT_IN if negated else _IN, values
