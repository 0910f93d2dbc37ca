"""Where a task or an actor wants to run, as the runtime is told.

Purpose: strategies and label selectors, checked before, become one tuple that holds no class of ours.
"""

from __future__ import annotations

import re
from typing import Any

from oxiray import _options
from oxiray.util.scheduling_strategies import (
    Exists,
    In,
    LabelOperator,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
)

Condition = tuple[str, int, list[str]]
#: Kind, node, soft, spill, fail, hard conditions, preferred conditions, selectors: the fields of the wire's `Strategy`.
Told = tuple[int, bytes, bool, bool, bool, list[Condition], list[Condition], list[list[Condition]]]

_DEFAULT, _SPREAD, _NODE, _LABELS = range(4)
_IN, _NOT_IN, _EXISTS, _MISSING = range(1, 5)
_SELECTOR = re.compile(r"(!?)(?:in\((.*)\)|(.*))", re.DOTALL)


def told(options: _options.TaskOptions | _options.ActorOptions) -> Told | None:
    """What the runtime is told; None for any machine, chosen the default way."""
    strategy = options.scheduling_strategy
    selectors = _selectors(options)
    if isinstance(strategy, NodeAffinitySchedulingStrategy):
        node = bytes.fromhex(strategy.node_id)
        spill, fail = strategy._spill_on_unavailable, strategy._fail_on_unavailable
        return _NODE, node, strategy.soft, spill, fail, [], [], selectors
    if isinstance(strategy, NodeLabelSchedulingStrategy):
        hard, preferred = _conditions(strategy.hard), _conditions(strategy.soft)
        return _LABELS, b"", False, False, False, hard, preferred, selectors
    kind = _SPREAD if strategy == "SPREAD" else _DEFAULT
    return (kind, b"", False, False, False, [], [], selectors) if kind or selectors else None


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
    return [_selector(selector) for selector in [options.label_selector, *fallbacks]]


def _selector(selector: dict[str, str]) -> list[Condition]:
    return [_condition(key, text) for key, text in sorted(selector.items())]


def _condition(key: str, text: str) -> Condition:
    """`v`, `!v`, `in(a,b)` or `!in(a,b)`; the syntax was checked with the option."""
    negated, several, single = _SELECTOR.fullmatch(text).groups()  # type: ignore[union-attr]
    values = [single] if several is None else [value.strip() for value in several.split(",")]
    return key, _NOT_IN if negated else _IN, values
