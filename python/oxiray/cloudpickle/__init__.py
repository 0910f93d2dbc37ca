"""Cloudpickle under the name that programs written for Ray know it by."""

from __future__ import annotations

from pickle import PicklingError
from typing import Any

from cloudpickle import (
    CloudPickler,
    Pickler,
    cloudpickle,
    cloudpickle_fast,
    dump,
    dumps,
    load,
    loads,
    register_pickle_by_value,
    unregister_pickle_by_value,
)
from cloudpickle.cloudpickle import DEFAULT_PROTOCOL


def dump_debug(obj: Any, *args: Any, **kwargs: Any) -> None:
    """`dump`; where it fails, the error names the part of `obj` that is why."""
    _explained(dump, obj, args, kwargs)


def dumps_debug(obj: Any, *args: Any, **kwargs: Any) -> bytes:
    """`dumps`; where it fails, the error names the part of `obj` that is why."""
    return _explained(dumps, obj, args, kwargs)


def _explained(function: Any, obj: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return function(obj, *args, **kwargs)
    except (TypeError, PicklingError) as error:
        from oxiray import _serialization

        raise type(error)(_serialization.explain(obj, error)) from error


__all__ = [
    "DEFAULT_PROTOCOL",
    "CloudPickler",
    "Pickler",
    "PicklingError",
    "cloudpickle",
    "cloudpickle_fast",
    "dump",
    "dump_debug",
    "dumps",
    "dumps_debug",
    "load",
    "loads",
    "register_pickle_by_value",
    "unregister_pickle_by_value",
]
