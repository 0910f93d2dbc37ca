"""Where a task or an actor may run, for `scheduling_strategy=...`.

Purpose: the strategies with their arguments checked when they are made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Dict, Union  # noqa: UP035

_NODE_ID = re.compile(r"[0-9a-fA-F]{56}")


class PlacementGroupSchedulingStrategy:
    """Run inside a placement group, in one of its bundles or in any (-1)."""

    def __init__(
        self,
        placement_group: Any,
        placement_group_bundle_index: int = -1,
        placement_group_capture_child_tasks: bool | None = None,
    ) -> None:
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks


class NodeAffinitySchedulingStrategy:
    """Run on the machine with this id; where `soft`, elsewhere if it cannot."""

    def __init__(
        self, node_id: str, soft: bool, _spill_on_unavailable: bool = False, _fail_on_unavailable: bool = False
    ) -> None:
        if not isinstance(node_id, str) and callable(getattr(node_id, "hex", None)):
            node_id = node_id.hex()
        if not isinstance(node_id, str) or not _NODE_ID.fullmatch(node_id):
            raise ValueError(
                f"Invalid node_id {node_id!r}: it is 56 hexadecimal digits, as nodes() and "
                "get_runtime_context().get_node_id() give them"
            )
        if set(node_id.lower()) == {"f"}:
            raise ValueError(f"Invalid node_id {node_id!r}: this is the id of no machine")
        if _spill_on_unavailable and not soft:
            raise ValueError("_spill_on_unavailable cannot be set when soft is False. A hard affinity never runs elsewhere")
        if _fail_on_unavailable and soft:
            raise ValueError("_fail_on_unavailable cannot be set when soft is True. A soft affinity runs elsewhere instead")
        self.node_id = node_id
        self.soft = soft
        self._spill_on_unavailable = _spill_on_unavailable
        self._fail_on_unavailable = _fail_on_unavailable


class In:
    """The label has one of these values."""

    def __init__(self, *values: str) -> None:
        self.values = _checked_values("In", values)


class NotIn:
    """The label is missing or has none of these values."""

    def __init__(self, *values: str) -> None:
        self.values = _checked_values("NotIn", values)


class Exists:
    """The label is there, whatever its value."""


class DoesNotExist:
    """The label is missing."""


LabelOperator = Union[In, NotIn, Exists, DoesNotExist]
#: Ray's name for what is asked of labels: a condition for each.
LabelMatchExpressionsT = Dict[str, LabelOperator]  # noqa: UP006  it is typing.Dict in Ray, too


class NodeLabelSchedulingStrategy:
    """Run where the machine's labels match all of `hard`; of those, prefer where they match `soft`."""

    def __init__(
        self, hard: Mapping[str, LabelOperator] | None, *, soft: Mapping[str, LabelOperator] | None = None
    ) -> None:
        self.hard = _checked_conditions("hard", hard)
        self.soft = _checked_conditions("soft", soft)
        if not self.hard and not self.soft:
            raise ValueError(
                "The `hard` and `soft` parameter of NodeLabelSchedulingStrategy cannot both be empty: name a label, as "
                'in hard={"zone": In("a", "b")}'
            )


SchedulingStrategyT = Union[
    None, str, PlacementGroupSchedulingStrategy, NodeAffinitySchedulingStrategy, NodeLabelSchedulingStrategy
]


def _checked_values(operator: str, values: tuple[Any, ...]) -> list[str]:
    if not values:
        raise ValueError(f'The variadic parameter of the {operator} operator must be a non-empty tuple. Write {operator}("a", "b")')
    for position, value in enumerate(values):
        if not isinstance(value, str):
            raise ValueError(
                f"Type of value in position {position} for the {operator} operator must be str, but {value!r} is a "
                f'{type(value)}: write {operator}("a", "b")'
            )
    return list(values)


def _checked_conditions(parameter: str, conditions: Any) -> dict[str, LabelOperator]:
    if conditions is None:
        return {}
    if not isinstance(conditions, Mapping):
        raise ValueError(f'The {parameter} parameter must be a map (e.g. {{"key1": In("value1")}}) but got type {type(conditions)}.')
    for key, operator in conditions.items():
        if not isinstance(key, str):
            raise ValueError(f"The map key of the {parameter} parameter must be of type str. {key!r} is a {type(key)}")
        if not isinstance(operator, (In, NotIn, Exists, DoesNotExist)):
            raise ValueError(
                f"The map value for key {key} of the {parameter} parameter must be one of the `In`, `NotIn`, `Exists` or "
                f"`DoesNotExist` operator. It is {operator!r}"
            )
    return dict(conditions)


__all__ = [
    "DoesNotExist",
    "Exists",
    "In",
    "LabelMatchExpressionsT",
    "NodeAffinitySchedulingStrategy",
    "NodeLabelSchedulingStrategy",
    "NotIn",
    "PlacementGroupSchedulingStrategy",
    "SchedulingStrategyT",
]
