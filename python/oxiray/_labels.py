"""Labels of machines and the selectors that ask for them.

Purpose: refuse at once what no machine's label could ever match.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_NAME}")
_VALUE = re.compile(rf"(?:{_NAME})?")
_SELECTOR_VALUE = re.compile(rf"!?(?:{_NAME})?|!?in\(\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\)")
_SYNTAX = "at most 63 letters, digits, '-', '_' and '.', the first and the last a letter or a digit"


def check_labels(name: str, labels: Any) -> None:
    """Check the labels given to a machine."""
    if not isinstance(labels, dict):
        raise TypeError(f"'{name}' must be a dict of strings, but is a {type(labels)}")
    for key, value in labels.items():
        _check_key(name, key)
        if not isinstance(value, str):
            raise TypeError(f"the label {key!r} in '{name}' must be a string, but {value!r} is a {type(value)}")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"the label {key!r} in '{name}' has the value {value!r}, but a value is {_SYNTAX}")


def check_selector(name: str, selector: Any) -> None:
    """Check a label selector: each value is `v`, `!v`, `in(a,b)` or `!in(a,b)`."""
    for key, value in (selector or {}).items():
        _check_key(name, key)
        if not isinstance(value, str):
            raise TypeError(f"the value of {key!r} in '{name}' must be a string, but {value!r} is a {type(value)}")
        if not _SELECTOR_VALUE.fullmatch(value):
            raise ValueError(
                f"'{name}' asks for {key!r} to be {value!r}, but a condition is one of `v`, `!v`, `in(a,b)` and "
                f"`!in(a,b)`, where each value is {_SYNTAX}"
            )


def matches(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether a machine with these labels is what the selector asks for; one that lacks a label is what `!v` asks for."""
    return all(_is_met(labels.get(key), condition) for key, condition in selector.items())


def _is_met(value: str | None, condition: str) -> bool:
    wanted = condition.removeprefix("!")
    values = wanted[len("in(") : -1].split(",") if wanted.startswith("in(") else [wanted]
    return (value in [one.strip() for one in values]) != condition.startswith("!")


def check_fallback(name: str, strategies: Any) -> None:
    """Check the selectors to try where the first matches no machine."""
    for strategy in strategies or []:
        if not isinstance(strategy, dict):
            raise ValueError(f"each element of '{name}' must be a dictionary, but one is {strategy!r}")
        if not strategy:
            raise ValueError(f"'{name}' holds an empty dictionary: each must have a 'label_selector'")
        unknown = sorted(set(strategy) - {"label_selector"})
        if unknown:
            raise ValueError(f"'{name}' has the option {unknown[0]!r}, but only 'label_selector' is supported")
        if not isinstance(strategy["label_selector"], dict):
            raise ValueError(f"the label_selector in '{name}' must be a dictionary, but is {strategy!r}")
        check_selector(name, strategy["label_selector"])


def _check_key(name: str, key: Any) -> None:
    if not isinstance(key, str):
        raise TypeError(f"the keys of '{name}' must be strings, but {key!r} is a {type(key)}")
    if not _KEY.fullmatch(key):
        raise ValueError(
            f"'{name}' names the label {key!r}, but a key is {_SYNTAX}, after an optional prefix and '/' "
            "(as in ray.io/node-id)"
        )
