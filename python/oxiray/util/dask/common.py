"""References within Dask's nested results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oxiray._core import ObjectRef


def unpack_object_refs(*args: Any) -> tuple[list[ObjectRef], Callable[[Any], tuple[Any, ...]]]:
    """The references in `args`, at any depth of lists, tuples, sets, and dicts, and a function that puts values in their place."""
    # In the order in which they were found.
    collected: dict[ObjectRef, None] = {}
    for arg in args:
        _collect(arg, collected)
    found = list(collected)

    def repack(values: Any) -> tuple[Any, ...]:
        """`args` with each reference replaced by the value of the same place."""
        replacements = dict(zip(found, values, strict=True))
        return tuple(_replaced(arg, replacements) for arg in args)

    return found, repack


def _collect(value: Any, found: dict[ObjectRef, None]) -> None:
    if isinstance(value, ObjectRef):
        found[value] = None
    elif isinstance(value, dict):
        for part in value.values():
            _collect(part, found)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            _collect(part, found)


def _replaced(value: Any, replacements: dict[ObjectRef, Any]) -> Any:
    if isinstance(value, ObjectRef):
        return replacements[value]
    if isinstance(value, dict):
        return {key: _replaced(part, replacements) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replaced(part, replacements) for part in value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value)(_replaced(part, replacements) for part in value)
    return value
