"""Names of Ray's data library that other libraries import before they know whether they need them.

Purpose: Oxiray carries no data library; a library that merely offers to hand over to one (Modin does) imports and
runs. Using such a name says what to do instead, when it is used.
"""

from __future__ import annotations

from typing import Any

from oxiray import _missing


def _refusing(name: str) -> type:
    def refuse(kind: type, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"`ray.data.{name}` was called; {_missing.advice('data')}")

    # A class, so that `isinstance(x, Dataset)` answers, with False.
    return type(name, (), {"__new__": refuse, "__module__": __name__})


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and _missing.is_of_ray(f"data.{name}"):
        return globals().setdefault(name, _refusing(name))
    raise AttributeError(f"module 'ray.data' has no attribute {name!r}: {_missing.advice(f'data.{name}')}", name=name)
