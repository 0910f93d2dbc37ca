"""Memory by hand: give objects up, collect garbage, see who keeps what."""

from __future__ import annotations

import gc
import shutil
import sys
import textwrap
from typing import Any

from oxiray import _api, _core, _session
from oxiray._core import ObjectRef

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_SORTS = ("OBJECT_SIZE", "PID", "REFERENCE_TYPE")
_GROUPS = ("NODE_ADDRESS", "STACK_TRACE")
#: The most references whose places in the program are asked for.
_ROWS_MAX = 10_000


def free(object_refs: Any, local_only: bool = False) -> None:
    """Gives the memory of these objects back at once, whoever refers to them: reading one raises `ObjectFreedError`.

    Arrays that were read before stay as they are. An object whose value is still to come is left alone. Raises `TypeError`
    for what is no reference, and `NotImplementedError` for `local_only` in a cluster of several machines: copies are given
    up on all of them.
    """
    if isinstance(object_refs, ObjectRef):
        object_refs = [object_refs]
    if not isinstance(object_refs, list):
        raise TypeError(f"free() takes an ObjectRef or a list of them, and was given {type(object_refs)}")
    for reference in object_refs:
        if not isinstance(reference, ObjectRef):
            raise TypeError(f"free() takes ObjectRefs, and one of them is {type(reference)}")
    _session.ensure()
    if local_only and sum(node.get("alive", True) for node in _api.describe_nodes()) > 1:
        raise NotImplementedError(
            "free(local_only=True) would give up the copies of one machine alone, and Oxiray gives objects up on all: leave it out"
        )
    if object_refs:
        _core.free(object_refs)


def memory_summary(
    address: str | None = None,
    group_by: str = "NODE_ADDRESS",
    sort_by: str = "OBJECT_SIZE",
    units: str = "B",
    line_wrap: bool = True,
    stats_only: bool = False,
    num_entries: int | None = None,
) -> str:
    """A text that tells which objects there are, how large, where, and which processes hold them.

    They are grouped by the machine whose store has them, or with `group_by="STACK_TRACE"` by where references to them were
    made, which RAY_record_ref_creation_sites=1 has recorded; `num_entries` are shown of each group. Objects that never left
    the process that made them, and take at most 100 KiB, are only counted. With `line_wrap`, lines that are wider than the
    terminal are wrapped. Raises `ValueError` where this process is connected to another cluster than that at `address`.
    """
    if units not in _UNITS:
        raise ValueError(f"units={units!r}: one of {', '.join(_UNITS)}")
    if sort_by not in _SORTS:
        raise ValueError(f"sort_by={sort_by!r}: one of {', '.join(_SORTS)}")
    if group_by not in _GROUPS:
        raise ValueError(f"group_by={group_by!r}: one of {', '.join(_GROUPS)}")
    _session.ensure_at(address)
    figures = _core.figures()
    store = _core.cluster()["store"]
    summary = _store_figures(store, units) + [
        f"this process: {figures['objects']} objects known, {figures['tasks']} tasks not ended, "
        f"{figures['leases']} workers leased, {figures['task_specs']} tasks kept to be run again "
        f"({_bytes(figures['task_spec_bytes'], units)})"
    ]
    if stats_only:
        return "\n".join(summary) + "\n"
    held, untold = _core.holdings()
    groups = _grouped(held, group_by)
    lines, shown = [], 0
    for name in sorted(groups):
        objects = sorted(groups[name], key=_ORDERS[sort_by])[:num_entries]
        shown += len(objects)
        rows = [("object", "size", "place", "owner", "held by"), *(_row(entry, units) for entry in objects)]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines += [f"{len(groups[name])} {name}"]
        lines += ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[4]]) for row in rows] + [""]
    left_out = len(held) - shown + untold
    text = "\n".join(lines + ([f"... and {left_out} more"] if left_out else []) + [""] + summary) + "\n"
    return _wrapped(text) if line_wrap and sys.stdout.isatty() else text


