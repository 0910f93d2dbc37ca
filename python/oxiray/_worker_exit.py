"""How a worker ends: at the wish of its code, with what its actor has to do then."""

from __future__ import annotations

import gc
import sys
from typing import Any, NoReturn

from oxiray import _core


def exit_actor() -> NoReturn:
    """Ends the actor whose method calls this: the call returns None, later ones raise `ActorDiedError`.

    Raises `TypeError` outside of actors.
    """
    if not _core.is_connected() or _core.context()["actor_id"] is None:
        raise TypeError("exit_actor API is called on a non-actor worker. It ends the actor that calls it: use ray.kill(handle) elsewhere")
    leaving = SystemExit(0)
    leaving.oxiray_exit_actor = True  # type: ignore[attr-defined]
    raise leaving


def status_of(leaving: SystemExit) -> int:
    """The status that a process has after `leaving`; as Python does, a text goes to standard error."""
    code = leaving.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def end_actor(taken: list[Any]) -> None:
    """Has the actor in `taken`, which nothing of the runtime refers to besides, do what it does at its end.

    `__ray_shutdown__` first, then `__del__`, as far as nothing of its own keeps it alive.
    """
    kind = type(taken[0])
    shutdown = getattr(kind, "__ray_shutdown__", None)
    if callable(shutdown):
        try:
            shutdown(taken[0])
        except BaseException:
            sys.excepthook(*sys.exc_info())
    taken.clear()
    if hasattr(kind, "__del__"):
        gc.collect()
