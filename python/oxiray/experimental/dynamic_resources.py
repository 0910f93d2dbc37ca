"""Resources that change while a cluster runs, which Ray removed: the name exists, and raises."""

from __future__ import annotations

from typing import NoReturn

from oxiray import _missing


def set_resource(resource_name: str, capacity: float, node_id: str | None = None) -> NoReturn:
    """Raises `DeprecationWarning`, as in Ray."""
    raise DeprecationWarning(_missing.advice("experimental.set_resource"))


__all__ = ["set_resource"]

__getattr__ = _missing.attributes(__name__)
