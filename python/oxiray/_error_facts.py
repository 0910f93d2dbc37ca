"""What errors carry: the story of an actor's death, the reason a value stays lost, ids as text.

Purpose: keep `exceptions` a list of classes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True)
class ActorDiedErrorContext:
    """What is known of an actor's death."""

    error_message: str = ""
    actor_id: str | None = None
    class_name: str = ""
    name: str = ""
    ray_namespace: str = ""
    node_ip_address: str = ""
    node_id: str = ""
    pid: int = 0
    owner_ip_address: str = ""
    never_started: bool = False
    preempted: bool = False


def describe_death(headline: str, context: ActorDiedErrorContext) -> str:
    """The death as several lines, the headline first."""
    lines = [headline]
    rows = (
        ("class_name", context.class_name),
        ("actor_id", context.actor_id),
        ("pid", context.pid),
        ("name", context.name),
        ("namespace", context.ray_namespace),
        ("ip", context.node_ip_address),
        ("node_id", context.node_id),
    )
    lines += [f"\t{label}: {value}" for label, value in rows if value]
    if context.error_message:
        lines.append(context.error_message)
    if context.never_started and "never ran" not in context.error_message:
        lines.append("The actor never ran: it died before its process could start.")
    return "\n".join(lines)


class ErrorType(enum.IntEnum):
    """Why a lost value could not be made again (the numbers are Ray's)."""

    OBJECT_UNRECONSTRUCTABLE_MAX_ATTEMPTS_EXCEEDED = 12
    OBJECT_UNRECONSTRUCTABLE_LINEAGE_EVICTED = 13
    OBJECT_UNRECONSTRUCTABLE_PUT = 27
    OBJECT_UNRECONSTRUCTABLE_RETRIES_DISABLED = 28
    OBJECT_UNRECONSTRUCTABLE_BORROWED = 29
    OBJECT_UNRECONSTRUCTABLE_REF_NOT_FOUND = 30
    OBJECT_UNRECONSTRUCTABLE_TASK_CANCELLED = 31
    OBJECT_UNRECONSTRUCTABLE_LINEAGE_DISABLED = 32


#: Short name of an `ErrorType` -> what it means for the reader.
RECONSTRUCTION_REASONS = {
    "MAX_ATTEMPTS_EXCEEDED": "its task used up `max_retries`; raise it, or look for why the value keeps being lost",
    "LINEAGE_EVICTED": "the record of how it was made was dropped to save memory",
    "PUT": "it was made by `put`, and only a task's result can be computed again",
    "RETRIES_DISABLED": "its task has `max_retries=0`, or its actor `max_task_retries=0`",
    "BORROWED": "the reference came from another process by a way that was not recorded",
    "REF_NOT_FOUND": "nothing is known of the reference any more",
    "TASK_CANCELLED": "its task was cancelled",
    "LINEAGE_DISABLED": "computing lost values again is switched off on this cluster",
}


def as_hex(identity: object) -> str:
    """An id, given as bytes, as text or as an object, in hexadecimal."""
    if isinstance(identity, bytes):
        return identity.hex()
    method = getattr(identity, "hex", None)
    return str(method()) if callable(method) else str(identity)


def optional_hex(identity: object) -> str | None:
    """Like `as_hex`, for an id that may be missing."""
    return None if identity is None else as_hex(identity)
