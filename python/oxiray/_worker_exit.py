"""How an actor ends itself."""

from __future__ import annotations

from typing import NoReturn

from oxiray import _core


def exit_actor() -> NoReturn:
    """Ends the actor whose method calls this: the call returns None, later ones raise `ActorDiedError`.

    Raises `TypeError` outside of actors.
    """
    if not _core.is_connected() or _core.context()["actor_id"] is None:
        raise TypeError("exit_actor() ends the actor that calls it, and this process is no actor: use kill(handle) instead")
    leaving = SystemExit(0)
    leaving.oxiray_exit_actor = True  # type: ignore[attr-defined]
    raise leaving
