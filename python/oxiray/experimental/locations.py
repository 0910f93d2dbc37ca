"""Where objects lie."""

from __future__ import annotations

from typing import Any

from oxiray import _core, _missing, _session
from oxiray._core import ObjectRef

#: The head tells of so many objects at once.
_ASKED_MAX = 10_000


def get_object_locations(obj_refs: list[ObjectRef], timeout_ms: int = -1) -> dict[ObjectRef, dict[str, Any]]:
    """Where the values of references lie, in the order of the references.

    `node_ids` are the nodes whose stores have the value, in hexadecimal digits: none for one that is not there yet, and for
    a small one, which travels with messages. `object_size` is its bytes, 0 where they are not known yet. `did_spill` says
    whether a store wrote it to disk.

    Raises `TypeError` where something else than references is given, and `GetTimeoutError` where the head has not answered
    within `timeout_ms` milliseconds (-1 for no limit).
    """
    return _locations(obj_refs, None if timeout_ms < 0 else timeout_ms / 1000)


def get_local_object_locations(obj_refs: list[ObjectRef]) -> dict[ObjectRef, dict[str, Any]]:
    """As `get_object_locations`. The head knows where objects lie, and is asked here as well."""
    return _locations(obj_refs, None)


def _locations(obj_refs: list[ObjectRef], timeout_s: float | None) -> dict[ObjectRef, dict[str, Any]]:
    references = list(obj_refs)
    for reference in references:
        if not isinstance(reference, ObjectRef):
            raise TypeError(f"obj_refs has to be a list of ObjectRef, and {reference!r} is a {type(reference).__name__}")
    _session.ensure()
    held = {}
    for first in range(0, len(references), _ASKED_MAX):
        rows, _ = _core.holdings(references[first : first + _ASKED_MAX], timeout_s)
        held.update({row["object"]: row for row in rows})
    return {
        reference: _location(held.get(reference.hex(), {}), size)
        for reference, size in zip(references, _core.sizes(references), strict=True)
    }


def _location(row: dict[str, Any], size: int | None) -> dict[str, Any]:
    return {
        "node_ids": list(row.get("nodes", [])),
        "object_size": size or row.get("size") or 0,
        "did_spill": bool(row.get("was_spilled", False)),
    }


__all__ = ["get_local_object_locations", "get_object_locations"]

__getattr__ = _missing.attributes(__name__)
