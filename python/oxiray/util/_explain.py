"""Why something waits."""

from __future__ import annotations

from typing import Any

from oxiray import _core, _session


def explain(waiting: Any) -> dict[str, Any]:
    """Why a task, an actor or a placement group waits; `waiting` is an `ObjectRef`, a handle, a group, or an identifier.

    The answer holds `kind`, `id`, `name`, `state`, whether it `waits`, the `reason` in words, and `nodes`: for each node
    the first `rule` that fails there (`dead`, `draining`, `affinity`, `labels`, `missing`, `too_small`, `busy`, `together`; `None`
    where it has room) and `why`, with what each device has free. What is not known raises `ValueError`.
    """
    from oxiray.util.state.exception import RayStateApiException  # only asked for here: it loads what lists need

    _session.ensure()
    identifier = _identifier(waiting)
    try:
        told, *_ = _core.look("explain", [("id", False, identifier)], 1, True, False)
    except RayStateApiException as error:
        raise ValueError(str(error)) from None
    answer: dict[str, Any] = told
    return answer


def _identifier(waiting: Any) -> str:
    if isinstance(waiting, str):
        return waiting
    for attribute in ("task_id", "_actor_id", "id"):
        found = getattr(waiting, attribute, None)
        found = found() if callable(found) else found
        if hasattr(found, "hex"):
            return str(found.hex())
    raise TypeError(
        f"{waiting!r} cannot wait for a node: give an ObjectRef, an actor handle, a placement group, or an identifier as text"
    )