def _grouped(held: list[dict[str, Any]], group_by: str) -> dict[str, list[dict[str, Any]]]:
    """The objects by what is common to those of a group, in words."""
    groups: dict[str, list[dict[str, Any]]] = {}
    if group_by == "STACK_TRACE":
        rows, _, _ = _core.look("objects", [], _ROWS_MAX, True, False)
        sites = {row["object_id"]: row["call_site"] for row in rows}
        for entry in held:
            site = sites.get(entry["object"], "disabled")
            told = "where that is not recorded (RAY_record_ref_creation_sites=1 has it recorded)" if site == "disabled" else site
            groups.setdefault(f"made at {told}", []).append(entry)
        return groups
    addresses = {node["node_id"]: node["address"] for node in _api.describe_nodes()}
    for entry in held:
        nodes = sorted({addresses.get(node, node) for node in entry.get("nodes", ())})
        groups.setdefault(f"on {', '.join(nodes)}" if nodes else "in no store", []).append(entry)
    return groups


def _wrapped(text: str) -> str:
    width = shutil.get_terminal_size().columns
    wrap = textwrap.TextWrapper(width, subsequent_indent="    ", replace_whitespace=False, drop_whitespace=False)
    return "\n".join("\n".join(wrap.wrap(line)) for line in text.split("\n"))


def _store_figures(store: dict[str, Any], units: str) -> list[str]:
    return [
        f"object store: {store['objects']} objects, {_bytes(store['used'], units)} of "
        f"{_bytes(store['capacity'], units)} in memory, {_bytes(store['spilled'], units)} on disk; "
        f"{store['published']} objects known to more than one process or stored"
    ]


def _bytes(number: int | None, units: str) -> str:
    if number is None:
        return "small"
    return f"{number} B" if units == "B" else f"{number / _UNITS[units]:.3f} {units}"


def _process(process: dict[str, Any] | None) -> str:
    if process is None:
        return "-"
    number = "" if process["pid"] is None else f" {process['pid']}"
    return f"{process['role']}{number}" + (f" ({process['label']})" if process["label"] else "")


def _holders(entry: dict[str, Any]) -> list[str]:
    holders = [f"{_process(holder['process'])} x{holder['count']}" for holder in entry["holders"]]
    return holders + ([f"inside of {entry['containers']} others"] if entry["containers"] else [])


def _row(entry: dict[str, Any], units: str) -> tuple[str, str, str, str, str]:
    return (
        entry["object"],
        _bytes(entry["size"], units),
        entry["place"] or "-",
        _process(entry["owner"]),
        ", ".join(_holders(entry)) or "nobody",
    )


_ORDERS: dict[str, Any] = {
    "OBJECT_SIZE": lambda entry: (-(entry["size"] or 0), entry["object"]),
    "PID": lambda entry: (_process(entry["owner"]), entry["object"]),
    "REFERENCE_TYPE": lambda entry: (entry["place"] or "", entry["object"]),
}


def get_local_ongoing_lineage_reconstruction_tasks() -> list[tuple[Any, int]]:
    """The tasks that run again to make lost objects, which are not told apart from others here: an empty list."""
    return []


def get_state_from_address(address: str | None = None) -> Any:
    """What is known of the cluster at `address`, which this process connects to where it is not; as `ray._private.state.state`.

    Raises `ValueError` where it is connected to another.
    """
    from oxiray._private import state

    _session.ensure_at(address)
    return state.state


def get_memory_info_reply(state: Any, *_: Any, **__: Any) -> Any:
    """Raises `NotImplementedError`: how much was spilled and read back over a cluster's life is not counted."""
    raise NotImplementedError("how much was spilled since the cluster began is not counted: `oxiray memory` shows what lies on disk now")


def global_gc() -> None:
    """Collects garbage in this process and in every worker, so that references in cycles of objects are given back.

    Does not wait for the workers: each does it before its next call, or at once where it has none. Other drivers are
    left alone.
    """
    _session.ensure()
    _core.collect_garbage()
    gc.collect()
