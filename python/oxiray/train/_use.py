"""How much the devices of a group are used, in words: as the machines' daemons measured them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: So many devices are told one by one; more are told together.
_ALONE_MAX = 4
_GIB = float(1 << 30)


def told(nodes: Iterable[dict[str, Any]], held: set[tuple[str, str, str]]) -> str:
    """What is known of the devices that are `held`, each a machine, a resource and an identifier; empty where nothing is.

    `nodes` are the machines as the head describes them. A device that no vendor's library tells of is left out.
    """
    found = [
        (one["resource"], one["id"], one)
        for node in nodes
        for one in node.get("devices") or ()
        if (node["node_id"], one["resource"], str(one["id"])) in held
    ]
    if len(found) <= _ALONE_MAX:
        return "; ".join(f"{resource} {identifier} {_one(use)}" for resource, identifier, use in found)
    return _together(found)


def _one(use: dict[str, Any]) -> str:
    parts = []
    if use["busy_percent"] is not None:
        parts.append(f"{use['busy_percent']}% busy")
    if use["used_bytes"] is not None and use["total_bytes"] is not None:
        parts.append(f"{use['used_bytes'] / _GIB:.3g} of {use['total_bytes'] / _GIB:.3g} GiB")
    return ", ".join(parts)


def _together(found: list[tuple[str, str, dict[str, Any]]]) -> str:
    parts = []
    for resource in sorted({one[0] for one in found}):
        uses = [use for kind, _, use in found if kind == resource]
        busy = [use["busy_percent"] for use in uses if use["busy_percent"] is not None]
        full = [use for use in uses if use["used_bytes"] is not None and use["total_bytes"]]
        words = f"{len(uses)} {resource}"
        if busy:
            words += f" {min(busy)}-{max(busy)}% busy"
        if full:
            most = max(full, key=lambda use: use["used_bytes"] / use["total_bytes"])
            words += f"{',' if busy else ''} at most {most['used_bytes'] / _GIB:.3g} of {most['total_bytes'] / _GIB:.3g} GiB"
        parts.append(words)
    return "; ".join(parts)
