"""Emptying nodes ahead of their end, such as spot machines that were given notice: as `oxiray drain` does. Oxiray's own.

While a node is drained, nothing new is placed there; placement groups' bundles and objects move; what runs may end by
itself until the deadline. Then the node ends, and tasks and actors go on elsewhere without a retry or restart being
used up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oxiray import _core, _session

__all__ = ["Draining", "drain_node", "draining", "keep_node"]


@dataclass(frozen=True)
class Draining:
    """The node of this process is being drained."""

    #: Seconds until it ends at the latest; None where it ends when nothing is left there.
    deadline_s: float | None
    #: Why, as whoever drains it said.
    reason: str


def drain_node(node: str, *, deadline_s: float | None = None, reason: str = "", only_if_idle: bool = False) -> dict[str, int]:
    """Drains a node, named by its id, its name or its address; returns what is still there, by kind.

    Without `deadline_s` it ends when nothing is left there. Asking again sets another deadline. Raises `ValueError` for
    a deadline that is none, and where there is no such node, it is the head's, or it is not idle and `only_if_idle` is set.
    """
    if deadline_s is not None and not 0 <= deadline_s < 1e9:
        raise ValueError(f"deadline_s is {deadline_s!r}; it is a number of seconds from now, such as 120")
    left: dict[str, int] = _ask(node, deadline_s, reason, only_if_idle, False)["left"]
    return left


def keep_node(node: str) -> None:
    """Ends the draining of a node that has not ended. What moved meanwhile stays where it is."""
    _ask(node, None, "", False, True)


def _ask(*asked: Any) -> Any:
    from oxiray.util.state.exception import RayStateApiException  # only asked for here: it loads what lists need

    _session.ensure()
    try:
        return _core.drain(*asked)
    except RayStateApiException as error:
        raise ValueError(str(error)) from None


def draining() -> Draining | None:
    """How the node of this process is being drained; None where it is not. Cheap enough to ask in every step of a loop."""
    told = _core.draining()
    return None if told is None else Draining(*told)
